"""Top-k against its naive twin: sort all rows, cut, after every tick."""

from __future__ import annotations

import math
import random
from collections import Counter
from functools import cmp_to_key
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.errors import PenstockError
from penstock.operators import topk
from penstock.operators.topk import TopK
from penstock.plan.node import SortKey
from twin.collisions import weakened
from twin.rows import delta_of
from twin.tick import end_tick
from twin.view import apply

NAN = math.nan
TICK = Tick(1, 0)
TYPES = (pa.int64(), pa.float64(), pa.large_string(), pa.int32())
POOLS: tuple[list[Any], ...] = (
    [None, 1, 2, 3],
    [None, NAN, 0.0, -0.0, 1.5, -2.5, math.inf],
    [None, "", "a", "the same sixteen bytes 1", "the same sixteen bytes 2", "the same sixteen bytes"],
    [None, *range(8)],
)


def plain(value: Any) -> Any:
    if isinstance(value, float):
        return (1, 0.0) if value != value else (0, value)
    return value.encode() if isinstance(value, str) else value


def compare_rows(order: tuple[SortKey, ...]) -> Any:
    def compare(left: tuple[Any, ...], right: tuple[Any, ...]) -> int:
        for key in (*order, *(SortKey(index) for index in range(len(TYPES)))):
            a, b = left[key.column], right[key.column]
            if a is None or b is None:
                found = (b is None) - (a is None)
                found = found if key.nulls_first else -found
            else:
                found = (plain(a) > plain(b)) - (plain(a) < plain(b))
                found = -found if key.descending else found
            if found:
                return found
        # Equal to Spark, but not the same bits.
        signs = [math.copysign(1, 0.0 if row[1] is None else row[1]) for row in (left, right)]
        return int(signs[0] - signs[1])

    return cmp_to_key(compare)


def twin(
    rows: list[tuple[Any, ...]],
    partition: tuple[int, ...],
    order: tuple[SortKey, ...],
    bounds: tuple[int | None, int],
    rank: bool,
) -> Counter[str]:
    limit, offset = bounds
    groups: dict[Any, list[tuple[Any, ...]]] = {}
    for row in rows:
        groups.setdefault(tuple(plain(row[key]) for key in partition), []).append(row)
    result: Counter[str] = Counter()
    for members in groups.values():
        ranked = sorted(members, key=compare_rows(order))
        for place, row in enumerate(ranked):
            if offset <= place and (limit is None or place < offset + limit):
                result[repr((*row, place + 1) if rank else row)] += 1
    return result


ORDERS = (
    (),
    (SortKey(1, True, False),),
    (SortKey(2, False, True),),
    (SortKey(3, True, True), SortKey(2, True, False)),
)


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("partition", [(), (0,), (1, 0)])
@pytest.mark.parametrize("bounds", [(3, 0), (2, 2), (None, 1), (0, 0), (100, 0)])
@pytest.mark.parametrize("rank", [False, True])
def test_top_rows_follow_their_twin(
    order: tuple[SortKey, ...], partition: tuple[int, ...], bounds: tuple[int | None, int], rank: bool
) -> None:
    rng = random.Random(f"{order}{partition}{bounds}")
    with weakened(rng.choice([3, 0xFFFFFFFFFFFFFFFF])):
        operator = TopK(TYPES, partition, order, bounds[0], offset=bounds[1], rank_field=rank)
        rows: list[tuple[Any, ...]] = []
        view: Counter[str] = Counter()
        for _ in range(8):
            after, changes = list(rows), []
            for _ in range(rng.choice([0, 1, 4, 15])):
                if after and rng.random() < 0.55:
                    # Mostly the top rows go.
                    after.sort(key=compare_rows(order))
                    changes.append((after.pop(0 if rng.random() < 0.5 else rng.randrange(len(after))), -1))
                else:
                    row = tuple(rng.choice(pool) for pool in POOLS)
                    times = rng.choice([1, 1, 3])
                    after += [row] * times
                    changes.append((row, times))
            rng.shuffle(changes)
            if rng.random() < 0.3:
                operator.step([delta_of(changes, TYPES)], TICK)
                operator.rollback()
            apply(view, operator.step([delta_of(changes, TYPES)], TICK))
            end_tick(operator)
            rows = after
            expected = twin(rows, partition, order, bounds, rank)
            assert view == expected
            contents: Counter[str] = Counter()
            apply(contents, operator.contents())
            assert contents == expected


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("limit", [1, 3, 32, 33])
@pytest.mark.parametrize("offset", [0, 2])
def test_rows_come_and_go_around_the_last_place(
    limit: int, offset: int, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(topk, "_LARGE", 1)
    order, partition, bounds = (SortKey(3, True, False),), (0,), (limit, offset)
    rng = random.Random(f"{limit}{offset}")
    operator = TopK(TYPES, partition, order, limit, offset=offset, rank_field=True)
    rows: list[tuple[Any, ...]] = []
    view: Counter[str] = Counter()
    for round_ in range(80):
        after, changes = list(rows), []
        members = sorted((row for row in after if row[0] == 1), key=compare_rows(order))
        if round_ % 20 == 19:
            # A partition is emptied; another may get its place.
            changes = [(row, -1) for row in members]
        elif members and rng.random() < 0.6:
            near = min(max(offset + limit + rng.choice([-2, -1, 0, 1]), 0), len(members) - 1)
            changes.append((members[near], -1))
        for _ in range(rng.choice([0, 1, 3])):
            changes.append(
                ((rng.choice([1, 1, 1, 2]), rng.choice([0.0, -0.0, 1.5]), "a", rng.randrange(6)), 1)
            )
        for row, weight in changes:
            if weight > 0:
                after.append(row)
            else:
                del after[next(at for at, other in enumerate(after) if repr(other) == repr(row))]
        if rng.random() < 0.3:
            operator.step([delta_of(changes, TYPES)], TICK)
            operator.rollback()
        apply(view, operator.step([delta_of(changes, TYPES)], TICK))
        end_tick(operator)
        rows = after
        assert view == twin(rows, partition, order, bounds, True)


def test_a_retraction_of_nothing_is_refused() -> None:
    operator = TopK(TYPES, (), (), 3)
    with pytest.raises(PenstockError):
        operator.step([delta_of([((1, 1.0, "a", 1), -1)], TYPES)], TICK)
    operator.rollback()
    assert len(operator.contents()) == 0


def test_the_top_of_many_rows_is_deleted_again_and_again() -> None:
    operator = TopK([pa.int64()], (), (SortKey(0),), 10)
    operator.step([Delta((pa.array(np.arange(100_000)),), np.ones(100_000, np.int64))], TICK)
    end_tick(operator)
    for at in range(0, 20_000, 500):
        out = operator.step([Delta((pa.array(np.arange(at, at + 500)),), np.full(500, -1))], TICK)
        assert sorted(out.columns[0].to_pylist()) == [*range(at, at + 10), *range(at + 500, at + 510)]
        end_tick(operator)
    # A row that comes first and goes again does not uncover the dead ones.
    for weight in (1, -1):
        operator.step([Delta((pa.array([-5]),), np.array([weight]))], TICK)
        end_tick(operator)
    assert sorted(operator.contents().columns[0].to_pylist()) == list(range(20_000, 20_010))
