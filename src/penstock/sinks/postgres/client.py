"""PostgreSQL's client: the connection, statements with quoted names, and what its errors mean."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.sinks.errors import refused, row_refused
from penstock.sources.postgres.client import column_list as column_list
from penstock.sources.postgres.client import location as location
from penstock.sources.postgres.client import transient as _transient

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

TRANSIENT_STATES = ("08", "40001", "40P01", "53300", "55P03", "57P01", "57P02", "57P03", "25006")
ROW_STATES = ("22", "23")
_LINE = re.compile(r"\bline (\d+)")


def connect(url: str) -> psycopg.Connection:
    """Return a new connection."""
    import psycopg

    return psycopg.connect(url, autocommit=True, connect_timeout=10, application_name="penstock")


def transient(error: Exception) -> str | None:
    """Say what an error means that goes away by itself; None when it does not, or is not PostgreSQL's."""
    return _transient(error, states=TRANSIENT_STATES)


def translate(error: Exception, *, where: str) -> PenstockError | None:
    """Return the error for the user, for one of PostgreSQL's that does not go away."""
    import psycopg

    if not isinstance(error, psycopg.Error):
        return None
    text = str(error).strip()
    if is_of_row(error):
        return row_refused(
            "PostgreSQL",
            text,
            where=where,
            hint="nothing of the batch was stored; correct the query or the table, and start the query again",
        )
    return refused("PostgreSQL", text, where=where)


def is_of_row(error: psycopg.Error) -> bool:
    """Whether an error is about the values of a row: they do not fit their columns, or break a constraint."""
    return (error.sqlstate or "").startswith(ROW_STATES)


def said(error: psycopg.Error) -> str:
    """What the server says of a row, without the place of the row among others."""
    message, detail = error.diag.message_primary, error.diag.message_detail
    return f"{message or str(error).strip()}{f' ({detail})' if detail else ''}"


def cuts(error: psycopg.Error, rows: int) -> list[int]:
    """Where to cut rows of which one was refused: around the line that the server names, or in the middle.

    The line is a hint: a text with line breaks in it has several.
    """
    line = _LINE.search(error.diag.context or "")
    at = min(int(line[1]), rows) if line else 0
    return [cut for cut in (at - 1, at) if 0 < cut < rows] if at else [rows // 2]


def statement(text: str, *names: str | sql.Identifier) -> sql.Composed:
    """Return a statement with quoted names in place of its braces; a dotted name is a schema's."""
    from psycopg import sql

    return sql.SQL(text).format(
        *(sql.Identifier(*name.split(".")) if isinstance(name, str) else name for name in names)
    )
