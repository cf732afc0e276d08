"""State in a SQLite file: no server, any number of processes of one machine."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, Table, create_engine, event
from sqlalchemy.dialects.sqlite import Insert, insert

from penstock.backend.address import Address, as_sqlalchemy
from penstock.backend.codec import to_json
from penstock.backend.dialect import BUSY_SECONDS, READ_ONLY, Dialect
from penstock.errors import ConfigError, ConnectorError, PenstockError, StateError

if TYPE_CHECKING:
    from sqlalchemy.exc import SQLAlchemyError


class Sqlite(Dialect):
    """One file in WAL mode; a transaction that writes takes the only write lock when it begins."""

    # A statement's 'now' is one moment, and with BEGIN IMMEDIATE no statement waits for a lock after it was read.
    clock = "CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"

    def connect(self, address: Address, *, create: bool) -> Engine:
        url = as_sqlalchemy(address)
        if not url.database or url.database == ":memory:" or url.host:
            raise ConfigError(
                f"'{address.location}' names no file",
                code="STATE_URL",
                hint="write sqlite:///state.db, or sqlite:////var/lib/penstock/state.db with four slashes for an absolute path",
            )
        path = Path(url.database)
        _ensure(path, address.location, create=create)
        engine = create_engine(
            url.set(drivername="sqlite"),
            connect_args={"timeout": BUSY_SECONDS},
            json_serializer=to_json,
            hide_parameters=True,
        )
        event.listen(engine, "connect", _set_up)
        event.listen(engine, "begin", _begin)
        return engine

    def insert(self, table: Table) -> Insert:
        return insert(table)

    def lock_schema(self, connection: Connection) -> None:
        """BEGIN IMMEDIATE has locked it."""

    def explain(self, error: SQLAlchemyError, location: str) -> PenstockError | None:
        cause = getattr(error, "orig", None)
        if not isinstance(cause, sqlite3.Error):
            return None
        # The lower byte is the kind of the error, the rest its detail.
        return _translated(getattr(cause, "sqlite_errorcode", 0) & 0xFF, str(cause), location)


def _translated(code: int, text: str, location: str) -> PenstockError | None:
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return ConnectorError(
            f"the state database stayed locked for {BUSY_SECONDS:g} seconds",
            code="STATE_LOCKED",
            where=location,
            hint="another process holds a transaction open: `fuser` names it; for many writers use a "
            "Postgres, with PENSTOCK_STATE",
            retryable=True,
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
        return StateError(
            "the state database cannot be written"
            if code == sqlite3.SQLITE_READONLY
            else "the state database cannot be opened",
            code="STATE_READ_ONLY",
            where=location,
            hint="the file and its folder must be writable for this user; or choose another place with PENSTOCK_STATE",
        )
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return StateError(
            f"the state database is damaged: {text}",
            code="STATE_CORRUPT",
            where=location,
            hint="put a backup in its place, or move it away: jobs then start again from their own checkpoints",
        )
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return ConnectorError(
            f"the state database cannot be written: {text}",
            code="STATE_DISK",
            where=location,
            hint="look at the disk's space and health",
            retryable=True,
        )
    return None


def _create(path: Path) -> None:
    """Make the file when it is not there.

    One that is there is not even opened: to close it again would end all locks that this process has on it, and
    another process would take away the log to which ours still writes.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not path.exists():
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _ensure(path: Path, location: str, *, create: bool) -> None:
    """See that the file is there; it may hold what jobs were started with, so nobody else can read a new one."""
    try:
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
            _create(path)
        if not path.is_file():
            raise StateError(
                "there is no state database",
                code="STATE_MISSING",
                where=location,
                hint="check the path; the first job that runs with it makes the file",
            )
    except OSError as error:
        raise StateError(
            f"the state database cannot be opened: {error.strerror}",
            code="STATE_READ_ONLY",
            where=location,
            hint="make its folder writable, or choose another place with PENSTOCK_STATE",
        ) from error


def _set_up(connection: Any, _: object) -> None:
    # Without this the driver would begin transactions by itself, too late and without IMMEDIATE.
    connection.isolation_level = None
    connection.execute("PRAGMA synchronous = NORMAL")
    if connection.execute("PRAGMA journal_mode").fetchone() == ("delete",):
        _into_wal(connection)


def _into_wal(connection: Any) -> None:
    """Change the journal, once in the life of a file; SQLite does not wait for others here, so we do."""
    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
                return  # A file that may only be read stays as it is.
            if code != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.02)


def _begin(connection: Connection) -> None:
    reads = connection.get_execution_options().get(READ_ONLY, False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
