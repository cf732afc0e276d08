"""The flow of a directory as it was at earlier ticks: a checkpoint at or before the tick, and the events behind it up
to the next tick.

What was registered or dropped behind a tick and before the next one counts as a part of it. The flow of the past is
another graph, so that ticks and reads of the live one go on; the files that are read are pinned meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import index
from threading import Lock
from typing import TypeVar

from penstock.engine.directory import FlowDirectory
from penstock.engine.event import DropSinkEvent, Event, ResumeEvent, SinkEvent, TickEvent, decode
from penstock.engine.graph import Graph
from penstock.engine.replay import OpenSession, apply, rebuilt
from penstock.engine.stretch import replay_all
from penstock.errors import ConfigError, PenstockError, StateError
from penstock.state.log import RecordReader

MOST_BYTES = 256 * 2**20
HINT = "flow.ticks() gives the ticks that can be read; a larger checkpoint_every keeps more of them"
NO_PATH = "a flow with a path keeps the ticks of its log: IncrementalFlow(path=...)"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a checkpoint stands: its name, how many ticks were before it, and the first event behind it."""

    checkpoint: str
    ticks: int
    log: int


BEGINNING = Moment("", 0, 1)  # of a flow that has no checkpoint yet


@dataclass(frozen=True, slots=True)
class _Rebuilt:
    """A flow of the past, and where its next event is."""

    graph: Graph
    events: RecordReader


class Past:
    """The earlier ticks of a durable flow. The last one that was asked for is kept, so that going on from there costs
    the ticks between."""

    def __init__(self, directory: FlowDirectory, session: OpenSession) -> None:
        self._directory = directory
        self._session = session
        self._rebuilding = Lock()
        self._latest: _Rebuilt | None = None
        self.bytes = 0
        """State of the flow of the past that is kept."""

    def first(self) -> int:
        """The first tick that is there."""
        with self._directory.pinned():
            return self._moments()[0].ticks

    def read(self, tick: int, read: Callable[[Graph], T], *, now: int, end: int) -> T:
        """What a function says of the flow at a tick; `now` is the last tick, and `end` the first event that has not happened."""
        with self._rebuilding, self._directory.pinned():
            graph = self._at(tick, now, end)
            try:
                return read(graph)
            except PenstockError as error:
                error.where = error.where or f"tick {tick}"
                raise

    def _at(self, tick: int, now: int, end: int) -> Graph:
        moments = self._moments()
        check_tick(tick, range(moments[0].ticks, now + 1))
        past = self._start([moment for moment in moments if moment.ticks <= tick][-1], tick)
        # An error leaves it between two ticks.
        self._latest, self.bytes = None, 0
        graph = past.graph
        replay_all(graph, _until(tick, past, end), lambda event: apply(graph, event, self._session))
        if past.graph.state.ticks != tick:
            raise StateError(
                f"tick {tick} is gone: the flow was restored while it was read", code="FLOW_TICK", hint=HINT
            )
        size = past.graph.kernel.memory()
        if size <= MOST_BYTES:
            self._latest, self.bytes = past, size
        return past.graph

    def forget(self) -> None:
        """Give the memory of the flow of the past back."""
        with self._rebuilding:
            self._latest, self.bytes = None, 0

    def _start(self, nearest: Moment, tick: int) -> _Rebuilt:
        """The flow to begin with: the one that was read last, unless it is behind the tick or before the nearest checkpoint."""
        latest = self._latest
        if latest is not None and latest.graph.state.ticks <= tick and latest.events.next >= nearest.log:
            return latest
        events = self._directory.reader(nearest.log)
        if nearest == BEGINNING:
            return _Rebuilt(Graph(), events)
        saved = self._directory.checkpoints.read(nearest.checkpoint)
        graph, _ = rebuilt(saved, self._session)
        graph.state.sinks.clear()
        return _Rebuilt(graph, events)

    def _moments(self) -> list[Moment]:
        """The checkpoints of this flow, the oldest first; those before a restore are of another one."""
        moments: list[Moment] = []
        for name in reversed(self._directory.checkpoints.names()):
            flow = self._directory.checkpoints.flow(name)
            moments.insert(0, Moment(name, flow["state"]["ticks"], flow["log"]))
            if flow.get("begins"):
                break
        return moments or [BEGINNING]


def _until(tick: int, past: _Rebuilt, end: int) -> Iterator[Event]:
    """The events of a flow of the past before the one that begins the tick behind `tick`."""
    ticks = past.graph.state.ticks
    for record in past.events.read(end):
        event = decode(record.header, record.batches)
        if isinstance(event, TickEvent | ResumeEvent):
            if ticks == tick:
                return
            ticks += 1
        # Nobody takes changes from the past, so they must not wait for sinks there.
        if not isinstance(event, SinkEvent | DropSinkEvent):
            yield event


def read_at(past: Past | None, tick: int, read: Callable[[Graph], T], *, now: int, end: int) -> T:
    """What a function says of a flow at a tick that is not the last one; StateError when it is not there."""
    try:
        tick = index(tick)
    except TypeError:
        raise ConfigError(
            f"at_tick={tick!r} is not the number of a tick",
            code="FLOW_OPTION",
            hint="flow.ticks() says which there are",
        ) from None
    if past is not None:
        return past.read(tick, read, now=now, end=end)
    check_tick(tick, range(now, now + 1), hint=NO_PATH)
    raise AssertionError("the last tick is read from the flow itself")


def check_tick(tick: int, ticks: range, *, hint: str = HINT) -> None:
    """StateError when a tick is not there; it says which are."""
    if tick in ticks:
        return
    first, last = ticks[0], ticks[-1]
    there = f"only tick {last} is there" if first == last else f"ticks {first} to {last} are there"
    why = "has not happened yet" if tick > last else "is gone" if tick >= 0 else "is none"
    raise StateError(f"tick {tick} {why}: {there}", code="FLOW_TICK", hint=hint)
