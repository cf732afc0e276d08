"""Session windows: each row with the start of its session, which is all rows of its key whose times meet, or touch.

A row lasts from its start to its end; a session from the first start to the last end, and the next one of its key
begins later than that. The state has the rows of each key in the order of their starts, and the sessions themselves.

Rule, with s(a) the start of the session of row a:  d = dA x s(a) + A- x (s+(a) - s-(a)).
A row that comes joins the sessions that it meets: the rows of the first of them stay, and those of the others begin
elsewhere. A session that loses rows is put together again from those that it has left, so that it may fall apart.
Sessions that no changed row meets are not looked at. Cost: delta, and the rows of sessions that begin elsewhere or
lose rows.

With a `time`, which the starts of rows follow, closed sessions are forgotten (`penstock.operators.session_ends`):
their rows leave the state, and nothing is given for that. Cost: a bounded number of rows' sessions per tick.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Bools, Ints, Positions, Words
from penstock.data.column_view import null_mask
from penstock.data.delta import Delta, concat, empty
from penstock.data.ordering import decode, encode, is_start, run_starts, sort_positions
from penstock.data.tick import Tick
from penstock.operators.base import Operator
from penstock.operators.session_ends import NONE, Intervals, SessionEnds
from penstock.plan.event_time import WatermarkBound
from penstock.state.history import History
from penstock.state.ordered import OrderedCounts, lower_bounds
from penstock.state.slot_array import SlotArray
from penstock.state.slots import Slots
from penstock.state.state import State

_LAST = np.uint64(0xFFFFFFFFFFFFFFFF)
_PIECE = 65_536  # look-ups at a time: each reads several entries of every run
_CLOSED_AT_LEAST = 256  # sessions that a tick may forget
_CLOSED_PER_ROW = 4


@dataclass(frozen=True, slots=True)
class _TimedRows:
    """Rows with their times, by id, and how many of them."""

    times: Intervals
    ids: Ints
    counts: Ints

    def take(self, positions: Positions) -> _TimedRows:
        """The rows at these positions."""
        return _TimedRows(self.times.take(positions), self.ids[positions], self.counts[positions])

    def within(self, starts: Words) -> _Labelled:
        """The rows as they come into sessions with these starts."""
        return _Labelled(self.ids, starts, self.counts)

    def without(self, starts: Words) -> _Labelled:
        """The rows as they leave sessions with these starts."""
        return _Labelled(self.ids, starts, -self.counts)


class _Labelled(NamedTuple):
    """Rows by id, with the start of the session in which they are, and a weight."""

    ids: Ints
    starts: Words
    weights: Ints


class SessionWindow(Operator):
    """The input columns, then the start of the session: NULL for a row without a start or an end."""

    def __init__(
        self,
        types: Sequence[pa.DataType],
        keys: Sequence[int],
        *,
        start: int,
        end: int,
        time: WatermarkBound | None = None,
    ) -> None:
        self.types = (*types, types[start])
        self._keys = tuple(keys)
        self._start, self._end = start, end
        self._groups = Slots([types[key] for key in keys]) if keys else None
        self._members = SlotArray(np.int64)  # rows per group
        self._rows = History(types)
        self._sessions = OrderedCounts(2, ids=False)  # by group: start, end
        self._ends = None if time is None else SessionEnds(time)

    def states(self) -> Iterator[tuple[str, State]]:
        if self._groups is not None:
            yield "groups", self._groups
        yield "members", self._members
        yield "rows", self._rows
        yield "sessions", self._sessions
        if self._ends is not None:
            yield "ends", self._ends

    def bound(self, watermarks: Mapping[str, int]) -> int | None:
        """The time before which no session begins that changes in this tick or later; None when it is not known."""
        return None if self._ends is None else self._ends.low

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        (delta,) = inputs
        if self._ends is not None:
            self._ends.move(tick)
        lasting = self._lasting(delta)
        rows = delta.take(np.flatnonzero(lasting))
        moves = self._moves(rows)
        parts = [self._shown(moves)] if moves else []
        if len(rows) < len(delta):
            others = delta.take(np.flatnonzero(~lasting))
            parts.append(Delta((*others.columns, pa.nulls(len(others), self.types[-1])), others.weights))
        return concat(parts) if parts else empty(self.types)

    def _lasting(self, delta: Delta) -> Bools:
        """Which rows have a start and an end."""
        lasting = np.ones(len(delta), np.bool_)
        for column in (self._start, self._end):
            nulls = null_mask(delta.columns[column])
            if nulls is not None:
                lasting &= ~nulls
        return lasting

    def _shown(self, moves: Sequence[_Labelled]) -> Delta:
        ids, starts, weights = (np.concatenate(column) for column in zip(*moves, strict=True))
        return Delta((*self._rows.columns(ids), decode((starts,), self.types[-1])), weights)

    def _moves(self, delta: Delta) -> list[_Labelled]:
        """Stage rows and the sessions that they make: which rows leave a session, and which come into one."""
        changed, closed = self._stage_with_closed(delta)
        if len(changed.ids) == 0:
            self._replace(closed, NONE)
            return []
        before = self._met(changed.times)
        lost, gained = (
            changed.take(np.flatnonzero(side)) for side in (changed.counts < 0, changed.counts > 0)
        )
        owner = _at_or_before(before, lost.times.groups, lost.times.starts)
        losing = np.zeros(len(before), np.bool_)
        losing[owner] = True
        intact = before.take(~losing)
        rest, rest_starts = self._remaining(before.take(losing), lost)
        parts = (intact, rest.times, gained.times)
        after, number = merged(_joined(parts))
        self._replace(_joined((before, closed)), after)
        bounds = np.cumsum([len(part) for part in parts])[:-1]
        of_intact, of_rest, of_gained = np.split(after.starts[number], bounds)
        moved = np.flatnonzero(of_rest != rest_starts)
        return [
            lost.within(before.starts[owner]),  # their counts are negative
            gained.within(of_gained),
            rest.take(moved).without(rest_starts[moved]),
            rest.take(moved).within(of_rest[moved]),
            *self._carried(intact, of_intact),
        ]

    def _stage_with_closed(self, delta: Delta) -> tuple[_TimedRows, Intervals]:
        """Put rows into the state, and take those of some closed sessions out: what has changed but for that, and
        these sessions."""
        if self._ends is None:
            return self._stage(delta), NONE
        (starts,) = encode(delta.columns[self._start])
        self._ends.require_open(starts)
        closed = self._ends.closed(max(_CLOSED_AT_LEAST, _CLOSED_PER_ROW * len(delta)))
        if len(closed) == 0:
            return self._stage(delta), closed
        rows = self._rows.between(closed.groups, closed.starts, closed.ends)
        _, ids = rows.keys
        changed = self._stage(concat([delta, Delta(self._rows.columns(ids), -rows.counts)]))
        return changed.take(np.flatnonzero(self._ends.is_open(changed.times.starts))), closed

    def _stage(self, delta: Delta) -> _TimedRows:
        """Put rows into the state: those of which there are more or fewer now, and by how many."""
        groups = np.zeros(len(delta), np.int64)
        if self._groups is not None:
            resolved = self._groups.resolve([delta.columns[key] for key in self._keys], len(delta))
            self._members.reserve(self._groups.size)
            _, members = self._members.add(resolved.touched, resolved.groups, delta.weights)
            self._groups.release(resolved.touched[members == 0])
            groups = resolved.slots
        (starts,) = encode(delta.columns[self._start])
        _, run = self._rows.stage(groups, starts, delta.columns, delta.weights)
        return self._lasting_rows(run.keys[0], run.keys[1], run.keys[2], run.weights)

    def _lasting_rows(self, groups: Positions, starts: Words, ids: Ints, counts: Ints) -> _TimedRows:
        """Rows by id, with their ends; one that ends before it starts ends where it starts."""
        groups, ids, counts = (column.astype(np.int64, copy=False) for column in (groups, ids, counts))
        (ends,) = encode(self._rows.column(self._end, ids))
        return _TimedRows(Intervals(groups, starts, np.maximum(starts, ends)), ids, counts)

    def _met(self, changed: Intervals) -> Intervals:
        """The sessions of the last tick that changed rows meet, in order."""
        regions, _ = merged(changed)
        cuts = range(0, len(regions), _PIECE)
        parts = [self._meeting(regions.take(np.arange(cut, min(cut + _PIECE, len(regions))))) for cut in cuts]
        sessions = _joined(parts)
        sessions = sessions.take(sort_positions((sessions.groups, sessions.starts)))
        return sessions.take(run_starts(sessions.groups, sessions.starts))

    def _meeting(self, regions: Intervals) -> Intervals:
        """The sessions that meet each of these intervals; one may be there several times."""
        none, last = np.zeros(len(regions), np.uint64), np.full(len(regions), _LAST)
        inside = self._sessions.between(
            regions.groups, (regions.starts, none), (regions.ends, last), committed=True
        )
        earlier = self._sessions.scan(
            regions.groups, 1, reverse=True, starts=(regions.starts, last), committed=True, seek=True
        )
        nearest = run_starts(earlier.groups)
        owner, (starts, ends) = earlier.groups[nearest], (key[nearest] for key in earlier.keys)
        reaching = np.flatnonzero(ends >= regions.starts[owner])
        return _joined(
            (
                Intervals(regions.groups[inside.groups], *inside.keys),
                Intervals(regions.groups[owner[reaching]], starts[reaching], ends[reaching]),
            )
        )

    def _remaining(self, sessions: Intervals, lost: _TimedRows) -> tuple[_TimedRows, Words]:
        """The rows of sessions without those that are lost, and where the session of each began."""
        rows = self._rows.between(sessions.groups, sessions.starts, sessions.ends)
        starts, ids = rows.keys
        counts = rows.counts.copy()
        if len(ids):
            by_id = np.argsort(lost.ids)
            at = by_id.take(lost.ids[by_id].searchsorted(ids), mode="clip")
            gone = np.flatnonzero(lost.ids[at] == ids)
            counts[gone] += lost.counts[at[gone]]
        there = np.flatnonzero(counts > 0)
        owner = rows.groups[there]
        rest = self._lasting_rows(sessions.groups[owner], starts[there], ids[there], counts[there])
        return rest, sessions.starts[owner]

    def _replace(self, before: Intervals, after: Intervals) -> None:
        """Stage sessions in place of others."""
        both = _joined((before, after))
        weights = np.ones(len(both), np.int64)
        weights[: len(before)] = -1
        self._sessions.stage((both.groups, both.starts, both.ends), weights)
        if self._ends is not None:
            self._ends.replace(both, weights)

    def _carried(self, sessions: Intervals, starts: Words) -> list[_Labelled]:
        """The rows of sessions that begin elsewhere now, out of the old sessions and into the new ones."""
        moved = np.flatnonzero(sessions.starts != starts)
        if len(moved) == 0:
            return []
        sessions, starts = sessions.take(moved), starts[moved]
        rows = self._rows.between(sessions.groups, sessions.starts, sessions.ends)
        _, ids = rows.keys
        return [
            _Labelled(ids, sessions.starts[rows.groups], -rows.counts),
            _Labelled(ids, starts[rows.groups], rows.counts),
        ]


def merged(intervals: Intervals) -> tuple[Intervals, Positions]:
    """Merge the intervals of each group that meet or touch: the merged ones in order, and for each interval the one
    that it is in."""
    count = len(intervals)
    order = sort_positions((intervals.groups, intervals.starts))
    ordered = intervals.take(order)
    reach = _reach(ordered)
    fresh = is_start(ordered.groups)
    fresh[1:] |= ordered.starts[1:] > reach[:-1]
    begins = fresh.nonzero()[0]
    lasts = np.append(begins[1:], count) - 1 if count else begins
    number = np.empty(count, np.int64)
    number[order] = np.cumsum(fresh) - 1
    return Intervals(ordered.groups[begins], ordered.starts[begins], reach[lasts]), number


def _at_or_before(intervals: Intervals, groups: Positions, starts: Words) -> Positions:
    """Of intervals in order, the last one of each group that starts at or before a time; there must be one."""
    low, high = np.zeros(len(groups), np.int64), np.full(len(groups), len(intervals))
    return lower_bounds((intervals.groups, intervals.starts), (groups, starts), low, high, after=True) - 1


def _reach(ordered: Intervals) -> Words:
    """The last end so far within each group."""
    # Ranks of ends, those of a later group above all of an earlier one, have a running maximum that starts anew with each group.
    by_end = np.argsort(ordered.ends, kind="stable")
    rank = np.empty(len(ordered), np.int64)
    rank[by_end] = np.arange(len(ordered))
    floor = (np.cumsum(is_start(ordered.groups)) - 1) * len(ordered)
    reach: Words = ordered.ends[by_end[np.maximum.accumulate(rank + floor) - floor]]
    return reach


def _joined(parts: Sequence[Intervals]) -> Intervals:
    groups, starts, ends = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("groups", "starts", "ends")
    )
    return Intervals(groups, starts, ends)
