"""When runs are merged: rarely, several at a time, and a bounded number of rows per tick.

Runs of similar size wait until there are four of them and are then merged in one pass, so that a row is moved once for every
fourfold growth of its run. What is smaller comes along. Only into a run that holds most of the rows are others merged when they are
a quarter of it: dead rows never take more room than that.

A merge of a few rows is made at once. A larger one stays open while its runs stay readable; every changed row pays for some of its rows,
and it goes on when a whole chunk is paid for, since small chunks cost more calls than work. So most ticks merge nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

R = TypeVar("R")
Product = TypeVar("Product", covariant=True)

_FAN_IN = 4  # runs of similar size that are merged together
_SMALL = 8_192  # rows of a run up to which its size does not matter
_AT_ONCE = 32_768  # rows that are merged at once
_MOST_DEAD = 4  # the largest run is merged with the others when they are this part of it
_FUEL = 32  # rows merged per changed row in an open merge: what it needs is _MOST_DEAD + 1, and more means fewer runs
_CHUNK = 32_768  # rows that must be paid for before a merge goes on


class Merging(Protocol[Product]):
    """Some runs on their way into one."""

    def advance(self, rows: int) -> bool:
        """Merge at least so many more rows if there are as many, and say whether all are done."""

    def result(self) -> Product:
        """The merged run, once all are done."""

    def memory(self) -> int:
        """Bytes written so far."""


class _Open(Generic[R]):
    __slots__ = ("merge", "paid", "runs")

    def __init__(self, merge: Merging[R], runs: Sequence[R]) -> None:
        self.merge = merge
        self.runs = runs
        self.paid = 0


class Compaction(Generic[R]):
    """A logarithmic number of runs, the newest last."""

    __slots__ = ("_begin", "_merged", "_open", "_size", "runs")

    def __init__(
        self,
        size: Callable[[R], int],
        begin: Callable[[Sequence[R]], Merging[R]],
        merged: Callable[[Sequence[R]], R],
    ) -> None:
        self.runs: list[R] = []
        self._size = size
        self._begin = begin  # a merge in steps
        self._merged = merged  # a merge at once
        self._open: list[_Open[R]] = []

    def work(self, rows: int) -> None:
        """Merge, as much as `rows` changed rows pay for."""
        while len(self.runs) > 2 and self._start():
            pass
        if not self._open:
            return
        for entry in self._open:
            entry.paid += _FUEL * rows
        budget = max(_CHUNK, 2 * _FUEL * rows)
        for entry in sorted(self._open, key=lambda entry: -entry.paid):
            if entry.paid < _CHUNK or budget <= 0:
                break
            budget -= entry.paid
            self._advance(entry)

    def merge_memory(self) -> int:
        """Bytes of half-done merges."""
        return sum(entry.merge.memory() for entry in self._open)

    def compact(self) -> None:
        """Merge everything into one run. Cost: data."""
        self._open.clear()
        if len(self.runs) > 1:
            self._put(list(self.runs), self._merged(self.runs))

    def _advance(self, entry: _Open[R]) -> None:
        done = entry.merge.advance(entry.paid)
        entry.paid = 0
        if done:
            self._open.remove(entry)
            self._put(entry.runs, entry.merge.result())

    def _put(self, runs: Sequence[R], merged: R) -> None:
        """Let a run stand where the first of those that it replaces stood."""
        gone = {id(run) for run in runs}
        place = next(at for at, run in enumerate(self.runs) if id(run) in gone)
        kept = [run for run in self.runs if id(run) not in gone]
        self.runs[:] = kept[:place] + ([merged] if self._size(merged) else []) + kept[place:]

    def _start(self) -> bool:
        """Begin the next merge that is due, and say whether there was one."""
        busy = {id(run) for entry in self._open for run in entry.runs}
        free = sorted((run for run in self.runs if id(run) not in busy), key=self._size)
        count = due([self._size(run) for run in free], sum(map(self._size, self.runs)))
        if count == 0:
            return False
        chosen = free[:count]
        if sum(map(self._size, chosen)) <= _AT_ONCE:
            self._put(chosen, self._merged(chosen))
        else:
            self._open.append(_Open(self._begin(chosen), chosen))
        return True


def due(sizes: Sequence[int], total: int) -> int:
    """How many runs should be merged, from the smallest on; sizes ascend, `total` are the rows of all runs.

    >>> due([1_000, 1_000, 1_000, 1_000, 90_000], 94_000)
    4
    >>> due([1_000, 1_000, 1_000, 9_000, 90_000], 102_000)
    0
    """
    below = sum(sizes)
    for place in range(len(sizes) - 1, 1, -1):
        size = sizes[place]
        below -= size
        if 2 * size > total:
            if _MOST_DEAD * below >= size:
                return place + 1
        elif place + 1 >= _FAN_IN and (size < _SMALL or 2 * below >= 3 * size):
            return place + 1
    return 0
