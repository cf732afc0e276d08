"""INSERT, DELETE and UPDATE of a source: Spark says which rows, and they are fed as one tick.

The rows that DELETE and UPDATE change are found by their numbers in a snapshot, so that exactly the rows of the
source are retracted, whatever their types.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.data.batch import DeltaBatch
from penstock.engine.names import registered
from penstock.engine.session import Session
from penstock.engine.session_flow import SessionFlow
from penstock.engine.summary import StepSummary
from penstock.errors import PenstockError, SqlError, suggest
from penstock.spark.arrow import to_arrow
from penstock.spark.assignment import AssignedColumn, assigned
from penstock.spark.errors import analyzed, translate
from penstock.spark.flow_table import numbered_frame, with_char_lengths
from penstock.sql.excerpt import excerpt, moved
from penstock.sql.files import Rewritten
from penstock.sql.statement import Delete, Insert, Name, Update

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Args = dict[str, Any] | list[Any] | None
NUMBER = "_penstock_row"


def change(
    session: Session,
    flow: SessionFlow,
    source: str,
    statement: Insert | Delete | Update,
    text: str,
    args: Args,
) -> StepSummary:
    """Run one of the statements as a tick of its source."""
    with flow.changing, _at(statement.target, text):
        if isinstance(statement, Insert):
            delta = DeltaBatch.inserts(_inserted(session, flow, source, statement, text, args))
        elif isinstance(statement, Delete):
            delta = _deleted(session, flow, source, statement, text, args)
        else:
            delta = _updated(session, flow, source, statement, text, args)
        return flow.tick(source, delta)


# INSERT


def _inserted(
    session: Session, flow: SessionFlow, source: str, statement: Insert, text: str, args: Args
) -> pa.Table:
    targets = _targets(flow, source)
    query = _query_of(statement)
    with _inside(query, text):
        frame = session.sql(query.sql, args)
    if statement.by_name:
        wanted = [_target(name, targets, source, statement.target, text) for name in frame.columns]
    elif statement.columns:
        wanted = [_target(name.text, targets, source, name, text) for name in statement.columns]
    else:
        wanted = list(targets.values())
    if len(set(wanted)) < len(wanted):
        raise SqlError("a column is named twice", code="SQL_COLUMNS", where=_place(statement.target, text))
    if len(frame.columns) != len(wanted):
        raise SqlError(
            f"the query gives {_count(len(frame.columns))}, and {len(wanted)} are wanted: "
            f"{', '.join(target.name for target in wanted)}",
            code="SQL_COLUMNS",
            where=excerpt(text, statement.query.start, len(statement.query.text.split("\n")[0])),
            hint=f"name the columns that it gives: INSERT INTO {source} (column, ...) ...",
        )
    table = _rows(session, query, frame, wanted, text)
    for name in targets.keys() - {target.name for target in wanted}:
        table = table.append_column(name, pa.nulls(table.num_rows))
    return table


def _query_of(statement: Insert) -> Rewritten:
    """The query that is inserted, with the common tables before it."""
    common, query = statement.common, statement.query
    if common is None:
        return Rewritten(query.text, (), ((0, query.start, ""),))
    edits = ((0, common.start, ""), (common.start + len(common.text), query.start, ""))
    return Rewritten(common.text + query.text, (), edits)


# DELETE and UPDATE


def _deleted(
    session: Session, flow: SessionFlow, source: str, statement: Delete, text: str, args: Args
) -> DeltaBatch:
    stored = flow.snapshot(source)
    with _numbered(session, flow, source, stored) as table:
        verb, target = statement.verb, statement.target
        edits = (
            (verb.start, verb.start + len(verb.text), f"SELECT `{NUMBER}`"),
            (target.start, target.end, _table(table, target, statement.has_alias)),
        )
        query = _edited(text, edits)
        with _inside(query, text):
            frame = session.sql(query.sql, args)
        numbers = _rows(session, query, frame, [AssignedColumn(NUMBER, "bigint")], text)
    return DeltaBatch.deletes(stored.take(numbers.column(0)))


def _updated(
    session: Session, flow: SessionFlow, source: str, statement: Update, text: str, args: Args
) -> DeltaBatch:
    targets = _targets(flow, source)
    columns = [_assigned_column(item.column, targets, source, text) for item in statement.assignments]
    stored = flow.snapshot(source)
    with _numbered(session, flow, source, stored) as table:
        query = _edited(text, tuple(_update_edits(statement, table)))
        with _inside(query, text):
            frame = session.sql(query.sql, args)
        changed = _rows(session, query, frame, [AssignedColumn(NUMBER, "bigint"), *columns], text)
    old = stored.take(changed.column(0))
    new = old
    for position, target in enumerate(columns, start=1):
        at = new.column_names.index(target.name)
        new = new.set_column(at, target.name, changed.column(position))
    return DeltaBatch.updates(old, new)


def _update_edits(statement: Update, table: str) -> Iterator[tuple[int, int, str]]:
    """UPDATE t SET a = x WHERE c is read as FROM t SELECT number, x WHERE c: Spark has both orders of the clauses."""
    verb, target = statement.verb, statement.target
    yield verb.start, verb.start + len(verb.text), "FROM"
    yield target.start, target.end, _table(table, target, statement.has_alias)
    yield statement.set.start, statement.set.start + len(statement.set.text), f"SELECT `{NUMBER}`,"
    for number, assignment in enumerate(statement.assignments):
        yield assignment.column.start, assignment.expression.start, ""
        yield assignment.end, assignment.end, f" AS `_penstock_value_{number}`"


def _assigned_column(
    column: Name, targets: dict[str, AssignedColumn], source: str, text: str
) -> AssignedColumn:
    # o.amount and orders.amount are columns of the target, too.
    name = column.text if registered(column.text, targets) else column.text.rpartition(".")[2]
    return _target(name, targets, source, column, text)


@contextmanager
def _numbered(session: Session, flow: SessionFlow, source: str, stored: pa.Table) -> Iterator[str]:
    """The rows of a source as a table with their numbers, while the statement runs."""
    table = f"penstock_rows_{uuid.uuid4().hex[:12]}"
    kinds, declared = flow.column_kinds(source), [field.type for field in flow.relations()[source]]
    frame = with_char_lengths(numbered_frame(session.spark, stored, kinds, number=NUMBER), declared)
    frame.createOrReplaceTempView(table)
    try:
        yield table
    finally:
        session.spark.catalog.dropTempView(table)


def _table(table: str, target: Name, has_alias: bool) -> str:
    return table if has_alias else f"{table} AS `{target.text.rpartition('.')[2].replace('`', '``')}`"


def _edited(text: str, edits: tuple[tuple[int, int, str], ...]) -> Rewritten:
    parts, last = [], 0
    for start, end, replacement in edits:
        parts += [text[last:start], replacement]
        last = end
    return Rewritten("".join([*parts, text[last:]]).rstrip().rstrip(";"), (), edits)


# Columns, rows and errors


def _targets(flow: SessionFlow, source: str) -> dict[str, AssignedColumn]:
    """The columns of a source by name."""
    fields = flow.relations()[source]
    return {
        field.name: AssignedColumn(field.name, kind)
        for field, kind in zip(fields, flow.column_kinds(source), strict=True)
    }


def _target(
    name: str, targets: dict[str, AssignedColumn], source: str, at: Name, text: str
) -> AssignedColumn:
    spelled = registered(name, targets)
    if spelled is None:
        raise SqlError(
            f"source '{source}' has no column '{name}'",
            code="SQL_UNKNOWN_COLUMN",
            where=_place(at, text),
            hint=suggest(name, targets, what="column"),
        )
    return targets[spelled]


def _rows(
    session: Session, query: Rewritten, frame: DataFrame, targets: Sequence[AssignedColumn], text: str
) -> pa.Table:
    """The rows of a query as columns of the source."""
    with _inside(query, text):
        try:
            return to_arrow(assigned(frame, targets))
        except PenstockError:
            raise
        except Exception as error:
            raise translate(error, sql=query.sql, spark=session.spark, plan=analyzed(frame)) from None


@contextmanager
def _at(target: Name, text: str) -> Iterator[None]:
    """Errors that say no place in the statement have that of the target."""
    try:
        yield
    except PenstockError as error:
        if error.where is None or "line " not in error.where:
            error.where = _place(target, text)
        raise


@contextmanager
def _inside(query: Rewritten, text: str) -> Iterator[None]:
    try:
        yield
    except PenstockError as error:
        error.where = moved(error.where, query.sql, text, query.original)
        error.hint = error.hint and error.hint.replace(f"{NUMBER}, ", "")  # no column of the user's
        raise


def _place(name: Name, text: str) -> str:
    return excerpt(text, name.start, name.end - name.start)


def _count(columns: int) -> str:
    return f"{columns} column{'' if columns == 1 else 's'}"
