"""Spark's errors as penstock's: what failed, where in the query, and what to do about it.

`raise translate(error, sql=query) from None` keeps the traceback short; Spark's own exception stays in `__context__`, for those
who ask for it. Codes are stable: docs/reference/errors.md lists them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.errors import DataError, PenstockError, SqlError
from penstock.spark.errors.cause import Fault, faults
from penstock.spark.errors.condition import BY_CONDITION
from penstock.spark.errors.shape import BY_SHAPE, connector_for, missing_source
from penstock.spark.errors.wording import Question, sentence, where
from penstock.sql.files import rewrite_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def translate(
    error: BaseException,
    *,
    sql: str | None = None,
    spark: SparkSession | None = None,
) -> PenstockError:
    """Return the penstock error for an exception that came out of PySpark.

    `sql` is the text that the user wrote, in which a place is shown; `spark` is asked for the names of tables and functions when
    one was not found.
    """
    if isinstance(error, PenstockError):
        return error
    question = Question(None if sql is None else rewrite_files(sql), sql, spark)
    chain = faults(error)
    translated = _translated(chain, question)
    # The original is there for whoever wants it, and is not printed unasked.
    translated.__context__ = error
    translated.__suppress_context__ = True
    return translated


def located(error: PenstockError, place: str) -> PenstockError:
    """Return the error with what it belongs to before its place in the query."""
    error.where = place + (f", {error.where}" if error.where else "")
    return error


def missing_connector_of(error: BaseException) -> str | None:
    """Return the connector that would bring what Spark did not find, when that is what the exception is about."""
    missing = next((name for fault in faults(error) if (name := missing_source(fault))), None)
    return None if missing is None else connector_for(missing)


def quiet() -> None:
    """Stop PySpark's habit of logging with Java's and Python's stack traces what it raises anyway."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    root = logging.getLogger()
    root.removeFilter(_not_from_py4j)
    root.addFilter(_not_from_py4j)


def _not_from_py4j(record: logging.LogRecord) -> bool:
    """py4j writes to the root logger when a connection ends, as it does whenever Spark is stopped."""
    return not record.pathname.replace("\\", "/").endswith(("/py4j/java_gateway.py", "/py4j/clientserver.py"))


def _translated(chain: tuple[Fault, ...], question: Question) -> PenstockError:
    for fault in chain:
        for special in BY_SHAPE:
            if (error := special(fault, question)) is not None:
                return error
    # The innermost condition says most: outer ones only tell that a job, a task or a file failed.
    named = [fault for fault in chain if fault.condition and not fault.condition.startswith("_LEGACY")]
    for fault in reversed(named):
        maker = BY_CONDITION.get(fault.condition or "") or BY_CONDITION.get(
            (fault.condition or "").partition(".")[0]
        )
        if maker is not None:
            return maker(fault, question)
    return _other(named[-1] if named else _plainest(chain), question)


def _plainest(chain: tuple[Fault, ...]) -> Fault:
    wrappers = ("Exception thrown in awaitResult", "Job aborted due to stage failure")
    return next(
        (fault for fault in reversed(chain) if fault.message and fault.message not in wrappers), chain[0]
    )


def _other(fault: Fault, question: Question) -> PenstockError:
    text = sentence(fault)
    if fault.condition is None:
        kind = fault.kind.rpartition(".")[2]
        return SqlError(f"Spark failed: {text or kind}", code="SQL_SPARK", where=where(fault, question))
    if fault.condition.startswith("_LEGACY"):  # a number that Spark has instead of a name
        return SqlError(text, code="SQL_SPARK", where=where(fault, question))
    state = fault.sqlstate or ""
    message = f"{text} [{fault.condition}{f', SQLSTATE {state}' if state else ''}]"
    name = fault.condition.partition(".")[0]
    if state.startswith("22"):
        return DataError(message, code=f"DATA_{name}", where=where(fault, question))
    return SqlError(message, code=f"SQL_{name}", where=where(fault, question))
