"""What a flow shows of its sources and views: Arrow tables for people, and numbers for their dashboards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.data.collation import is_collated, normaliser
from penstock.data.conform import conform_to
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta
from penstock.data.equality import equal_rows
from penstock.data.rows import to_arrow
from penstock.engine.graph import Graph, SourceEntry, ViewEntry
from penstock.engine.names import position, require_comparable
from penstock.engine.result import to_batch, to_table
from penstock.engine.retention import in_schema_order, require_whole
from penstock.errors import ConfigError
from penstock.plan.node import Field, View


def snapshot(graph: Graph, name: str) -> Callable[[], pa.Table]:
    """A function that gives all rows of a view, in its order when it has one, or of a source; ticks may go on meanwhile."""
    entry = graph.find_relation(name)
    if isinstance(entry, SourceEntry):
        require_whole(graph.kernel, entry.spec, "a snapshot")
        return partial(
            _source_table, graph.kernel.version(entry.name), graph.kernel.columns(entry.name), entry.fields
        )
    return partial(_view_table, graph.kernel.version(entry.name), entry.view)


def _source_table(rows: Callable[[], Delta], columns: Sequence[int], fields: Sequence[Field]) -> pa.Table:
    return to_table(in_schema_order(rows(), columns), fields)


def _view_table(rows: Callable[[], Delta], view: View) -> pa.Table:
    table = to_table(rows(), view.root.fields, order=view.order)
    return table if view.visible is None else table.select(range(view.visible))


def lookup(graph: Graph, name: str, key: Mapping[str, Any]) -> pa.Table:
    """The rows of a view or source with these values."""
    entry = graph.find_relation(name)
    if isinstance(entry, SourceEntry):
        require_whole(graph.kernel, entry.spec, "a look-up")
    names = [field.name for field in entry.fields]
    positions = tuple(position(column, names, of=f"'{entry.name}'") for column in key)
    if not key:
        raise ConfigError(
            "a lookup needs a column and a value",
            code="FLOW_LOOKUP",
            hint=f"flow.lookup({name!r}, {names[0]}=...)",
        )
    fields = [entry.fields[at] for at in positions]
    require_comparable(fields, of="a look-up", collated=True)
    values = conform_to(
        to_arrow([{field.name: value for field, value in zip(fields, key.values(), strict=True)}]),
        [(field.name, field.type, True) for field in fields],
        where=f"lookup in '{entry.name}'",
    )
    if any(is_collated(field.type) for field in fields):
        rows = _equal_by_collation(_all_rows(graph, entry), positions, fields, values)
    else:
        rows = graph.kernel.lookup(entry.name, positions, values)
    return to_table(consolidate(rows), entry.fields)


def _all_rows(graph: Graph, entry: SourceEntry | ViewEntry) -> Delta:
    rows = graph.kernel.rows(entry.name)
    return in_schema_order(rows, graph.kernel.columns(entry.name)) if isinstance(entry, SourceEntry) else rows


def _equal_by_collation(
    rows: Delta, positions: Sequence[int], fields: Sequence[Field], values: Sequence[pa.Array]
) -> Delta:
    """The rows with these values, which are compared one by one: an index has the bytes of texts. Cost: data."""
    own, wanted = [], []
    for at, field, value in zip(positions, fields, values, strict=True):
        of_text = normaliser(field.type) or (lambda column: column)
        own.append(of_text(rows.columns[at]))
        wanted.append(of_text(value))
    same = equal_rows(own, np.arange(len(rows)), wanted, np.zeros(len(rows), np.int64))
    return rows.take(np.flatnonzero(same))


def quarantined(graph: Graph, source: str) -> pa.Table:
    """The quarantined rows of a source, with `_weight` and `_reason`."""
    entry = graph.find_source(source)
    rows, reasons = entry.state.quarantine.rows(entry.spec.types)
    return to_batch(rows, entry.fields).to_arrow().append_column("_reason", pa.array(reasons, pa.string()))


def metrics(graph: Graph) -> dict[str, float]:
    """Counters and sizes by their Prometheus names; a view that is suspended has a 1 with the error's code and the tick."""
    states = graph.state.sources.values()
    suspended = graph.state.suspended
    memory, mapped = graph.kernel.memory(), graph.kernel.mapped()
    return {
        "penstock_flow_ticks_total": graph.state.ticks,
        "penstock_flow_state_bytes": memory,
        "penstock_flow_state_mapped_bytes": mapped,
        "penstock_flow_state_resident_bytes": memory - mapped,
        **({} if graph.budget is None else {"penstock_flow_memory_budget_bytes": graph.budget.size}),
        "penstock_flow_suspended_views": len(suspended),
        **{
            f'penstock_view_suspended{{view="{label(name)}",code="{suspension.code}",tick="{suspension.tick}"}}': 1
            for name, suspension in suspended.items()
        },
        "penstock_dedup_entries": sum(len(state.seen) for state in states),
        "penstock_dedup_dropped_total": sum(state.seen.dropped for state in states),
        "penstock_late_rows_total": sum(state.late for state in states),
        "penstock_rejected_batches_total": sum(state.rejected for state in states),
        "penstock_quarantine_rows": sum(len(state.quarantine) for state in states),
        "penstock_quarantine_bytes": sum(state.quarantine.bytes for state in states),
        "penstock_quarantine_dropped_rows_total": sum(state.quarantine.dropped for state in states),
    }


def label(value: str) -> str:
    """A value of a label, as Prometheus writes it."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
