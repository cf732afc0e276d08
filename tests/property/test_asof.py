"""ASOF joins: after every tick the sum of the deltas is the join of the sums, and a tick costs the rows it concerns."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.delta import Delta, empty
from penstock.data.tick import Tick
from penstock.operators.asof import Asof
from penstock.operators.passed_times import Direction
from twin.asof import asof
from twin.collisions import weakened
from twin.rows import MASKS, Multiset, add, histories, multiset, pairs, small_state, types_of
from twin.tick import end_tick

TICK = Tick(1, 0)
# Time first: small integers with NULLs, so that ties, gaps and equal times are common.
SIDE = ("bigint", "bigint", "string")
TYPES = types_of(SIDE)
DIRECTIONS: tuple[Direction, ...] = ("backward", "forward", "nearest")
SHAPES = list(product(DIRECTIONS, (None, 0, 1), (True, False)))


def operator(direction: Direction, tolerance: int | None, outer: bool, keys: tuple[int, ...]) -> Asof:
    return Asof(
        TYPES,
        TYPES,
        left_keys=keys,
        right_keys=keys,
        left_time=0,
        right_time=0,
        direction=direction,
        tolerance=tolerance,
        outer=outer,
    )


@pytest.mark.parametrize(("direction", "tolerance", "outer"), SHAPES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_incremental_is_recomputed(
    direction: Direction, tolerance: int | None, outer: bool, data: st.DataObject
) -> None:
    keys = data.draw(st.sampled_from([(), (1,), (1, 2)]))
    lefts = data.draw(histories(SIDE, ticks=4, most=6), label="left")
    rights = data.draw(histories(SIDE, ticks=4, most=6), label="right")
    options: dict[str, Any] = {
        "keys": [(key, key) for key in keys],
        "times": (0, 0),
        "direction": direction,
        "tolerance": tolerance,
        "outer": outer,
        "width": len(SIDE),
    }
    with small_state(), weakened(data.draw(st.sampled_from(MASKS))):
        made = operator(direction, tolerance, outer, keys)
        total: Multiset = {}
        sums: list[Multiset] = [{}, {}]
        for index in range(max(len(lefts), len(rights))):
            inputs = [side[index] if index < len(side) else empty(TYPES) for side in (lefts, rights)]
            made.step(inputs, TICK)
            made.rollback()
            change = made.step(inputs, TICK)
            end_tick(made)
            total = add(total.items(), pairs(change))
            sums = [add(old.items(), multiset(new).items()) for old, new in zip(sums, inputs, strict=True)]
            assert total == asof(sums[0], sums[1], **options)


def test_a_change_reads_only_the_left_rows_up_to_the_next_right_row() -> None:
    made = operator("backward", None, True, (1,))
    count = 50_000

    def rows(times: Any, weight: int = 1) -> Delta:
        times = np.asarray(times, np.int64)
        columns = (
            pa.array(times),
            pa.array(np.zeros(len(times), np.int64)),
            pa.array(["x"] * len(times), TYPES[2]),
        )
        return Delta(columns, np.full(len(times), weight, np.int64))

    made.step([rows(np.arange(count)), rows(np.arange(0, count, 100))], TICK)
    end_tick(made)
    read = []
    between = made._left.between

    def counted(*given: Any) -> Any:
        found = between(*given)
        read.append(len(found))
        return found

    made._left.between = counted  # type: ignore[method-assign, assignment]  # counts what is read
    change = made.step([empty(TYPES), rows([250])], TICK)
    end_tick(made)
    assert len(change) == 2 * 50
    assert read == [50]
    # A block of deletes is one interval, not one per row.
    change = made.step([empty(TYPES), rows(np.arange(1_000, 11_000, 100), -1)], TICK)
    end_tick(made)
    assert len(change) == 2 * 10_000
    assert read == [50, 10_000]


def test_extreme_times() -> None:
    low, high = -(2**63), 2**63 - 1
    for direction in DIRECTIONS:
        for tolerance in (None, 5, 2**63):
            made = operator(direction, tolerance, True, ())
            times = [low, low + 1, 0, high - 1, high]
            delta = Delta(
                (pa.array(times), pa.array([1] * 5), pa.array(["x"] * 5, TYPES[2])), np.ones(5, np.int64)
            )
            total: Multiset = {}
            sums: list[Multiset] = [{}, {}]
            nothing = empty(TYPES)
            for inputs in (
                [delta, nothing],
                [nothing, delta.take(np.array([0, 4]))],
                [nothing, -delta.take(np.array([4]))],
            ):
                change = made.step(inputs, TICK)
                end_tick(made)
                total = add(total.items(), pairs(change))
                sums = [
                    add(old.items(), multiset(new).items()) for old, new in zip(sums, inputs, strict=True)
                ]
                expected = asof(
                    sums[0],
                    sums[1],
                    keys=[],
                    times=(0, 0),
                    direction=direction,
                    tolerance=tolerance,
                    outer=True,
                    width=3,
                )
                assert total == expected
