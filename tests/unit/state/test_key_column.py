"""Keys by slot: what a rejected tick has written is gone with it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.state.slots import Slots
from twin.tick import end_tick

TEXT = pa.large_string()


def test_keys_of_rejected_ticks_take_no_memory() -> None:
    slots = Slots([TEXT])
    first = slots.resolve([pa.array([f"there {n}" for n in range(100)], TEXT)])
    end_tick(slots)
    before = slots.memory()
    for tick in range(50):
        slots.resolve([pa.array([f"rejected {tick} {n}" for n in range(1_000)], TEXT)])
        slots.rollback()
        slots.maintain(32)
    assert slots.memory() == before
    assert slots.keys(first.touched)[0].to_pylist()[:2] == [
        slots.keys(first.touched[:1])[0][0].as_py(),
        slots.keys(first.touched[1:2])[0][0].as_py(),
    ]


@pytest.mark.parametrize("kind", [pa.int64(), TEXT, pa.list_(pa.int64())])
def test_a_null_of_a_rejected_tick_is_not_seen_again(kind: pa.DataType) -> None:
    values = {pa.int64(): 5, TEXT: "five"}.get(kind, [5])
    slots = Slots([kind])
    slots.resolve([pa.array([None], kind)])
    slots.rollback()
    there = slots.resolve([pa.array([values], kind)])
    end_tick(slots)
    slots.resolve([pa.array([None], kind)])
    end_tick(slots)
    assert slots.keys(there.touched)[0].to_pylist() == [values]
    assert slots.find([pa.array([values], kind)]).tolist() == there.touched.tolist()
    assert (slots.find([pa.array([None], kind)]) != there.touched).all()
    assert np.array_equal(np.sort(slots.live()), np.arange(2))
