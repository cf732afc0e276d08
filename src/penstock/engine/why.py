"""`flow.why`: the source rows behind a row of a view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.data.conform import conform_to
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, empty
from penstock.data.ordering import sort_rows
from penstock.data.rows import to_arrow
from penstock.data.tick import Tick
from penstock.engine.graph import Graph, ViewEntry
from penstock.engine.names import position, registered, require_comparable
from penstock.engine.result import to_batch
from penstock.engine.retention import require_whole
from penstock.errors import ConfigError, DataError, StateError
from penstock.plan.node import Field

SHOWN = 20


@dataclass(frozen=True, slots=True)
class Provenance:
    """A row of a view, and the rows of each source and static table that it comes from, with `_weight`.

    `scanned` has the relations that were read as a whole, because no index led to the rows, and how many rows that were in all.

    >>> print(flow.why("totals", {"customer": 7}))            # doctest: +SKIP
    >>> flow.why("totals", {"customer": 7})["orders"]         # doctest: +SKIP
    """

    view: str
    row: Mapping[str, Any]
    sources: Mapping[str, pa.Table]
    scanned: Mapping[str, int]

    def __getitem__(self, source: str) -> pa.Table:
        return self.sources[source]

    def __str__(self) -> str:
        lines = [f"{self.view}: {_text(self.row)}"]
        for name, table in self.sources.items():
            lines.append(f"  {name}: {table.num_rows:,} row{'' if table.num_rows == 1 else 's'}")
            for row in table.slice(0, SHOWN).to_pylist():
                weight = row.pop("_weight")
                lines.append(f"    {_text(row)}{'' if weight == 1 else f' (x {weight})'}")
            if table.num_rows > SHOWN:
                lines.append(f"    and {table.num_rows - SHOWN:,} more")
        for name, count in self.scanned.items():
            lines.append(f"  read without an index: {count:,} rows of {name}")
        return "\n".join(lines)


def _text(row: Mapping[str, Any]) -> str:
    """A row for people: quotes around text only."""
    shown = ((name, repr(value) if isinstance(value, str | bytes) else value) for name, value in row.items())
    return ", ".join(f"{name}={value}" for name, value in shown)


def why(graph: Graph, view: str, row: Mapping[str, Any]) -> Provenance:
    """The source rows behind the one row of a view that has these values. Cost: see `Provenance.scanned`."""
    if registered(view, graph.sources) is not None:
        raise ConfigError(
            f"'{view}' is a source: its rows come from outside",
            code="FLOW_UNKNOWN_VIEW",
            hint=f"ask for a row of a view: {', '.join(graph.views) or 'there is none yet'}",
        )
    entry = graph.find_view(view)
    if entry.name in graph.state.suspended:
        raise StateError(
            f"view '{entry.name}' is suspended: the rows that its own came from may be others now",
            code="FLOW_SUSPENDED",
            hint=f"flow.resume_view({entry.name!r}) brings it up to date",
        )
    specs = {name: graph.spec(name) for name in _sources_of(graph, entry)}
    for spec in specs.values():
        require_whole(graph.kernel, spec, "the rows behind a view")
    columns, values = _wanted(entry, row)
    rows, read = graph.kernel.matching(entry.name, columns, values)
    shown = _the_one(entry, rows, row)
    tick = Tick(graph.state.ticks, graph.state.micros)
    traced = graph.kernel.trace(entry.name, rows, tick)
    sources = {
        name: _table(traced.rows.get(name, empty(spec.types)), spec.fields) for name, spec in specs.items()
    }
    scanned = {entry.name: read, **traced.scanned}
    return Provenance(entry.name, shown, sources, {name: count for name, count in scanned.items() if count})


def _sources_of(graph: Graph, entry: ViewEntry) -> list[str]:
    """The sources and static tables that a view reads, also through other views."""
    names: dict[str, None] = {}
    for name in sorted(entry.reads):
        if name in graph.views:
            names |= dict.fromkeys(_sources_of(graph, graph.views[name]))
        else:
            names[name] = None
    return list(names)


def _wanted(entry: ViewEntry, row: Mapping[str, Any]) -> tuple[tuple[int, ...], Sequence[pa.Array]]:
    """The columns of a view by which a row is asked for, and their values."""
    names = [field.name for field in entry.fields]
    if not isinstance(row, Mapping) or not row:
        raise ConfigError(
            f"the row of '{entry.name}' to ask for is {row!r}",
            code="FLOW_WHY_ROW",
            hint=f"give some or all of its columns as a dict: flow.why({entry.name!r}, {{{names[0]!r}: ...}})",
        )
    positions = tuple(position(column, names, of=f"'{entry.name}'") for column in row)
    fields = [entry.fields[at] for at in positions]
    require_comparable(fields, of="why")
    values = conform_to(
        to_arrow([{field.name: value for field, value in zip(fields, row.values(), strict=True)}]),
        [(field.name, field.type, True) for field in fields],
        where=f"why in '{entry.name}'",
    )
    return positions, values


def _the_one(entry: ViewEntry, rows: Delta, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row that was meant, as users see it; DataError when there is none, or several."""
    visible = consolidate(rows.select(range(len(entry.fields))))
    matches = _table(visible, entry.fields).drop_columns("_weight")
    if matches.num_rows == 0:
        raise DataError(
            f"view '{entry.name}' has no row with {_text(row)}",
            code="FLOW_WHY_ROW",
            hint=f"flow.snapshot({entry.name!r}) gives its rows; leave out columns whose values are computed",
        )
    if matches.num_rows > 1:
        some = "; ".join(map(_text, matches.slice(0, 5).to_pylist()))
        more = f"; and {matches.num_rows - 5:,} more" if matches.num_rows > 5 else ""
        raise DataError(
            f"view '{entry.name}' has {matches.num_rows:,} rows with {_text(row)}: {some}{more}",
            code="FLOW_WHY_ROW",
            hint="give more columns",
        )
    (only,) = matches.to_pylist()
    return dict(only)


def _table(rows: Delta, fields: Sequence[Field]) -> pa.Table:
    """Rows with their weights, in the order of their columns."""
    return to_batch(rows.take(sort_rows(rows.columns, ())), fields).to_arrow()
