"""From rows of users to batches that wait for a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.data.batch import DeltaBatch
from penstock.data.consolidate import consolidate
from penstock.data.delta import concat
from penstock.engine.graph import FedBatch, Graph, SourceEntry
from penstock.engine.names import require_comparable
from penstock.engine.retention import require_whole, snapshot_by_key, whole_rows
from penstock.engine.source import to_delta
from penstock.engine.tick import last_ordinals
from penstock.errors import DataError, StateError


def batch_of(
    graph: Graph, source: str, rows: DeltaBatch | Any, ordinal: int | None, waiting: Sequence[FedBatch]
) -> FedBatch | None:
    """A change as it waits for the step; None when its ordinal is not above the last one, committed or waiting."""
    entry = graph.find_source(source)
    refuse_table(entry)
    if ordinal is not None and not _is_new(entry, ordinal, waiting):
        return None
    batch = rows if isinstance(rows, DeltaBatch) else DeltaBatch.inserts(rows)
    keys = _keys(graph, entry, batch)
    return FedBatch(entry.name, to_delta(entry.spec, batch), ordinal, keys)


def snapshot_batch(graph: Graph, source: str, rows: Any, waiting: Sequence[FedBatch]) -> FedBatch:
    """The difference between these rows and what the source holds, with the changes that wait."""
    entry = graph.find_source(source)
    refuse_table(entry)
    spec = entry.spec
    wanted = to_delta(spec, DeltaBatch.inserts(rows))
    earlier = [batch for batch in waiting if batch.source == spec.name]
    if earlier and (spec.primary_key or any(batch.keys for batch in earlier)):
        raise StateError(
            f"source '{spec.name}' has changes that wait for a step",
            code="FLOW_PENDING",
            hint="call flow.step() before flow.feed_snapshot(...)",
        )
    if spec.retain != "all" and spec.primary_key:
        return FedBatch(spec.name, snapshot_by_key(graph.kernel, spec, wanted))
    stored = whole_rows(graph.kernel, spec, "the difference to a snapshot without a primary key")
    old = [stored, *(batch.delta for batch in earlier)]
    difference = consolidate(concat([wanted, *(-delta for delta in old)]))
    # Retractions first: by primary key, the new row must come after the old one is gone.
    return FedBatch(spec.name, difference.take(np.argsort(difference.weights > 0, kind="stable")))


def refuse_table(entry: SourceEntry) -> None:
    """StateError when a source has the rows of a table."""
    if entry.spec.table is not None:
        raise StateError(
            f"source '{entry.name}' has the rows of the table {entry.spec.table.name}, and takes no others",
            code="FLOW_TABLE_SOURCE",
            hint=f"change the table, then flow.refresh({entry.name!r})",
        )


def last_ordinal(entry: SourceEntry, waiting: Sequence[FedBatch]) -> int:
    """The highest ordinal of a source, committed or waiting; 0 when there is none."""
    ordinals = [entry.state.ordinal, last_ordinals(waiting).get(entry.name)]
    return max((value for value in ordinals if value is not None), default=0)


def _is_new(entry: SourceEntry, ordinal: int, waiting: Sequence[FedBatch]) -> bool:
    ordinals = [entry.state.ordinal, last_ordinals(waiting).get(entry.name)]
    last = max((value for value in ordinals if value is not None), default=None)
    return last is None or ordinal > last


def _keys(graph: Graph, entry: SourceEntry, batch: DeltaBatch) -> tuple[int, ...]:
    """The columns of a change by key, when the source has no primary key that says the same."""
    if not batch.keys:
        return ()
    spec = entry.spec
    keys = spec.positions(batch.keys)
    collated = bool(spec.primary_key)
    require_comparable((spec.fields[key] for key in keys), of="a change by key", collated=collated)
    if not spec.primary_key:
        require_whole(graph.kernel, spec, "the rows that a change by key replaces, without a primary key")
        # The index is there when the tick asks for it.
        graph.kernel.lookup(spec.name, keys, [pa.array([], spec.types[key]) for key in keys])
        return keys
    if set(keys) != set(spec.positions(spec.primary_key)):
        raise DataError(
            f"the change is by {', '.join(batch.keys)}, but the primary key is {', '.join(spec.primary_key)}",
            code="FLOW_KEYS",
            where=f"source '{spec.name}'",
            hint="use the primary key as keys=",
        )
    return ()
