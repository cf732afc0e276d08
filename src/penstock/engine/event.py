"""What happens to a flow, as records of its log: whoever applies the same events to the same flow has the same flow again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.data.delta import Delta
from penstock.engine import definition
from penstock.engine.graph import FedBatch, OnError
from penstock.engine.sink_spec import SinkSpec
from penstock.engine.source import SourceSpec
from penstock.plan import codec
from penstock.plan import node as plan

Header = Mapping[str, Any]
Batches = Sequence[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class TickEvent:
    """A tick over the batches that were fed, at a time."""

    micros: int
    fed: tuple[FedBatch, ...]


@dataclass(frozen=True, slots=True)
class SourceEvent:
    """A source was registered."""

    spec: SourceSpec


@dataclass(frozen=True, slots=True)
class ViewEvent:
    """A view was registered at a time, with the rows of static tables that came with it."""

    view: plan.View
    on_error: OnError
    micros: int
    statics: tuple[tuple[str, Delta], ...] = ()


@dataclass(frozen=True, slots=True)
class DropEvent:
    """A source or a view was dropped."""

    name: str
    is_view: bool


@dataclass(frozen=True, slots=True)
class ResumeEvent:
    """A suspended view was let go on."""

    name: str


@dataclass(frozen=True, slots=True)
class RejectEvent:
    """A batch was quarantined, because stepping it in the background has failed."""

    batch: FedBatch
    reason: str


@dataclass(frozen=True, slots=True)
class ClearEvent:
    """The quarantine of a source was emptied."""

    source: str


@dataclass(frozen=True, slots=True)
class RecomputeEvent:
    """Views are recomputed and diffed from now on."""


@dataclass(frozen=True, slots=True)
class SinkEvent:
    """A sink began to follow a view."""

    spec: SinkSpec


@dataclass(frozen=True, slots=True)
class DropSinkEvent:
    """A sink was dropped."""

    name: str


Event = (
    TickEvent
    | SourceEvent
    | ViewEvent
    | DropEvent
    | ResumeEvent
    | RejectEvent
    | ClearEvent
    | RecomputeEvent
    | SinkEvent
    | DropSinkEvent
)


def encode(event: Event) -> tuple[Header, Batches]:
    """An event as JSON and rows."""
    match event:
        case TickEvent():
            header = {"event": "tick", "micros": event.micros, "fed": [_fed(batch) for batch in event.fed]}
            return header, [_rows(batch.delta) for batch in event.fed]
        case SourceEvent():
            return {"event": "source", "spec": definition.source_to_json(event.spec)}, ()
        case ViewEvent():
            header = {
                "event": "view",
                "view": json.loads(codec.dumps(event.view)),
                "on_error": event.on_error,
                "micros": event.micros,
                "statics": [name for name, _ in event.statics],
            }
            return header, [_rows(rows) for _, rows in event.statics]
        case DropEvent():
            return {"event": "drop", "name": event.name, "is_view": event.is_view}, ()
        case ResumeEvent():
            return {"event": "resume", "name": event.name}, ()
        case RejectEvent():
            header = {"event": "reject", "fed": _fed(event.batch), "reason": event.reason}
            return header, [_rows(event.batch.delta)]
        case ClearEvent():
            return {"event": "clear", "source": event.source}, ()
        case RecomputeEvent():
            return {"event": "recompute"}, ()
        case SinkEvent():
            return {"event": "sink", "spec": event.spec.to_dict()}, ()
        case DropSinkEvent():
            return {"event": "drop_sink", "name": event.name}, ()


def decode(header: Header, batches: Batches) -> Event:
    """The event of a record."""
    rows = iter(batches)
    match header["event"]:
        case "tick":
            return TickEvent(header["micros"], tuple(_batch(fed, rows) for fed in header["fed"]))
        case "source":
            return SourceEvent(definition.source_from_json(header["spec"]))
        case "view":
            statics = tuple((name, _delta(next(rows))) for name in header["statics"])
            view = codec.loads(json.dumps(header["view"]))
            return ViewEvent(view, header["on_error"], header["micros"], statics)
        case "drop":
            return DropEvent(header["name"], header["is_view"])
        case "resume":
            return ResumeEvent(header["name"])
        case "reject":
            return RejectEvent(_batch(header["fed"], rows), header["reason"])
        case "clear":
            return ClearEvent(header["source"])
        case "recompute":
            return RecomputeEvent()
        case "sink":
            return SinkEvent(SinkSpec.from_dict(header["spec"]))
        case "drop_sink":
            return DropSinkEvent(header["name"])
        case other:
            raise ValueError(f"the event {other!r} is not known")


def _fed(batch: FedBatch) -> dict[str, Any]:
    return {
        "source": batch.source,
        "ordinal": batch.ordinal,
        "keys": list(batch.keys),
        "query": batch.query,
        "epoch": batch.epoch,
        "position": batch.position,
    }


def _batch(saved: Mapping[str, Any], rows: Iterator[pa.RecordBatch]) -> FedBatch:
    return FedBatch(**{**saved, "keys": tuple(saved["keys"])}, delta=_delta(next(rows)))


def _rows(delta: Delta) -> pa.RecordBatch:
    columns = [*delta.columns, pa.array(delta.weights)]
    return pa.record_batch(columns, [str(position) for position in range(len(columns))])


def _delta(batch: pa.RecordBatch) -> Delta:
    *columns, weights = batch.columns
    return Delta(tuple(columns), np.array(weights.to_numpy(), np.int64))
