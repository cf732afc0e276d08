"""Sources that keep only the columns that views use (`retain="used"`): which those are, and what can then not be given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from penstock.data.delta import Delta, concat
from penstock.engine.source import SourceSpec
from penstock.engine.tick import Graph, SourceEntry
from penstock.errors import StateError
from penstock.operators.source import Source
from penstock.plan import node as plan
from penstock.state.spine import Spine


def source_operator(spec: SourceSpec, retained: tuple[int, ...] | None) -> Source:
    """The operator of a source; `retained` None keeps whole rows."""
    return Source(
        spec.name,
        [field.name for field in spec.fields],
        spec.types,
        primary_key=spec.positions(spec.primary_key) or None,
        on_missing=spec.on_missing_delete,
        retained=retained,
    )


def first_retained(spec: SourceSpec) -> tuple[int, ...] | None:
    """The columns that a source keeps before any view is registered: its key, or all of them."""
    return spec.positions(spec.primary_key) if spec.retain == "used" else None


@contextmanager
def widened(graph: Graph, view: str, root: plan.Node) -> Iterator[None]:
    """Let sources keep what a view reads too; when the body fails, they keep what they kept before.

    Only an empty source can begin to keep a column: raises StateError when rows are there without it.
    """
    undo: list[Callable[[], None]] = []
    try:
        for name, columns in _used(root).items():
            entry = graph.sources.get(name)
            if entry is None or entry.spec.retain == "all":
                continue
            missing = tuple(sorted(columns - set(entry.operator.columns)))
            if missing:
                _refuse_rows(entry, view, missing)
                undo.append(_replace(graph, entry, (*entry.operator.columns, *missing)))
        yield
    except BaseException:
        for step in reversed(undo):
            step()
        raise


def whole_rows(entry: SourceEntry, what: str) -> Delta:
    """All rows of a source with all columns, or StateError when it does not keep them."""
    require_whole(entry, what)
    rows = entry.operator.rows()
    columns = entry.operator.columns
    return rows.select([columns.index(column) for column in range(len(columns))])


def snapshot_by_key(entry: SourceEntry, wanted: Delta) -> Delta:
    """The change that makes a source with a primary key hold exactly these rows: keys that are gone, then all rows."""
    held = entry.operator.rows()
    keys = entry.spec.positions(entry.spec.primary_key)
    stored = [entry.operator.columns.index(key) for key in keys]
    there = Spine([entry.spec.types[key] for key in keys])
    there.stage(wanted.select(keys))
    gone = np.flatnonzero(there.after().multiplicity(held.select(stored)) <= 0)
    at = dict(zip(keys, held.select(stored).take(gone).columns, strict=True))
    columns = tuple(at.get(index, pa.nulls(len(gone), kind)) for index, kind in enumerate(entry.spec.types))
    return concat([Delta(columns, np.full(len(gone), -1, np.int64)), wanted])


def require_whole(entry: SourceEntry, what: str) -> None:
    """Refuse what needs whole rows on a source that does not keep them."""
    lost = [field.name for at, field in enumerate(entry.spec.fields) if at not in set(entry.operator.columns)]
    if lost:
        kept = [entry.spec.fields[at].name for at in entry.operator.columns]
        raise StateError(
            f"source '{entry.spec.name}' cannot give {what}: it keeps {_listed(kept)} only, and not {_listed(lost)}",
            code="FLOW_NOT_RETAINED",
            hint="it was registered with retain='used', which keeps what views use; register it with retain='all'",
        )


def _used(root: plan.Node) -> dict[str, set[int]]:
    """The columns that a plan reads, by relation."""
    found: dict[str, set[int]] = {}

    def visit(node: plan.Node) -> None:
        if isinstance(node, plan.Scan):
            found.setdefault(node.name, set()).update(node.columns)
        for child in plan.children(node):
            visit(child)

    visit(root)
    return found


def _refuse_rows(entry: SourceEntry, view: str, missing: tuple[int, ...]) -> None:
    if entry.operator.arrangement.count == 0:
        return
    names = [entry.spec.fields[at].name for at in missing]
    raise StateError(
        f"view '{view}' needs {_listed(names)} of source '{entry.spec.name}', "
        f"whose {entry.operator.arrangement.count:,} rows were kept without",
        code="FLOW_NOT_RETAINED",
        where=f"view '{view}'",
        hint="register the view before feeding rows, or register the source with retain='all'",
    )


def _replace(graph: Graph, entry: SourceEntry, retained: tuple[int, ...]) -> Callable[[], None]:
    """Put a wider operator in the place of an empty source; returns how to take it back.

    Columns are only ever appended, so that what reads the earlier ones by position goes on.
    """
    before = entry.operator
    _put(graph, entry, source_operator(entry.spec, retained))
    return lambda: _put(graph, entry, before)


def _put(graph: Graph, entry: SourceEntry, operator: Source) -> None:
    entry.operator = operator
    types = [entry.spec.types[column] for column in operator.columns]
    graph.circuit.replace(entry.place, operator, types, contents=operator.rows)


def _listed(names: list[str]) -> str:
    if not names:
        return "no column"
    return f"column{'s' if len(names) > 1 else ''} {', '.join(names)}"
