"""What a source that keeps only the columns that views use (`retain="used"`) can give, and what not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.circuit.kernel import Kernel
from penstock.circuit.retention import listed
from penstock.data.delta import Delta, concat
from penstock.engine.graph import Graph, OnError
from penstock.engine.source import SourceSpec
from penstock.errors import StateError
from penstock.plan import node as plan
from penstock.state.spine import Spine


def whole_rows(kernel: Kernel, spec: SourceSpec, what: str) -> Delta:
    """All rows of a source with all columns, or StateError when it does not keep them."""
    require_whole(kernel, spec, what)
    return in_schema_order(kernel.rows(spec.name), kernel.columns(spec.name))


def in_schema_order(rows: Delta, columns: Sequence[int]) -> Delta:
    """Rows whose columns stand in the order in which the source keeps them, in that of its schema."""
    return rows.select([columns.index(column) for column in range(len(columns))])


def snapshot_by_key(kernel: Kernel, spec: SourceSpec, wanted: Delta) -> Delta:
    """The change that makes a source with a primary key hold exactly these rows: keys that are gone, then all rows."""
    keys = spec.positions(spec.primary_key)
    columns = kernel.columns(spec.name)
    stored = kernel.rows(spec.name).select([columns.index(key) for key in keys])
    wanted_keys = Spine([spec.types[key] for key in keys])
    wanted_keys.stage(wanted.select(keys))
    gone = stored.take(np.flatnonzero(wanted_keys.after().multiplicity(stored) <= 0))
    by_column = dict(zip(keys, gone.columns, strict=True))
    rows = tuple(by_column.get(at, pa.nulls(len(gone), kind)) for at, kind in enumerate(spec.types))
    return concat([Delta(rows, np.full(len(gone), -1, np.int64)), wanted])


def require_whole(kernel: Kernel, spec: SourceSpec, what: str) -> None:
    """Refuse what needs whole rows on a source that does not keep them."""
    if spec.retain == "open":
        raise StateError(
            f"source '{spec.name}' cannot give {what}: its rows leave it when the watermark has passed them",
            code="FLOW_NOT_RETAINED",
            hint="it was registered with retain='open'; register it with retain='all'",
        )
    columns = kernel.columns(spec.name)
    lost = [field.name for at, field in enumerate(spec.fields) if at not in set(columns)]
    if lost:
        retained = [spec.fields[at].name for at in columns]
        raise StateError(
            f"source '{spec.name}' cannot give {what}: it keeps {listed(retained)} only, and not {listed(lost)}",
            code="FLOW_NOT_RETAINED",
            hint="it was registered with retain='used', which keeps what views use; register it with retain='all'",
        )


def require_rows(graph: Graph, view: plan.View, on_error: OnError) -> None:
    """StateError when a view may need rows that have left, or will have left, a source with retain="open"."""
    reads = plan.scanned(view.root)
    sources = [
        name for name in sorted(reads) if name in graph.sources and graph.sources[name].spec.retain == "open"
    ]
    for name in sources:
        if graph.sources[name].state.latest_event_time is not None:
            raise _not_open(
                name,
                f"view '{view.name}' needs rows that may have left it",
                "register views before the first rows",
            )
        if on_error == "suspend" or _may_suspend(graph, reads):
            raise _not_open(
                name,
                f"view '{view.name}' may be suspended, and would need its rows again",
                "take on_error='reject'",
            )


def require_no_open_source(graph: Graph, why: str, *, hint: str = "register it with retain='all'") -> None:
    """StateError, which says why, when a source frees rows that would be needed to compute views again."""
    for name, entry in graph.sources.items():
        if entry.spec.retain == "open":
            raise _not_open(name, why, hint)


def _may_suspend(graph: Graph, reads: frozenset[str]) -> bool:
    views = [graph.views[name] for name in reads if name in graph.views]
    return any(view.on_error == "suspend" or _may_suspend(graph, view.reads) for view in views)


def _not_open(source: str, why: str, hint: str) -> StateError:
    return StateError(
        f"source '{source}' keeps rows of open event times only, and {why}",
        code="FLOW_NOT_RETAINED",
        hint=hint,
        where=f"source '{source}'",
    )
