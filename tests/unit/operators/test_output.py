"""Materialised views: snapshots, look-ups, and the guard against rows that were never given."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.errors import InternalError
from penstock.operators.output import Output, expanded
from penstock.state.arrangement import Arrangement
from twin.rows import delta_of, multiset
from twin.tick import end_tick

TICK = Tick(1, 0)
TYPES = (pa.int64(), pa.float64())


def output(keys: tuple[int, ...] | None) -> Output:
    result = Output("totals", ("id", "total"), Arrangement(TYPES, keys))
    result.step(
        [delta_of([((1, 0.5), 1), ((2, 1.5), 1), ((2, 1.5), 1), ((3, math.nan), 1), ((9, 9.0), 0)], TYPES)],
        TICK,
    )
    end_tick(result)
    return result


def listed(columns: tuple[pa.Array, ...]) -> list[tuple[object, ...]]:
    return sorted(zip(*(column.to_pylist() for column in columns), strict=True), key=str)


@pytest.mark.parametrize("keys", [None, (0,), (1, 0)])
def test_rows_are_shown_as_often_as_they_are_there(keys: tuple[int, ...] | None) -> None:
    view = output(keys)
    assert [row[0] for row in listed(view.snapshot())] == [1, 2, 2, 3]
    assert multiset(view.rows()) == {(1, 0.5): 1, (2, 1.5): 2, (3, "nan"): 1}
    assert view.memory() > 0


@pytest.mark.parametrize("keys", [None, (0,), (1, 0)])
def test_look_ups_find_rows_by_any_columns(keys: tuple[int, ...] | None) -> None:
    view = output(keys)
    assert listed(view.lookup([0], [pa.array([2, 7])])) == [(2, 1.5), (2, 1.5)]
    assert listed(view.lookup([1], [pa.array([math.nan])]))[0][0] == 3
    assert listed(view.lookup([0, 1], [pa.array([1]), pa.array([0.5])])) == [(1, 0.5)]
    assert listed(view.lookup([1, 0], [pa.array([0.5]), pa.array([2])])) == []
    view.step([delta_of([((1, 0.5), -1)], TYPES)], TICK)
    assert len(view.lookup([0], [pa.array([1])])[0]) == 1
    end_tick(view)
    assert len(view.lookup([0], [pa.array([1])])[0]) == 0


def test_an_empty_view_has_no_rows() -> None:
    view = Output("v", ("id", "total"), Arrangement(TYPES, None))
    assert [len(column) for column in view.snapshot()] == [0, 0]
    assert [len(column) for column in view.lookup([0], [pa.array([1])])] == [0, 0]


def test_the_emitted_delta_is_consolidated() -> None:
    view = output(None)
    delta = view.step([delta_of([((1, 0.5), -1), ((1, 0.5), 1), ((4, 1.0), 1), ((4, 1.0), 1)], TYPES)], TICK)
    assert delta.weights.tolist() == [2]
    view.rollback()
    assert len(view.snapshot()[0]) == 4


@pytest.mark.parametrize("keys", [None, (0,)])
def test_a_row_that_was_never_given_is_our_fault(keys: tuple[int, ...] | None) -> None:
    view = output(keys)
    for wrong in (((2, 1.5), -3), ((7, 1.0), -1), ((1, 0.25), -1)):
        with pytest.raises(InternalError, match=f"id={wrong[0][0]}") as caught:
            view.step([delta_of([wrong], TYPES)], TICK)
        view.rollback()
        assert caught.value.code == "INTERNAL_NEGATIVE_MULTIPLICITY"
    assert len(view.snapshot()[0]) == 4


def test_expansion_repeats_rows() -> None:
    rows = Delta((pa.array(["a", "b"]),), np.array([1, 3]))
    assert expanded(rows)[0].to_pylist() == ["a", "b", "b", "b"]
