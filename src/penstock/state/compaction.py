"""When runs are merged: rarely, several at a time, and a bounded number of rows per tick.

Runs of similar size wait until there are four of them and are then merged in one pass, so that a row is moved once for every
fourfold growth of its run. What is smaller comes along. Only into a run that holds most of the rows are others merged
when they are a quarter of it: dead rows never take more room than that.

A merge of a few rows is done at once. A larger one stays open while its runs stay readable; every changed row pays
for some of its rows, and it goes on when a whole chunk is paid for, since small chunks cost more calls than work. So
most ticks merge nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from penstock.state.limits import LIMITS


class Named(Protocol):
    """What is merged: it has a name among the others, and a size."""

    @property
    def name(self) -> int: ...

    def __len__(self) -> int: ...


R = TypeVar("R", bound=Named)
Product = TypeVar("Product", covariant=True)


class Merging(Protocol[Product]):
    """Some runs on their way into one."""

    def advance(self, rows: int) -> bool:
        """Merge at least so many more rows if there are as many, and say whether all are done."""

    def result(self, name: int) -> Product:
        """The merged run, once all are done."""

    def memory(self) -> int:
        """Bytes written so far."""


@dataclass(slots=True)
class Open(Generic[R]):
    """A merge that is under way, and the rows of it that are paid for."""

    merge: Merging[R]
    names: tuple[int, ...]
    paid: int = 0


class Compaction(Generic[R]):
    """A logarithmic number of runs, the newest last."""

    __slots__ = ("_begin", "_merged", "next_name", "open", "runs")

    def __init__(
        self, begin: Callable[[Sequence[R]], Merging[R]], merged: Callable[[Sequence[R], int], R]
    ) -> None:
        self.runs: tuple[R, ...] = ()
        self.next_name = 0
        self.open: list[Open[R]] = []
        self._begin = begin  # a merge in steps
        self._merged = merged  # a merge at once, into a run of a name

    def work(self, rows: int, fuel: int, *, wide: int = 1) -> None:
        """Merge, `fuel` rows for each of `rows` changed rows. When it raises, the runs are what they were.

        Rows that are so many times as `wide` as others are merged in smaller steps, as far as merges still end before
        the next is due.
        """
        try:
            while len(self.runs) > 2 and self._start(LIMITS.at_once // wide):
                pass
            least = min(fuel, 3 * LIMITS.most_dead)
            self._advance_all(rows, max(fuel // wide, least), LIMITS.paid_chunk // wide)
        except BaseException:
            self.open.clear()  # half-done merges begin again
            raise

    def _advance_all(self, rows: int, fuel: int, chunk: int) -> None:
        if not self.open:
            return
        for entry in self.open:
            entry.paid += fuel * rows
        budget = max(chunk, 2 * fuel * rows)
        for entry in sorted(self.open, key=lambda entry: -entry.paid):
            if entry.paid < chunk or budget <= 0:
                break
            budget -= entry.paid
            done = entry.merge.advance(entry.paid)
            entry.paid = 0
            if done:
                self.open.remove(entry)
                self._replace(entry.names, entry.merge.result(self.next_name))

    def merge_memory(self) -> int:
        """Bytes of half-done merges."""
        return sum(entry.merge.memory() for entry in self.open)

    def compact(self) -> None:
        """Merge everything into one run. Cost: data."""
        self.open.clear()
        if len(self.runs) > 1:
            self._merge(self.runs)

    def begin(self, names: Sequence[int], paid: int = 0) -> Open[R]:
        """Open a merge of the runs with these names."""
        entry = Open(self._begin([run for run in self.runs if run.name in names]), tuple(names), paid)
        self.open.append(entry)
        return entry

    def _merge(self, runs: Sequence[R]) -> None:
        self._replace([run.name for run in runs], self._merged(runs, self.next_name))

    def _replace(self, names: Sequence[int], merged: R) -> None:
        """Let a merged run stand where the first of those that it replaces stood."""
        position = next(at for at, run in enumerate(self.runs) if run.name in names)
        others = [run for run in self.runs if run.name not in names]
        self.runs = (*others[:position], *((merged,) if len(merged) else ()), *others[position:])
        self.next_name += 1

    def _start(self, at_once: int) -> bool:
        """Begin the next merge that is due, and say whether there was one; up to `at_once` rows are merged now."""
        sized = [(len(run), at) for at, run in enumerate(self.runs)]
        total = sum(size for size, _ in sized)
        if self.open:
            busy = {name for entry in self.open for name in entry.names}
            sized = [(size, at) for size, at in sized if self.runs[at].name not in busy]
        sized.sort()
        sizes = [size for size, _ in sized]
        count = due(sizes, total)
        if count == 0:
            return False
        chosen = [self.runs[at] for _, at in sized[:count]]
        if sum(sizes[:count]) <= at_once:
            self._merge(chosen)
        else:
            self.begin([run.name for run in chosen])
        return True


def due(sizes: Sequence[int], total: int) -> int:
    """How many runs should be merged, from the smallest on; sizes ascend, `total` are the rows of all runs.

    >>> due([1_000, 1_000, 1_000, 1_000, 90_000], 94_000)
    4
    >>> due([1_000, 1_000, 1_000, 9_000, 90_000], 102_000)
    0
    """
    below = sum(sizes)
    for last in range(len(sizes) - 1, 1, -1):
        size = sizes[last]
        below -= size
        if 2 * size > total:
            if LIMITS.most_dead * below >= size:
                return last + 1
        elif last + 1 >= LIMITS.fan_in and (size < LIMITS.small or 2 * below >= 3 * size):
            return last + 1
    return 0
