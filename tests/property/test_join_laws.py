"""Joins of every kind: after every tick the sum of the deltas is the join of the sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.delta import Delta, empty
from penstock.data.tick import Tick
from penstock.operators.arrange import Arrange
from penstock.operators.base import Operator
from penstock.operators.join import Join
from penstock.operators.semijoin import SemiJoin, not_in
from penstock.state.arrangement import Arrangement
from twin.collisions import weakened
from twin.join import equal_or_unknown, join, matches
from twin.rows import (
    MASKS,
    Multiset,
    Row,
    add,
    deltas,
    examples,
    histories,
    multiset,
    pairs,
    small_state,
    types_of,
)
from twin.tick import end_tick

TICK = Tick(1, 0)
LEFT, RIGHT = ("bigint", "double", "string"), ("double", "bigint")
OUTER = ("inner", "left", "right", "full")
KINDS = (*OUTER, "semi", "anti")
# (left keys, right keys, NULL-safe)
KEYS: list[tuple[tuple[int, ...], tuple[int, ...], tuple[bool, ...]]] = [
    ((0,), (1,), (False,)),
    ((1,), (0,), (True,)),
    ((0, 1), (1, 0), (False, True)),
    ((), (), ()),
]


def less(columns: Sequence[pa.Array], tick: Tick) -> pa.Array:
    """left.bigint < right.bigint"""
    return pc.less(columns[0], columns[len(LEFT) + 1])


def naive_less(left: Row, right: Row) -> bool | None:
    return None if left[0] is None or right[1] is None else left[0] < right[1]


class Rig:
    """Two arrangements and the operator that joins them, stepped as a circuit steps them."""

    def __init__(self, left: Arrangement, right: Arrangement, make: Callable[[], Operator]) -> None:
        self.arranged = [Arrange(left)] if left is right else [Arrange(left), Arrange(right)]
        self.operator = make()
        self.total: Multiset = {}

    def step(self, inputs: Sequence[Delta]) -> Delta:
        for arrange, delta in zip(self.arranged, inputs, strict=False):
            arrange.step([delta], TICK)
        return self.operator.step(inputs, TICK)

    def commit(self, delta: Delta) -> None:
        for part in (*self.arranged, self.operator):
            end_tick(part)
        self.total = add(self.total.items(), pairs(delta))

    def rollback(self) -> None:
        for part in (*self.arranged, self.operator):
            part.rollback()


def make_operator(
    kind: Any, left: Arrangement, right: Arrangement, null_safe: Sequence[bool], residual: Any
) -> Operator:
    if kind in OUTER:
        return Join(kind, left, right, null_safe=null_safe, residual=residual)
    return SemiJoin(kind, left, right, null_safe=null_safe, residual=residual)


def run(data: st.DataObject, rig: Rig, naive: Callable[[Multiset, Multiset], Multiset]) -> None:
    lefts = data.draw(histories(LEFT, ticks=4, most=5), label="left")
    rights = data.draw(histories(RIGHT, ticks=4, most=5), label="right")
    left_total: Multiset = {}
    right_total: Multiset = {}
    for at in range(max(len(lefts), len(rights))):
        left = lefts[at] if at < len(lefts) else empty(types_of(LEFT))
        right = rights[at] if at < len(rights) else empty(types_of(RIGHT))
        if data.draw(st.booleans(), label="fails first"):
            rig.step([data.draw(deltas(LEFT, most=4)), data.draw(deltas(RIGHT, most=4))])
            rig.rollback()
        rig.commit(rig.step([left, right]))
        left_total = add(left_total.items(), pairs(left))
        right_total = add(right_total.items(), pairs(right))
        assert rig.total == naive(left_total, right_total)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@examples(20)
@given(data=st.data(), mask=st.sampled_from(MASKS), keys=st.sampled_from(KEYS))
def test_the_sum_of_deltas_is_the_join_of_sums(
    data: st.DataObject, mask: int, keys: Any, kind: str, residual: bool
) -> None:
    left_keys, right_keys, null_safe = keys
    pairs_of_keys = list(zip(left_keys, right_keys, strict=True))

    def match(a: Row, b: Row) -> bool:
        return matches(a, b, pairs_of_keys, null_safe, naive_less if residual else None)

    with weakened(mask), small_state():
        left, right = Arrangement(types_of(LEFT), left_keys), Arrangement(types_of(RIGHT), right_keys)
        rig = Rig(
            left, right, lambda: make_operator(kind, left, right, null_safe, less if residual else None)
        )
        run(data, rig, lambda a, b: join(kind, a, b, (len(LEFT), len(RIGHT)), match))


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("keys", [((1,), (0,)), ((0,), (1,)), ((0, 1), (1, 0))])
@examples(20)
@given(data=st.data(), mask=st.sampled_from(MASKS))
def test_not_in_follows_three_valued_logic(data: st.DataObject, mask: int, keys: Any, residual: bool) -> None:
    left_keys, right_keys = keys
    pairs_of_keys = list(zip(left_keys, right_keys, strict=True))

    def match(a: Row, b: Row) -> bool:
        return equal_or_unknown(a, b, pairs_of_keys, naive_less if residual else None)

    with weakened(mask), small_state():
        left, right = Arrangement(types_of(LEFT), left_keys), Arrangement(types_of(RIGHT), right_keys)
        rig = Rig(left, right, lambda: not_in(left, right, residual=less if residual else None))
        run(data, rig, lambda a, b: join("anti", a, b, (len(LEFT), len(RIGHT)), match))


@pytest.mark.parametrize("kind", KINDS)
@examples(12)
@given(data=st.data(), residual=st.booleans())
def test_a_self_join_reads_one_arrangement(data: st.DataObject, kind: str, residual: bool) -> None:
    names = ("bigint", "bigint")

    def differ(columns: Sequence[pa.Array], tick: Tick) -> pa.Array:
        return pc.not_equal(columns[1], columns[3])

    def naive(a: Row, b: Row) -> bool:
        differs = None if a[1] is None or b[1] is None else a[1] != b[1]
        return matches(a, b, [(0, 0)], [False], (lambda x, y: differs) if residual else None)

    with small_state():
        arrangement = Arrangement(types_of(names), (0,))
        rig = Rig(
            arrangement,
            arrangement,
            lambda: make_operator(kind, arrangement, arrangement, (False,), differ if residual else None),
        )
        total: Multiset = {}
        for delta in data.draw(histories(names, ticks=4)):
            rig.commit(rig.step([delta, delta]))
            total = add(total.items(), pairs(delta))
            assert rig.total == join(kind, total, total, (2, 2), naive)


@pytest.mark.parametrize("kind", [*KINDS, "not in"])
@examples(20)
@given(data=st.data(), residual=st.booleans())
def test_a_late_join_starts_with_all_rows(data: st.DataObject, kind: str, residual: bool) -> None:
    """A join over arrangements that have rows already gives the whole join first, also when its first try fails."""
    keys: Literal[0, 1] = 0
    left, right = Arrangement(types_of(LEFT), (keys,)), Arrangement(types_of(RIGHT), (1,))
    left_total: Multiset = {}
    right_total: Multiset = {}
    for delta, side in [(d, left) for d in data.draw(histories(LEFT, ticks=2))] + [
        (d, right) for d in data.draw(histories(RIGHT, ticks=2))
    ]:
        side.apply(delta)
        end_tick(side)
    left_total, right_total = multiset(left.before().rows()), multiset(right.before().rows())
    condition, naive_condition = (less, naive_less) if residual else (None, None)

    def match(a: Row, b: Row) -> bool:
        if kind == "not in":
            return equal_or_unknown(a, b, [(0, 1)], naive_condition)
        return matches(a, b, [(0, 1)], [False], naive_condition)

    def make() -> Operator:
        if kind == "not in":
            return not_in(left, right, residual=condition)
        return make_operator(kind, left, right, (False,), condition)

    rig = Rig(left, right, make)
    naive_kind = "anti" if kind == "not in" else kind
    for attempt in range(2):
        assert rig.operator.initial(TICK) is None
        delta = rig.operator.step([left.before().rows(), right.before().rows()], TICK)
        if attempt == 0:
            rig.rollback()
    rig.commit(delta)
    assert rig.total == join(naive_kind, left_total, right_total, (len(LEFT), len(RIGHT)), match)
    more = data.draw(histories(LEFT, ticks=1))[0]
    rig.commit(rig.step([more, empty(types_of(RIGHT))]))
    left_total = add(left_total.items(), pairs(more))
    assert rig.total == join(naive_kind, left_total, right_total, (len(LEFT), len(RIGHT)), match)
