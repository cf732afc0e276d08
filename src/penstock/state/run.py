"""A run: immutable rows in the order of their keys, with a weight each; it has a name among the runs of its state.

Keys are NumPy columns, the first one most significant. Behind them a row may carry more numbers, and Arrow columns.
Spines, indexes of slots, ordered counts and time indexes are made of such runs: one layout, one merge
(`penstock.state.merge`).

In a spine the key of a row is one 64-bit word: its hash when the whole row is the key. In an index by some columns it
is the high 40 bits of the key's hash and the high 24 bits of the row's hash: rows of one key are neighbours, equal
rows are neighbours within them, so that even the merge of one huge key can be cut into small steps and finds what
cancels. Words may meet by chance: a reader compares the rows themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.data.arrays import Numbers, Positions
from penstock.data.column_view import ColumnView, gather, views
from penstock.data.delta import Delta
from penstock.data.equality import group_ordered
from penstock.data.hashing import Hashes, hash_rows
from penstock.data.sorting import order_words
from penstock.state.limits import LIMITS
from penstock.state.narrow import Small, all_one, narrow
from penstock.state.scratch import NewArray, Scratch, moved_columns, room_for
from penstock.state.state import Image, numpy_array

_KEY_BITS = np.uint64(0xFFFFFFFFFF000000)
_ROW_BITS = np.uint64(0x0000000000FFFFFF)
_ROW_SHIFT = np.uint64(40)
_LAST = np.uint64(0xFFFFFFFFFFFFFFFF)
_ONE = np.uint64(1)
_WEIGHT = np.ones(1, np.int8)
_ROWS_PER_BUCKET = 4
_CHUNK = 32_768  # words looked at together, so that they stay in the cache
_LOOKUP_BELOW = 50_000  # searches from which plain binary search is faster, because neighbours share its path
_NEAR = 3  # rows of one key looked at one by one before a binary search for its end


@dataclass(frozen=True, slots=True)
class OffsetTable:
    """Where the words with the same high bits begin: `starts[word >> shift]`, and the steps of a search in the largest bucket."""

    shift: np.uint64
    starts: npt.NDArray[np.signedinteger]
    steps: tuple[np.int64, ...]
    mapped: bool = False  # whether it lies in a file


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Rows in the order of their keys. Rows of a spine are distinct, and none has the weight zero."""

    name: int
    keys: tuple[Numbers, ...]
    weights: Small
    columns: tuple[pa.Array, ...] = ()
    views: tuple[ColumnView, ...] = ()
    numbers: tuple[Numbers, ...] = ()
    table: OffsetTable | None = None
    mapped: bool = False  # whether its arrays lie in a file

    def __len__(self) -> int:
        return len(self.keys[0])

    @property
    def words(self) -> Hashes:
        """The first key."""
        return self.keys[0]

    def memory(self) -> int:
        """Bytes of memory, with those that lie in a file."""
        return self._array_bytes() + self._table_bytes()

    def mapped_bytes(self) -> int:
        """Bytes that lie in a file."""
        table = self._table_bytes() if self.table is not None and self.table.mapped else 0
        return table + (self._array_bytes() if self.mapped else 0)

    def _array_bytes(self) -> int:
        numbers = sum(column.nbytes for column in (*self.keys, *self.numbers))
        return int(numbers + _bytes(self.weights) + sum(column.nbytes for column in self.columns))

    def _table_bytes(self) -> int:
        return int(self.table.starts.nbytes) if self.table else 0

    def delta(self) -> Delta:
        """All rows."""
        return Delta(self.columns, self.weights.astype(np.int64))

    def take(self, positions: Positions) -> Delta:
        """The rows at some positions."""
        columns = tuple(view.gather(positions) for view in self.views)
        return Delta(columns, self.weights.take(positions).astype(np.int64))

    def save(self) -> Image:
        """The run at rest."""
        arrays: dict[str, Any] = {f"key {at}": key for at, key in enumerate(self.keys)}
        arrays |= {f"number {at}": number for at, number in enumerate(self.numbers)}
        arrays |= {f"column {at}": column for at, column in enumerate(self.columns)}
        if _bytes(self.weights):
            arrays["weights"] = self.weights
        return Image(arrays=arrays, fixed=True)


def ones(count: int) -> Small:
    """Weights that are all one, in the memory of one."""
    return np.ndarray(count, np.int8, _WEIGHT, strides=(0,))


def _bytes(weights: Small) -> int:
    return weights.nbytes if weights.strides != (0,) else 0


def load_run(name: int, image: Image) -> Run:
    """The run that was saved."""

    def listed(role: str) -> tuple[Any, ...]:
        count = sum(array.startswith(role) for array in image.arrays)
        return tuple(image.arrays[f"{role} {at}"] for at in range(count))

    keys, columns = listed("key"), listed("column")
    return Run(
        name,
        keys,
        numpy_array(image, "weights") if "weights" in image.arrays else ones(len(keys[0])),
        columns,
        views(columns),
        listed("number"),
        table_of(keys[0]) if has_table(keys) else None,
        image.mapped,
    )


def moved_run(run: Run, scratch: Scratch) -> Run:
    """The same run in scratch files."""
    if not run.mapped:
        weights = (run.weights,) if _bytes(run.weights) else ()
        copies = _copied((*run.keys, *run.numbers, *weights), scratch)
        columns = moved_columns(run.columns, scratch)
        keys, numbers = len(run.keys), len(run.numbers)
        run = replace(
            run,
            keys=copies[:keys],
            numbers=copies[keys : keys + numbers],
            weights=copies[-1] if weights else ones(len(run)),
            columns=columns,
            views=views(columns),
            mapped=True,
        )
    table = run.table
    if table is not None and not table.mapped:
        (starts,) = _copied((table.starts,), scratch)
        run = replace(run, table=replace(table, starts=starts, mapped=True))
    return run


def _copied(arrays: Sequence[Numbers], scratch: Scratch) -> tuple[Numbers, ...]:
    region = scratch.region(room_for(array.nbytes for array in arrays))
    return tuple(region.copied(array) for array in arrays)


def row_words(columns: Sequence[pa.Array], keys: Sequence[int] | None, rows: int) -> Hashes:
    """The words of rows in an index by the columns `keys`, or by the whole row."""
    hashes = hash_rows(columns, rows)
    if keys is None:
        return hashes
    key = [columns[column] for column in keys]
    for start in range(0, rows, _CHUNK):
        part = hashes[start : start + _CHUNK]
        part >>= _ROW_SHIFT
        piece = key if rows <= _CHUNK else [column.slice(start, _CHUNK) for column in key]
        part |= hash_rows(piece, len(part)) & _KEY_BITS
    return hashes


def word_range(hashes: Hashes, whole_row: bool) -> tuple[Hashes, Hashes]:
    """The first and last word that rows with these key hashes, or the keys of rows with these words, may have."""
    if whole_row:
        return hashes, hashes
    low = hashes & _KEY_BITS
    return low, low | _ROW_BITS


def key_starts(words: Hashes, whole_row: bool) -> Positions:
    """Where the words of another key begin, among words in order."""
    fresh = np.ones(len(words), np.bool_)
    if whole_row:
        np.not_equal(words[1:], words[:-1], out=fresh[1:])
    else:
        for start in range(1, len(words), _CHUNK):
            keys = words[start - 1 : start + _CHUNK] & _KEY_BITS
            np.not_equal(keys[1:], keys[:-1], out=fresh[start : start + _CHUNK])
    return fresh.nonzero()[0]


def sort_run(words: Hashes, delta: Delta, name: int = 0) -> Run:
    """Return the consolidated rows of a delta as a run."""
    if len(words) == 0:
        return make_run(words, delta.columns, delta.weights, name)
    order, ordered = order_words(words)
    fresh = group_ordered(order, ordered, delta.columns, as_rows=True)
    distinct = bool(fresh.all())
    if distinct and all_one(delta.weights):
        return make_run(ordered, gather(delta.columns, order), np.ones(len(order), np.int8), name)
    weights = delta.weights.take(order)
    if not distinct:
        weights = np.add.reduceat(weights, np.flatnonzero(fresh))
        order, ordered = order[fresh], ordered[fresh]
    if not weights.all():
        remaining = np.flatnonzero(weights)
        order, ordered, weights = order[remaining], ordered[remaining], weights[remaining]
    return make_run(ordered, gather(delta.columns, order), weights, name)


def make_run(words: Hashes, columns: Sequence[pa.Array], weights: Small, name: int = 0) -> Run:
    """Return a run of a spine, of rows that are in order and distinct."""
    table = table_of(words) if has_table((words,)) else None
    return Run(name, (words,), narrow(weights), tuple(columns), views(columns), (), table)


def select_columns(run: Run, columns: Sequence[int]) -> Run:
    """Return the same rows with other columns; rows may then be equal."""
    return replace(
        run,
        columns=tuple(run.columns[column] for column in columns),
        views=tuple(run.views[column] for column in columns),
    )


def has_table(keys: Sequence[Numbers]) -> bool:
    """Whether a search in a run begins with a table: when its only key is a hash, and there are many."""
    return len(keys) == 1 and len(keys[0]) >= LIMITS.table_from


def table_of(words: Hashes) -> OffsetTable:
    """Return the offset table of ascending words."""
    builder = TableBuilder(len(words))
    builder.extend(words, 0)
    return builder.finish(len(words))


class TableBuilder:
    """Fills an offset table while the words of a run are written from front to back."""

    __slots__ = ("_filled", "_mapped", "_shift", "_starts")

    def __init__(self, most_rows: int, new: NewArray | None = None) -> None:
        bits = max(1, (max(most_rows, 1) // _ROWS_PER_BUCKET).bit_length())
        self._shift = np.uint64(64 - bits)
        self._mapped = new is not None
        self._starts: npt.NDArray[np.signedinteger] = (new or np.empty)(
            (1 << bits) + 1, np.int32 if most_rows < 2**31 else np.int64
        )
        self._filled = 0  # buckets whose beginning is known

    def extend(self, words: Hashes, at: int) -> None:
        """Take the next words, which stand at `at` in the run."""
        if len(words) == 0:
            return
        for begin in range(0, len(words), _CHUNK):
            self._extend(words[begin : begin + _CHUNK], at + begin)

    def _extend(self, words: Hashes, at: int) -> None:
        last = int(words[-1] >> self._shift)
        fresh = np.arange(self._filled, last + 1, dtype=np.uint64)
        self._starts[self._filled : last + 1] = np.searchsorted(words, fresh << self._shift) + at
        self._filled = max(self._filled, last + 1)

    def finish(self, rows: int) -> OffsetTable:
        """Return the table of a run that has this many rows."""
        self._starts[self._filled :] = rows
        largest = int((self._starts[1:] - self._starts[:-1]).max())
        steps = tuple(np.int64(1 << bit) for bit in reversed(range(largest.bit_length())))
        return OffsetTable(self._shift, self._starts, steps, self._mapped)


def find(run: Run, low: Hashes, high: Hashes) -> tuple[Positions, Positions, Positions]:
    """Search ascending word ranges: (the ranges that have words, where these begin, where they end)."""
    words = run.words
    if len(words) == 0 or len(low) == 0:
        none = np.zeros(0, np.int64)
        return none, none, none
    table = run.table if len(low) < _LOOKUP_BELOW else None
    begin = words.searchsorted(low) if table is None else lookup(table, words, low)
    head = words.take(begin, mode="clip")
    hit = head == low if low is high else (head >= low) & (head <= high)
    hits = hit.nonzero()[0]
    if len(hits) == 0:
        return hits, hits, hits
    if len(hits) < len(low):
        begin, high = begin[hits], high[hits]
    end = begin + 1
    last = len(words) - 1
    more = words.take(end, mode="clip") <= high
    more &= end <= last
    open_ends = more.nonzero()[0]
    for _ in range(_NEAR):
        if len(open_ends) * 4 > len(hits):
            break
        if len(open_ends) == 0:
            return hits, begin, end
        end[open_ends] += 1
        at = end[open_ends]
        open_ends = open_ends[(at <= last) & (words.take(at, mode="clip") <= high[open_ends])]
    if len(open_ends):
        end[open_ends] = _behind(words, table, high[open_ends])
    return hits, begin, end


def _behind(words: Hashes, table: OffsetTable | None, high: Hashes) -> Positions:
    """searchsorted(words, high, "right"), for words that ascend."""
    if table is None or high[-1] == _LAST:
        return words.searchsorted(high, "right")
    return lookup(table, words, high + _ONE)


def lookup(table: OffsetTable, words: Hashes, low: Hashes) -> Positions:
    """searchsorted(words, low), each search starting from its bucket."""
    before: Positions = table.starts.take((low >> table.shift).view(np.int64)).astype(np.int64)
    before -= 1  # the last position that surely has a smaller word
    # What lies behind the bucket is not smaller. Behind the last word, it stands for itself until the result is cut.
    for step in table.steps:
        ahead = before + step
        before += (words.take(ahead, mode="clip") < low) * step
    before += 1
    return np.minimum(before, len(words))
