"""Rows enter and leave as time goes by, like a naive twin that looks at all of them in every tick."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.operators.base import Operator
from penstock.operators.temporal import TemporalFilter, Timed
from twin.tick import end_tick

TYPES = (pa.int64(), pa.int64())
HOUR = 10


def _passes(columns: Sequence[pa.Array], rows: int, tick: Tick) -> pa.Array:
    return pc.greater(columns[0], pa.scalar(tick.micros - HOUR))


def _key(columns: Sequence[pa.Array], rows: int, tick: Tick) -> tuple[np.ndarray, np.ndarray]:
    there = ~columns[0].is_null().to_numpy(zero_copy_only=False)
    return pc.fill_null(columns[0], 0).to_numpy(zero_copy_only=False), there


def _filter() -> TemporalFilter:
    return TemporalFilter(TYPES, key=_key, bound=lambda tick: tick.micros - HOUR, passes=_passes)


def _timed() -> Timed:
    def evaluate(rows: Delta, tick: Tick) -> Delta:
        mask = pc.fill_null(_passes(rows.columns, len(rows), tick), False).to_numpy(zero_copy_only=False)
        return rows.take(np.flatnonzero(mask))

    return Timed(TYPES, evaluate)


def _delta(rows: list[tuple[int | None, int, int]]) -> Delta:
    return Delta(
        (pa.array([row[0] for row in rows], pa.int64()), pa.array([row[1] for row in rows], pa.int64())),
        np.array([row[2] for row in rows], np.int64),
    )


def _counted(delta: Delta) -> Counter[tuple[int | None, int]]:
    total: Counter[tuple[int | None, int]] = Counter()
    for ts, value, weight in zip(
        *(column.to_pylist() for column in delta.columns), delta.weights, strict=True
    ):
        total[(ts, value)] += int(weight)
    return total


ROWS = st.lists(st.tuples(st.none() | st.integers(0, 40), st.integers(0, 2), st.integers(-2, 2)), max_size=6)
TICKS = st.lists(st.tuples(ROWS, st.integers(0, 8), st.booleans()), max_size=12)


@pytest.mark.parametrize("make", [_filter, _timed])
@given(ticks=TICKS)
@settings(max_examples=60, deadline=None)
def test_it_is_what_a_look_at_all_rows_gives(
    make: Callable[[], Operator], ticks: list[tuple[list[tuple[int | None, int, int]], int, bool]]
) -> None:
    operator = make()
    present: Counter[tuple[int | None, int]] = Counter()
    output: Counter[tuple[int | None, int]] = Counter()
    micros = 0
    for number, (rows, ahead, fails) in enumerate(ticks):
        delta = _delta(rows)
        change = _counted(operator.step([delta], Tick(number, micros + ahead)))
        if fails:
            operator.rollback()
            continue
        micros += ahead
        end_tick(operator)
        for row, weight in _counted(delta).items():
            present[row] += weight
        for row, weight in change.items():
            output[row] += weight
        expected = {
            row: weight
            for row, weight in present.items()
            if weight and row[0] is not None and row[0] > micros - HOUR
        }
        assert {row: weight for row, weight in output.items() if weight} == expected
