"""Operators on one row at a time, constant rows and scalar subqueries."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.data.delta import Delta, empty
from penstock.data.tick import Tick
from penstock.errors import DataError
from penstock.operators.linear import Expand, Filter, Generate, Project, Union, Values
from penstock.operators.single import Single
from twin.rows import delta_of, multiset
from twin.tick import end_tick

TICK = Tick(1, 1_000_000)
NUMBERS = [pa.int64(), pa.int64()]


def numbers(*rows: tuple[tuple[int | None, int | None], int]) -> Delta:
    return delta_of(rows, NUMBERS)


def column(index: int) -> Callable[..., pa.Array]:
    return lambda columns, rows, tick: columns[index]


def test_only_true_passes_a_filter() -> None:
    condition = lambda columns, rows, tick: pc.greater(columns[0], columns[1])  # noqa: E731
    operator = Filter(condition)
    delta = numbers(((2, 1), 3), ((1, 2), 1), ((None, 1), 1), ((5, 0), -1))
    assert multiset(operator.step([delta], TICK)) == {(2, 1): 3, (5, 0): -1}
    everything = numbers(((2, 1), 1))
    assert operator.step([everything], TICK) is everything
    assert len(operator.step([numbers()], TICK)) == 0
    assert operator.step([numbers(((0, 1), 1))], TICK).columns[0].type == pa.int64()
    end_tick(operator)
    operator.rollback()
    assert operator.memory() == 0


def test_filters_read_sliced_masks() -> None:
    mask = pa.array([True, True, None, False, True]).slice(1)
    delta = numbers(*(((at, at), 1) for at in range(4)))
    assert multiset(Filter(lambda *_: mask).step([delta], TICK)) == {(0, 0): 1, (3, 3): 1}


def test_expressions_know_the_tick() -> None:
    def now(columns: Sequence[pa.Array], rows: int, tick: Tick) -> pa.Array:
        return pa.array([tick.micros] * rows, pa.int64())

    delta = numbers(((2, 1), 3), ((1, None), -1))
    assert multiset(Project([column(1), now]).step([delta], TICK)) == {
        (1, 1_000_000): 3,
        (None, 1_000_000): -1,
    }
    assert multiset(Project([]).step([delta], TICK)) == {(): 2}


def test_a_union_adds_up() -> None:
    delta = Union().step([numbers(((1, 1), 2)), numbers(), numbers(((1, 1), -1), ((2, 2), 1))], TICK)
    assert multiset(delta) == {(1, 1): 1, (2, 2): 1}
    assert len(Union().step([numbers(), numbers()], TICK)) == 0


def test_expand_repeats_rows_per_projection() -> None:
    null = lambda columns, rows, tick: pa.nulls(rows, pa.int64())  # noqa: E731
    delta = Expand([[column(0), column(1)], [column(0), null]]).step([numbers(((1, 2), 5))], TICK)
    assert multiset(delta) == {(1, 2): 5, (1, None): 5}


def test_generate_joins_parents_and_generated_rows() -> None:
    def explode(columns: Sequence[pa.Array], rows: int, tick: Tick) -> tuple[np.ndarray, list[pa.Array]]:
        counts = columns[1].to_numpy()
        return np.repeat(np.arange(rows), counts), [
            pa.array([at for n in counts for at in range(n)], pa.int64())
        ]

    delta = Generate(explode, [0]).step([numbers(((7, 2), 1), ((8, 0), 1), ((9, 1), -3))], TICK)
    assert multiset(delta) == {(7, 0): 1, (7, 1): 1, (9, 0): -3}


def test_constant_rows_are_given_once() -> None:
    operator = Values(numbers(((1, 2), 1), ((1, 2), 1)))
    first = operator.initial(TICK)
    assert first is not None
    assert multiset(first) == {(1, 2): 2}
    assert len(operator.step([], TICK)) == 0


def test_filters_give_nothing_at_registration() -> None:
    assert Filter(column(0)).initial(TICK) is None


def test_a_single_row_is_null_until_there_is_one() -> None:
    operator = Single(NUMBERS)
    first = operator.initial(TICK)
    assert first is not None
    assert multiset(first) == {(None, None): 1}
    assert len(operator.step([numbers()], TICK)) == 0
    end_tick(operator)
    assert multiset(operator.step([numbers(((1, 2), 1))], TICK)) == {(None, None): -1, (1, 2): 1}
    end_tick(operator)
    assert multiset(operator.step([numbers(((1, 3), 1), ((1, 2), -1))], TICK)) == {(1, 2): -1, (1, 3): 1}
    operator.rollback()
    assert multiset(operator.step([numbers(((1, 2), -1))], TICK)) == {(1, 2): -1, (None, None): 1}
    end_tick(operator)
    assert operator.memory() >= 0


def test_a_second_row_rejects_the_tick() -> None:
    operator = Single(NUMBERS)
    operator.step([numbers(((1, 2), 1))], TICK)
    end_tick(operator)
    for second in (((1, 2), 1), ((3, 4), 1)):
        with pytest.raises(DataError, match="2 rows") as caught:
            operator.step([numbers(second)], TICK)
        assert caught.value.code == "DATA_SCALAR_SUBQUERY"
        operator.rollback()
    assert len(operator.step([empty(NUMBERS)], TICK)) == 0


def test_a_single_row_of_nulls_is_a_row() -> None:
    operator = Single(NUMBERS)
    assert len(operator.step([numbers(((None, None), 1))], TICK)) == 0
    end_tick(operator)
    with pytest.raises(DataError):
        operator.step([numbers(((1, 1), 1))], TICK)
