"""Which slot a key has: an index from key hash to slot, with the keys themselves by slot.

Accumulators live in dense arrays by slot. A key gets a slot when it is first seen and loses it when its group dies; the slot is
then given to another key, so state does not grow while groups come and go.

Cost: one hash per row, a look-up per distinct key in a logarithmic number of sorted runs, one comparison of the real key.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.data.column_view import Positions, gather
from penstock.data.equality import equal_rows, group_rows
from penstock.data.hashing import Hashes, hash_rows, tells_apart
from penstock.data.ordering import run_lengths, run_starts
from penstock.data.sorting import order_words
from penstock.state.dense import Dense
from penstock.state.key_column import key_column
from penstock.state.run import OffsetTable, TableBuilder, lookup
from penstock.state.sorted_runs import Column, Run, SortedRuns, merge_sorted

_ENCODE_FROM = 8192  # rows from which grouping by a hash table is faster than by sorting, if keys repeat
_SAMPLE = 2048
_DISTINCT = 0.95
_TABLE_FROM = 500_000  # keys in a run from which an offset table pays
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


class Resolved:
    """Rows and their slots: `touched[groups[i]]` is the slot of row i, and `leaders` are the first rows of each key."""

    __slots__ = ("_slots", "groups", "leaders", "touched")

    def __init__(self, touched: Positions, groups: Positions, leaders: Positions) -> None:
        self.touched = touched
        self.groups = groups
        self.leaders = leaders
        self._slots: Positions | None = None

    @property
    def slots(self) -> Positions:
        """The slot of every row."""
        if self._slots is None:
            self._slots = self.touched.take(self.groups)
        return self._slots


def group_keys(columns: Sequence[pa.Array], hashes: Hashes, *, as_rows: bool) -> tuple[Positions, Positions]:
    """Group equal keys: the first row of each distinct key, in hash order, and the group of every row."""
    count = len(hashes)
    if count >= _ENCODE_FROM:
        found = _group_neighbours(columns, hashes, as_rows)
        if found is None and not _mostly_distinct(hashes):
            found = _group_encoded(columns, hashes, as_rows)
        if found is not None:
            return found
    order, starts = group_rows(hashes, columns, as_rows=as_rows)
    groups = np.empty(count, np.int64)
    if len(starts) == count:
        groups[order] = np.arange(count)
        return order, groups
    groups[order] = np.arange(len(starts)).repeat(run_lengths(starts, count))
    return order.take(starts), groups


def _group_neighbours(
    columns: Sequence[pa.Array], hashes: Hashes, as_rows: bool
) -> tuple[Positions, Positions] | None:
    """The same for rows that are in hash order already; None when they are not."""
    sample = hashes[: min(_SAMPLE, len(hashes))]
    if (sample[1:] < sample[:-1]).any() or (hashes[1:] < hashes[:-1]).any():
        return None
    starts = run_starts(hashes)
    groups = np.arange(len(starts)).repeat(run_lengths(starts, len(hashes)))
    return (starts, groups) if _all_equal(columns, starts, groups, as_rows) else None


def _group_encoded(
    columns: Sequence[pa.Array], hashes: Hashes, as_rows: bool
) -> tuple[Positions, Positions] | None:
    """The same by a hash table; None when rows share a hash without being equal."""
    encoded = pa.array(hashes).dictionary_encode()
    distinct = encoded.dictionary.to_numpy(zero_copy_only=False)
    order, _ = order_words(distinct)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    numbers = encoded.indices.to_numpy(zero_copy_only=False)
    # Numbers are given in the order of first appearance: each row with a new one leads its group.
    first = np.searchsorted(np.maximum.accumulate(numbers), np.arange(len(order)))
    groups = place.take(numbers)
    leaders = first.take(order)
    return (leaders, groups) if _all_equal(columns, leaders, groups, as_rows) else None


def _all_equal(columns: Sequence[pa.Array], leaders: Positions, groups: Positions, as_rows: bool) -> bool:
    """Whether every row equals the leader of its group."""
    if tells_apart(columns):
        return True
    return bool(
        equal_rows(columns, np.arange(len(groups)), columns, leaders.take(groups), as_rows=as_rows).all()
    )


def _mostly_distinct(hashes: Hashes) -> bool:
    """Whether a sample hardly holds a key twice: a hash table that grows with every row is slower than sorting."""
    sample = hashes[:: len(hashes) // _SAMPLE]
    return len(np.unique(sample)) > _DISTINCT * len(sample)


class Slots:
    """Keys and their slots."""

    def __init__(self, types: Sequence[pa.DataType], *, as_rows: bool = False) -> None:
        self._as_rows = as_rows
        self._columns = [key_column(kind, as_rows=as_rows) for kind in types]
        self._hashes = Dense(np.uint64)
        self._live = Dense(np.bool_)
        self._index = SortedRuns(1, self._merge)
        self._tables: dict[int, tuple[Hashes, OffsetTable]] = {}
        self._free: list[int] = []
        self._next = 0
        self._pending: list[Positions] = []
        self._reused: list[Positions] = []
        self._before: int | None = None
        self._dying: list[Positions] = []

    @property
    def size(self) -> int:
        """All slots are below this."""
        return self._next

    def __len__(self) -> int:
        return self._next - len(self._free)

    def live(self) -> Positions:
        """All slots that have a key."""
        return (self._live.data[: self._next]).nonzero()[0]

    def resolve(self, columns: Sequence[pa.Array], rows: int | None = None) -> Resolved:
        """Find the slot of every row's key; keys not seen before get one, until `rollback`."""
        hashes = hash_rows(columns, rows)
        leaders, groups = group_keys(columns, hashes, as_rows=self._as_rows)
        wanted = hashes[leaders]
        touched = self._find(wanted, columns, leaders)
        missing = (touched < 0).nonzero()[0]
        if len(missing):
            touched[missing] = self._take_slots(wanted[missing], columns, leaders[missing])
        return Resolved(touched, groups, leaders)

    def find(self, columns: Sequence[pa.Array], rows: int | None = None) -> Positions:
        """Return the slot of every row's key, -1 for keys that have none."""
        hashes = hash_rows(columns, rows)
        leaders, groups = group_keys(columns, hashes, as_rows=self._as_rows)
        return self._find(hashes[leaders], columns, leaders)[groups]

    def keys(self, slots: Positions) -> tuple[pa.Array, ...]:
        """Return the key columns at slots."""
        return tuple(column.take(slots) for column in self._columns)

    def key(self, column: int, slots: Positions) -> pa.Array:
        """Return one key column at slots."""
        return self._columns[column].take(slots)

    def release(self, slots: Positions) -> None:
        """Give up slots when the tick commits."""
        if len(slots):
            self._dying.append(slots)

    def commit(self) -> None:
        changed = sum(len(slots) for slots in self._pending)
        self._pending.clear()
        self._reused.clear()
        self._before = None
        if self._dying:
            dead = np.concatenate(self._dying)
            self._dying.clear()
            self._bury(dead)
            self._free.extend(dead.tolist())
            for column in self._columns:
                column.compact(self.live, len(self))
        self._index.work(changed)
        if self._tables:
            present = {id(run[0]) for run in self._index.runs}
            self._tables = {key: table for key, table in self._tables.items() if key in present}

    def rollback(self) -> None:
        for slots in self._pending:
            self._bury(slots)
            self._index.drop_last()
        self._pending.clear()
        self._dying.clear()
        while self._reused:
            self._free.extend(self._reused.pop().tolist())
        if self._before is not None:
            self._next, self._before = self._before, None

    def memory(self) -> int:
        """Bytes held."""
        tables = sum(table.starts.nbytes for _, table in self._tables.values())
        keys = sum(column.memory() for column in self._columns)
        return (
            keys
            + tables
            + self._index.memory()
            + self._hashes.memory()
            + self._live.memory()
            + 8 * len(self._free)
        )

    def _bury(self, slots: Positions) -> None:
        self._live.data[slots] = False
        # Entries of the index that still lead to a dead slot find another hash there.
        self._hashes.data[slots] ^= _ALL

    def _merge(self, parts: Sequence[Sequence[Column]], keys: int) -> Run:
        """Merge index entries, without those whose slot has died or has another key by now."""
        hashes, slots = merge_sorted(parts, keys)
        valid = self._hashes.data[slots] == hashes
        # A key that died and came back into the same slot has two entries.
        valid[1:] &= (hashes[1:] != hashes[:-1]) | (slots[1:] != slots[:-1])
        return (hashes, slots) if valid.all() else (hashes[valid], slots[valid])

    def _find(self, wanted: Hashes, columns: Sequence[pa.Array], leaders: Positions) -> Positions:
        """Look up distinct keys, which come in hash order."""
        found = np.full(len(wanted), -1, np.int64)
        for run in self._index.runs:
            hashes, slots = run
            rows = (found < 0).nonzero()[0]
            if len(rows) == 0:
                break
            at = self._first(hashes, wanted if len(rows) == len(wanted) else wanted[rows])
            while len(rows):
                inside = at < len(hashes)
                rows, at = rows[inside], at[inside]
                same = hashes[at] == wanted[rows]
                rows, at = rows[same], at[same]
                if len(rows) == 0:
                    break
                candidates = slots[at]
                match = self._hashes.data.take(candidates) == wanted[rows]
                for stored, column in zip(self._columns, columns, strict=True):
                    match &= stored.equal(candidates, column, leaders[rows])
                found[rows[match]] = candidates[match]
                rows, at = rows[~match], at[~match] + 1
        return found

    def _first(self, hashes: Hashes, wanted: Hashes) -> Positions:
        if len(hashes) < _TABLE_FROM or len(wanted) * 64 > len(hashes):
            return hashes.searchsorted(wanted)
        known = self._tables.get(id(hashes))
        if known is None:
            builder = TableBuilder(len(hashes))
            builder.extend(hashes, 0)
            known = self._tables[id(hashes)] = (hashes, builder.finish(len(hashes)))
        return lookup(known[1], hashes, wanted)

    def _take_slots(self, hashes: Hashes, columns: Sequence[pa.Array], rows: Positions) -> Positions:
        if self._before is None:
            self._before = self._next
        count = len(hashes)
        reused = min(count, len(self._free))
        slots = np.empty(count, np.int64)
        if reused:
            slots[:reused] = self._free[-reused:]
            del self._free[-reused:]
            self._reused.append(slots[:reused])
        slots[reused:] = np.arange(self._next, self._next + count - reused)
        self._next += count - reused
        self._hashes.reserve(self._next)
        self._live.reserve(self._next)
        self._hashes.data[slots] = hashes
        self._live.data[slots] = True
        for stored, column in zip(self._columns, gather(columns, rows), strict=True):
            stored.reserve(self._next)
            stored.put(slots, column)
        self._index.append((hashes, slots))
        self._pending.append(slots)
        return slots
