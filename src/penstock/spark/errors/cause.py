"""The error of Spark when something failed, read out of the JVM once and kept as plain values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DEEPEST_CAUSE = 16
_JAVA_FRAME = re.compile(r"\((?:Native Method|Unknown Source|\w+\.(?:java|scala)(?::\d+)?)\)$")

_WITHOUT_COLLATION = "StringType(null)"
_WHICH_COLLATION = "Could not determine which collation to use for string operation. Use COLLATE clause to set the collation explicitly."


@dataclass(frozen=True, slots=True)
class Spot:
    """The piece of a query, a view or a Python program in which Spark says that the error is."""

    fragment: str
    start: int | None = None
    stop: int | None = None
    view: str = ""
    call_site: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """One Java or PySpark exception; `condition` is Spark's error class where it has one, `text` what the parser did
    not understand."""

    kind: str
    message: str
    condition: str | None = None
    sqlstate: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    spots: tuple[Spot, ...] = ()
    line: int | None = None
    column: int | None = None
    text: str | None = None


def faults(error: BaseException) -> tuple[Fault, ...]:
    """Return the chain of causes of an exception that came out of PySpark, the outermost first."""
    origin = _origin(error)
    if origin is None and error.__context__ is not None and _hides_another(error):
        origin = _origin(error.__context__)
    if origin is None:
        return (_of_python(error),)
    from py4j.protocol import Py4JError, Py4JNetworkError

    faults: list[Fault] = []
    try:
        while origin is not None and len(faults) < DEEPEST_CAUSE:
            faults.append(_of_java(origin))
            origin = origin.getCause()
    except (Py4JNetworkError, Py4JError, ConnectionError):
        # The JVM went away while it was asked; what Python already knows must do.
        faults = faults or [_of_python(error)]
    return tuple(faults)


def _origin(error: BaseException) -> Any:
    return getattr(error, "_origin", None) or getattr(error, "java_exception", None)


def _hides_another(error: BaseException) -> bool:
    """Whether PySpark says only that it could not read a schema: what Spark raised when it was asked for the schema says why."""
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException) and error.getCondition() == "CANNOT_PARSE_DATATYPE"


def _of_python(error: BaseException) -> Fault:
    from pyspark.errors import PySparkException

    condition, sqlstate, parameters = None, None, {}
    if isinstance(error, PySparkException):
        condition, sqlstate = error.getCondition(), error.getSqlState()
        parameters = dict(error.getMessageParameters() or {})
    # A PySpark exception without a Java origin keeps its text to itself when it has no condition.
    text = str(error) or str(getattr(error, "_desc", None) or getattr(error, "desc", None) or "")
    return Fault(
        f"{type(error).__module__}.{type(error).__qualname__}", text, condition, sqlstate, parameters
    )


def _of_java(origin: Any) -> Fault:
    from py4j.java_gateway import is_instance_of
    from pyspark import SparkContext

    kind = origin.getClass().getName()
    message = origin.getMessage() or ""
    if not is_instance_of(SparkContext._gateway, origin, "org.apache.spark.SparkThrowable"):
        return Fault(kind, message)
    if origin.getCondition() == "INTERNAL_ERROR" and _WITHOUT_COLLATION in message:
        # Spark finds this out only when the text is compared; PySpark asks for the schema first, which cannot be written.
        return Fault(kind, _WHICH_COLLATION, "INDETERMINATE_COLLATION", "42P22")
    line = column = text = None
    if kind.endswith(".ParseException"):
        line, column = _number(origin.line()), _number(origin.startPosition())
        text = origin.command().get() if origin.command().isDefined() else None
    return Fault(
        kind,
        message,
        origin.getCondition(),
        origin.getSqlState(),
        dict(origin.getMessageParameters()),
        tuple(spot for context in origin.getQueryContext() if (spot := spot_of(context)) is not None),
        line,
        None if column is None else column + 1,
        text,
    )


def spot_of(context: Any) -> Spot | None:
    """The piece that a QueryContext of Spark names, if it tells anybody anything."""
    if context.contextType().toString() != "SQL":
        site = context.callSite()
        # Without a line of Python, Spark names the frame of Java that called it, which tells nobody anything.
        return None if _JAVA_FRAME.search(site) else Spot(context.fragment(), call_site=site)
    return Spot(
        context.fragment(), start=context.startIndex(), stop=context.stopIndex(), view=context.objectName()
    )


def _number(option: Any) -> int | None:
    return int(option.get()) if option.isDefined() else None
