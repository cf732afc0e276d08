"""PostgreSQL's client: the connection, statements with quoted names, and what its errors mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.sinks.errors import refused, row_refused

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

# A connection that is refused has no SQLSTATE in the client: only these words tell a server that is not ready from one that refuses.
TRANSIENT_WORDS = (
    "starting up",
    "shutting down",
    "recovery mode",
    "not yet accepting",
    "not accepting",
    "too many",
    "remaining connection slots",
    "terminating connection",
)
TRANSIENT_STATES = ("08", "40001", "40P01", "53300", "55P03", "57P01", "57P02", "57P03", "25006")
ROW_STATES = ("22", "23")


def connect(url: str) -> psycopg.Connection:
    """Return a new connection."""
    import psycopg

    return psycopg.connect(url, autocommit=True, connect_timeout=10, application_name="penstock")


def location(url: str) -> str:
    """Return where a database is, without the secrets of its address."""
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(url)
    return f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"


def transient(error: Exception) -> str | None:
    """Say what an error means that goes away by itself; None when it does not, or is not PostgreSQL's."""
    import psycopg

    if not isinstance(error, psycopg.Error):
        return None
    text = str(error).strip() or type(error).__name__
    if error.sqlstate is not None:
        passes = error.sqlstate.startswith(TRANSIENT_STATES)
    elif isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        passes = "FATAL" not in text or any(word in text for word in TRANSIENT_WORDS)
    else:
        passes = False
    if not passes:
        return None
    lines = [line.strip() for line in text.splitlines()]
    return next((line for line in lines if "failed:" in line or "FATAL" in line), lines[0])


def translate(error: Exception, *, where: str) -> PenstockError | None:
    """Return the error for the user, for one of PostgreSQL's that does not go away."""
    import psycopg

    if not isinstance(error, psycopg.Error):
        return None
    text = str(error).strip()
    if (error.sqlstate or "").startswith(ROW_STATES):
        return row_refused(
            "PostgreSQL",
            text,
            where=where,
            hint="nothing of the batch was stored; correct the query or the table, and start the query again",
        )
    return refused("PostgreSQL", text, where=where)


def statement(text: str, *names: str | sql.Identifier) -> sql.Composed:
    """Return a statement with quoted names in place of its braces; a dotted name is a schema's."""
    from psycopg import sql

    return sql.SQL(text).format(
        *(sql.Identifier(*name.split(".")) if isinstance(name, str) else name for name in names)
    )


def column_list(names: Iterable[str]) -> sql.Composed:
    """Return columns with commas between them; a dot in a name is part of it."""
    from psycopg import sql

    return sql.SQL(", ").join(sql.Identifier(name) for name in names)
