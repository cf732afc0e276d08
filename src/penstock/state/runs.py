"""The runs of one state: a logarithmic number of them, the newest last, and those that a tick has staged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from penstock.data.arrays import Numbers
from penstock.state.compaction import Compaction
from penstock.state.merge import Alive, Keep, Merge, merge_runs
from penstock.state.narrow import narrow
from penstock.state.run import Run, has_table, load_run, moved_run, ones, table_of
from penstock.state.scratch import Piece, Scratch
from penstock.state.state import Image

_WIDE = 128  # bytes of a row's columns from which it counts as two
_NARROW_FROM = 4096  # rows from which it pays to look how many bytes integers need


class Runs:
    """Committed runs, and those of this tick behind them.

    `alive` leaves entries out of merges that do not count any more, in an index whose entries have no weights; `keep`
    leaves out rows that nobody asks for any more.
    """

    __slots__ = ("_changed", "_changed_after", "_compaction", "after", "next_name", "staged")

    def __init__(self, alive: Alive | None = None, keep: Keep | None = None) -> None:
        self._compaction: Compaction[Run] = Compaction(
            lambda runs: Merge(runs, alive, keep), lambda runs, name: merge_runs(runs, name, alive, keep)
        )
        self.staged: tuple[Run, ...] = ()
        self.after: tuple[Run, ...] = ()
        """All runs, with those of this tick."""
        self.next_name = 0
        """The name for the next run that is staged."""
        self._changed = 0  # rows that have changed since the last `maintain`
        self._changed_after = 0

    @property
    def before(self) -> tuple[Run, ...]:
        """The runs without those of this tick."""
        return self._compaction.runs

    def stage(self, run: Run) -> None:
        """Take a run behind the others, until `rollback`."""
        if len(run):
            self.staged = (*self.staged, run)
            self.after = (*self.after, run)
            self.next_name += 1
            self._changed_after += len(run)

    def commit(self) -> None:
        if self.staged:
            self._compaction.runs = self.after
            self._compaction.next_name = self.next_name
            self._changed = self._changed_after
            self.staged = ()

    def rollback(self) -> None:
        self.staged = ()
        self._reset()

    def _reset(self) -> None:
        self.after = self.before
        self.next_name = self._compaction.next_name
        self._changed_after = self._changed

    def maintain(self, fuel: int) -> None:
        """Merge as much as the changed rows pay for."""
        if self._changed:
            self._compaction.work(self._changed, fuel, wide=_width(self.before))
            self._changed = 0
            self._reset()

    def compact(self) -> None:
        """Merge everything into one run. Cost: data."""
        self._compaction.compact()
        self._reset()

    def memory(self) -> int:
        """Bytes of memory, with half-done merges, and with those that lie in files."""
        return sum(run.memory() for run in self.before) + self._compaction.merge_memory()

    def mapped(self) -> int:
        """Bytes that lie in files."""
        return sum(run.mapped_bytes() for run in self.before) + sum(
            merge.memory() for merge in self._merges() if merge.is_mapped
        )

    def pieces(self) -> Iterator[Piece]:
        """Runs and half-done merges that lie in memory."""
        for run in self.before:
            if (size := run.memory() - run.mapped_bytes()) > 0:
                yield Piece(size, partial(self._move, run))
        for merge in self._merges():
            if not merge.is_mapped:
                yield Piece(merge.memory(), merge.move)

    def _move(self, run: Run, scratch: Scratch) -> None:
        moved = moved_run(run, scratch)
        for merge in self._merges():
            merge.read_from({run.name: moved})
        self._compaction.runs = tuple(moved if current is run else current for current in self.before)
        self._reset()

    def _merges(self) -> Iterator[Merge]:
        for entry in self._compaction.open:
            assert isinstance(entry.merge, Merge)
            yield entry.merge

    def save(self) -> Image:
        """The runs by name, and how far they are merged: replayed ticks find the same runs."""
        merges = [
            {"names": list(entry.names), "paid": entry.paid, "at": list(entry.merge.at)}
            for entry in self._compaction.open
            if isinstance(entry.merge, Merge)
        ]
        return Image(
            values={
                "order": [run.name for run in self.before],
                "next": self._compaction.next_name,
                "changed": self._changed,
                "merges": merges,
            },
            parts={str(run.name): run.save() for run in self.before},
        )

    def load(self, image: Image) -> None:
        compaction = self._compaction
        compaction.runs = tuple(load_run(name, image.parts[str(name)]) for name in image.values["order"])
        compaction.next_name = image.values["next"]
        compaction.open.clear()
        self._changed = image.values["changed"]
        for saved in image.values["merges"]:
            merge = compaction.begin(saved["names"], saved["paid"]).merge
            assert isinstance(merge, Merge)
            merge.advance_to(saved["at"])
        self.rollback()


def _width(runs: Sequence[Run]) -> int:
    """How many times the largest run's rows are as wide as usual ones, from 1 to 4."""
    largest = max(runs, key=len, default=None)
    if largest is None or len(largest) == 0:
        return 1
    size = int(sum(column.nbytes for column in largest.columns))
    return min(1 + size // len(largest) // _WIDE, 4)


def narrowed(run: Run) -> Run:
    """Return a run of keys and counts whose integers take as few bytes as they need."""
    if len(run) < _NARROW_FROM:
        return run
    keys = tuple(narrow(key) if key.dtype.kind == "i" else key for key in run.keys)
    return Run(run.name, keys, narrow(run.weights))


def index_run(hashes: Numbers, slots: Numbers, name: int) -> Run:
    """Return a run of an index: hashes in order, and the slot of each."""
    if len(slots) >= _NARROW_FROM:
        slots = narrow(slots)
    table = table_of(hashes) if has_table((hashes,)) else None
    return Run(name, (hashes,), ones(len(hashes)), numbers=(slots,), table=table)
