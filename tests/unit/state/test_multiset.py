"""Ordered multisets per group against sorted Python lists."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import InternalError
from penstock.plan.node import SortKey
from penstock.state.multiset import Multiset, OrderedRows, OrderedValues
from twin.collisions import weakened
from twin.tick import end_tick

NAN = float("nan")


def number(rng: random.Random) -> tuple[Any, ...]:
    return (rng.choice([NAN, 0.0, -0.0, 1.5, -2.5, float("inf"), float(rng.randrange(200))]),)


def text(rng: random.Random) -> tuple[Any, ...]:
    return (
        rng.choice(["", "a", "a common beginning of "]) + str(rng.randrange(50)),
        rng.choice([None, 1, 2]),
    )


def order(row: tuple[Any, ...]) -> Any:
    value = row[0]
    if isinstance(value, float):
        return (1, 0.0, "") if value != value else (0, value, "" if str(value).startswith("-") else "+")
    return (value.encode(), -1 if row[1] is None else row[1])


CASES: dict[str, tuple[Callable[[], Multiset], list[pa.DataType], Callable[..., Any]]] = {
    "numbers": (lambda: OrderedValues(pa.float64()), [pa.float64()], number),
    "rows": (
        lambda: OrderedRows([pa.large_string(), pa.int64()], [SortKey(0)]),
        [pa.large_string(), pa.int64()],
        text,
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("mask", [7, 0xFFFFFFFFFFFFFFFF])
def test_heads_and_tails_of_groups(case: str, mask: int) -> None:
    make, kinds, draw = CASES[case]
    rng = random.Random(3)
    with weakened(mask):
        multiset: Multiset = make()
        truth: list[list[tuple[Any, ...]]] = [[] for _ in range(6)]
        for _ in range(30):
            before = [sorted(rows, key=order) for rows in truth]
            changes: list[tuple[int, tuple[Any, ...], int]] = []
            after = [list(rows) for rows in truth]
            for _ in range(rng.choice([1, 5, 40])):
                slot = rng.randrange(6)
                if after[slot] and rng.random() < 0.5:
                    row = after[slot].pop(rng.randrange(len(after[slot])))
                    changes.append((slot, row, -1))
                else:
                    row, times = draw(rng), rng.choice([1, 1, 3])
                    after[slot] += [row] * times
                    changes.append((slot, row, times))
            columns = [pa.array([row[i] for _, row, _ in changes], kind) for i, kind in enumerate(kinds)]
            slots = np.array([slot for slot, _, _ in changes])
            multiset.stage(slots, columns, np.array([weight for _, _, weight in changes]))
            after = [sorted(rows, key=order) for rows in after]
            for reverse in (False, True):
                for places in (None, 1, 4):
                    assert_reads(multiset, after, places, reverse, committed=False)
                    assert_reads(multiset, before, places, reverse, committed=True)
            if rng.random() < 0.3:
                multiset.rollback()
            else:
                end_tick(multiset)
                truth = after
            assert_reads(multiset, truth, None, False, committed=False)


def assert_reads(
    multiset: Multiset, truth: list[list[Any]], places: int | None, reverse: bool, committed: bool
) -> None:
    asked = np.array([4, 0, 5, 1, 3])
    found = multiset.read(asked, places, reverse=reverse, committed=committed)
    rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    for index, slot in enumerate(asked.tolist()):
        got = [
            row
            for row, group, count in zip(rows, found.groups, found.counts, strict=True)
            if group == index
            for _ in range(count)
        ]
        expected = truth[slot][::-1] if reverse else truth[slot]
        assert len(got) >= min(places or len(expected), len(expected))
        assert repr(got) == repr(expected[: len(got)])


def test_a_deleted_head_is_not_read_again() -> None:
    multiset = OrderedValues(pa.int64())
    everyone = np.zeros(200_000, np.int64)
    multiset.stage(everyone, [pa.array(np.arange(200_000))], np.ones(200_000, np.int64))
    end_tick(multiset)
    for at in range(0, 50_000, 1000):
        gone = np.arange(at, at + 1000)
        multiset.stage(everyone[:1000], [pa.array(gone)], np.full(1000, -1))
        start = (np.array([at ^ (1 << 63)], np.uint64),)
        assert multiset.read(everyone[:1], 1, starts=start).columns[0][0].as_py() == at + 1000
        end_tick(multiset)
    assert multiset.read(everyone[:1], 3, reverse=True).columns[0].to_pylist()[:3] == [
        199_999,
        199_998,
        199_997,
    ]


def test_more_retractions_than_insertions_are_an_error() -> None:
    multiset = OrderedRows([pa.large_string()], [])
    one = np.zeros(1, np.int64)
    with pytest.raises(InternalError):
        multiset.stage(one, [pa.array(["x"], pa.large_string())], np.array([-1]))
    multiset.rollback()
    values = OrderedValues(pa.int64())
    values.stage(one, [pa.array([1])], np.array([-1]))
    with pytest.raises(InternalError):
        values.read(one)


def test_memory_stays_level_under_churn() -> None:
    multiset = OrderedRows([pa.int64()], [SortKey(0, descending=True)])
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 1 << 40, 5000)
    multiset.stage(rows % 50, [pa.array(rows)], np.ones(5000, np.int64))
    end_tick(multiset)
    sizes = []
    for _ in range(200):
        fresh = rng.integers(0, 1 << 40, 500)
        both = np.concatenate([rows[:500], fresh])
        multiset.stage(both % 50, [pa.array(both)], np.repeat([-1, 1], 500))
        end_tick(multiset)
        rows = np.concatenate([rows[500:], fresh])
        sizes.append(multiset.memory())
    assert max(sizes[100:]) <= 1.3 * max(sizes[:100])
    read = multiset.read(np.arange(50))
    assert Counter(read.columns[0].to_pylist()) == Counter(rows.tolist())
