"""Replay of ticks that nobody looked between: a stretch of them is one step over their changes together.

The rows of a view follow from those of its sources, so that a flow which has taken the changes of many ticks at once
answers as one that has taken them one by one; it costs one step instead of many. Ticks are stepped one by one where
the ticks between can be distinguished afterwards:

- a view reads the time of the tick, or may fail in one and be suspended,
- a source has a lateness, drops batches that came before, or quarantines retractions that find nothing,
- a sink is handed the changes of every tick.

A stretch that cannot be stepped at once is gone back to, and its ticks are stepped one by one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from penstock.data.arrays import Positions
from penstock.data.collation import normaliser
from penstock.data.delta import Delta, concat
from penstock.data.equality import group_rows
from penstock.data.hashing import hash_rows
from penstock.data.tick import Tick
from penstock.engine.event import Event, TickEvent
from penstock.engine.graph import FedBatch, Graph
from penstock.engine.source import SourceSpec
from penstock.engine.suspension import optional_views
from penstock.engine.tick import NoJournal, by_key, maintain, run_atomically, stage_change
from penstock.plan import node as plan
from penstock.plan.expression import Call

LOG = logging.getLogger("penstock.flow")
MOST_TICKS = 1_024
MOST_ROWS = 1 << 19
MOST_BYTES = 32 * 2**20
PART_OF_BUDGET = 8  # a stretch has at most one so-manieth of the memory that a flow may have
_QUARTER = 15 * 60 * 1_000_000
_TEXTS = ("string", "char", "variant")


def replay_all(graph: Graph, events: Iterable[Event], apply: Callable[[Event], None]) -> None:
    """Let events happen again, `apply` each of them or several ticks at once; an error leaves the flow between two events."""
    stretch, together = _Stretch(), None
    for event in events:
        if not isinstance(event, TickEvent):
            _finish(graph, stretch, apply)
            apply(event)
            stretch, together = _Stretch(), None
            continue
        if together is None:
            together = _Together.of(graph)
        if not together.takes(graph, event):
            _finish(graph, stretch, apply)
            apply(event)
            stretch = _Stretch()
            continue
        rows, size = _measured(event)
        if not together.has_room(stretch, event, rows, size):
            _finish(graph, stretch, apply)
            stretch = _Stretch()
        stretch.add(event, rows, size)
    _finish(graph, stretch, apply)


@dataclass(slots=True)
class _Stretch:
    """Ticks that wait to be stepped together."""

    events: list[TickEvent] = field(default_factory=list)
    keys: dict[str, tuple[int, ...]] = field(default_factory=dict)  # by which a source without one changes
    rows: int = 0
    bytes: int = 0

    def add(self, event: TickEvent, rows: int, size: int) -> None:
        """Let a tick of so many rows and bytes wait, too."""
        self.events.append(event)
        self.keys |= {batch.source: batch.keys for batch in _filled(event)}
        self.rows += rows
        self.bytes += size


@dataclass(frozen=True, slots=True)
class _Together:
    """Which ticks of a flow may be stepped together, until it is another flow."""

    possible: bool
    dated: bool  # a view makes moments of texts, which have the date of their tick when they say none
    most_bytes: int

    @classmethod
    def of(cls, graph: Graph) -> _Together:
        active = [entry for name, entry in graph.views.items() if name not in graph.state.suspended]
        possible = not (
            graph.state.sinks
            or optional_views(graph) - graph.state.suspended.keys()
            or any(entry.view.uses_time for entry in active)
            or any(entry.spec.lateness is not None for entry in graph.sources.values())
        )
        budget = MOST_BYTES if graph.budget is None else graph.budget.size // PART_OF_BUDGET
        return cls(
            possible,
            possible and any(_makes_moments(entry.view.root) for entry in active),
            min(MOST_BYTES, budget),
        )

    def takes(self, graph: Graph, event: TickEvent) -> bool:
        """Whether a tick may be stepped with others."""
        if not self.possible:
            return False
        keys: dict[str, tuple[int, ...]] = {}
        for batch in _filled(event):
            spec = graph.spec(batch.source)
            if spec.dedup or keys.setdefault(batch.source, batch.keys) != batch.keys:
                return False
            if (batch.delta.weights < 0).any() and _finds_nothing(spec):
                return False
        return True

    def has_room(self, stretch: _Stretch, event: TickEvent, rows: int, size: int) -> bool:
        """Whether a tick may be added to those that wait."""
        if not stretch.events:
            return True
        if self.dated and event.micros // _QUARTER != stretch.events[0].micros // _QUARTER:
            return False  # a day begins with a quarter of an hour, in every zone
        return (
            len(stretch.events) < MOST_TICKS
            and stretch.rows + rows <= MOST_ROWS
            and stretch.bytes + size <= self.most_bytes
            and all(stretch.keys.get(batch.source, batch.keys) == batch.keys for batch in _filled(event))
        )


def _finds_nothing(spec: SourceSpec) -> bool:
    """Whether retractions of a source may be left out, which depends on the rows that are there then."""
    # By key, one that finds nothing may as well find a row that came with it.
    return spec.on_missing_delete == "quarantine" or (
        spec.on_missing_delete == "ignore" and not spec.primary_key
    )


def _filled(event: TickEvent) -> Iterator[FedBatch]:
    return (batch for batch in event.fed if len(batch.delta))


def _measured(event: TickEvent) -> tuple[int, int]:
    """The rows and bytes of a tick."""
    deltas = [batch.delta for batch in event.fed]
    size = sum(column.nbytes for delta in deltas for column in delta.columns)
    rows = sum(map(len, deltas))
    return rows, size + 8 * rows


def _makes_moments(part: Any) -> bool:
    """Whether something in a plan may give a text the date of the tick; what Spark computes is not in the plan."""
    if isinstance(part, plan.Spark) or (isinstance(part, Call) and _is_moment_of_text(part)):
        return True
    if isinstance(part, tuple):
        return any(map(_makes_moments, part))
    return is_dataclass(part) and any(_makes_moments(getattr(part, member.name)) for member in fields(part))


def _is_moment_of_text(call: Call) -> bool:
    return "timestamp" in call.type and any(text in part.type for part in call.args for text in _TEXTS)


def _finish(graph: Graph, stretch: _Stretch, apply: Callable[[Event], None]) -> None:
    """Step the ticks that wait."""
    events = stretch.events
    if len(events) < 2 or not _step(graph, events):
        for event in events:
            apply(event)


def _step(graph: Graph, events: Sequence[TickEvent]) -> bool:
    """Step ticks at once; False, and nothing has changed, when they must be stepped one by one."""
    state = graph.state
    number, micros = state.ticks + len(events), max(state.micros, *(event.micros for event in events))
    fed = [batch for event in events for batch in event.fed]
    try:
        changes = _changes(graph, events)
        ticked = run_atomically(
            graph,
            lambda: stage_change(graph, fed, changes, Tick(number, micros)),
            events[-1],
            NoJournal(),
        )
    except Exception as error:
        first = number - len(events) + 1
        LOG.info("ticks %d to %d are replayed one by one: %s", first, number, error)
        return False
    if ticked.interrupt is not None:
        raise ticked.interrupt
    maintain(graph)
    return True


def _changes(graph: Graph, events: Sequence[TickEvent]) -> dict[str, Delta]:
    """The change of every source from before the first tick to behind the last one."""
    batches: dict[str, list[tuple[int, FedBatch]]] = {}
    for at, event in enumerate(events):
        for batch in _filled(event):
            batches.setdefault(batch.source, []).append((at, batch))
    changes: dict[str, Delta] = {}
    for name, parts in batches.items():
        spec, keys = graph.spec(name), parts[0][1].keys
        rows = concat([batch.delta for _, batch in parts])
        if spec.primary_key:
            ticks = np.repeat([at for at, _ in parts], [len(batch.delta) for _, batch in parts])
            changes[name] = _last_of_keys(spec, rows, ticks)
        elif keys:
            changes[name] = by_key(graph, FedBatch(name, rows, keys=keys), ())
        else:
            changes[name] = rows
    return {name: rows for name, rows in changes.items() if len(rows)}


def _last_of_keys(spec: SourceSpec, rows: Delta, ticks: Positions) -> Delta:
    """What the last tick of every primary key did to it; ValueError when that depends on the row that was there before.

    A key that is gone in the end is inserted and retracted, because it may not have been there in the beginning.
    """
    counted = np.flatnonzero(rows.weights)
    rows, ticks = rows.take(counted), ticks[counted]
    if not len(rows):
        return rows
    positions = spec.positions(spec.primary_key)
    of_texts = [normaliser(spec.fields[at].type) for at in positions]
    keys = [
        rows.columns[at] if of_text is None else of_text(rows.columns[at])
        for at, of_text in zip(positions, of_texts, strict=True)
    ]
    order, starts = group_rows(hash_rows(keys), keys)
    group = np.empty(len(rows), np.int64)
    group[order] = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(order))))
    in_order = np.argsort(group, kind="stable")
    group, ticks, inserted = group[in_order], ticks[in_order], rows.weights[in_order] > 0
    same_key = group[1:] == group[:-1]
    if (same_key & (ticks[1:] == ticks[:-1]) & inserted[:-1] & ~inserted[1:]).any():
        raise ValueError(f"a key of source '{spec.name}' is inserted and then retracted in one tick")
    last = np.append(~same_key, True)
    stay = rows.take(np.sort(in_order[last & inserted]))
    gone = rows.take(np.sort(in_order[last & ~inserted]))
    once = np.ones(len(gone), np.int64)
    return concat(
        [
            Delta(gone.columns, once),
            Delta(gone.columns, -once),
            Delta(stay.columns, np.ones(len(stay), np.int64)),
        ]
    )
