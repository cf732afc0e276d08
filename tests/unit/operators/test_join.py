"""Joins by example: what the laws do not say aloud."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.operators.base import Operator
from penstock.operators.join import Join
from penstock.operators.semijoin import NotIn, SemiJoin, not_in
from penstock.state import spine
from penstock.state.arrangement import Arrangement
from twin.rows import Row, delta_of, multiset
from twin.tick import end_tick

TICK = Tick(1, 0)
TYPES = (pa.int64(), pa.large_string())


def side(keys: tuple[int, ...] = (0,)) -> Arrangement:
    return Arrangement(TYPES, keys)


def tick(
    operator: Operator,
    left: Arrangement,
    right: Arrangement,
    left_rows: Sequence[tuple[Row, int]] = (),
    right_rows: Sequence[tuple[Row, int]] = (),
) -> Delta:
    deltas = [delta_of(rows, TYPES) for rows in (left_rows, right_rows)]
    for arrangement, delta in zip((left, right), deltas, strict=True):
        arrangement.apply(delta)
    result = operator.step(deltas, TICK)
    for part in (left, right, operator):
        end_tick(part)
    return result


def test_weights_multiply() -> None:
    left, right = side(), side()
    operator = Join("inner", left, right)
    assert multiset(tick(operator, left, right, [((1, "a"), 2)], [((1, "x"), 3)])) == {(1, "a", 1, "x"): 6}
    assert multiset(tick(operator, left, right, [((1, "a"), -1)])) == {(1, "a", 1, "x"): -3}
    assert multiset(tick(operator, left, right, [((1, "a"), -1)], [((1, "x"), -3)])) == {(1, "a", 1, "x"): -3}
    assert operator.memory() == 0


def test_null_keys_match_only_when_null_safe() -> None:
    for null_safe, expected in ((False, {}), (True, {(None, "a", None, "x"): 1})):
        left, right = side(), side()
        operator = Join("inner", left, right, null_safe=[null_safe])
        assert multiset(tick(operator, left, right, [((None, "a"), 1)], [((None, "x"), 1)])) == expected


def test_an_outer_row_loses_and_regains_its_padding() -> None:
    left, right = side(), side()
    operator = Join("left", left, right)
    padded, joined = (1, "a", None, None), (1, "a", 1, "x")
    assert multiset(tick(operator, left, right, [((1, "a"), 1)])) == {padded: 1}
    assert multiset(tick(operator, left, right, (), [((1, "x"), 2)])) == {padded: -1, joined: 2}
    assert multiset(tick(operator, left, right, (), [((1, "x"), -1)])) == {joined: -1}
    assert multiset(tick(operator, left, right, (), [((1, "x"), -1)])) == {joined: -1, padded: 1}


def test_a_full_join_keeps_what_finds_nothing_on_both_sides() -> None:
    left, right = side(), side()
    operator = Join("full", left, right)
    delta = tick(operator, left, right, [((1, "a"), 1), ((None, "n"), 1)], [((2, "x"), 1), ((None, "m"), 1)])
    assert multiset(delta) == {
        (1, "a", None, None): 1,
        (None, "n", None, None): 1,
        (None, None, 2, "x"): 1,
        (None, None, None, "m"): 1,
    }


def test_joins_without_keys_pair_everything() -> None:
    left, right = side(()), side(())
    operator = Join("inner", left, right)
    delta = tick(operator, left, right, [((1, "a"), 1), ((2, "b"), 1)], [((3, "x"), 1), ((None, "y"), 1)])
    assert len(multiset(delta)) == 4
    assert multiset(tick(operator, left, right, (), [((3, "x"), -1)])) == {
        (1, "a", 3, "x"): -1,
        (2, "b", 3, "x"): -1,
    }


def test_many_pairs_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spine, "_PAIRS", 7)
    seen: list[int] = []

    def condition(columns: Sequence[pa.Array], tick: Tick) -> pa.Array:
        seen.append(len(columns[0]))
        return pc.less(columns[0], columns[2])

    left, right = side(()), side(())
    operator = Join("inner", left, right, residual=condition)
    rows = [((at, "r"), 1) for at in range(20)]
    delta = tick(operator, left, right, rows, rows)
    assert max(seen) <= 7
    assert multiset(delta) == {(a, "r", b, "r"): 1 for a, b in product(range(20), repeat=2) if a < b}
    keyed_left, keyed_right = side((1,)), side((1,))
    keyed = Join("inner", keyed_left, keyed_right)
    several = [((at, str(at % 4)), 1) for at in range(20)]
    assert len(multiset(tick(keyed, keyed_left, keyed_right, several, several))) == 4 * 25


def test_a_residual_condition_that_is_null_does_not_match() -> None:
    left, right = side(), side()
    operator = Join("left", left, right, residual=lambda columns, tick: pc.equal(columns[1], columns[3]))
    delta = tick(operator, left, right, [((1, None), 1), ((1, "x"), 1)], [((1, None), 1), ((1, "x"), 1)])
    assert multiset(delta) == {(1, None, None, None): 1, (1, "x", 1, "x"): 1}


def test_semi_rows_appear_once_however_many_match() -> None:
    left, right = side(), side()
    operator = SemiJoin("semi", left, right)
    assert multiset(tick(operator, left, right, [((1, "a"), 2)], [((1, "x"), 3), ((1, "y"), 1)])) == {
        (1, "a"): 2
    }
    assert multiset(tick(operator, left, right, (), [((1, "x"), -3)])) == {}
    assert multiset(tick(operator, left, right, (), [((1, "y"), -1)])) == {(1, "a"): -2}


def test_not_in_by_example() -> None:
    left, right = side(), side()
    operator = not_in(left, right)
    assert isinstance(operator, NotIn)
    rows: list[tuple[Row, int]] = [((1, "a"), 1), ((2, "b"), 1), ((None, "n"), 1)]
    # Nothing on the right: everything passes, NULL too.
    assert multiset(tick(operator, left, right, rows)) == {row: 1 for row, _ in rows}
    # A value on the right: its equals go, and NULL is unknown.
    assert multiset(tick(operator, left, right, (), [((1, "x"), 1)])) == {(1, "a"): -1, (None, "n"): -1}
    # A NULL on the right: everything is unknown.
    assert multiset(tick(operator, left, right, [((3, "c"), 1)], [((None, "x"), 1)])) == {(2, "b"): -1}
    assert multiset(tick(operator, left, right, [((4, "d"), 1)])) == {}
    # The NULL goes: values that are not there come back.
    expected = {(2, "b"): 1, (3, "c"): 1, (4, "d"): 1}
    assert multiset(tick(operator, left, right, (), [((None, "x"), -1)])) == expected
    assert multiset(tick(operator, left, right, (), [((2, "x"), 1)])) == {(2, "b"): -1}
    # Empty again.
    emptied = multiset(tick(operator, left, right, (), [((1, "x"), -1), ((2, "x"), -1)]))
    assert emptied == {(1, "a"): 1, (2, "b"): 1, (None, "n"): 1}
    assert multiset(tick(operator, left, right, [((None, "z"), 1)])) == {(None, "z"): 1}


def test_correlated_not_in_looks_only_at_its_own_rows() -> None:
    left, right = side(), side()
    operator = not_in(left, right, residual=lambda columns, tick: pc.equal(columns[1], columns[3]))
    delta = tick(operator, left, right, [((None, "a"), 1), ((None, "b"), 1), ((1, "b"), 1)], [((2, "b"), 1)])
    assert multiset(delta) == {(None, "a"): 1, (1, "b"): 1}
    assert multiset(tick(operator, left, right, (), [((None, "a"), 1)])) == {(None, "a"): -1}


def test_a_key_that_comes_and_goes_in_one_tick_touches_nothing() -> None:
    left, right = side(), side()
    operator = SemiJoin("anti", left, right)
    tick(operator, left, right, [((1, "a"), 1)])
    assert len(tick(operator, left, right, (), [((1, "x"), 1), ((1, "y"), -1)])) == 0
