"""ASOF joins: each left row with the one right row of its key that is nearest in time.

`backward` takes the last right row at or before the left row's time, `forward` the first at or behind it, `nearest` the closer of
the two, the earlier one when they are equally far. With a tolerance, rows further apart do not match. A NULL in a key or a time
matches nothing. Of several right rows of one time it is the first in the order of their columns, NULL first; how often a right
row is there does not matter.

Rule, with m(a) the match of left row a in the right side:  d = dA x m+(a) + A- x (m+(a) - m-(a)).
A right row that comes or goes at time t concerns only the left rows between t and the next right row behind it (backward;
before it, forward; both, nearest): only those are read. Cost: delta, and the left rows between a changed right row and its
neighbour.

With `times`, the event times of both sides, rows that no change to come needs are forgotten
(`penstock.operators.passed_times`), a bounded number per tick.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Bools, Ints, Positions, Words
from penstock.data.column_view import null_mask
from penstock.data.delta import Delta, concat, empty
from penstock.data.ordering import encode
from penstock.data.tick import Tick
from penstock.operators.base import Operator
from penstock.operators.passed_times import Direction, PassedRows, PassedTimes
from penstock.plan.event_time import WatermarkBound
from penstock.state.history import History
from penstock.state.slot_array import SlotArray
from penstock.state.slots import Slots
from penstock.state.state import State

_FORGOTTEN_AT_LEAST = 1_024  # rows of either side that a tick may forget
_FORGOTTEN_PER_ROW = 4
_LAST = np.uint64(0xFFFFFFFFFFFFFFFF)
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class _Staged:
    """What a tick has put into the state: its left rows, the right rows that changed, and old left rows that went."""

    groups: Positions
    times: Words
    ids: Ints
    changed_groups: Positions
    changed_times: Words
    forgotten: Ints


class Asof(Operator):
    """Left columns, then the columns of the match; `outer` keeps left rows without one, with NULLs."""

    def __init__(
        self,
        left: Sequence[pa.DataType],
        right: Sequence[pa.DataType],
        *,
        left_keys: Sequence[int],
        right_keys: Sequence[int],
        left_time: int,
        right_time: int,
        direction: Direction = "backward",
        tolerance: int | None = None,
        outer: bool = True,
        times: tuple[WatermarkBound, WatermarkBound] | None = None,
    ) -> None:
        self._left_types, self._right_types = tuple(left), tuple(right)
        self._keys = (tuple(left_keys), tuple(right_keys))
        self._times = (left_time, right_time)
        self._direction = direction
        self._tolerance = None if tolerance is None else np.uint64(tolerance)
        self._outer = outer
        self._groups = Slots([left[key] for key in left_keys]) if left_keys else None
        self._members = SlotArray(np.int64)  # rows of both sides per group
        self._left, self._right = History(left), History(right)
        self._passed = (
            None if times is None else PassedTimes(*times, direction=direction, tolerance=tolerance)
        )

    def states(self) -> Iterator[tuple[str, State]]:
        if self._groups is not None:
            yield "groups", self._groups
        yield "members", self._members
        yield "left", self._left
        yield "right", self._right
        if self._passed is not None:
            yield "passed", self._passed

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        matchable = [self._matchable(delta, side) for side, delta in enumerate(inputs)]
        left, right = (
            delta.take(np.flatnonzero(mask)) for delta, mask in zip(inputs, matchable, strict=True)
        )
        if self._passed is not None:
            self._passed.move(tick)
        staged = self._stage(left, right)
        parts = [self._joined(staged.ids, self._matches(staged.groups, staged.times), left.weights)]
        if len(staged.changed_groups) and self._left.count:
            parts += self._moved(staged)
        if self._outer and not matchable[0].all():
            unmatchable = inputs[0].take(np.flatnonzero(~matchable[0]))
            nulls = tuple(pa.nulls(len(unmatchable), kind) for kind in self._right_types)
            parts.append(Delta((*unmatchable.columns, *nulls), unmatchable.weights))
        parts = [part for part in parts if len(part)]
        return concat(parts) if parts else empty((*self._left_types, *self._right_types))

    def _stage(self, left: Delta, right: Delta) -> _Staged:
        """Put rows into the state, and take some out that nothing needs any more."""
        count = len(left)
        all_left, all_right = left, right
        forgotten = _NONE
        if self._passed is not None:
            for side, delta in enumerate((left, right)):
                self._passed.require_open(self._words(delta, side))
            most = max(_FORGOTTEN_AT_LEAST, _FORGOTTEN_PER_ROW * (len(left) + len(right)))
            passed = self._passed.passed_right(most)
            forgotten, counts = self._done_left(passed, most)
            if len(forgotten):
                all_left = concat([left, Delta(self._left.columns(forgotten), -counts)])
            done, counts = self._done_right(passed, most)
            if len(done):
                all_right = concat([right, Delta(self._right.columns(done), -counts)])
        groups = self._resolve(all_left, all_right)
        left_times, right_times = self._words(all_left, 0), self._words(all_right, 1)
        of_left, of_right = groups[: len(all_left)], groups[len(all_left) :]
        ids, left_run = self._left.stage(of_left, left_times, all_left.columns, all_left.weights)
        _, right_run = self._right.stage(of_right, right_times, all_right.columns, all_right.weights)
        changed = right_run.keys[0].astype(np.int64, copy=False), right_run.keys[1]
        if self._passed is not None:
            self._passed.stage(left_run, right_run, passed)
            is_open = self._passed.is_open(changed[1])
            changed = changed[0][is_open], changed[1][is_open]
        return _Staged(of_left[:count], left_times[:count], ids[:count], *changed, forgotten)

    def _done_left(self, passed: PassedRows, most: int) -> tuple[Ints, Ints]:
        """The left rows whose match is final, with their counts; `passed` are the right rows that the bound has just passed."""
        assert self._passed is not None
        behind = self._passed.passed_left(most)
        if self._direction == "backward" or not len(passed.ids):
            return behind.ids, behind.counts
        groups, last = passed.last()
        met = self._left.between(groups, np.zeros(len(last), np.uint64), last)
        return _distinct((behind.ids, met.keys[1]), (behind.counts, met.counts))

    def _done_right(self, passed: PassedRows, most: int) -> tuple[Ints, Ints]:
        """The right rows that no left row will have again, with their counts."""
        assert self._passed is not None
        if self._direction == "forward":
            return passed.ids, passed.counts
        far = self._passed.far_right(most)
        if not len(passed.ids):
            return far.ids, far.counts
        groups, last = passed.last()
        later = np.flatnonzero(last)  # nothing is before the first time of all
        groups, last = groups[later], last[later]
        overtaken = self._right.between(groups, np.zeros(len(last), np.uint64), last - np.uint64(1))
        return _distinct((far.ids, overtaken.keys[1]), (far.counts, overtaken.counts))

    def _matchable(self, delta: Delta, side: int) -> Bools:
        """Which rows have neither a NULL key nor a NULL time."""
        valid = np.ones(len(delta), np.bool_)
        for column in (*self._keys[side], self._times[side]):
            nulls = null_mask(delta.columns[column])
            if nulls is not None:
                valid &= ~nulls
        return valid

    def _resolve(self, left: Delta, right: Delta) -> Positions:
        """The groups of the left rows, then of the right rows; a group lives while it has rows on any side."""
        if self._groups is None:
            return np.zeros(len(left) + len(right), np.int64)
        pairs = zip(*self._keys, strict=True)
        columns = [
            pa.concat_arrays([left.columns[left_key], right.columns[right_key]])
            for left_key, right_key in pairs
        ]
        resolved = self._groups.resolve(columns, len(left) + len(right))
        self._members.reserve(self._groups.size)
        weights = np.concatenate([left.weights, right.weights])
        _, members = self._members.add(resolved.touched, resolved.groups, weights)
        self._groups.release(resolved.touched[members == 0])
        return resolved.slots

    def _words(self, delta: Delta, side: int) -> Words:
        (words,) = encode(delta.columns[self._times[side]])
        return words

    def _matches(self, groups: Positions, times: Words, *, committed: bool = False) -> Ints:
        """The id of the right row that each left row has, -1 for none."""
        nearest: list[tuple[Ints, Words]] = []
        for direction, later in (("backward", False), ("forward", True)):
            if self._direction in (direction, "nearest"):
                ids, at = self._right.nearest(groups, times, later=later, committed=committed)
                apart = at - times if later else times - at
                if self._tolerance is not None:
                    ids = np.where(apart <= self._tolerance, ids, -1)
                nearest.append((ids, apart))
        if len(nearest) == 1:
            return nearest[0][0]
        (before, back), (behind, ahead) = nearest
        return np.where((before >= 0) & ((behind < 0) | (back <= ahead)), before, behind)

    def _moved(self, staged: _Staged) -> list[Delta]:
        """What changes for the left rows that were there before this tick."""
        groups, low, high = self._intervals(staged.changed_groups, staged.changed_times)
        touched = self._left.between(groups, low, high)
        if len(touched) == 0:
            return []
        owners, (times, ids), counts = groups[touched.groups], touched.keys, touched.counts
        if len(staged.forgotten):
            # Forward, the right row that a forgotten one has goes with it: it would seem to have lost its match.
            stay = np.flatnonzero(~np.isin(ids, staged.forgotten))
            owners, times, ids, counts = owners[stay], times[stay], ids[stay], counts[stay]
        before = self._matches(owners, times, committed=True)
        after = self._matches(owners, times)
        differ = np.flatnonzero(before != after)
        ids, counts = ids[differ], counts[differ]
        return [self._joined(ids, before[differ], -counts), self._joined(ids, after[differ], counts)]

    def _intervals(self, groups: Positions, times: Words) -> tuple[Positions, Words, Words]:
        """The groups and times, first to last, whose left rows may have another match; none overlap."""
        fresh = (groups[1:] != groups[:-1]) | (times[1:] != times[:-1])
        first = np.flatnonzero(np.concatenate(([True], fresh)))
        groups, times = groups[first], times[first]
        low, high = times, times
        if self._direction != "forward":
            high = self._reach(groups, times, later=True)
        if self._direction != "backward":
            low = self._reach(groups, times, later=False)
        begins = np.flatnonzero(np.concatenate(([True], (groups[1:] != groups[:-1]) | (low[1:] > high[:-1]))))
        ends = np.append(begins[1:], len(groups)) - 1
        return groups[begins], low[begins], high[ends]

    def _reach(self, groups: Positions, times: Words, *, later: bool) -> Words:
        """The last time behind (before) each time at which no other right row is, within the tolerance."""
        edge = _LAST if later else np.uint64(0)
        unit = np.uint64(1)
        inner = np.flatnonzero(times != edge)
        reach: Words = np.full(len(times), edge)
        start = times[inner] + unit if later else times[inner] - unit
        ids, at = self._right.nearest(groups[inner], start, later=later, committed=False)
        bounded = np.flatnonzero(ids >= 0)
        reach[inner[bounded]] = at[bounded] - unit if later else at[bounded] + unit
        if self._tolerance is None:
            return reach
        room = edge - times if later else times
        step = np.minimum(room, self._tolerance)
        return np.minimum(reach, times + step) if later else np.maximum(reach, times - step)

    def _joined(self, ids: Ints, matches: Ints, weights: Ints) -> Delta:
        """Left rows by id with their matches by id."""
        if not self._outer:
            matched = np.flatnonzero(matches >= 0)
            ids, matches, weights = ids[matched], matches[matched], weights[matched]
        return Delta((*self._left.columns(ids), *self._right.columns(matches)), weights)


def _distinct(ids: tuple[Ints, Ints], counts: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """The rows of two lists, each once."""
    once, at = np.unique(np.concatenate(ids).astype(np.int64, copy=False), return_index=True)
    return once, np.concatenate(counts)[at]
