"""Errors of streaming queries: Spark's are translated, those of the user's functions get the line that raised them."""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import PenstockError
from penstock.spark.boot import gateway
from penstock.spark.errors import translate

_PLACE = re.compile(r":\d+:\d+$")
_OWN_FILES = str(Path(__file__).parents[2])


def translate_query_error(error: BaseException, *, sql: str | None = None) -> PenstockError:
    """Return the penstock error for an exception that ended a streaming query or refused its start."""
    if isinstance(error, PenstockError):
        return error
    gone = gateway.is_lost(error) and gateway.death() is not None
    if gone or type(error).__module__.startswith(("pyspark.", "py4j.")):
        return translate(error, sql=sql)
    return _error_of_function(error)


@contextlib.contextmanager
def translated(*, sql: str | None = None, where: str | None = None) -> Iterator[None]:
    """Raise what is raised inside as a penstock error; `where` is the line of the program, for errors that have no place.

    A place in a file, `file:line:column`, stands also before another place, such as the address of a server.
    """
    try:
        yield
    except PenstockError as error:
        error.where = _where(error.where, where)
        raise
    except Exception as error:
        translation = translate_query_error(error, sql=sql)
        translation.where = translation.where or where
        raise translation from None


def _where(own: str | None, where: str | None) -> str | None:
    if own is None or where is None:
        return own or where
    file = _PLACE.sub("", where)
    return own if file == where or own.startswith(file) else f"{where}, {own}"


def _error_of_function(error: BaseException) -> PenstockError:
    """Return the error for an exception of the user's own function, with the line that raised it."""
    lines = [
        line
        for line in traceback.extract_tb(error.__traceback__)
        if not line.filename.startswith(_OWN_FILES)
        and "/pyspark/" not in line.filename
        and "/py4j/" not in line.filename
    ]
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    translation = PenstockError(
        f"the function of the query raised {text}",
        code="STREAM_FUNCTION",
        where=f"{lines[-1].filename}:{lines[-1].lineno} in {lines[-1].name}" if lines else None,
        hint="the batch comes again, with the same number and rows, when the query is started again",
    )
    translation.__cause__ = error
    return translation
