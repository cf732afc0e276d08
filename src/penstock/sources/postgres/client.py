"""PostgreSQL's client for sources: connections that write values in one form, and what errors of the server mean,
also to sinks."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, NoReturn

from penstock.errors import ConfigError, ConnectorError, DataError, PenstockError

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

# The form of values as text, in which COPY and pgoutput send them, must not depend on the server, the database or the user.
_FORM = """
SET DateStyle TO 'ISO, YMD'; SET IntervalStyle TO 'iso_8601'; SET TimeZone TO 'UTC'; SET bytea_output TO 'hex';
SET extra_float_digits TO 1; SET lc_monetary TO 'C'; SET statement_timeout TO 0; SET idle_in_transaction_session_timeout TO 0
"""
# A connection that is refused has no SQLSTATE in the client: only these words tell a server that is not ready from
# one that refuses.
_TRANSIENT_WORDS = (
    "starting up",
    "shutting down",
    "recovery mode",
    "not yet accepting",
    "not accepting",
    "too many",
    "remaining connection slots",
    "terminating connection",
)
# 55006: another session still holds the slot, perhaps that of a process which was killed a moment ago.
_TRANSIENT_STATES = ("08", "40001", "40P01", "53300", "55006", "57P01", "57P02", "57P03")


def connect(url: str, *, seconds: float = 0.0) -> psycopg.Connection:
    """Return a new connection; wait for so long for a server that does not answer."""
    import psycopg

    deadline = time.monotonic() + seconds
    pause = 0.1
    while True:
        try:
            connection = psycopg.connect(
                url,
                autocommit=True,
                connect_timeout=10,
                application_name="penstock",
                client_encoding="utf8",
                keepalives_idle=30,
            )
        except psycopg.OperationalError as error:
            if transient(error) is None or time.monotonic() + pause > deadline:
                raise
            time.sleep(pause)
            pause = min(2 * pause, 2.0)
        else:
            with ExitStack() as failed:
                failed.callback(connection.close)
                connection.execute(_FORM)
                failed.pop_all()
            return connection


def location(url: str) -> str:
    """Return where a database is, without the secrets of its address."""
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(url)
    return f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"


def transient(error: Exception, *, states: tuple[str, ...] = _TRANSIENT_STATES) -> str | None:
    """Say what an error means that goes away by itself; None when it does not, or is not PostgreSQL's. `states` begin
    the SQLSTATEs that do."""
    import psycopg

    if not isinstance(error, psycopg.Error):
        return None
    text = str(error).strip() or type(error).__name__
    if error.sqlstate is not None:
        passes = error.sqlstate.startswith(states)
    elif isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        passes = "FATAL" not in text or any(word in text for word in _TRANSIENT_WORDS)
    else:
        passes = False
    if not passes:
        return None
    lines = [line.strip() for line in text.splitlines()]
    return next((line for line in lines if "failed:" in line or "FATAL" in line), lines[0])


def raise_translated(error: Exception, *, where: str) -> NoReturn:
    """Raise what the user should read of an error of PostgreSQL's; others as they are."""
    raise translated(error, where=where) from (None if isinstance(error, PenstockError) else error)


def translated(error: Exception, *, where: str) -> Exception:
    """Return what the user should read of an error of PostgreSQL's; others as they are."""
    import psycopg

    if not isinstance(error, psycopg.Error):
        return error
    if (reason := transient(error)) is not None:
        return ConnectorError(
            f"PostgreSQL does not answer: {reason}",
            code="SOURCE_UNREACHABLE",
            where=where,
            hint="start the query again when it does: it goes on where it was",
            retryable=True,
        )
    state, text = error.sqlstate or "", str(error).strip()
    if state.startswith("22"):
        return DataError(f"PostgreSQL cannot read a row: {text}", code="SOURCE_ROW", where=where)
    if state.startswith("42") and not state.startswith("42501"):
        return ConfigError(
            f"PostgreSQL does not take the statement: {text}",
            code="SOURCE_STATEMENT",
            where=where,
            hint="check the names of columns and the filter",
        )
    return ConnectorError(
        f"PostgreSQL refuses: {text}",
        code="SOURCE_REFUSED",
        where=where,
        hint="check the address, the user and its rights",
    )


def relation(schema: str, table: str) -> sql.Identifier:
    """The quoted name of a table."""
    from psycopg import sql

    return sql.Identifier(schema, table)


def column_list(names: Iterable[str]) -> sql.Composed:
    """Quoted columns with commas between them."""
    from psycopg import sql

    return sql.SQL(", ").join(sql.Identifier(name) for name in names)


def lsn_text(lsn: int) -> str:
    """A position in the log as PostgreSQL writes it.

    >>> lsn_text(0x1_0000_00AB)
    '1/AB'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFF_FFFF:X}"


def lsn_number(text: str) -> int:
    """A position in the log as a number.

    >>> lsn_number("1/AB") == 0x1_0000_00AB
    True
    """
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)
