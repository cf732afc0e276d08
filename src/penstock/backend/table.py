"""The tables of a state database, and the steps that bring one to today's version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Connection,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    inspect,
    select,
)

from penstock.errors import StateError

if TYPE_CHECKING:
    from penstock.backend.dialect import Dialect

metadata = MetaData()
# Times are milliseconds since 1970 of the database's clock.
Document = JSON(none_as_null=True)

meta = Table(
    "penstock_meta",
    metadata,
    Column("key", String, primary_key=True),
    Column("value", String, nullable=False),
)
jobs = Table(
    "penstock_jobs",
    metadata,
    Column("name", String, primary_key=True),
    Column("id", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("definition", Document),
    Column("checkpoint", String),
    Column("log", String),
    Column("start", Document),
    Column("state", String, nullable=False),
    Column("message", String),
    Column("progress", Document),
    Column("lease_epoch", BigInteger, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("request", String),
    Column("requested_at", BigInteger),
)
leases = Table(
    "penstock_leases",
    metadata,
    Column("job", String, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("token", String, nullable=False),
    Column("ttl_ms", Integer, nullable=False),
    Column("host", String, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("process_started", BigInteger, nullable=False),
    Column("session", String, nullable=False),
    Column("machine", String, nullable=False),
    Column("acquired_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
)
epochs = Table(
    "penstock_epochs",
    metadata,
    Column("job", String, primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("started_at", BigInteger, nullable=False),
    Column("committed_at", BigInteger),
    Column("meta", Document),
)
values = Table(
    "penstock_values",
    metadata,
    Column("job", String, primary_key=True),
    Column("namespace", String, primary_key=True),
    Column("key", String, primary_key=True),
    Column("document", Document),
    Column("bytes", LargeBinary),
    Column("updated_at", BigInteger, nullable=False),
)

STEPS: tuple[Callable[[Connection], None], ...] = (metadata.create_all,)
"""Each step brings a database to the version of its place in this tuple; a new database takes all of them."""


def prepare(
    connection: Connection,
    dialect: Dialect,
    *,
    create: bool,
    location: str,
    steps: Sequence[Callable[[Connection], None]] = STEPS,
) -> None:
    """Bring the database to today's version within the caller's transaction, or say why that cannot be."""
    dialect.lock_schema(connection)
    current = version(connection)
    if current > len(steps):
        raise StateError(
            f"the state database is of version {current}, and this penstock knows versions up to {len(steps)}",
            code="STATE_VERSION",
            where=location,
            hint="a newer penstock has used it: upgrade this one, or choose another database with PENSTOCK_STATE",
        )
    if current == 0 and not create:
        raise StateError(
            "there is no state of penstock in this database",
            code="STATE_MISSING",
            where=location,
            hint="check the URL; the first job that runs with it makes the tables",
        )
    if current == len(steps):
        return
    for step in steps[current:]:
        step(connection)
    mark = dialect.insert(meta).values(key="version", value=str(len(steps)))
    connection.execute(
        mark.on_conflict_do_update(index_elements=["key"], set_={"value": mark.excluded.value})
    )


def version(connection: Connection) -> int:
    """The version of the tables that are there; 0 when there are none."""
    if not inspect(connection).has_table(meta.name):
        return 0
    value = connection.scalar(select(meta.c.value).where(meta.c.key == "version"))
    return int(value) if value is not None else 0
