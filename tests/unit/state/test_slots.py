"""The index from keys to slots against a dictionary."""

from __future__ import annotations

import itertools
import random
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.data.hashing import hash_rows
from penstock.state.limits import LIMITS
from penstock.state.slots import Slots, group_keys
from twin.collisions import weakened
from twin.faults import broken_at
from twin.tick import end_tick

NAN = float("nan")
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int64(), [None, *range(40)]),
    "double": (pa.float64(), [None, NAN, 0.0, -0.0, 1.5, float("inf"), *map(float, range(20))]),
    "bool": (pa.bool_(), [None, True, False]),
    "string": (pa.large_string(), [None, "", *(f"key {n}" for n in range(30))]),
    "array": (pa.list_(pa.int64()), [None, [], [1], [1, None], [2, 3]]),
}


def identity(value: Any, as_rows: bool) -> Any:
    if isinstance(value, float):
        return "nan" if value != value else (str(value) if as_rows else value + 0.0)
    return tuple(value) if isinstance(value, list) else value


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("mask", [3, 0xFFFFFFFFFFFFFFFF])
@pytest.mark.parametrize("as_rows", [False, True])
def test_slots_of_keys_that_come_and_go(name: str, mask: int, as_rows: bool) -> None:
    kind, values = KINDS[name]
    rng = random.Random(1)
    with weakened(mask):
        slots = Slots([kind, pa.int32()], as_rows=as_rows)
        truth: dict[Any, int] = {}
        for _ in range(25):
            rows = [(rng.choice(values), rng.choice([None, 1, 2])) for _ in range(rng.choice([0, 1, 30]))]
            columns = [
                pa.array([row[0] for row in rows], kind),
                pa.array([row[1] for row in rows], pa.int32()),
            ]
            found = slots.resolve(columns, len(rows))
            keys = [(identity(a, as_rows), b) for a, b in rows]
            assert len(set(found.touched.tolist())) == len(found.touched) == len(set(keys))
            seen: dict[Any, int] = {}
            for key, slot in zip(keys, found.slots.tolist(), strict=True):
                assert seen.setdefault(key, slot) == slot
                assert truth.get(key, slot) == slot
            assert not {s for k, s in seen.items() if k not in truth} & set(truth.values())
            shown = [column.to_pylist() for column in slots.keys(found.slots)]
            assert [(identity(a, as_rows), b) for a, b in zip(*shown, strict=True)] == keys
            if rng.random() < 0.3:
                slots.release(found.touched)
                slots.rollback()
            else:
                truth |= seen
                dead = [key for key in seen if rng.random() < 0.4]
                slots.release(np.array([truth.pop(key) for key in dead], np.int64))
                end_tick(slots)
            assert len(slots) == len(truth)
            assert set(slots.live().tolist()) == set(truth.values())
            assert (slots.find(columns, len(rows)) >= 0).tolist() == [key in truth for key in keys]


def test_state_does_not_grow_while_keys_are_replaced() -> None:
    slots = Slots([pa.large_string()])
    previous = np.zeros(0, np.int64)
    sizes = []
    for tick in range(150):
        found = slots.resolve([pa.array([f"{tick}-{n}" for n in range(1000)], pa.large_string())])
        slots.release(previous)
        end_tick(slots)
        previous = found.touched
        sizes.append(slots.memory())
    assert slots.size <= 2000
    assert sizes[-1] <= 1.2 * max(sizes[: len(sizes) // 2])


@pytest.mark.parametrize("table_from", [1_000, 1_000_000])
def test_many_keys_take_the_fast_paths(table_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMITS, "table_from", table_from)
    slots = Slots([pa.int64()])
    everything = slots.resolve([pa.array(np.arange(300_000) % 150_000)])
    end_tick(slots)
    assert len(slots) == len(everything.touched) == 150_000
    some = pa.array(np.array([5, 149_999, 150_000, 7]))
    assert (slots.find([some]) >= 0).tolist() == [True, True, False, True]
    assert slots.keys(slots.find([some.slice(0, 2)]))[0].to_pylist() == [5, 149_999]
    with weakened(0xFFFF):
        crowded = Slots([pa.int64()])
        assert len(crowded.resolve([pa.array(np.arange(20_000))]).touched) == 20_000


@pytest.mark.parametrize("distinct", [1, 300, 7_000, 1_000_000], ids=lambda count: f"{count} keys")
@pytest.mark.parametrize("rows", [100, 20_000])
def test_rows_are_grouped_by_key_however_many_there_are(rows: int, distinct: int) -> None:
    keys = np.random.default_rng(rows + distinct).integers(0, distinct, rows)
    column = pa.array(keys)
    leaders, groups = group_keys([column], hash_rows([column]), as_rows=False)
    assert np.array_equal(keys[leaders][groups], keys)
    assert len(leaders) == len(np.unique(keys))
    first = {key: place for place, key in reversed(list(enumerate(keys.tolist())))}
    assert [first[key] for key in keys[leaders].tolist()] == leaders.tolist()


def test_a_dead_slot_is_not_found_until_it_is_taken_again() -> None:
    slots = Slots([pa.int64()])
    first = slots.resolve([pa.array(np.arange(10))])
    end_tick(slots)
    slots.release(first.touched)
    end_tick(slots)
    assert (slots.find([pa.array(np.arange(10))]) == -1).all()
    again = slots.resolve([pa.array([3, 42])])
    slots.rollback()
    assert (slots.find([pa.array([3, 42])]) == -1).all()
    again = slots.resolve([pa.array([3, 42])])
    end_tick(slots)
    assert (slots.find([pa.array([3, 42, 4])])[:2] == again.slots).all()
    assert slots.find([pa.array([4])])[0] == -1
    assert len(slots) == 2


def test_released_slots_stay_dead_when_maintenance_is_interrupted() -> None:
    for call in itertools.count(1):
        slots = Slots([pa.int64()])
        slots.resolve([pa.array([1, 2, 3])])
        slots.commit()
        slots.release(slots.find([pa.array([2])]))
        slots.commit()
        broken = broken_at(call, partial(slots.maintain, 10))
        assert len(slots.live()) == len(slots) == 2, f"call {call}"
        slots.maintain(10)
        assert len(slots.live()) == len(slots) == 2, f"call {call}, and again"
        if not broken:
            break
    assert call > 5
