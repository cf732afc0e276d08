"""Values in order, counted, per group: what MIN, MAX, top-k, percentiles and lists are read from.

Entries (slot, order words, [row id]) -> signed count lie in sorted runs; the sum over all runs is the truth. A scan
reads the first entries of many groups at once, a window per run: what lies before the nearest end of an unfinished
window is complete.

Cost: a change is appended in the order of its rows; a scan reads as many entries as it gives out and as are dead between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.data.arrays import Bools, Ints, Numbers, Positions, Words
from penstock.data.hashing import expand
from penstock.data.ordering import compare_words, is_start, sort_positions
from penstock.errors import InternalError
from penstock.state.narrow import all_one
from penstock.state.run import Run
from penstock.state.runs import Runs, narrowed
from penstock.state.state import Composite, State

_READ = 2048  # entries that are not worth a search


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries of several groups: the index of the group that was asked for, the key columns, the count."""

    groups: Positions
    keys: tuple[npt.NDArray[Any], ...]
    counts: Ints

    def __len__(self) -> int:
        return len(self.counts)


@dataclass(frozen=True, slots=True)
class _Range:
    """Where the entries of some slots lie in one run: `owners` are positions among the slots that were asked for, ascending."""

    run: Run
    owners: Positions
    low: Positions
    high: Positions

    def of(self, chosen: Bools, position: Positions) -> _Range:
        """The chosen slots only; `position` is their position from now on."""
        inside = chosen[self.owners]
        return _Range(self.run, position[self.owners[inside]], self.low[inside], self.high[inside])


class OrderedCounts(Composite):
    """Signed counts of (slot, words..., ids) in order."""

    def __init__(self, words: int, *, ids: bool) -> None:
        self.words = words
        self._keys = 1 + words + ids
        self._runs = Runs()

    def states(self) -> Iterator[tuple[str, State]]:
        yield "runs", self._runs

    def stage(self, columns: Sequence[npt.NDArray[Any]], weights: Ints) -> Run:
        """Add entries (slot, words..., [ids]) with weights; return them sorted and added up. `rollback` takes them back."""
        order = sort_positions(columns)
        sorted_weights = weights if all_one(weights) else weights.take(order)
        keys, counts = sum_equal([column.take(order) for column in columns], sorted_weights)
        changed = Run(self._runs.next_name, tuple(keys), counts)
        self._runs.stage(narrowed(changed))
        return changed

    def scan(
        self,
        slots: Positions,
        count: int | None = None,
        *,
        reverse: bool = False,
        starts: Sequence[Words] | None = None,
        committed: bool = False,
        seek: bool = False,
    ) -> Entries:
        """Read the first live entries of each slot (the last ones, backwards, with `reverse`).

        At least `count` of them, counted with their multiplicity, and all whose words equal the last one's; all when `count`
        is None. `starts` are words per slot before which (behind which, with `reverse`) nothing is alive, or, with
        `seek`, nothing is wanted. `committed` reads the state before this tick.
        """
        ranges = self._ranges(slots, committed)
        # Looking for the start of short ranges costs more than reading over what is dead in them.
        if starts is not None and (
            seek or any(int((part.high - part.low).max()) > _READ // max(1, len(slots)) for part in ranges)
        ):
            ranges = [self._narrow(part, starts, reverse) for part in ranges]
        parts: list[Entries] = []
        active = np.arange(len(slots))
        wanted = np.full(len(slots), 0 if count is None else count)
        window = None if count is None else max(2 * count + 8, _READ // max(1, len(slots)))
        while True:
            entries, limit, limited = self._window(ranges, len(active), window, reverse)
            if limited.any():
                inside = self._before(entries, limit, limited)
                entries = Entries(
                    entries.groups[inside], tuple(key[inside] for key in entries.keys), entries.counts[inside]
                )
            parts.append(Entries(active[entries.groups], entries.keys, entries.counts))
            read = np.bincount(entries.groups, entries.counts, len(active)).astype(np.int64)
            wanted[active] -= read
            more = limited & (wanted[active] > 0)
            if not more.any():
                break
            flip = np.uint64(0xFFFFFFFFFFFFFFFF if reverse else 0)
            limit = tuple(word[more] ^ flip for word in limit)
            active = active[more]
            position = np.cumsum(more) - 1
            ranges = [self._narrow(part.of(more, position), limit, reverse) for part in ranges]
            assert window is not None
            window *= 4
        return self._join(parts, reverse)

    def between(
        self, slots: Positions, low: Sequence[Words], high: Sequence[Words], *, committed: bool = False
    ) -> Entries:
        """Read the live entries of each slot whose words lie in [low, high]."""
        ranges = [
            self._narrow(self._narrow(part, low, False), high, True)
            for part in self._ranges(slots, committed)
        ]
        entries, _, _ = self._window(ranges, len(slots), None, False)
        return self._join([entries], False)

    def read_short(self, slots: Positions) -> Entries | None:
        """Read all live entries of each slot when they are so few that this costs no more than to read the first ones."""
        ranges = self._ranges(slots, False)
        if sum(int((part.high - part.low).sum()) for part in ranges) > _READ:
            return None
        entries, _, _ = self._window(ranges, len(slots), None, False)
        return self._join([entries], False)

    def _ranges(self, slots: Positions, committed: bool) -> list[_Range]:
        """Where the entries of slots lie, in the runs that have any: most of the small ones have none."""
        ranges = []
        for run in self._runs.before if committed else self._runs.after:
            # Searching for numbers of another width would copy the run. A slot beyond the width of the run finds nothing.
            slot = run.keys[0]
            wanted = slots.astype(slot.dtype, copy=False)
            low = slot.searchsorted(wanted)
            owners = (slot.take(low, mode="clip") == slots).nonzero()[0]
            if len(owners) < len(slots):
                low = low[owners]
            if len(owners):
                ranges.append(_Range(run, owners, low, slot.searchsorted(wanted[owners], "right")))
        return ranges

    def _narrow(self, part: _Range, limit: Sequence[Words], reverse: bool) -> _Range:
        """Leave out what lies before the limit of each slot (behind it, with `reverse`)."""
        words = part.run.keys[1 : 1 + self.words]
        limits = [word[part.owners] for word in limit]
        cut = lower_bounds(words, limits, part.low, part.high, after=reverse)
        low, high = (part.low, cut) if reverse else (cut, part.high)
        return _Range(part.run, part.owners, low, high)

    def _window(
        self, ranges: Sequence[_Range], count: int, window: int | None, reverse: bool
    ) -> tuple[Entries, tuple[Words, ...], Bools]:
        """Read up to `window` entries per slot and run: entries added up, and the nearest end of an unfinished window."""
        # Reading backwards is reading complemented words forwards.
        flip = np.uint64(0xFFFFFFFFFFFFFFFF if reverse else 0)
        limit = tuple(np.zeros(count, np.uint64) for _ in range(self.words))
        limited = np.zeros(count, np.bool_)
        if not ranges:
            none = tuple(np.zeros(0, np.uint64) for _ in range(self.words))
            ids = (np.zeros(0, np.int64),) * (self._keys - 1 - self.words)
            return Entries(np.zeros(0, np.int64), (*none, *ids), np.zeros(0, np.int64)), limit, limited
        sizes = np.concatenate([part.high - part.low for part in ranges])
        if window is not None and (sizes > window).any():
            sizes = np.minimum(sizes, window)
            for part in ranges:
                cut = (part.high - part.low > window).nonzero()[0]
                last = part.high[cut] - window if reverse else part.low[cut] + window - 1
                ends = [word[last] ^ flip for word in part.run.keys[1 : 1 + self.words]]
                self._lower_limit(limit, limited, part.owners[cut], ends)
        # Runs differ only in where values are taken from: everything else is done once for all of them.
        offset, _ = expand(sizes)
        if reverse:
            at = np.concatenate([part.high - 1 for part in ranges]).repeat(sizes) - offset
        else:
            at = np.concatenate([part.low for part in ranges]).repeat(sizes) + offset
        groups = np.concatenate([part.owners for part in ranges]).repeat(sizes)
        pieces, done, entry = [], 0, 0
        for part in ranges:
            length = int(sizes[done : done + len(part.owners)].sum())
            columns_of_run = (*part.run.keys[1:], part.run.weights)
            pieces.append([column.take(at[entry : entry + length]) for column in columns_of_run])
            done, entry = done + len(part.owners), entry + length
        columns = [
            piece[0] if len(piece) == 1 else np.concatenate(piece) for piece in zip(*pieces, strict=True)
        ]
        words = [word ^ flip for word in columns[: self.words]] if reverse else columns[: self.words]
        others = [column.astype(np.int64, copy=False) for column in columns[self.words :]]
        joined = (groups, *words, *others)
        if len(ranges) > 1:
            order = sort_positions(joined[: self._keys])
            joined = tuple(column[order] for column in joined)
        (groups, *keys), counts = sum_equal(joined[:-1], joined[-1])
        return Entries(groups, tuple(keys), counts), limit, limited

    @staticmethod
    def _lower_limit(
        limit: tuple[Words, ...], limited: Bools, rows: Positions, words: Sequence[Words]
    ) -> None:
        """Lower the limits of some slots to these words, where they have none or a greater one."""
        less, _ = compare_words(words, [word[rows] for word in limit])
        less |= ~limited[rows]
        for mine, other in zip(limit, words, strict=True):
            mine[rows[less]] = other[less]
        limited[rows] = True

    def _before(self, entries: Entries, limit: tuple[Words, ...], limited: Bools) -> Bools:
        """Which entries lie before the limit of their slot, if it has one."""
        less, _ = compare_words(entries.keys[: self.words], [word[entries.groups] for word in limit])
        less |= ~limited[entries.groups]
        return less

    def _join(self, parts: Sequence[Entries], reverse: bool) -> Entries:
        if len(parts) == 1:
            entries = parts[0]
        else:
            groups = np.concatenate([part.groups for part in parts])
            order = np.argsort(groups, kind="stable")
            keys = tuple(
                np.concatenate(column)[order] for column in zip(*(part.keys for part in parts), strict=True)
            )
            entries = Entries(groups[order], keys, np.concatenate([part.counts for part in parts])[order])
        if (entries.counts < 0).any():
            raise InternalError("a value is retracted more often than it was inserted")
        if reverse:
            all_bits = np.uint64(0xFFFFFFFFFFFFFFFF)
            keys = tuple(key ^ all_bits for key in entries.keys[: self.words]) + entries.keys[self.words :]
            return Entries(entries.groups, keys, entries.counts)
        return entries


def lower_bounds(
    columns: Sequence[Numbers], keys: Sequence[Numbers], low: Positions, high: Positions, *, after: bool
) -> Positions:
    """For each key find the first position in [low, high) that is not before it (or, with `after`, that is behind it)."""
    low, high = low.copy(), high.copy()
    steps = int((high - low).max(initial=0)).bit_length()
    last = len(columns[0]) - 1
    for _ in range(steps):
        middle = (low + high) >> 1
        probe = np.minimum(middle, last)
        before = _precedes(columns, keys, probe, after)
        before &= low < high
        low = np.where(before, middle + 1, low)
        high = np.where(before, high, np.maximum(middle, low))
    return low


def _precedes(
    columns: Sequence[Numbers], keys: Sequence[Numbers], positions: Positions, after: bool
) -> Bools:
    value = columns[-1][positions]
    before: Bools = value <= keys[-1] if after else value < keys[-1]
    for column, key in zip(columns[-2::-1], keys[-2::-1], strict=True):
        value = column[positions]
        before = (value < key) | ((value == key) & before)
    return before


def sum_equal(keys: Sequence[Numbers], counts: Numbers) -> tuple[Sequence[Numbers], Numbers]:
    """Add up the counts of equal neighbours and drop zeros."""
    if len(counts) == 0:
        return keys, counts
    fresh = is_start(*keys)
    if not fresh.all():
        counts = np.add.reduceat(counts, fresh.nonzero()[0], dtype=np.int64)
        keys = [key[fresh] for key in keys]
    if not counts.all():
        remaining = counts.nonzero()[0]
        keys, counts = [key[remaining] for key in keys], counts[remaining]
    return keys, counts
