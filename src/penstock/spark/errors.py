"""Spark's errors as penstock's: what failed, where in the query, and what to do about it.

`raise translate(error, sql=query) from None` keeps the traceback short; Spark's own exception stays in `__context__`, for those
who ask for it. Codes are stable: docs/reference/errors.md lists them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import (
    ConfigError,
    ConnectorError,
    DataError,
    InternalError,
    PenstockError,
    SqlError,
    StateError,
    suggest,
)
from penstock.spark.fault import Fault, Spot, faults
from penstock.sql.place import place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark's word for a data source -> the connector that brings it.
CONNECTOR_OF_FORMAT = {
    "kafka": "kafka",
    "avro": "avro",
    "iceberg": "iceberg",
    "delta": "delta",
    "jdbc:postgresql": "postgres",
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "abfs": "adls",
    "abfss": "adls",
    "gs": "gcs",
}
NEEDS_EXTENSIONS = ("iceberg", "delta")
_KEYWORDS = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "HAVING",
    "ORDER",
    "LIMIT",
    "OFFSET",
    "JOIN",
    "LEFT",
    "RIGHT",
    "FULL",
    "INNER",
    "CROSS",
    "ON",
    "USING",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "INSERT",
    "INTO",
    "VALUES",
    "UPDATE",
    "SET",
    "DELETE",
    "MERGE",
    "CREATE",
    "REPLACE",
    "TABLE",
    "VIEW",
    "DROP",
    "ALTER",
    "WITH",
    "AS",
    "DISTINCT",
    "BETWEEN",
    "AND",
    "OR",
    "NOT",
    "NULL",
    "IS",
    "IN",
    "LIKE",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "DESCRIBE",
    "SHOW",
    "EXPLAIN",
    "TEMPORARY",
    "PARTITIONED",
    "OVER",
    "PARTITION",
    "WINDOW",
]


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked of Spark, for the words of the error: the user's text, and how to find other names."""

    sql: str | None = None
    locate: Callable[[int], int] = int
    spark: SparkSession | None = None


def translate(
    error: BaseException,
    *,
    sql: str | None = None,
    locate: Callable[[int], int] | None = None,
    spark: SparkSession | None = None,
) -> PenstockError:
    """Return the penstock error for an exception that came out of PySpark.

    `sql` is the text that the user wrote; `locate` maps an offset in the text that Spark saw to one in `sql`; `spark` is asked
    for the names of tables and functions when one was not found.
    """
    if isinstance(error, PenstockError):
        return error
    question = Question(sql, locate or int, spark)
    chain = faults(error)
    translated = _translated(chain, question)
    # The original is there for whoever wants it, and is not printed unasked.
    translated.__context__ = error
    translated.__suppress_context__ = True
    return translated


def missing_format(error: BaseException) -> str | None:
    """Return the data source that Spark did not find, when that is what the exception is about."""
    return next((name for fault in faults(error) if (name := _missing_source(fault))), None)


def was_cancelled(error: BaseException) -> bool:
    """Say whether an exception is the echo of a cancelled Spark job."""
    return any(
        fault.condition == "SPARK_JOB_CANCELLED" or re.search(r"\bcancelled\b.*\btag\b", fault.message)
        for fault in faults(error)
    )


def quiet() -> None:
    """Stop PySpark's habit of logging every error with its Java stack trace on stderr."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(100)


def _translated(chain: tuple[Fault, ...], question: Question) -> PenstockError:
    for fault in chain:
        for special in _BY_SHAPE:
            if (made := special(fault, question)) is not None:
                return made
    # The innermost condition says most: outer ones only tell that a job, a task or a file failed.
    told = [fault for fault in chain if fault.condition and not fault.condition.startswith("_LEGACY")]
    for fault in reversed(told):
        maker = _BY_CONDITION.get(fault.condition or "") or _BY_CONDITION.get(
            (fault.condition or "").partition(".")[0]
        )
        if maker is not None:
            return maker(fault, question)
    return _other(told[-1] if told else _plainest(chain), question)


def _plainest(chain: tuple[Fault, ...]) -> Fault:
    wrappers = ("Exception thrown in awaitResult", "Job aborted due to stage failure")
    return next(
        (fault for fault in reversed(chain) if fault.message and fault.message not in wrappers), chain[0]
    )


def _other(fault: Fault, question: Question) -> PenstockError:
    text = _sentence(fault)
    if fault.condition is None:
        kind = fault.kind.rpartition(".")[2]
        return SqlError(f"Spark failed: {text or kind}", code="SQL_SPARK", where=_where(fault, question))
    state = fault.sqlstate or ""
    told = f"{text} [{fault.condition}{f', SQLSTATE {state}' if state else ''}]"
    name = fault.condition.partition(".")[0]
    if state.startswith("22"):
        return DataError(told, code=f"DATA_{name}", where=_where(fault, question))
    return SqlError(told, code=f"SQL_{name}", where=_where(fault, question))


def _sentence(fault: Fault) -> str:
    """The first line of Spark's text, without its class, its state and its plans."""
    text = re.sub(r"^\s*\[[A-Z0-9_.]+\]\s*", "", fault.message)
    text = re.split(r"\s*SQLSTATE: |; line \d+ pos \d+", text)[0].strip()
    return text.split("\n")[0].strip().rstrip(".")


def _where(fault: Fault, question: Question) -> str | None:
    if question.sql is not None and fault.line is not None and fault.column is not None:
        lines = question.sql.split("\n")
        offset = sum(len(line) + 1 for line in lines[: fault.line - 1]) + fault.column - 1
        token = fault.parameters.get("error", "").strip("'")
        length = len(token) if question.sql.startswith(token, offset) else 1
        return place(question.sql, min(question.locate(offset), len(question.sql)), length)
    return next((_spot(spot, question) for spot in fault.spots), None)


def _spot(spot: Spot, question: Question) -> str:
    if spot.call_site:
        return f"{spot.call_site}, in {spot.fragment}"
    if spot.view:
        return f"view {spot.view}, in {_short(spot.fragment)}"
    if question.sql is None or spot.start is None or spot.stop is None:
        return _short(spot.fragment)
    start, stop = question.locate(spot.start), question.locate(spot.stop)
    if start == 0 and stop >= len(question.sql.rstrip()) - 1:
        return _short(question.sql)
    return place(question.sql, start, max(1, min(stop + 1, len(question.sql)) - start))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 100 else line[:99] + "…"


def _plain_name(quoted: str) -> str:
    """`o`.`name` as o.name."""
    return ".".join(part.replace("``", "`") for part in re.findall(r"`((?:[^`]|``)*)`", quoted)) or quoted


def _names(quoted: str) -> list[str]:
    """The names in a list such as [`o`.`id`, `name`]."""
    return [_plain_name(name) for name in re.findall(r"(?:`(?:[^`]|``)*`\.?)+", quoted)]


def _near(name: str, choices: Iterable[str]) -> str | None:
    folded = {choice.casefold(): choice for choice in choices}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    return folded[near[0]] if near else None


def _rows(question: Question, statement: str, column: str) -> list[str]:
    if question.spark is None:
        return []
    try:
        return [str(row[column]) for row in question.spark.sql(statement).collect()]
    except Exception:  # a hint must not hide the error it is for
        return []


# By condition: Spark's error class, or its first part.


def _unknown_table(fault: Fault, question: Question) -> PenstockError:
    name = _plain_name(fault.parameters.get("relationName", ""))
    namespace, _, table = name.rpartition(".")
    quoted = ".".join(f"`{part}`" for part in namespace.split(".")) if namespace else ""
    known = _rows(question, f"SHOW TABLES IN {quoted}" if quoted else "SHOW TABLES", "tableName")
    hint = suggest(table, known, what="table")
    if table.lower() in ("parquet", "csv", "json", "orc", "avro", "tsv"):
        hint = f"for a file, put its path in quotes: FROM '{name}'"
    elif not known and not namespace:
        hint = "register_table(name, rows) makes one; a file is read by its path in quotes: FROM 'data/orders.parquet'"
    return SqlError(
        f"no table or view '{name}'", code="SQL_UNKNOWN_TABLE", where=_where(fault, question), hint=hint
    )


def _unknown_column(fault: Fault, question: Question) -> PenstockError:
    name = _plain_name(fault.parameters.get("objectName", ""))
    proposals = _names(fault.parameters.get("proposal", ""))
    hint = None
    if proposals:
        # Spark names at most five, so five may not be all.
        listing = ", ".join(sorted(proposals)) + (", ..." if len(proposals) >= 5 else "")
        last = {proposal.rpartition(".")[2]: proposal for proposal in reversed(proposals)}
        near = _near(name, proposals) or last.get(_near(name.rpartition(".")[2], last) or "")
        hint = f"did you mean '{near}'? Columns here: {listing}" if near else f"columns here: {listing}"
    return SqlError(
        f"no column '{name}'", code="SQL_UNKNOWN_COLUMN", where=_where(fault, question), hint=hint
    )


def _unknown_field(fault: Fault, question: Question) -> PenstockError:
    name = _plain_name(fault.parameters.get("fieldName", ""))
    fields = _names(fault.parameters.get("fields", ""))
    return SqlError(
        f"no field '{name}'",
        code="SQL_UNKNOWN_FIELD",
        where=_where(fault, question),
        hint=suggest(name, fields, what="field") if fields else None,
    )


def _unknown_function(fault: Fault, question: Question) -> PenstockError:
    name = _plain_name(fault.parameters.get("routineName", ""))
    near = _near(name.rpartition(".")[2], _rows(question, "SHOW FUNCTIONS", "function"))
    return SqlError(
        f"no function '{name}'",
        code="SQL_UNKNOWN_FUNCTION",
        where=_where(fault, question),
        hint=f"did you mean '{near}'?" if near else "SHOW FUNCTIONS lists all",
    )


def _unknown_schema(fault: Fault, question: Question) -> PenstockError:
    name = _plain_name(fault.parameters.get("schemaName", ""))
    known = _rows(question, "SHOW NAMESPACES", "namespace")
    return SqlError(
        f"no schema '{name}'",
        code="SQL_UNKNOWN_SCHEMA",
        where=_where(fault, question),
        hint=suggest(name.rpartition(".")[2], known, what="schema"),
    )


def _unknown_catalog(fault: Fault, question: Question) -> PenstockError:
    name = _plain_name(
        fault.parameters.get("catalogName") or fault.parameters.get("namespace", "")
    ).partition(".")
    return SqlError(
        f"no catalog '{name[0]}'",
        code="SQL_UNKNOWN_CATALOG",
        where=_where(fault, question),
        hint=f'name it when the session starts: catalogs={{"{name[0]}": {{"type": "hadoop", "warehouse": ...}}}}',
    )


def _ambiguous(fault: Fault, question: Question) -> PenstockError:
    name = _plain_name(fault.parameters.get("name", ""))
    choices = _names(fault.parameters.get("referenceNames", ""))
    return SqlError(
        f"column '{name}' is ambiguous",
        code="SQL_AMBIGUOUS_COLUMN",
        where=_where(fault, question),
        hint=f"write {' or '.join(choices)}",
    )


def _syntax(fault: Fault, question: Question) -> PenstockError:
    token = fault.parameters.get("error", "")
    extra = fault.parameters.get("hint", "").lstrip(": ")
    message = f"syntax error at {'the end of the query' if 'end of input' in token else token}"
    hint = _keyword_hint(fault, question) or extra or None
    if "extra input" in extra and question.sql and ";" in question.sql:
        hint = "one statement at a time"
    return SqlError(message, code="SQL_SYNTAX", where=_where(fault, question), hint=hint)


def _keyword_hint(fault: Fault, question: Question) -> str | None:
    """The misspelt word is where Spark stopped, or just before it, where it passed for an alias."""
    if question.sql is None or fault.line is None or fault.column is None:
        return None
    lines = question.sql.split("\n")
    before = "\n".join([*lines[: fault.line - 1], lines[fault.line - 1][: fault.column - 1]])
    here = re.match(r"\w+", lines[fault.line - 1][fault.column - 1 :])
    words = [word for word in (here[0] if here else "", *re.findall(r"\w+", before)[-1:]) if len(word) > 3]
    for word in words:
        near = difflib.get_close_matches(word.upper(), _KEYWORDS, n=1, cutoff=0.75)
        if near and near[0] != word.upper():
            return f"did you mean {near[0]} instead of {word}?"
    return None


def _empty(fault: Fault, question: Question) -> PenstockError:
    return SqlError("the statement is empty", code="SQL_SYNTAX", hint="write a statement such as SELECT 1")


def _divide_by_zero(fault: Fault, question: Question) -> PenstockError:
    return DataError(
        "division by zero",
        code="DATA_DIVIDE_BY_ZERO",
        where=_where(fault, question),
        hint="try_divide(a, b) gives NULL instead",
    )


def _overflow(fault: Fault, question: Question) -> PenstockError:
    alternative = re.search(r"'(try_\w+)'", fault.parameters.get("alternative", ""))
    message = fault.parameters.get("message") or _sentence(fault)
    return DataError(
        message[0].lower() + message[1:].rstrip("."),
        code="DATA_OVERFLOW",
        where=_where(fault, question),
        hint=f"{alternative[1]} gives NULL instead, a wider type holds the value"
        if alternative
        else "cast to a wider type first",
    )


def _cast(fault: Fault, question: Question) -> PenstockError:
    source, target = (fault.parameters.get(key, "").strip('"') for key in ("sourceType", "targetType"))
    return DataError(
        f"{fault.parameters.get('expression', 'a value')} ({source}) is not a valid {target}",
        code="DATA_CAST",
        where=_where(fault, question),
        hint="try_cast(value AS type) gives NULL instead",
    )


def _type_mismatch(fault: Fault, question: Question) -> PenstockError:
    text = _sentence(fault)
    return SqlError(
        text, code="SQL_TYPE", where=_where(fault, question), hint="cast one side to the other's type"
    )


def _path(fault: Fault, question: Question) -> PenstockError:
    return path_not_found(fault.parameters.get("path", ""), where=_where(fault, question))


def path_not_found(path: str, *, where: str | None = None) -> PenstockError:
    """Return the error for a path that is not there, with the nearest name that is."""
    local = re.sub(r"^file:/*", "/", path)
    hint = None
    if local.startswith("/") and not re.search(r"[*?\[{]", local):
        folder = Path(local).parent
        if not folder.is_dir():
            hint = f"the folder {folder} does not exist either"
        else:
            near = _near(Path(local).name, (entry.name for entry in folder.iterdir()))
            hint = f"did you mean '{folder / near}'?" if near else None
    elif local.startswith("/"):
        hint = "nothing matches the pattern"
    return DataError(f"no such file or folder: {local}", code="DATA_PATH_NOT_FOUND", where=where, hint=hint)


def _unreadable(fault: Fault, question: Question) -> PenstockError:
    path = re.sub(r"^file:/*", "/", fault.parameters.get("path", ""))
    return DataError(
        f"cannot read {path}: {_sentence(fault)}"
        if "FOOTER" not in (fault.condition or "")
        else f"{path} is not a Parquet file",
        code="DATA_UNREADABLE_FILE",
        where=_where(fault, question),
        hint="is it in another format, cut short, or being written?",
    )


def _subquery(fault: Fault, question: Question) -> PenstockError:
    return DataError(
        "a scalar subquery returned more than one row",
        code="DATA_SCALAR_SUBQUERY",
        where=_where(fault, question),
        hint="add an aggregate, or LIMIT 1 with an ORDER BY",
    )


def _raised(fault: Fault, question: Question) -> PenstockError:
    message = fault.parameters.get("errorMessage") or _sentence(fault)
    return DataError(message, code="DATA_RAISED", where=_where(fault, question))


def _parameter(fault: Fault, question: Question) -> PenstockError:
    name = fault.parameters.get("name", "")
    return SqlError(
        f"parameter '{name}' has no value",
        code="SQL_PARAMETER",
        where=_where(fault, question),
        hint=f'pass it: sql(query, args={{"{name}": ...}})',
    )


def _exists(fault: Fault, question: Question) -> PenstockError:
    name = _plain_name(fault.parameters.get("relationName") or fault.parameters.get("outputPath", ""))
    return SqlError(
        f"'{name}' is already there",
        code="SQL_ALREADY_EXISTS",
        where=_where(fault, question),
        hint="use CREATE OR REPLACE, IF NOT EXISTS, or another name",
    )


def _not_grouped(fault: Fault, question: Question) -> PenstockError:
    text = _sentence(fault)
    return SqlError(
        text,
        code="SQL_NOT_GROUPED",
        where=_where(fault, question),
        hint="put the column in GROUP BY or in an aggregate, such as any_value(column)",
    )


def _cancelled(fault: Fault, question: Question) -> PenstockError:
    return StateError("the query was cancelled", code="QUERY_CANCELLED")


def _spark_fault(fault: Fault, question: Question) -> PenstockError:
    return SqlError(
        f"Spark cannot do this: {_short(fault.parameters.get('message') or _sentence(fault))}",
        code="SQL_SPARK_INTERNAL",
        where=_where(fault, question),
        hint="Spark calls it an internal error: rewrite the statement, or report it",
    )


Maker = Callable[[Fault, Question], PenstockError]
_BY_CONDITION: dict[str, Maker] = {
    "TABLE_OR_VIEW_NOT_FOUND": _unknown_table,
    "UNRESOLVED_COLUMN": _unknown_column,
    "UNRESOLVED_USING_COLUMN_FOR_JOIN": _unknown_column,
    "FIELD_NOT_FOUND": _unknown_field,
    "UNRESOLVED_ROUTINE": _unknown_function,
    "ROUTINE_NOT_FOUND": _unknown_function,
    "SCHEMA_NOT_FOUND": _unknown_schema,
    "CATALOG_NOT_FOUND": _unknown_catalog,
    "REQUIRES_SINGLE_PART_NAMESPACE": _unknown_catalog,
    "AMBIGUOUS_REFERENCE": _ambiguous,
    "PARSE_SYNTAX_ERROR": _syntax,
    "PARSE_EMPTY_STATEMENT": _empty,
    "DIVIDE_BY_ZERO": _divide_by_zero,
    "REMAINDER_BY_ZERO": _divide_by_zero,
    "ARITHMETIC_OVERFLOW": _overflow,
    "BINARY_ARITHMETIC_OVERFLOW": _overflow,
    "NUMERIC_VALUE_OUT_OF_RANGE": _overflow,
    "CAST_OVERFLOW": _overflow,
    "CAST_INVALID_INPUT": _cast,
    "DATATYPE_MISMATCH": _type_mismatch,
    "PATH_NOT_FOUND": _path,
    "FAILED_READ_FILE": _unreadable,
    "SCALAR_SUBQUERY_TOO_MANY_ROWS": _subquery,
    "USER_RAISED_EXCEPTION": _raised,
    "UNBOUND_SQL_PARAMETER": _parameter,
    "TABLE_OR_VIEW_ALREADY_EXISTS": _exists,
    "TEMP_TABLE_OR_VIEW_ALREADY_EXISTS": _exists,
    "PATH_ALREADY_EXISTS": _exists,
    "MISSING_GROUP_BY": _not_grouped,
    "MISSING_AGGREGATION": _not_grouped,
    "SPARK_JOB_CANCELLED": _cancelled,
    "INTERNAL_ERROR": _spark_fault,
}


# By shape: what has no condition of its own, told by its class or its text.


def _missing_source(fault: Fault) -> str | None:
    if fault.condition in ("DATA_SOURCE_NOT_FOUND", "_LEGACY_ERROR_TEMP_1139", "_LEGACY_ERROR_TEMP_1140"):
        return fault.parameters.get("provider")
    if found := re.search(r'No FileSystem for scheme "(\w+)"', fault.message):
        return found[1]
    if found := re.search(
        r"Class org\.apache\.hadoop\.fs\.(s3a)\S* not found|Cannot find catalog plugin class .*\.(iceberg)\.",
        fault.message,
    ):
        return found[1] or found[2]
    if fault.kind == "java.sql.SQLException" and "No suitable driver" in fault.message:
        return "jdbc:postgresql"
    return None


def _no_connector(fault: Fault, question: Question) -> PenstockError | None:
    name = _missing_source(fault)
    if name is None:
        return None
    connector = CONNECTOR_OF_FORMAT.get(name.lower())
    if connector is None:
        known = ("parquet", "csv", "json", "orc", "text", *CONNECTOR_OF_FORMAT)
        return ConnectorError(
            f"no data source '{name}'",
            code="CONNECTOR_UNKNOWN",
            where=_where(fault, question),
            hint=suggest(name, known, what="format"),
        )
    return missing_connector(connector, where=_where(fault, question))


def missing_connector(connector: str, *, where: str | None = None) -> ConnectorError:
    """Return the error for a connector whose jars this session does not have."""
    start = f'Session.embedded(connectors=("{connector}",))'
    hint = f"start the session with it: {start}, or: penstock connectors install {connector}"
    if connector in NEEDS_EXTENSIONS:
        hint = f"it extends Spark itself, so the session must start with it: {start}"
    return ConnectorError(
        f"the connector '{connector}' is not in this session",
        code="CONNECTOR_MISSING",
        where=where,
        hint=hint,
    )


def _python_function(fault: Fault, question: Question) -> PenstockError | None:
    if (
        not fault.kind.endswith(".PythonException")
        or "Traceback (most recent call last)" not in fault.message
    ):
        return None
    trace = fault.message.partition("Traceback (most recent call last):")[2]
    frames = re.findall(r'^ *File "([^"]+)", line (\d+), in (.+)\n(?:    +(.+)\n)?', trace, re.MULTILINE)
    ours = [
        frame for frame in frames if not re.search(r"[/\\]pyspark(\.zip)?[/\\]|^<frozen|runpy\.py$", frame[0])
    ]
    # The error's own text is what stands behind the last frame, at the left margin.
    tail = re.split(r'^ *File "[^"]+", line \d+, in .+\n(?:    .*\n)*', trace, flags=re.MULTILINE)[-1].strip()
    lines = [
        f"{file}:{line} in {name}" + (f"\n      {code}" if code else "") for file, line, name, code in ours
    ]
    return SqlError(
        f"a Python function failed: {tail.split(chr(10))[0]}",
        code="SQL_PYTHON_FUNCTION",
        where="\n      ".join(lines) or None,
    )


def _crashed_worker(fault: Fault, question: Question) -> PenstockError | None:
    if "Python worker exited unexpectedly" not in fault.message:
        return None
    return SqlError(
        "a Python function ended its process",
        code="SQL_PYTHON_CRASH",
        hint="it was killed (out of memory?) or crashed in native code; "
        'conf={"spark.python.worker.faulthandler.enabled": True} shows where',
    )


def _memory(fault: Fault, question: Question) -> PenstockError | None:
    large = "is bigger than spark.driver.maxResultSize" in fault.message
    if not large and not fault.kind.endswith("OutOfMemoryError") and "OutOfMemoryError" not in fault.message:
        return None
    if large:
        return DataError(
            "the result is larger than spark.driver.maxResultSize",
            code="SPARK_RESULT_SIZE",
            hint="fetch it by its tickets (session.submit), or raise the limit in conf=",
        )
    return StateError(
        "Spark ran out of memory",
        code="SPARK_OUT_OF_MEMORY",
        hint='give it more, as in conf={"spark.driver.memory": "8g"}, or more partitions',
    )


def _gone(fault: Fault, question: Question) -> PenstockError | None:
    names = ("Py4JNetworkError", "ConnectionRefusedError", "ConnectionResetError")
    stopped = "Cannot call methods on a stopped SparkContext" in fault.message
    if not stopped and not fault.kind.endswith(names) and "SparkContext was shut down" not in fault.message:
        return None
    return StateError(
        "Spark has ended",
        code="SPARK_ENDED",
        hint="start a new session; if it ended by itself, look at its memory (spark.driver.memory)",
    )


def _conflict(fault: Fault, question: Question) -> PenstockError | None:
    short = fault.kind.rpartition(".")[2]
    if not re.search(
        r"CommitFailedException|Concurrent\w*(Append|Write|Modification|Transaction)\w*Exception", short
    ):
        return None
    if short == "ConcurrentModificationException":
        return None
    return ConnectorError(
        f"another writer changed the table at the same time: {_sentence(fault)}",
        code="CONNECTOR_WRITE_CONFLICT",
        hint="run the statement again",
        retryable=True,
    )


def _setting(fault: Fault, question: Question) -> PenstockError | None:
    if not (fault.condition or "").startswith(("INVALID_CONF_VALUE", "CANNOT_MODIFY_CONFIG")):
        return None
    return ConfigError(_sentence(fault), code="CONFIG_SPARK_VALUE", where=_where(fault, question))


def _own(fault: Fault, question: Question) -> PenstockError | None:
    """Neither Spark nor PySpark raised it: ours, or of the libraries we call."""
    if fault.kind.startswith(("pyspark.", "py4j.", "java.", "javax.", "org.", "scala.", "io.", "com.")):
        return None
    return InternalError(f"{fault.kind.rpartition('.')[2]}: {fault.message}", code="INTERNAL")


_BY_SHAPE: tuple[Callable[[Fault, Question], PenstockError | None], ...] = (
    _no_connector,
    _python_function,
    _crashed_worker,
    _memory,
    _gone,
    _conflict,
    _setting,
    _own,
)
