"""When runs are merged: a bounded number of them, moved a bounded number of times, and most ticks merge nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from penstock.state.compaction import Compaction, due
from penstock.state.limits import LIMITS


@dataclass(frozen=True)
class Size:
    """A run that is nothing but its name and its size."""

    name: int
    rows: int

    def __len__(self) -> int:
        return self.rows


class Counted:
    """A merge of runs."""

    moved = 0

    def __init__(self, runs: Sequence[Size]) -> None:
        self._total, self._done = sum(map(len, runs)), 0

    def advance(self, rows: int) -> bool:
        Counted.moved += min(rows, self._total - self._done)
        self._done = min(self._done + rows, self._total)
        return self._done == self._total

    def result(self, name: int) -> Size:
        return Size(name, self._total)

    def memory(self) -> int:
        return self._done


def merged(runs: Sequence[Size], name: int) -> Size:
    total = sum(map(len, runs))
    Counted.moved += total
    return Size(name, total)


def append(compaction: Compaction[Size], rows: int) -> None:
    compaction.runs = (*compaction.runs, Size(compaction.next_name, rows))
    compaction.next_name += 1


@pytest.mark.parametrize("wide", [1, 4])
@pytest.mark.parametrize(
    ("tick", "loaded"), [(10, 100_000), (1_000, 0), (1_000, 1_000_000), (50_000, 3_000_000)]
)
def test_few_runs_few_moves_and_quiet_ticks(tick: int, loaded: int, wide: int) -> None:
    Counted.moved = 0
    compaction: Compaction[Size] = Compaction(Counted, merged)
    if loaded:
        append(compaction, loaded)
    ticks, quiet, most, worst = 2_000, 0, 0, 0
    for _ in range(ticks):
        before = Counted.moved
        append(compaction, tick)
        compaction.work(tick, LIMITS.fuel, wide=wide)
        moved = Counted.moved - before
        quiet += moved == 0
        worst = max(worst, moved)
        most = max(most, len(compaction.runs))
    assert sum(map(len, compaction.runs)) == loaded + ticks * tick
    assert most <= (16 if wide == 1 else 20)
    assert quiet > ticks // 2 or tick > 10_000 or wide > 1
    assert Counted.moved < 14 * ticks * tick or tick < 100
    assert worst <= max(130_000, 70 * tick) // min(wide, 2)


def test_dead_rows_are_a_part_of_the_largest_run_at_most() -> None:
    assert due([1, 1, 25_000, 100_000], 125_002) == 4
    assert due([1, 20_000, 100_000], 120_001) == 0
    assert due([10, 10, 2_000, 100_000], 102_020) == 0
    assert due([10, 10, 10, 2_000, 100_000], 102_030) == 4
