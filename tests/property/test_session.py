"""Session windows: after every tick the sum of the deltas is what a loop over all rows gives, and only rows of touched sessions move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.operators.session import SessionWindow
from twin.collisions import weakened
from twin.rows import MASKS, Multiset, Row, add, histories, multiset, pairs, small_state, types_of
from twin.session import session_window
from twin.tick import end_tick

TICK = Tick(1, 0)
KINDS = ("bigint", "bigint", "string", "double")
TYPES = types_of(KINDS)
NO_KEYS: list[int] = []


def row(start: int | None, length: int | None, text: str | None, number: float | None) -> Row:
    return (start, None if start is None or length is None else start + length, text, number)


# Sessions that touch, overlap, hold others, and are apart; the same row often, and some without a time.
ROWS = st.builds(
    row,
    st.integers(0, 40) | st.none(),
    st.sampled_from([0, 1, 2, 3, 3, 3, 12, None]),
    st.sampled_from(["a", "b", None]),
    st.sampled_from([0.0, -0.0, float("nan"), None]),
)


@pytest.mark.parametrize("keys", [(), (2,), (2, 3), (3,)])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_incremental_is_recomputed(keys: tuple[int, ...], data: st.DataObject) -> None:
    ticks = data.draw(histories(KINDS, ticks=6, most=10, rows=ROWS))
    with small_state(), weakened(data.draw(st.sampled_from(MASKS))):
        operator = SessionWindow(TYPES, keys, start=0, end=1)
        total: Multiset = {}
        rows: Multiset = {}
        for delta in ticks:
            operator.step([delta], TICK)
            operator.rollback()
            change = operator.step([delta], TICK)
            end_tick(operator)
            total = add(total.items(), pairs(change))
            rows = add(rows.items(), multiset(delta).items())
            assert total == session_window(rows, keys=keys, start=0, end=1)


def rows_at(times: Any, *, length: int = 10, weight: int = 1) -> Delta:
    starts = np.asarray(times, np.int64)
    columns = (
        pa.array(starts),
        pa.array(starts + length),
        pa.array(["x"] * len(starts), TYPES[2]),
        pa.array(np.zeros(len(starts))),
    )
    return Delta(columns, np.full(len(starts), weight, np.int64))


def moved(operator: SessionWindow, delta: Delta) -> int:
    """The number of rows that a tick gives."""
    change = operator.step([delta], TICK)
    end_tick(operator)
    return len(change)


def test_rows_that_stay_in_a_session_of_the_same_start_are_not_moved() -> None:
    operator = SessionWindow(TYPES, (2,), start=0, end=1)
    # 1,000 sessions of 50 rows.
    starts = (np.arange(1_000)[:, None] * 1_000 + np.arange(50) * 10).ravel()
    assert moved(operator, rows_at(starts)) == 50_000
    assert moved(operator, rows_at([500, 1_500])) == 2, "rows at the end of two sessions"
    assert moved(operator, rows_at([215])) == 1, "a row inside"
    assert moved(operator, rows_at([995])) == 1 + 2 * 51, "one that begins right before the second session"
    assert moved(operator, rows_at([995], weight=-1)) == 1 + 2 * 51
    assert moved(operator, rows_at([510], length=490)) == 1 + 2 * 51, "one that joins the first two sessions"
    assert moved(operator, rows_at([510], length=490, weight=-1)) == 1 + 2 * 51
    assert moved(operator, rows_at([500], weight=-1)) == 1, "the last one leaves, and nothing falls apart"


def test_a_tick_reads_the_touched_sessions_only() -> None:
    operator = SessionWindow(TYPES, (2,), start=0, end=1)
    moved(operator, rows_at((np.arange(1_000)[:, None] * 1_000 + np.arange(50) * 10).ravel()))
    read = []
    between = operator._rows.between

    def counted(*times: Any) -> Any:
        entries = between(*times)
        read.append(len(entries))
        return entries

    operator._rows.between = counted  # type: ignore[method-assign, assignment]  # counts what is read
    moved(operator, rows_at([500, 7_255]))
    assert sum(read) == 0
    moved(operator, rows_at([7_255], weight=-1))
    assert sum(read) == 51


def test_extreme_times() -> None:
    low, high = -(2**63), 2**63 - 1
    operator = SessionWindow(TYPES, NO_KEYS, start=0, end=1)
    total: Multiset = {}
    rows: Multiset = {}
    first = Delta(
        (
            pa.array([low, low, 0, high - 1, high]),
            pa.array([low, low + 1, 0, high, high]),
            pa.array(["x"] * 5, TYPES[2]),
            pa.array([0.0] * 5),
        ),
        np.ones(5, np.int64),
    )
    bridge = Delta(
        (pa.array([low + 1]), pa.array([high - 2]), pa.array(["y"], TYPES[2]), pa.array([0.0])),
        np.ones(1, np.int64),
    )
    for delta in (first, bridge, -first.take(np.array([1])), -bridge, -first.take(np.array([0, 2, 4]))):
        change = operator.step([delta], TICK)
        end_tick(operator)
        total = add(total.items(), pairs(change))
        rows = add(rows.items(), multiset(delta).items())
        assert total == session_window(rows, keys=(), start=0, end=1)
