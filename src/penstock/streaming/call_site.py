"""Errors of queries, and which line of the user's program a query or an error belongs to."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import FrameType

from penstock.errors import PenstockError
from penstock.spark import errors as spark_errors

_OWN = str(Path(__file__).parents[1])


def calling_line() -> str | None:
    """The innermost line outside penstock that led here."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return None if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _raised_by_user(error: BaseException) -> PenstockError:
    """The error for an exception of the user's own function, with the line that raised it."""
    lines = [
        line
        for line in traceback.extract_tb(error.__traceback__)
        if not line.filename.startswith(_OWN)
        and "/pyspark/" not in line.filename
        and "/py4j/" not in line.filename
    ]
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    told = PenstockError(
        f"the function of the query raised {text}",
        code="STREAM_FUNCTION",
        where=f"{lines[-1].filename}:{lines[-1].lineno} in {lines[-1].name}" if lines else None,
        hint="the batch comes again, with the same number and rows, when the query is started again",
    )
    told.__cause__ = error
    return told


def told(error: BaseException, query: str | None = None) -> PenstockError:
    """The error of a query in penstock's words: Spark's are translated, a function's own get the line that raised them."""
    if isinstance(error, PenstockError):
        return error
    module = type(error).__module__
    if module.startswith(("pyspark.", "py4j.")):
        return spark_errors.translate(error, sql=query)
    return _raised_by_user(error)
