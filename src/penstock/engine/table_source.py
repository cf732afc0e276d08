"""Sources that have the rows of a table of a lake: a refresh reads what changed in the table, and is one tick over all of them.

The version of the table that a source stands for is part of the tick, so that a change is read once, whatever is killed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.data.batch import DeltaBatch
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat
from penstock.engine.graph import FedBatch, Graph
from penstock.engine.names import one_of
from penstock.engine.retention import whole_rows
from penstock.engine.session import Session
from penstock.engine.source import SourceSpec, SourceTable, to_delta
from penstock.errors import ConfigError, PenstockError, StateError
from penstock.spark import errors, lake_table
from penstock.spark.lake_name import full_name
from penstock.spark.lake_table import LakeTable

LOG = logging.getLogger("penstock.flow")
NO_VERSION = ""
"""The version of a table without any, as one has that was replaced by an empty one."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A source and the version of its table that it stands for; None before it has read any."""

    spec: SourceSpec
    position: str | None

    @property
    def table(self) -> SourceTable:
        """The table that it reads."""
        assert self.spec.table is not None
        return self.spec.table


def declare_table(session: Session, name: str, table: str, *, retain: str) -> SourceSpec:
    """The source of a table; ConfigError when its changes cannot be read."""
    one_of("retain", retain, ("all", "used"))
    table = full_name(session.spark, table)
    info = lake_table.describe(session.spark, table)
    if any(field.name == "_weight" for field in info.fields):
        raise ConfigError(
            "'_weight' is reserved", code="FLOW_SCHEMA", where=f"source '{name}', table {table}"
        )
    return SourceSpec(
        name,
        info.fields,
        retain=retain,  # type: ignore[arg-type]  # checked above
        table=SourceTable(table, info.format, info.ids),
    )


def standings(graph: Graph, names: tuple[str, ...]) -> list[Standing]:
    """The sources of tables among the named sources and below the named views; all of the flow without a name."""
    chosen = (
        dict.fromkeys(
            source for name in names for source in graph.sources_below(graph.find_relation(name).name)
        )
        if names
        else graph.sources
    )
    entries = [graph.sources[name] for name in chosen]
    return [Standing(entry.spec, entry.state.position) for entry in entries if entry.spec.table is not None]


def changes(
    session: Session,
    sources: list[Standing],
    rows_of: Callable[[SourceSpec], Delta],
    *,
    at: Mapping[str, str] | None = None,
) -> list[FedBatch]:
    """What brings sources up to date with their tables, or to the versions `at` of some; nothing for those that are.

    `rows_of` gives the rows that a source has: they are compared with those of a table whose history does not reach
    back far enough.
    """
    fed = [_change(session, source, rows_of, (at or {}).get(source.table.name)) for source in sources]
    return [batch for batch in fed if batch is not None]


def source_rows(graph: Graph, spec: SourceSpec) -> Delta:
    """The rows of a source, for a comparison with those of its table."""
    return whole_rows(graph.kernel, spec, "the difference to its table, whose history does not reach back")


def _change(
    session: Session, source: Standing, rows_of: Callable[[SourceSpec], Delta], at: str | None
) -> FedBatch | None:
    spec, table = source.spec, source.table
    where = f"source '{spec.name}', table {table.name}"
    try:
        lake_table.require_same(session.spark, table.name, spec.fields, table.ids, source=spec.name)
        opened = lake_table.opened(session.spark, table.name, table.format)
        until = (opened.version() or NO_VERSION) if at is None else at
        if until == (source.position or NO_VERSION):
            return None
        if at is not None and not opened.has(at):
            raise StateError(
                f"version {at} of the table {table.name} is not kept any more", code="FLOW_TABLE_HISTORY"
            )
        return FedBatch(spec.name, _delta(opened, source, until, rows_of), position=until)
    except PenstockError as error:
        error.where = error.where or where
        raise
    except Exception as error:
        raise errors.located(errors.translate(error), where) from None


def _delta(opened: LakeTable, source: Standing, until: str, rows_of: Callable[[SourceSpec], Delta]) -> Delta:
    spec, since = source.spec, source.position or None
    columns = [field.name for field in spec.fields]
    if since is None or opened.has(since):
        return _consolidated(spec, opened, since, until or None, columns)
    LOG.warning(
        "the history of the table %s does not reach back to version %s: all its rows are compared with those of source '%s'",
        source.table.name,
        since,
        spec.name,
    )
    wanted = _consolidated(spec, opened, None, until or None, columns)
    return consolidate(concat([wanted, -rows_of(spec)]))


def _consolidated(
    spec: SourceSpec, opened: LakeTable, since: str | None, until: str | None, columns: list[str]
) -> Delta:
    delta = to_delta(spec, DeltaBatch.weighted(opened.rows(since, until, columns)))
    # Rows that only come need not cancel out.
    return consolidate(delta) if (delta.weights < 0).any() else delta
