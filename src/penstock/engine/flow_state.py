"""What a flow must know to go on after a restart, beside its definition and the states of its kernel.

One value holds all of it, so that a checkpoint cannot forget a part. Which query feeds a source at the moment, watches and the
history of changes belong to a running process and are not in it.
"""

from __future__ import annotations

import base64
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.data.delta import Delta
from penstock.engine.backlog import Backlog, Waiting
from penstock.engine.quarantine import Quarantine
from penstock.engine.sink_spec import SinkSpec, SinkState
from penstock.engine.source import SeenBatches
from penstock.errors import StateError
from penstock.plan.suspension import Suspension

VERSION = 1


@dataclass(slots=True)
class SourceState:
    """What replays must not repeat, and what is in the quarantine."""

    ordinal: int | None = None  # the last one that was committed
    feeders: dict[str, int] = field(default_factory=dict)  # streaming query -> how many of its epochs are in
    seen: SeenBatches = field(default_factory=SeenBatches)
    quarantine: Quarantine = field(default_factory=Quarantine)
    latest_event_time: int | None = None  # that was accepted, of a source with a lateness
    late: int = 0  # rows that came too late
    rejected: int = 0  # batches that a background step refused
    retained: tuple[int, ...] = ()  # columns that a source with retain="used" keeps, in their order
    position: str | None = None  # the snapshot or version of the table that the source stands for

    def to_dict(self) -> dict[str, Any]:
        """As a JSON value."""
        return {
            "ordinal": self.ordinal,
            "feeders": self.feeders,
            "seen": {"digests": _text(b"".join(self.seen.digests)), "dropped": self.seen.dropped},
            "quarantine": {
                "parts": [[part.reason, _encode(part.rows)] for part in self.quarantine.parts],
                "dropped": self.quarantine.dropped,
            },
            "mark": self.latest_event_time,
            "late": self.late,
            "rejected": self.rejected,
            "retained": list(self.retained),
            "position": self.position,
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> SourceState:
        """Of a JSON value."""
        state = cls(
            ordinal=saved["ordinal"],
            feeders=dict(saved["feeders"]),
            latest_event_time=saved["mark"],
            late=saved["late"],
            rejected=saved["rejected"],
            retained=tuple(saved["retained"]),
            position=saved.get("position"),
        )
        digests = base64.b64decode(saved["seen"]["digests"])
        for start in range(0, len(digests), SeenBatches.WIDTH):
            state.seen.add(digests[start : start + SeenBatches.WIDTH])
        state.seen.dropped = saved["seen"]["dropped"]
        for reason, rows in saved["quarantine"]["parts"]:
            state.quarantine.add(reason, _decode(rows))
        state.quarantine.dropped = saved["quarantine"]["dropped"]
        return state


@dataclass(slots=True)
class FlowState:
    """Everything that a restored flow needs beside its definition and the kernel's states."""

    ticks: int = 0
    micros: int = 0  # the time of the last tick or registration: time never goes back
    recomputing: bool = False  # whether views are recomputed and diffed
    sources: dict[str, SourceState] = field(default_factory=dict)
    suspended: dict[str, Suspension] = field(default_factory=dict)  # views that ticks go on without
    sinks: dict[str, SinkState] = field(default_factory=dict)  # that follow views

    def to_dict(self) -> dict[str, Any]:
        """As a JSON value."""
        return {
            "version": VERSION,
            "ticks": self.ticks,
            "micros": self.micros,
            "recomputing": self.recomputing,
            "sources": {name: source.to_dict() for name, source in self.sources.items()},
            "suspended": {name: asdict(suspension) for name, suspension in self.suspended.items()},
            "sinks": {name: _sink_to_dict(sink) for name, sink in self.sinks.items()},
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> FlowState:
        """Of a JSON value; a version that is not known is a StateError."""
        if saved.get("version") != VERSION:
            raise StateError(
                f"the state of the flow has version {saved.get('version')!r}; this penstock reads version {VERSION}",
                code="STATE_FLOW_VERSION",
                hint="open it with the version that wrote it",
            )
        sources = {name: SourceState.from_dict(source) for name, source in saved["sources"].items()}
        suspended = {name: Suspension(**fields) for name, fields in saved.get("suspended", {}).items()}
        sinks = {name: _sink_from_dict(sink) for name, sink in saved.get("sinks", {}).items()}
        return cls(saved["ticks"], saved["micros"], saved["recomputing"], sources, suspended, sinks)


def _sink_to_dict(sink: SinkState) -> dict[str, Any]:
    backlog = sink.backlog
    return {
        "spec": sink.spec.to_dict(),
        "seen": backlog.seen,
        "base": backlog.base,
        "mark": backlog.mark,
        "waiting": [[waiting.first, waiting.last, _encode(waiting.change)] for waiting in backlog.waiting()],
        "sources": [[tick, sources] for tick, sources in sink.sources.items()],
    }


def _sink_from_dict(saved: dict[str, Any]) -> SinkState:
    spec = SinkSpec.from_dict(saved["spec"])
    waiting = [Waiting(first, last, _decode(change)) for first, last, change in saved["waiting"]]
    backlog = Backlog(
        saved["seen"], replaceable=spec.replaces, base=saved["base"], mark=saved["mark"], waiting=waiting
    )
    return SinkState(spec, backlog, dict(saved.get("sources", ())))


def _encode(rows: Delta) -> str:
    """Rows and weights as an Arrow stream in base 64."""
    columns = [*rows.columns, pa.array(rows.weights)]
    batch = pa.record_batch(columns, [str(position) for position in range(len(columns))])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return _text(sink.getvalue().to_pybytes())


def _decode(text: str) -> Delta:
    with pa.ipc.open_stream(base64.b64decode(text)) as reader:
        batch = reader.read_next_batch()
    *columns, weights = batch.columns
    return Delta(tuple(columns), np.array(weights.to_numpy(), np.int64))


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
