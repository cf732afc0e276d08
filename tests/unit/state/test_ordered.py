"""Counted entries in order: one large change is many small ones, in fewer bytes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from penstock.state.narrow import narrow
from penstock.state.ordered import OrderedCounts
from penstock.state.run import Run
from penstock.state.runs import Runs, narrowed
from twin.rows import small_state
from twin.tick import end_tick

RANDOM = np.random.default_rng(5)


def entries(count: int, slots: int, most: int) -> tuple[list[np.ndarray], np.ndarray]:
    slot = RANDOM.integers(0, slots, count)
    word = RANDOM.integers(0, max(count // slots, 4), count).astype(np.uint64)
    return [slot, word], RANDOM.integers(1, most + 1, count)


def counts_of(counts: OrderedCounts, slots: int) -> dict[tuple[int, int], int]:
    asked = np.arange(slots)
    found = counts.scan(asked)
    assert found.counts.dtype == np.int64
    keys = zip(found.groups.tolist(), found.keys[0].tolist(), strict=True)
    return dict(zip(keys, found.counts.tolist(), strict=True))


@pytest.mark.parametrize("most", [1, 100, 3_000_000_000], ids=lambda most: f"counts up to {most}")
@pytest.mark.parametrize("slots", [1, 60, 40_000], ids=lambda slots: f"{slots} slots")
def test_a_large_change_is_many_small_ones(slots: int, most: int) -> None:
    columns, weights = entries(30_000, slots, most)
    truth: Counter[tuple[int, int]] = Counter()
    for slot, word, weight in zip(*(column.tolist() for column in (*columns, weights)), strict=True):
        truth[(slot, word)] += weight
    at_once, in_ticks = OrderedCounts(1, ids=False), OrderedCounts(1, ids=False)
    at_once.stage(columns, weights)
    end_tick(at_once)
    for start in range(0, len(weights), 1_700):
        part = slice(start, start + 1_700)
        in_ticks.stage([column[part] for column in columns], weights[part])
        end_tick(in_ticks)
    assert counts_of(at_once, slots) == counts_of(in_ticks, slots) == dict(truth)
    gone = slice(4_000, 20_000)
    for counts in (at_once, in_ticks):
        counts.stage([column[gone] for column in columns], -weights[gone])
        counts.rollback()
        assert counts_of(counts, slots) == dict(truth)
        counts.stage([column[gone] for column in columns], -weights[gone])
        end_tick(counts)
    left = Counter(truth)
    for slot, word, weight in zip(*(column[gone].tolist() for column in (*columns, weights)), strict=True):
        left[(slot, word)] -= weight
    expected = {key: count for key, count in left.items() if count}
    assert counts_of(at_once, slots) == counts_of(in_ticks, slots) == expected


def test_entries_take_few_bytes() -> None:
    counts = OrderedCounts(1, ids=True)
    slots = np.arange(50_000)
    counts.stage([slots, slots.astype(np.uint64), slots], np.ones(50_000, np.int64))
    end_tick(counts)
    assert counts.memory() == 50_000 * (4 + 8 + 4 + 1)
    for _ in range(12):
        counts.stage(
            [slots[:4_000], slots[:4_000].astype(np.uint64), slots[:4_000]], np.ones(4_000, np.int64)
        )
        end_tick(counts)
    assert [run.keys[0].dtype for run in counts._runs.before if len(run) > 8_192] == [np.int32]


def test_merges_widen_when_they_must() -> None:
    runs = Runs()
    for start, count in ((0, 1), (5_000, 1), (2**33, 200), (0, 2**40)):
        keys = (np.arange(start, start + 5_000),)
        runs.stage(narrowed(Run(runs.next_name, keys, np.full(5_000, count))))
        end_tick(runs)
    runs.compact()
    assert len(runs.before) == 1
    found = Counter[int]()
    for run in runs.before:
        for key, count in zip(run.keys[0].tolist(), run.weights.tolist(), strict=True):
            found[key] += count
    assert found[0] == 2**40 + 1
    assert found[5_000] == 1
    assert found[2**33 + 4_999] == 200
    assert len(found) == 15_000


@pytest.mark.parametrize("words", [1, 2])
def test_small_merges_in_small_steps(words: int) -> None:
    truth: Counter[tuple[int, ...]] = Counter()
    with small_state():
        counts = OrderedCounts(words, ids=True)
        for _ in range(60):
            rows = int(RANDOM.integers(1, 9))
            keys: list[Any] = [RANDOM.integers(0, 3, rows) for _ in range(words + 2)]
            keys[1:-1] = [key.astype(np.uint64) << np.uint64(62) for key in keys[1:-1]]
            columns = [keys[0], *keys[1:]]
            weights = RANDOM.integers(1, 3, rows)
            gone = [key for key, count in truth.items() if count > 0][: int(RANDOM.integers(0, 6))]
            for column, values in zip(range(words + 2), zip(*gone, strict=True), strict=False):
                columns[column] = np.concatenate([columns[column], np.array(values, columns[column].dtype)])
            weights = np.concatenate([weights, np.array([-truth[key] for key in gone], np.int64)])
            for *key, weight in zip(*(column.tolist() for column in (*columns, weights)), strict=True):
                truth[tuple(key)] += weight
            counts.stage(columns, weights)
            end_tick(counts)
            found = counts.scan(np.arange(3))
            rows_ = zip(found.groups.tolist(), *(key.tolist() for key in found.keys), strict=True)
            assert dict(zip(rows_, found.counts.tolist(), strict=True)) == {
                key: count for key, count in truth.items() if count
            }


def test_slots_beyond_the_width_of_a_run_are_not_found() -> None:
    counts = OrderedCounts(1, ids=False)
    small = np.arange(5_000) % 50
    counts.stage([small, np.arange(5_000, dtype=np.uint64)], np.ones(5_000, np.int64))
    end_tick(counts)
    assert counts._runs.before[0].keys[0].dtype == np.int8
    assert len(counts.scan(np.array([44 + 256, 2**40, 44 - 256 + 512]))) == 0
    assert len(counts.scan(np.array([44, 44 + 256]))) == 100


@pytest.mark.parametrize(
    ("numbers", "dtype"),
    [([], np.int8), ([-128, 127], np.int8), ([128], np.int32), ([-(2**31)], np.int32), ([2**31], np.int64)],
)
def test_numbers_take_the_bytes_they_need(numbers: list[int], dtype: type) -> None:
    assert narrow(np.array(numbers, np.int64)).dtype == dtype
    assert narrow(np.array(numbers, np.int64)).tolist() == numbers
