"""Which slot a key has: an index from key hash to slot, with the keys themselves by slot.

Accumulators live in dense arrays by slot. A key gets a slot when it is first seen and loses it when its group dies; the slot is
then free for another key, so state does not grow while groups come and go.

Cost: one hash per row, a look-up per distinct key in a logarithmic number of sorted runs, one comparison of the real key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Bools, Numbers, Positions
from penstock.data.column_view import gather
from penstock.data.equality import equal_rows, group_rows
from penstock.data.hashing import Hashes, hash_rows, tells_apart
from penstock.data.ordering import run_lengths, run_starts
from penstock.data.sorting import order_words
from penstock.state.key_column import key_column
from penstock.state.run import Run, lookup
from penstock.state.runs import Runs, index_run
from penstock.state.slot_array import SlotArray
from penstock.state.state import Composite, Image, State, numpy_array

_ENCODE_FROM = 8192  # rows from which grouping by a hash table is faster than by sorting, if keys repeat
_SAMPLE = 2048
_DISTINCT = 0.95
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


class RowSlots:
    """The slots of rows: `touched[groups[i]]` is the slot of row i."""

    __slots__ = ("_slots", "groups", "touched")

    touched: Positions
    groups: Positions
    _slots: Positions | None

    @property
    def slots(self) -> Positions:
        """The slot of every row."""
        if self._slots is None:
            self._slots = self.touched.take(self.groups)
        return self._slots


class Resolved(RowSlots):
    """The slots of rows by their keys; `leaders` are the first rows of each key."""

    __slots__ = ("leaders",)

    def __init__(self, touched: Positions, groups: Positions, leaders: Positions) -> None:
        self.touched = touched
        self.groups = groups
        self.leaders = leaders
        self._slots = None


def group_keys(columns: Sequence[pa.Array], hashes: Hashes, *, as_rows: bool) -> tuple[Positions, Positions]:
    """Group equal keys: the first row of each distinct key, in hash order, and the group of every row."""
    count = len(hashes)
    if count >= _ENCODE_FROM:
        grouped = _group_neighbours(columns, hashes, as_rows)
        if grouped is None and not _mostly_distinct(hashes):
            grouped = _group_encoded(columns, hashes, as_rows)
        if grouped is not None:
            return grouped
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
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    numbers = encoded.indices.to_numpy(zero_copy_only=False)
    # Numbers come in the order of first appearance: each row with a new one leads its group.
    first = np.searchsorted(np.maximum.accumulate(numbers), np.arange(len(order)))
    groups = rank.take(numbers)
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


class Slots(Composite):
    """Keys and their slots."""

    def __init__(self, types: Sequence[pa.DataType], *, as_rows: bool = False) -> None:
        self._as_rows = as_rows
        self._columns = [key_column(kind, as_rows=as_rows) for kind in types]
        self._hashes = SlotArray(np.uint64)
        self._index = Runs(self._alive)
        self._free: list[
            int
        ] = []  # slots without a key, as a stack of `_free_count`; what a tick takes stays behind them
        self._free_count = self._free_count_before = 0
        self.size = 0
        """All slots are below this."""
        self._size_before = 0
        self._released: tuple[
            Positions, ...
        ] = ()  # given up by ticks that have committed, free after `maintain`
        self._released_after: tuple[Positions, ...] = ()

    def states(self) -> Iterator[tuple[str, State]]:
        yield "hashes", self._hashes
        yield "index", self._index
        for at, column in enumerate(self._columns):
            yield f"key {at}", column

    def __len__(self) -> int:
        return self.size - self._free_count - sum(map(len, self._released))

    def live(self) -> Positions:
        """All slots that have a key."""
        alive = np.ones(self.size, np.bool_)
        alive[self._free[: self._free_count]] = False
        for slots in self._released_after:
            alive[slots] = False
        return alive.nonzero()[0]

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
        """Give up slots; their keys can be read until the tick commits."""
        if len(slots):
            self._released_after = (*self._released_after, slots)
            # Entries of the index that still lead to a dead slot find another hash there.
            hashes = self._hashes.data[slots]
            self._hashes.put(slots, hashes ^ _ALL, hashes)

    def commit(self) -> None:
        super().commit()
        self._size_before = self.size
        self._free_count_before = self._free_count
        self._released = self._released_after

    def rollback(self) -> None:
        super().rollback()
        self.size = self._size_before
        self._free_count = self._free_count_before
        self._released_after = self._released

    def maintain(self, fuel: int) -> None:
        super().maintain(fuel)
        if self._released:
            for column in self._columns:
                for slots in self._released:
                    column.forget(slots)
            # What an interrupt leaves behind the stack is taken away by the next call; until then the slots are released.
            del self._free[self._free_count :]
            for slots in self._released:
                self._free.extend(slots.tolist())
            count = len(self._free)
            self._released = self._released_after = ()
            self._free_count = self._free_count_before = count
        for column in self._columns:
            column.compact(self.size, len(self), fuel)

    def memory(self) -> int:
        """Bytes of memory."""
        return super().memory() + 8 * self._free_count

    def save(self) -> Image:
        free = np.array(self._free[: self._free_count], np.int64)
        released = np.concatenate([free[:0], *self._released])  # the columns have not forgotten them yet
        return Image({"size": self.size}, {"free": free, "released": released}, super().save().parts)

    def load(self, image: Image) -> None:
        super().load(image)
        self.size = self._size_before = image.values["size"]
        self._free = numpy_array(image, "free").tolist()
        self._free_count = self._free_count_before = len(self._free)
        released = numpy_array(image, "released")
        self._released = self._released_after = (released,) if len(released) else ()

    def _alive(self, keys: Sequence[Numbers], numbers: Sequence[Numbers]) -> Bools:
        """Which index entries lead to a slot that still has their key."""
        hashes, slots = keys[0], numbers[0]
        valid: Bools = self._hashes.data[slots] == hashes
        # A key that died and came back into the same slot has two entries.
        valid[1:] &= (hashes[1:] != hashes[:-1]) | (slots[1:] != slots[:-1])
        return valid

    def _find(self, wanted: Hashes, columns: Sequence[pa.Array], leaders: Positions) -> Positions:
        """Look up distinct keys, which come in hash order."""
        resolved = np.full(len(wanted), -1, np.int64)
        rows, hashes = np.arange(len(wanted)), wanted  # the keys that no run has had so far
        for run in self._index.after:
            if len(rows) == 0:
                break
            at = _first(run, hashes)
            # Behind the last entry the last hash is compared, which is smaller than what was searched.
            hits = (run.words.take(at, mode="clip") == hashes).nonzero()[0]
            if len(hits) == 0:
                continue
            self._match(run, at[hits], rows[hits], columns, leaders, resolved)
            rest = (resolved.take(rows) < 0).nonzero()[0]
            rows, hashes = rows[rest], hashes[rest]
        return resolved

    def _match(
        self,
        run: Run,
        at: Positions,
        rows: Positions,
        columns: Sequence[pa.Array],
        leaders: Positions,
        resolved: Positions,
    ) -> None:
        """Resolve the keys at `rows` whose hashes begin at `at` in a run: keys of one hash stand one behind the other."""
        while len(rows):
            candidates = run.numbers[0].take(at)
            match = self._hashes.data.take(candidates) == run.words.take(at)
            compared = leaders.take(rows)
            for stored, column in zip(self._columns, columns, strict=True):
                match &= stored.equal(candidates, column, compared)
            if match.all():
                resolved[rows] = candidates
                return
            resolved[rows[match]] = candidates[match]
            rows, at = rows[~match], at[~match]
            more = at + 1 < len(run)
            rows, at = rows[more], at[more]
            same = run.words.take(at + 1) == run.words.take(at)
            rows, at = rows[same], at[same] + 1

    def _take_slots(self, hashes: Hashes, columns: Sequence[pa.Array], rows: Positions) -> Positions:
        count = len(hashes)
        reused = min(count, self._free_count)
        slots = np.empty(count, np.int64)
        if reused:
            slots[:reused] = self._free[self._free_count - reused : self._free_count]
            self._free_count -= reused
        start = self.size
        self.size += count - reused
        slots[reused:] = np.arange(start, self.size)
        keys = gather(columns, rows)
        self._hashes.reserve(self.size)
        self._hashes.assign(slots, hashes, reused)
        for stored, column in zip(self._columns, keys, strict=True):
            stored.reserve(self.size)
            stored.put(slots, column, reused)
        self._index.stage(index_run(hashes, slots, self._index.next_name))
        return slots


def _first(run: Run, wanted: Hashes) -> Positions:
    """The first entries of a run that are not before the hashes."""
    if run.table is None or len(wanted) * 64 > len(run):
        return run.words.searchsorted(wanted)
    return lookup(run.table, run.words, wanted)
