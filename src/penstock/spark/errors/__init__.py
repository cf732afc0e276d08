"""Spark's errors as penstock's: what failed, where in the query, and what to do about it.

`raise translate(error, sql=query) from None` keeps the traceback short; Spark's own exception stays in `__context__`, for those
who ask for it. Codes are stable: docs/reference/errors.md lists them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError, SqlError
from penstock.spark.boot import py4j_log
from penstock.spark.errors.advice import advice
from penstock.spark.errors.cause import Fault, Spot, faults
from penstock.spark.errors.condition import BY_CONDITION, by_class
from penstock.spark.errors.place import analyzed, find_spot, spot_of_expression
from penstock.spark.errors.shape import BY_SHAPE, WITHOUT_NAME, connector_for, missing_source
from penstock.spark.errors.wording import Question, sentence, short, where
from penstock.sql.files import rewrite_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["analyzed", "located", "missing_connector_of", "quiet", "short", "spot_of_expression", "translate"]


def translate(
    error: BaseException,
    *,
    sql: str | None = None,
    spark: SparkSession | None = None,
    plan: Any = None,
    spot: Spot | None = None,
) -> PenstockError:
    """Return the penstock error for an exception that came out of PySpark.

    `sql` is the text that the user wrote, in which a place is shown; `spark` is asked for the names of tables and functions when
    one was not found. When Spark names no place, it is `spot`, or the analyzed plan in the JVM is searched for it (`plan`).
    """
    if isinstance(error, PenstockError):
        return error
    chain = faults(error)
    if spark is not None and plan is not None and not any(fault.spots or fault.line for fault in chain):
        spot = find_spot(spark, plan, error)
    question = Question(None if sql is None else rewrite_files(sql), sql, spark, spot)
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
    py4j_log.silence()


def _translated(chain: tuple[Fault, ...], question: Question) -> PenstockError:
    if (error := _by_shape(chain, question, BY_SHAPE)) is not None:
        return error
    # The innermost condition says most: outer ones only tell that a job, a task or a file failed.
    named = [fault for fault in chain if fault.condition and not fault.condition.startswith("_LEGACY")]
    for fault in reversed(named):
        maker = BY_CONDITION.get(fault.condition or "") or BY_CONDITION.get(
            (fault.condition or "").partition(".")[0]
        )
        if maker is not None:
            error = maker(fault, question)
            error.condition = fault.condition
            return error
    if named:
        return _other(named[-1], question)
    return (
        _by_shape(chain, question, WITHOUT_NAME)
        or _of_the_machine(chain, question)
        or _other(_plainest(chain), question)
    )


def _by_shape(
    chain: tuple[Fault, ...],
    question: Question,
    shapes: Sequence[Callable[[Fault, Question], PenstockError | None]],
) -> PenstockError | None:
    for fault in chain:
        for shape in shapes:
            if (error := shape(fault, question)) is not None:
                error.condition = fault.condition
                return error
    return None


def _of_the_machine(chain: tuple[Fault, ...], question: Question) -> PenstockError | None:
    """An error of the JVM itself, such as a class that cannot be initialised: its kind says more than its text."""
    for index, fault in enumerate(chain):
        if re.fullmatch(r"java\.lang\.\w+Error", fault.kind):
            causes = [f"{cause.kind}: {cause.message}".rstrip(": ") for cause in chain[index:]]
            return SqlError(
                f"Spark failed: {', because of '.join(causes)}",
                code="SQL_SPARK",
                where=where(fault, question),
            )
    return None


def _plainest(chain: tuple[Fault, ...]) -> Fault:
    wrappers = ("Exception thrown in awaitResult", "Job aborted due to stage failure")
    return next(
        (fault for fault in reversed(chain) if fault.message and fault.message not in wrappers), chain[0]
    )


def _other(fault: Fault, question: Question) -> PenstockError:
    text, place, hint = sentence(fault), where(fault, question), advice(fault)
    if fault.condition is None:
        kind = fault.kind.rpartition(".")[2]
        return SqlError(f"Spark failed: {text or kind}", code="SQL_SPARK", where=place, hint=hint)
    if fault.condition.startswith("_LEGACY"):  # a number that Spark has instead of a name
        return SqlError(text, code="SQL_SPARK", where=place, hint=hint, condition=fault.condition)
    state = fault.sqlstate or ""
    message = f"{text} [{fault.condition}{f', SQLSTATE {state}' if state else ''}]"
    refusal, code = by_class(fault)
    return refusal(message, code=code, where=place, hint=hint, condition=fault.condition)
