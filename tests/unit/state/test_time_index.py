"""Rows by time: what lies in a range, merges in small steps, and rows that cancel."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from penstock.data.delta import Delta
from penstock.state.merge import Merge
from penstock.state.time_index import TimeIndex
from twin.rows import small_state
from twin.tick import end_tick

KINDS = (pa.int64(), pa.large_string())


def delta(times: np.ndarray, weight: int = 1) -> Delta:
    texts = pa.array([f"row {time % 7}" for time in times.tolist()], pa.large_string())
    return Delta((pa.array(times), texts), np.full(len(times), weight, np.int64))


def counted(rows: Delta) -> Counter[tuple[int, str]]:
    counts: Counter[tuple[int, str]] = Counter()
    columns = (column.to_pylist() for column in rows.columns)
    for time, text, weight in zip(*columns, rows.weights.tolist(), strict=True):
        counts[(time, text)] += weight
    return Counter({row: count for row, count in counts.items() if count})


@pytest.mark.parametrize("first", [-60, 0, 10**15])
def test_ranges_hold_what_was_put_in_and_not_taken_out(first: int) -> None:
    random = np.random.default_rng(4)
    present: list[int] = []
    with small_state():
        index = TimeIndex(KINDS)
        for number in range(40):
            new = random.integers(first, first + 50, 6)
            gone = np.array(
                [present.pop(random.integers(len(present))) for _ in range(min(3, len(present)))], np.int64
            )
            index.stage(
                np.concatenate([new, gone]),
                Delta(
                    tuple(
                        pa.concat_arrays(pair)
                        for pair in zip(delta(new).columns, delta(gone).columns, strict=True)
                    ),
                    np.concatenate([np.ones(6, np.int64), np.full(len(gone), -1, np.int64)]),
                ),
            )
            if number % 5 == 4:
                index.rollback()
                present.extend(gone.tolist())
            else:
                present.extend(new.tolist())
                end_tick(index)
            low, high = sorted(random.integers(first, first + 50, 2).tolist())
            expected = counted(delta(np.array([time for time in present if low <= time <= high], np.int64)))
            assert counted(index.between(low, high)) == expected


def test_no_tick_pays_for_a_large_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    merged: list[int] = []
    advance = Merge.advance

    def counting(merge: Merge, rows: int) -> bool:
        before = sum(merge.at)
        done = advance(merge, rows)
        merged[-1] += sum(merge.at) - before
        return done

    monkeypatch.setattr(Merge, "advance", counting)
    index = TimeIndex((pa.int64(),))
    random = np.random.default_rng(5)
    times = random.integers(0, 10**9, 300_000)
    for start in range(0, len(times), 100_000):
        part = times[start : start + 100_000]
        index.stage(part, Delta((pa.array(part),), np.ones(len(part), np.int64)))
        merged.append(0)
        end_tick(index)
    merged.clear()
    for _ in range(300):
        part = random.integers(0, 10**9, 1_000)
        index.stage(part, Delta((pa.array(part),), np.ones(len(part), np.int64)))
        merged.append(0)
        end_tick(index)
    assert max(merged) < 150_000, "half of all rows"
    assert sum(merged) > 300_000, "and all of them were merged in the end"
