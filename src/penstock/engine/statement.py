"""What our statements do, and what Spark's may not do to sources and incremental views."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.engine.change import Args, change
from penstock.engine.listing import SourceListing, ViewListing
from penstock.engine.session import Session
from penstock.engine.session_flow import SessionFlow
from penstock.errors import ConfigError, PenstockError, SqlError, suggest
from penstock.plan.node import Field
from penstock.spark.assignment import no_rows
from penstock.spark.reader import frame_of_arrow
from penstock.sql.excerpt import excerpt, moved
from penstock.sql.files import Rewritten, rewrite_files
from penstock.sql.statement import (
    CreateSource,
    CreateView,
    Delete,
    Describe,
    Drop,
    ExplainQuery,
    ExplainView,
    Insert,
    Kind,
    Name,
    Option,
    RefreshSources,
    RefreshView,
    Show,
    SparkChange,
    SparkCreate,
    Statement,
    StatementText,
    Update,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def run(session: Session, statement: Statement | None, text: str, args: Args) -> DataFrame | None:
    """Run a statement at once and return what it shows; None when it is Spark's to run."""
    flow: SessionFlow = session.flow
    with _in_words_of_sql():
        match statement:
            case None:
                return None
            case SparkCreate():
                _refuse_name_of_flow(session, flow, statement.target, text)
                return None
            case SparkChange():
                _refuse_change(flow, statement, text)
                return None
            case Insert() | Delete() | Update():
                return _change(session, flow, statement, text, args)
        if args:
            raise SqlError(
                "this statement takes no parameters",
                code="SQL_PARAMETER",
                hint="write the values into its text; INSERT, UPDATE, DELETE and SELECT take parameters",
            )
        return _run_own(session, flow, statement, text)


def _run_own(session: Session, flow: SessionFlow, statement: Statement, text: str) -> DataFrame:
    match statement:
        case CreateSource():
            _create_source(flow, statement, text)
        case CreateView():
            _create_view(flow, statement, text)
        case RefreshView():
            with _at(statement.name, text):
                if statement.every is not None:
                    flow.refresh_every(statement.name.text, statement.every)
                else:
                    flow.last_step = flow.refresh_view(statement.name.text)
        case RefreshSources():
            _refresh_sources(flow, statement, text)
        case Drop():
            _drop(flow, statement, text)
        case Show():
            return frame_of_arrow(session.spark, _shown(flow, statement.kind))
        case Describe():
            return frame_of_arrow(session.spark, _described(flow, statement.kind, statement.name, text))
        case ExplainView():
            with _at(statement.name, text):
                return _plan(session, str(flow.explain(statement.name.text)))
        case ExplainQuery():
            with _inside(_copied(statement.query), text):
                return _plan(session, str(flow.explain_query(statement.query.text)))
    return no_rows(session.spark)


# Declaring


def _create_source(flow: SessionFlow, statement: CreateSource, text: str) -> None:
    name = statement.name
    if statement.unless_exists and flow.spelled(name.text, "source"):
        return
    options: dict[str, Any] = {**statement.options}
    column, delay = options.pop("event_time", None), options.get("lateness")
    if column is not None and delay is None:
        raise SqlError(
            "event_time needs lateness beside it",
            code="FLOW_OPTION",
            where=excerpt(text, name.start, name.end - name.start),
            hint=f"write WITH (lateness = '10 minutes', event_time = {column})",
        )
    if column is not None:
        options["lateness"] = {"column": column, "delay": delay}
    register = flow.replace_source if statement.replace else flow.register_source
    if statement.table is not None:
        with _at(statement.table, text):
            register(name.text, table=statement.table.text, **options)
        return
    with _at(name, text):
        register(
            name.text, statement.columns.text, primary_key=list(statement.primary_key) or None, **options
        )


def _refresh_sources(flow: SessionFlow, statement: RefreshSources, text: str) -> None:
    for name in statement.names:
        with _at(name, text):
            source = flow.source_info(name.text)
            if source.table is None:
                raise SqlError(
                    f"source '{source.name}' has no table to read",
                    code="SQL_WRONG_KIND",
                    hint=f"INSERT INTO {source.name} feeds it; CREATE SOURCE name FROM TABLE ... makes one that "
                    "is read from a table",
                )
    with _at(statement.names[0], text):
        flow.last_step = flow.refresh(*(name.text for name in statement.names))


def _create_view(flow: SessionFlow, statement: CreateView, text: str) -> None:
    name = statement.name
    if statement.unless_exists and (flow.spelled(name.text, "view") or flow.lake.saved(name.text)):
        return
    files = rewrite_files(statement.query.text).files
    if files:
        raise SqlError(
            "an incremental view cannot read a file by its path",
            code="SQL_FILE_IN_VIEW",
            where=excerpt(text, statement.query.start + files[0].start, files[0].end - files[0].start),
            hint="let a source have its rows: INSERT INTO source SELECT * FROM 'file'; "
            "or make it a table: CREATE TABLE t AS SELECT * FROM 'file'",
        )
    query = _recursive(statement) if statement.recursive else _copied(statement.query)
    register = flow.replace_view if statement.replace else flow.register_view
    with _inside(query, text, fallback=name):
        register(name.text, query.sql, **_view_options(statement.options))


def _view_options(options: Mapping[str, Option]) -> dict[str, Any]:
    return {key: str(value).lower() for key, value in options.items()}


def _copied(query: StatementText) -> Rewritten:
    """A part of a statement as a text of its own, with the way back."""
    return Rewritten(query.text, (), ((0, query.start, ""),))


def _recursive(statement: CreateView) -> Rewritten:
    """The query of a recursive view: WITH RECURSIVE name AS (query) SELECT * FROM name."""
    name = _quoted(statement.name.text.rpartition(".")[2])
    columns = f" ({', '.join(map(_quoted, statement.columns))})" if statement.columns else ""
    before, after = f"WITH RECURSIVE {name}{columns} AS (\n", f"\n) SELECT * FROM {name}"
    start = statement.query.start
    return Rewritten(before + statement.query.text + after, (), ((0, start, before),))


def _drop(flow: SessionFlow, statement: Drop, text: str) -> None:
    name = statement.name
    in_lake = statement.kind == "view" and flow.lake.saved(name.text) is not None
    if statement.if_exists and flow.spelled(name.text, statement.kind) is None and not in_lake:
        return
    other: Kind = "source" if statement.kind == "view" else "view"
    if flow.spelled(name.text, statement.kind) is None and flow.spelled(name.text, other) is not None:
        raise SqlError(
            f"'{name.text}' is {_a(other)}",
            code="SQL_WRONG_KIND",
            where=_place(name, text),
            hint=f"write DROP {_KEYWORDS[other]} {name.text}",
        )
    with _at(name, text):
        (flow.drop_view if statement.kind == "view" else flow.drop_source)(name.text)


# Spark's statements


def _refuse_name_of_flow(session: Session, flow: SessionFlow, target: Name, text: str) -> None:
    spelled = flow.spelled(_in_current_schema(session, target.text))
    if spelled is not None:
        kind: Kind = "source" if flow.spelled(spelled, "source") else "view"
        raise ConfigError(
            f"'{spelled}' is {_a(kind)} already",
            code="FLOW_NAME_TAKEN",
            where=_place(target, text),
            hint=f"choose another name, or DROP {_KEYWORDS[kind]} {spelled}",
        )


def _in_current_schema(session: Session, name: str) -> str:
    """The last part of a name that is one of the current schema; any other name as it is."""
    schema, _, last = name.rpartition(".")
    return last if schema and schema.rpartition(".")[2] == session.spark.catalog.currentDatabase() else name


def _refuse_change(flow: SessionFlow, statement: SparkChange, text: str) -> None:
    spelled = flow.spelled(statement.target.text)
    if spelled is None:
        return
    kind: Kind = "source" if flow.spelled(spelled, "source") else "view"
    instead = f"DROP {_KEYWORDS[kind]} {spelled}"
    if statement.verb.startswith("ALTER"):
        instead = f"CREATE OR REPLACE {_KEYWORDS[kind]} {spelled} ..."
    elif not statement.verb.startswith("DROP") and kind == "source":
        instead = f"INSERT INTO, UPDATE or DELETE FROM {spelled}"
    elif not statement.verb.startswith("DROP"):
        instead = "change the sources that it reads"
    raise SqlError(
        f"'{spelled}' is {_a(kind)}: {statement.verb} is for tables of Spark",
        code="SQL_WRONG_KIND",
        where=_place(statement.target, text),
        hint=f"use {instead}" if not instead.startswith("change") else instead,
    )


def _change(
    session: Session, flow: SessionFlow, statement: Insert | Delete | Update, text: str, args: Args
) -> DataFrame | None:
    target = statement.target
    if flow.spelled(target.text) is None:
        return None
    with _at(target, text):
        source = flow.source_info(target.text).name
    flow.last_step = change(session, flow, source, statement, text, args)
    return no_rows(session.spark)


# Showing


def _shown(flow: SessionFlow, kind: Kind) -> pa.Table:
    if kind == "source":
        return sources_table(flow.sources())
    return views_table(flow.views())


def sources_table(sources: list[SourceListing]) -> pa.Table:
    """What SHOW SOURCES shows."""
    return _table(
        ("name", [source.name for source in sources]),
        ("primary_key", [", ".join(source.primary_key) or None for source in sources]),
        ("rows", [source.rows for source in sources]),
        ("read_by", [", ".join(source.readers) or None for source in sources]),
        ("options", [_options(source.options) for source in sources]),
    )


def views_table(views: list[ViewListing]) -> pa.Table:
    """What SHOW INCREMENTAL VIEWS shows."""
    return _table(
        ("name", [view.name for view in views]),
        ("tier", [view.tier for view in views]),
        ("rows", [view.rows for view in views]),
        ("reads", [", ".join((*view.reads, *view.statics)) or None for view in views]),
        ("suspended", [None if view.suspended is None else str(view.suspended) for view in views]),
        ("query", [view.query or None for view in views]),
    )


def _described(flow: SessionFlow, kind: Kind, name: Name, text: str) -> pa.Table:
    """Columns as Spark's DESCRIBE shows them, then what else is known."""
    with _at(name, text):
        listings: Mapping[str, SourceListing | ViewListing] = {
            entry.name: entry for entry in (flow.sources() if kind == "source" else flow.views())
        }
        spelled = flow.spelled(name.text, kind)
        if spelled is None:
            raise ConfigError(
                f"{kind} '{name.text}' is not known",
                code="FLOW_UNKNOWN_SOURCE" if kind == "source" else "FLOW_UNKNOWN_VIEW",
                hint=suggest(name.text, listings, what=kind),
            )
    entry = listings[spelled]
    rows = [_column_row(field) for field in entry.fields]
    details: list[tuple[str, str]] = []
    if isinstance(entry, SourceListing):
        details += [("primary key", ", ".join(entry.primary_key)), ("read by", ", ".join(entry.readers))]
        details += [("options", _options(entry.options) or "")]
    else:
        details += [("tier", entry.tier), ("reads", ", ".join((*entry.reads, *entry.statics)))]
        details += [
            ("on_error", entry.on_error),
            ("suspended", str(entry.suspended or "")),
            ("query", entry.query),
        ]
    details.append(("rows", str(entry.rows)))
    rows += [("", "", ""), (f"# {kind}", "", "")] + [(key, value, "") for key, value in details if value]
    return _table(
        ("col_name", [row[0] for row in rows]),
        ("data_type", [row[1] for row in rows]),
        ("comment", [row[2] or None for row in rows]),
    )


def _column_row(field: Field) -> tuple[str, str, str]:
    return field.name, field.type, "" if field.nullable else "NOT NULL"


def _options(options: Mapping[str, object]) -> str | None:
    return ", ".join(f"{key} = {value}" for key, value in options.items()) or None


def _table(*columns: tuple[str, list[Any]]) -> pa.Table:
    kinds = [pa.int64() if name == "rows" else pa.string() for name, _ in columns]
    arrays = [pa.array(values, kind) for (_, values), kind in zip(columns, kinds, strict=True)]
    return pa.table(arrays, names=[name for name, _ in columns])


def _plan(session: Session, plan: str) -> DataFrame:
    return frame_of_arrow(session.spark, pa.table({"plan": pa.array([plan], pa.string())}))


# Errors

_KEYWORDS = {"source": "SOURCE", "view": "INCREMENTAL VIEW"}


def _a(kind: Kind) -> str:
    return "a source" if kind == "source" else "an incremental view"


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _place(name: Name, text: str) -> str:
    return excerpt(text, name.start, name.end - name.start)


@contextmanager
def _at(name: Name, text: str) -> Iterator[None]:
    """Errors that say no place have this one."""
    try:
        yield
    except PenstockError as error:
        if error.where is None or "line " not in error.where:
            error.where = _place(name, text)
        raise


@contextmanager
def _inside(query: Rewritten, text: str, fallback: Name | None = None) -> Iterator[None]:
    """Errors in a part of the statement have their place in the statement."""
    try:
        yield
    except PenstockError as error:
        error.where = moved(error.where, query.sql, text, query.original)
        if error.where is None and fallback is not None:
            error.where = _place(fallback, text)
        raise


_IN_PYTHON: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"flow\.drop_view\('((?:[^'])*)'\)", r"DROP INCREMENTAL VIEW \1"),
    (r"flow\.register_source\(.*\)", "CREATE SOURCE orders (id BIGINT, amount DECIMAL(10,2))"),
    (r'lateness=\{"column": "ts", "delay": "10 minutes"\}', "lateness = '10 minutes', event_time = ts"),
    (r"flow\.resume_view\('([^']*)'\)", r"REFRESH INCREMENTAL VIEW \1"),
    (r"retain='(\w+)'", r"retain = '\1'"),
    (r"flow\.refresh\('([^']*)'\)", r"REFRESH SOURCE \1"),
)


@contextmanager
def _in_words_of_sql() -> Iterator[None]:
    """Hints that name calls of Python name the statements that do the same."""
    try:
        yield
    except PenstockError as error:
        for call, statement in _IN_PYTHON:
            error.hint = error.hint and re.sub(call, statement, error.hint)
        raise
