"""Run SQL statements and print what they return: what `sql` and `shell` have in common."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cli.output import Format, Written, write_batches
from penstock.cli.progress import progress
from penstock.errors import PenstockError
from penstock.spark import arrow
from penstock.spark.errors import analyzed, translate
from penstock.sql.excerpt import moved
from penstock.sql.lexer import Statement

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from penstock.engine.session import Session

TERMINAL_ROWS = 100
"""How many rows of a table a terminal shows by default."""


@dataclass(frozen=True, slots=True)
class Printing:
    """How results are printed.

    `limit` is the most rows (0 is all, None is what suits the place), `timeout` the seconds that a statement may take,
    and `summary` whether a line under the result counts its rows (None: on a terminal).
    """

    output: Format = Format.TABLE
    limit: int | None = None
    timeout: float | None = None
    summary: bool | None = None

    def rows(self) -> int | None:
        """The most rows to print, or None for all."""
        if self.limit is not None:
            return self.limit or None
        return TERMINAL_ROWS if self.output is Format.TABLE and sys.stdout.isatty() else None


def run_statement(session: Session, statement: str, printing: Printing) -> bool:
    """Run one statement and print its rows; False says that it returns none, as it does on a terminal's stderr."""
    started, step = time.monotonic(), session.last_step
    limit = printing.rows()
    with progress(session.spark):
        result = _result(session, statement, limit, printing.timeout)
        if result is not None:
            schema, batches = result
            # The first rows are fetched while progress is still shown; the table is written after it is gone.
            first = next(batches, None)
    if result is None:
        ticked = "" if session.last_step is step else str(session.last_step).partition("\n")[0] + "; "
        _say(f"{ticked}ok in {time.monotonic() - started:.2f} s", printing)
        return False
    written = write_batches(schema, _chain(first, batches), output=printing.output, limit=limit)
    sys.stdout.flush()
    _say(summary(written, time.monotonic() - started), printing)
    return True


@contextlib.contextmanager
def placed_in(script: str, statement: Statement) -> Iterator[None]:
    """Places of errors are those in the whole script."""
    try:
        yield
    except PenstockError as error:
        error.where = moved(error.where, statement.text, script, lambda offset: statement.offset + offset)
        raise


def summary(written: Written, seconds: float) -> str:
    """The line under a table.

    >>> summary(Written(100, more=True), 0.251)
    'first 100 rows in 0.25 s; there are more (--limit 0 shows all)'
    """
    rows = "1 row" if written.rows == 1 else f"{written.rows:,} rows"
    if written.more:
        return f"first {rows} in {seconds:.2f} s; there are more (--limit 0 shows all)"
    return f"{rows} in {seconds:.2f} s"


def _result(
    session: Session, statement: str, limit: int | None, timeout: float | None
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]] | None:
    if timeout is not None:
        table = session.sql_with_timeout(statement, round(timeout * 1000))
        return (table.schema, iter(table.to_batches())) if table.schema.names else None
    frame = session.sql(statement)
    if not frame.columns:
        return None
    with _translated(session, statement, frame):
        schema, batches = arrow.stream(frame if limit is None else frame.limit(limit + 1))
    return schema, _guarded(batches, session, statement, frame)


def _guarded(
    batches: Iterator[pa.RecordBatch], session: Session, statement: str, frame: DataFrame
) -> Iterator[pa.RecordBatch]:
    while True:
        with _translated(session, statement, frame):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


@contextlib.contextmanager
def _translated(session: Session, statement: str, frame: DataFrame) -> Iterator[None]:
    try:
        yield
    except PenstockError:
        raise
    except Exception as error:
        raise translate(error, sql=statement, spark=session.spark, plan=analyzed(frame)) from error


def _chain(first: pa.RecordBatch | None, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if first is not None:
        yield first
    yield from rest


def _say(text: str, printing: Printing) -> None:
    on_terminal = sys.stdout.isatty() and sys.stderr.isatty() and printing.output is Format.TABLE
    if on_terminal if printing.summary is None else printing.summary:
        print(text, file=sys.stderr)
