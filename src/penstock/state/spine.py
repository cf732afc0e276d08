"""A spine: a growing multiset of rows as a few sorted runs, indexed by some of its columns, and versioned by tick.

A tick stages its delta as one more run (`stage`); readers see the rows before the tick or after it (`before`, `after`) until
`commit` makes the staged run final or `rollback` drops it. Deletes are rows of negative weight, which meet what they delete when
runs are merged (`penstock.state.compaction` says when). There are about log(rows) runs, and no tick pays for a large merge.

Cost: stage O(d log d) for d changed rows, maintain O(d) amortised by a factor log(rows), a look-up O(log rows) per run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Positions
from penstock.data.column_view import ColumnView, views
from penstock.data.delta import Delta, Weights, empty
from penstock.data.equality import equal_rows
from penstock.data.hashing import Hashes, expand, hash_rows
from penstock.data.ordering import run_lengths
from penstock.data.sorting import order_words
from penstock.state.merge import Keep, merge_runs
from penstock.state.run import Run, find, key_starts, row_words, sort_run, word_range
from penstock.state.runs import Runs
from penstock.state.scratch import Piece
from penstock.state.state import Image

_PAIRS = 1_000_000  # matches in one piece


@dataclass(frozen=True, slots=True)
class Match:
    """Pairs of equal keys: the row `left[i]` of the probing side and the row `right[i]` of a run."""

    left: Positions
    run: Run
    right: Positions


@dataclass(frozen=True, slots=True)
class SpineVersion:
    """One version of a spine."""

    types: tuple[pa.DataType, ...]
    keys: tuple[int, ...] | None
    runs: tuple[Run, ...]

    def probe(self, columns: Sequence[pa.Array], rows: int, words: Hashes | None = None) -> Iterator[Match]:
        """Find the rows whose key equals the key in `columns`, for each of so many probing rows.

        NULL finds NULL. A row may match several times with weights that cancel. Matches come in pieces of bounded size.
        Probing rows that are rows of a run with the same key need not be hashed and sorted again: `words` are theirs.
        """
        if not self.runs or rows == 0:
            return
        as_rows = self.keys is None
        keys = range(len(self.types)) if self.keys is None else self.keys
        order = None
        if words is None:
            order, words = order_words(hash_rows(columns, rows))
        starts = key_starts(words, as_rows)
        low, high = word_range(words if len(starts) == rows else words[starts], as_rows)
        sizes = run_lengths(starts, rows)
        own = views(columns)
        for run in self.runs:
            hits, begin, end = find(run, low, high)
            if len(hits) == 0:
                continue
            stored = [run.views[key] for key in keys]
            for left, right in _pairs(starts[hits], sizes[hits], begin, end):
                if order is not None:
                    left = order[left]
                same = equal_rows(own, left, stored, right, as_rows=as_rows)
                if not same.all():
                    left, right = left[same], right[same]
                if len(left):
                    yield Match(left, run, right)

    def cross(self, rows: int) -> Iterator[Match]:
        """Pair each of so many probing rows with every row, in pieces of bounded size. Cost: data."""
        if rows:
            for run in self.runs:
                first = np.array([0])
                for left, right in _pairs(first, np.array([rows]), first, np.array([len(run)])):
                    yield Match(left, run, right)

    def lookup(self, columns: Sequence[pa.Array], rows: int) -> tuple[Positions, Delta]:
        """Return `probe` as (probing rows, matching rows)."""
        return collect(list(self.probe(columns, rows)), self.types)

    def multiplicity(self, delta: Delta, *, as_rows: bool = True) -> Weights:
        """How often each row of a delta is there, as a row or as a key; its own weights do not count."""
        counts = np.zeros(len(delta), np.int64)
        if self.runs and len(delta):
            order, words = order_words(row_words(delta.columns, self.keys, len(delta)))
            counts[order] = self._count(views(delta.columns), order, words, as_rows)
        return counts

    def multiplicity_of(self, run: Run, rows: Positions) -> Weights:
        """How often the rows at some (ascending) positions of a run are there."""
        return self._count(run.views, rows, run.words[rows], True)

    def _count(self, own: Sequence[ColumnView], rows: Positions, words: Hashes, as_rows: bool) -> Weights:
        """How often the rows at positions of columns are there; their words ascend."""
        counts = np.zeros(len(rows), np.int64)
        for run in self.runs:
            hits, begin, end = find(run, words, words)
            if len(hits) == 0:
                continue
            for left, right in _pairs(hits, np.ones(len(hits), np.int64), begin, end):
                same = equal_rows(own, rows[left], run.views, right, as_rows=as_rows)
                np.add.at(counts, left[same], run.weights.take(right[same]))
        return counts

    def rows(self) -> Delta:
        """All rows, each once with its multiplicity. Cost: data."""
        if not self.runs:
            return empty(self.types)
        return merge_runs(self.runs).delta()

    @property
    def entries(self) -> int:
        """The number of entries of all runs, with those that later runs cancel."""
        return sum(len(run) for run in self.runs)


def saved_keys(image: Image) -> tuple[int, ...] | None:
    """The columns by which a saved spine is sorted."""
    keys = image.values["keys"]
    return None if keys is None else tuple(keys)


def collect(matches: Sequence[Match], types: Sequence[pa.DataType]) -> tuple[Positions, Delta]:
    """Bring the rows of all matches together: (probing rows, matching rows)."""
    if not matches:
        return np.zeros(0, np.int64), empty(types)
    parts = [[view.gather(match.right) for view in match.run.views] for match in matches]
    weights = [match.run.weights.take(match.right).astype(np.int64) for match in matches]
    if len(matches) == 1:
        return matches[0].left, Delta(tuple(parts[0]), weights[0])
    columns = tuple(pa.concat_arrays(pieces) for pieces in zip(*parts, strict=True))
    return np.concatenate([match.left for match in matches]), Delta(columns, np.concatenate(weights))


class Spine:
    """Rows of these column types, indexed by the columns `keys`, or by the whole row.

    Merges leave out rows that `keep` does not want to have: nobody may ask for them any more. Whether they are still
    there, and in `count`, is not defined.
    """

    __slots__ = ("_count_after", "_keep", "_keys", "_runs", "_types", "count")

    def __init__(
        self, types: Sequence[pa.DataType], keys: Sequence[int] | None = None, keep: Keep | None = None
    ) -> None:
        self._types = tuple(types)
        self._keys = None if keys is None else tuple(keys)
        self._keep = keep
        self._runs = Runs(keep=keep)
        self.count = 0
        """The sum of the weights of all committed rows."""
        self._count_after = 0

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return self._types

    @property
    def keys(self) -> tuple[int, ...] | None:
        return self._keys

    @property
    def next_name(self) -> int:
        """The name for the next run that is staged."""
        return self._runs.next_name

    def sorted(self, delta: Delta) -> Run:
        """A delta as a run of this spine."""
        return sort_run(row_words(delta.columns, self._keys, len(delta)), delta, self.next_name)

    def stage(self, delta: Delta) -> None:
        """Put a delta on top of the committed rows, visible to `after` only; at most one per tick."""
        self.stage_run(self.sorted(delta))

    def stage_run(self, run: Run) -> None:
        """Stage rows that are a run already, by the name that comes next."""
        assert not self._runs.staged, "the last delta is neither committed nor rolled back"
        self._runs.stage(run)
        self._count_after = self.count + int(run.weights.sum(dtype=np.int64))

    def staged(self) -> Run | None:
        """The staged delta, if it has rows."""
        return self._runs.staged[0] if self._runs.staged else None

    def before(self) -> SpineVersion:
        """The rows without the staged delta."""
        return SpineVersion(self._types, self._keys, self._runs.before)

    def after(self) -> SpineVersion:
        """The rows with the staged delta."""
        return SpineVersion(self._types, self._keys, self._runs.after)

    def commit(self) -> None:
        """Make the staged delta final."""
        self._runs.commit()
        self.count = self._count_after

    def rollback(self) -> None:
        """Drop the staged delta."""
        self._runs.rollback()
        self._count_after = self.count

    def maintain(self, fuel: int) -> None:
        self._runs.maintain(fuel)

    def compact(self) -> None:
        """Merge everything into one run. Cost: data."""
        self._runs.compact()

    def memory(self) -> int:
        """Bytes of memory, with half-done merges, and with those that lie in files."""
        return self._runs.memory()

    def mapped(self) -> int:
        return self._runs.mapped()

    def pieces(self) -> Iterator[Piece]:
        return self._runs.pieces()

    def save(self) -> Image:
        image = self._runs.save()
        keys = None if self._keys is None else list(self._keys)
        return Image({**image.values, "keys": keys}, image.arrays, image.parts)

    def load(self, image: Image) -> None:
        """Be what `save` gave; rows that were sorted by other keys are sorted anew. Cost then: data."""
        if saved_keys(image) == self._keys:
            self._runs.load(image)
        else:
            other = Runs()
            other.load(image)
            self._runs = Runs(keep=self._keep)
            if other.before:
                self._runs.stage(self.sorted(merge_runs(other.before).delta()))
                self._runs.commit()
        self.count = sum(int(run.weights.sum(dtype=np.int64)) for run in self._runs.before)
        self._count_after = self.count


def _pairs(
    left_start: Positions, left_size: Positions, right_start: Positions, right_end: Positions
) -> Iterator[tuple[Positions, Positions]]:
    """All pairs of [left_start, left_start + left_size) x [right_start, right_end), group by group, in bounded pieces."""
    right_size = right_end - right_start
    counts = left_size * right_size
    several = counts > 1
    if not several.any():
        yield left_start, right_start
        return
    single = bool((right_size == 1).all())
    if not single and not several.all():
        yield left_start[~several], right_start[~several]
        left_start, left_size, counts = left_start[several], left_size[several], counts[several]
        right_start, right_end, right_size = right_start[several], right_end[several], right_size[several]
    total = np.cumsum(counts)
    begin, count = 0, len(counts)
    while begin < count:
        done = int(total[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(total, done + _PAIRS, "right")))
        if end == begin + 1 and counts[begin] > _PAIRS:
            yield from _huge_pairs(
                int(left_start[begin]), int(left_size[begin]), int(right_start[begin]), int(right_end[begin])
            )
        else:
            part = slice(begin, end)
            offset, _ = expand(counts[part])
            left = np.repeat(left_start[part], counts[part])
            right = np.repeat(right_start[part], counts[part])
            if single:
                yield left + offset, right
            else:
                width = np.repeat(right_size[part], counts[part])
                row = offset // width
                yield left + row, right + offset - row * width
        begin = end


def _huge_pairs(left: int, size: int, begin: int, end: int) -> Iterator[tuple[Positions, Positions]]:
    """The pairs of one group that is larger than a piece."""
    width = min(end - begin, _PAIRS)
    height = max(1, _PAIRS // width)
    for top in range(left, left + size, height):
        rows = np.arange(top, min(top + height, left + size))
        for start in range(begin, end, width):
            columns = np.arange(start, min(start + width, end))
            yield np.repeat(rows, len(columns)), np.tile(columns, len(rows))
