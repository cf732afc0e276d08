"""State in a Postgres database, for a team: processes on any number of machines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, Table, create_engine, event, text
from sqlalchemy.dialects.postgresql import Insert, insert

from penstock.backend.address import Address, as_sqlalchemy, hidden
from penstock.backend.codec import to_json
from penstock.backend.dialect import BUSY_SECONDS, Dialect
from penstock.errors import ConfigError, ConnectorError, PenstockError, StateError

if TYPE_CHECKING:
    from sqlalchemy.exc import SQLAlchemyError

IDLE_SECONDS = 30
"""After so long without a statement the server ends a transaction: a paused process must not keep others out for ever."""

CONNECTION = {
    "application_name": "penstock",
    "connect_timeout": "5",
    # A server that vanished without a word is found out within 25 seconds, not after the system's quarter of an hour.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}
"""What a connection is made with, unless the URL says otherwise."""

SCHEMA_LOCK = 7_310_579_628_123_649
"""A number of our own for the advisory lock around changes of the tables."""


class Postgres(Dialect):
    """Tables in the first schema of the search path."""

    # now() would be the time at which the transaction began.
    clock = "CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) AS BIGINT)"

    def connect(self, address: Address, *, create: bool) -> Engine:
        url = as_sqlalchemy(address)
        try:
            import psycopg  # noqa: F401  # SQLAlchemy's own message does not say how to get it
        except ImportError:
            raise ConfigError(
                "a state database in Postgres needs the package psycopg",
                code="STATE_DRIVER",
                where=address.location,
                hint="pip install 'penstock[postgres]'",
            ) from None
        # Prepared statements would break behind a pooler such as PgBouncer.
        arguments: dict[str, Any] = {"prepare_threshold": None} | {
            key: value for key, value in CONNECTION.items() if key not in url.query
        }
        engine = create_engine(
            url.set(drivername="postgresql+psycopg"),
            connect_args=arguments,
            json_serializer=to_json,
            hide_parameters=True,
            pool_pre_ping=True,
            pool_timeout=BUSY_SECONDS,
        )
        event.listen(engine, "connect", _set_up)
        return engine

    def insert(self, table: Table) -> Insert:
        return insert(table)

    def lock_schema(self, connection: Connection) -> None:
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": SCHEMA_LOCK})

    def explain(self, error: SQLAlchemyError, location: str) -> PenstockError | None:
        import psycopg
        from sqlalchemy.exc import TimeoutError as PoolTimeout

        if isinstance(error, PoolTimeout):
            return _locked("all connections of this process are in use", location)
        cause = getattr(error, "orig", None)
        if not isinstance(cause, psycopg.Error):
            return None
        lines = str(cause).strip().splitlines()
        reason = hidden(lines[0]) if lines else type(cause).__name__
        if cause.sqlstate is None and isinstance(cause, psycopg.ProgrammingError):
            return ConfigError(
                f"the URL of the state database cannot be used: {reason}",
                code="STATE_URL",
                where=location,
                hint="see the parameters of a PostgreSQL connection URI",
            )
        return _translated(cause.sqlstate or _state_of(str(cause)), reason, location)


def _translated(state: str, reason: str, location: str) -> PenstockError | None:
    if state.startswith("28"):
        hint = "check user, password and the server's pg_hba.conf"
        return ConnectorError(
            f"the state database refuses the login: {reason}", code="STATE_AUTH", where=location, hint=hint
        )
    if state == "3D000":
        hint = "create the database, or correct its name in the URL"
        return ConnectorError(
            f"there is no such database: {reason}", code="STATE_MISSING", where=location, hint=hint
        )
    if state == "42501":
        hint = "grant the user CREATE on the schema, or all rights on the tables penstock_*"
        return ConnectorError(
            f"the user may not do this: {reason}", code="STATE_FORBIDDEN", where=location, hint=hint
        )
    if state == "25006":
        hint = "this is a standby or a read-only user: use the primary server"
        return StateError(
            f"the state database cannot be written: {reason}",
            code="STATE_READ_ONLY",
            where=location,
            hint=hint,
        )
    if state in ("55P03", "40001", "40P01"):
        return _locked(f"the state database stayed locked: {reason}", location)
    if state in ("XX001", "XX002"):
        hint = "restore the database from a backup"
        return StateError(
            f"the state database is damaged: {reason}", code="STATE_CORRUPT", where=location, hint=hint
        )
    if state[:2] in ("08", "25", "53", "57", "58"):
        return ConnectorError(
            f"the state database cannot be reached: {reason}",
            code="STATE_UNREACHABLE",
            where=location,
            hint="check host, port and that the server runs",
            retryable=True,
        )
    return None


def _locked(message: str, location: str) -> ConnectorError:
    hint = "another transaction holds what this one needs; try again"
    return ConnectorError(message, code="STATE_LOCKED", where=location, hint=hint, retryable=True)


def _state_of(message: str) -> str:
    """The SQLSTATE of a refused connection, which the driver knows only as reason."""
    for pattern, state in (
        (r"authentication failed|no password supplied|pg_hba\.conf|role \".*\" does not exist", "28000"),
        (r"database \".*\" does not exist", "3D000"),
        (r"permission denied for database", "42501"),
    ):
        if re.search(pattern, message):
            return state
    return "08000"


def _set_up(connection: Any, _: object) -> None:
    with connection.cursor() as cursor:
        # A server that forgets its last commits in a crash would give a lease away twice.
        cursor.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        cursor.execute(f"SET idle_in_transaction_session_timeout = {IDLE_SECONDS * 1000}")
        cursor.execute(f"SET lock_timeout = {int(BUSY_SECONDS * 1000)}")
    connection.commit()
