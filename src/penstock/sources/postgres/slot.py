"""A replication slot and its publication: what must be there, how they are made and dropped, and what is read from them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from penstock.errors import ConfigError, ConnectorError, StateError
from penstock.sources.postgres import client
from penstock.sources.postgres.client import lsn_number, lsn_text
from penstock.sources.postgres.pgoutput import commit_end
from penstock.sources.postgres.table import Table

if TYPE_CHECKING:
    import psycopg

PLUGIN = "pgoutput"
PIECE_BYTES = 16 << 20
_FETCHED_ROWS = 5_000
_PEEK = "penstock_peek"
_LONGEST = 63


@dataclass(frozen=True, slots=True)
class Slot:
    """What is read from: a slot by its name, through a publication."""

    name: str
    publication: str
    create: bool = True
    full: bool = False
    """Whether the table is to have REPLICA IDENTITY FULL."""


@dataclass(frozen=True, slots=True)
class SlotState:
    """What the server says about a slot."""

    confirmed: int
    """Up to here it has been read for good; what is before does not come again."""
    restart: int
    """From here on the server keeps its log."""


def slot_name(*parts: str) -> str:
    """Return the name of a slot for the names of a pipeline and a node, which may have any letters.

    >>> slot_name("shop", "orders"), slot_name("My shop", "public.orders")
    ('penstock_shop_orders', 'penstock_my_shop_public_orders_b573d8')
    """
    plain = "_".join(("penstock", *(re.sub(r"[^a-z0-9]+", "_", part.lower()).strip("_") for part in parts)))
    if (
        plain == "_".join(("penstock", *parts))
        and len(plain) <= _LONGEST
        and not any("_" in part for part in parts)
    ):
        return plain
    # Other names may look the same without their other letters.
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:6]
    return f"{plain[: _LONGEST - 7]}_{digest}"


def check(connection: psycopg.Connection, slot: Slot, table: Table, *, where: str) -> str | None:
    """Refuse what cannot be followed; change nothing. Return the row filter of the publication, when it has one."""
    _check_server(connection, where)
    _check_table(connection, slot, table, where)
    row_filter = _check_publication(connection, slot, table, where)
    if find(connection, slot.name, where=where) is None:
        if not slot.create:
            raise ConfigError(
                f"there is no replication slot {slot.name}",
                code="CDC_SLOT",
                where=where,
                hint=f"SELECT pg_create_logical_replication_slot('{slot.name}', '{PLUGIN}'), or create: true",
            )
        used, most = _row(
            connection,
            "SELECT (SELECT count(*) FROM pg_replication_slots), current_setting('max_replication_slots')::int",
        )
        if used >= most:
            raise ConfigError(
                f"all {most} replication slots of the server are in use",
                code="CDC_SLOT",
                where=where,
                hint="raise max_replication_slots and restart Postgres, or drop slots that nobody reads",
            )
    return row_filter


def ensure(connection: psycopg.Connection, slot: Slot, table: Table, *, where: str) -> SlotState:
    """Make what is missing of the publication, the replica identity and the slot; return the state of the slot."""
    from psycopg import sql

    name = client.relation(table.schema, table.name)
    check(connection, slot, table, where=where)
    if slot.full and table.identity != "full":
        for leaf_schema, leaf in _leaves(connection, table):
            connection.execute(
                sql.SQL("ALTER TABLE {} REPLICA IDENTITY FULL").format(client.relation(leaf_schema, leaf))
            )
    existing = find(connection, slot.name, where=where)
    if not _has_publication(connection, slot.publication):
        connection.execute(
            sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)").format(
                sql.Identifier(slot.publication), name
            )
        )
        if existing is not None:
            # Changes from before the publication cannot be read through it.
            connection.execute("SELECT pg_drop_replication_slot(%s)", (slot.name,))
            existing = None
    if existing is None:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, %s)", (slot.name, PLUGIN))
        existing = find(connection, slot.name, where=where)
        assert existing is not None
    return existing


def find(connection: psycopg.Connection, name: str, *, where: str) -> SlotState | None:
    """Return the state of a slot; None when there is none, an error when it is none that can be read."""
    row = connection.execute(
        "SELECT plugin, slot_type, database = current_database(), confirmed_flush_lsn::text, restart_lsn::text, wal_status "
        "FROM pg_replication_slots WHERE slot_name = %s",
        (name,),
    ).fetchone()
    if row is None:
        return None
    plugin, kind, is_here, confirmed, restart, status = row
    if kind != "logical" or plugin != PLUGIN or not is_here:
        raise ConfigError(
            f"the replication slot {name} is not one of {PLUGIN} in this database",
            code="CDC_SLOT",
            where=where,
            hint="choose another name: slot: ...",
        )
    if status == "lost" or restart is None:
        raise StateError(
            f"the replication slot {name} is lost: Postgres has thrown away log that was not read yet",
            code="CDC_SLOT_LOST",
            where=where,
            hint="reset the state of the pipeline, which drops the slot and begins with a new "
            "snapshot; max_slot_wal_keep_size says how "
            "much log Postgres keeps",
        )
    return SlotState(lsn_number(confirmed), lsn_number(restart))


def require_at(connection: psycopg.Connection, slot: Slot, lsn: int, *, where: str) -> SlotState:
    """Return the state of a slot that must still have everything behind a position."""
    state = find(connection, slot.name, where=where)
    again = "reset the state of the pipeline, which begins with a new snapshot"
    if state is None:
        raise StateError(
            f"the replication slot {slot.name} is gone, and with it the changes since {lsn_text(lsn)}",
            code="CDC_SLOT_LOST",
            where=where,
            hint=again,
        )
    if state.confirmed > lsn:
        raise StateError(
            f"the replication slot {slot.name} is at {lsn_text(state.confirmed)}, and the pipeline "
            f"has read to {lsn_text(lsn)}: someone "
            "else has read from it, or it was made anew",
            code="CDC_SLOT_LOST",
            where=where,
            hint=f"let one pipeline alone read a slot; {again}",
        )
    return state


def advance(connection: psycopg.Connection, name: str, lsn: int) -> None:
    """Tell the server that everything up to a position was read for good."""
    connection.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", (name, lsn_text(lsn)))


class Peek:
    """The messages of the transactions that wait in a slot, which stay there; the server keeps them while the `with` block lasts.

    They end with the transaction with which there are `count` messages, or with the one that ends at `upto`.
    """

    def __init__(
        self,
        connection: psycopg.Connection,
        slot: Slot,
        *,
        upto: int | None = None,
        count: int | None = None,
    ) -> None:
        self._connection = connection
        self._values = (
            slot.name,
            None if upto is None else lsn_text(upto),
            count,
            '"' + slot.publication.replace('"', '""') + '"',
        )
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            opening.enter_context(self._connection.transaction())
            self._cursor = opening.enter_context(self._connection.cursor(_PEEK, scrollable=True))
            self._cursor.execute(
                "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, %s, 'proto_version', '1', "
                "'publication_names', %s)",
                self._values,
                binary=True,
            )
            self._open = opening.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def pieces(self) -> Iterator[list[bytes]]:
        """Give the messages in their order, some at a time."""
        piece: list[bytes] = []
        size = 0
        while rows := self._cursor.fetchmany(_FETCHED_ROWS):
            for (message,) in rows:
                piece.append(message)
                size += len(message)
                if size > PIECE_BYTES:
                    yield piece
                    piece, size = [], 0
        if piece:
            yield piece

    def end(self) -> int:
        """The position behind the last transaction, of which there must be one."""
        row = self._connection.execute(f"FETCH LAST FROM {_PEEK}".encode()).fetchone()
        assert row is not None
        return commit_end(row[0])


def drop(url: str, name: str, publication: str | None = None) -> bool:
    """Drop a slot, and a publication; False when there was no slot. Whoever resets the state of a pipeline calls it."""
    where = client.location(url)
    from psycopg import sql

    try:
        with client.connect(url) as connection:
            is_there = find_any(connection, name)
            if is_there:
                connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))
            if publication is not None:
                connection.execute(
                    sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(publication))
                )
            return is_there
    except Exception as error:
        client.raise_translated(error, where=where)


def find_any(connection: psycopg.Connection, name: str) -> bool:
    """Whether there is a slot of that name, in whatever state."""
    row = connection.execute("SELECT FROM pg_replication_slots WHERE slot_name = %s", (name,)).fetchone()
    return row is not None


def publishes(connection: psycopg.Connection, publication: str, table: Table) -> bool:
    """Whether a publication has a table."""
    row = connection.execute(
        "SELECT FROM pg_publication_tables WHERE pubname = %s AND schemaname = %s AND tablename = %s",
        (publication, table.schema, table.name),
    ).fetchone()
    return row is not None


def _check_server(connection: psycopg.Connection, where: str) -> None:
    level, is_standby, may = _row(
        connection,
        "SELECT current_setting('wal_level'), pg_is_in_recovery(), "
        "EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = current_user AND (r.rolsuper OR r.rolreplication)) "
        "OR EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname IN ('rds_replication', 'alloydbsuperuser', 'cloudsqlsuperuser') "
        "AND pg_has_role(current_user, r.oid, 'member'))",
    )
    if level != "logical":
        raise ConfigError(
            f"wal_level of the server is {level}, and changes are in the log with 'logical' alone",
            code="CDC_SERVER",
            where=where,
            hint="ALTER SYSTEM SET wal_level = logical, and restart Postgres",
        )
    if is_standby:
        raise ConfigError(
            "the server is a standby",
            code="CDC_SERVER",
            where=where,
            hint="give the address of the primary server",
        )
    if not may:
        raise ConfigError(
            f"the user {connection.info.user} may not read a replication slot",
            code="CDC_RIGHTS",
            where=where,
            hint=f'ALTER ROLE "{connection.info.user}" REPLICATION',
        )


def _check_table(connection: psycopg.Connection, slot: Slot, table: Table, where: str) -> None:
    kind, persistence = _row(
        connection,
        "SELECT relkind::text, relpersistence::text FROM pg_class WHERE oid = %s",
        (table.oid,),
    )
    if kind not in "rp" or persistence != "p":
        raise ConfigError(
            f"{table.display} has no changes in the log: it is a view, or a foreign, unlogged or temporary table",
            code="CDC_TABLE",
            where=where,
            hint="follow the tables behind it",
        )
    generated = [column.name for column in table.columns if column.is_generated]
    if generated:
        plain = ", ".join(column.name for column in table.columns if not column.is_generated)
        raise ConfigError(
            f"Postgres does not replicate generated columns: {', '.join(generated)}",
            code="CDC_TABLE",
            where=where,
            hint=f"leave them out: columns: [{plain}]",
        )
    if slot.full or table.identity == "full":
        return
    if not set(table.key) <= set(table.identity_columns):
        identity = f"only {', '.join(table.identity_columns)}" if table.identity_columns else "nothing"
        raise ConfigError(
            f"deletes in {table.display} tell {identity} of a row, and its key is {', '.join(table.key)}",
            code="CDC_IDENTITY",
            where=where,
            hint=f"ALTER TABLE {table.display} REPLICA IDENTITY FULL, or replica_identity: full",
        )


def _check_publication(connection: psycopg.Connection, slot: Slot, table: Table, where: str) -> str | None:
    row = connection.execute(
        "SELECT pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_publication WHERE pubname = %s",
        (slot.publication,),
    ).fetchone()
    if row is None:
        if not slot.create:
            raise ConfigError(
                f"there is no publication {slot.publication}",
                code="CDC_PUBLICATION",
                where=where,
                hint=f"CREATE PUBLICATION {slot.publication} FOR TABLE {table.display}, or create: true",
            )
        (may,) = _row(
            connection,
            "SELECT pg_has_role(relowner, 'usage') AND has_database_privilege(current_database(), 'create') "
            "FROM pg_class WHERE oid = %s",
            (table.oid,),
        )
        if not may:
            raise ConfigError(
                f"the user {connection.info.user} may not create a publication of {table.display}",
                code="CDC_RIGHTS",
                where=where,
                hint=f"as the owner of the table: CREATE PUBLICATION {slot.publication} FOR TABLE {table.display}",
            )
        return None
    lacking = [
        word for word, has in zip(("insert", "update", "delete", "truncate"), row, strict=True) if not has
    ]
    if lacking:
        raise ConfigError(
            f"the publication {slot.publication} leaves out: {', '.join(lacking)}",
            code="CDC_PUBLICATION",
            where=where,
            hint=f"ALTER PUBLICATION {slot.publication} SET (publish = 'insert, update, delete, truncate')",
        )
    if not publishes(connection, slot.publication, table):
        root = " and SET (publish_via_partition_root = true)" if table.is_partitioned else ""
        raise ConfigError(
            f"the publication {slot.publication} does not have the table {table.display}",
            code="CDC_PUBLICATION",
            where=where,
            hint=f"ALTER PUBLICATION {slot.publication} ADD TABLE {table.display}{root}",
        )
    if connection.info.server_version < 150_000:
        return None
    names, row_filter = _row(
        connection,
        "SELECT attnames::text[], rowfilter FROM pg_publication_tables "
        "WHERE pubname = %s AND schemaname = %s AND tablename = %s",
        (slot.publication, table.schema, table.name),
    )
    hidden = [column.name for column in table.columns if column.name not in names]
    if hidden:
        raise ConfigError(
            f"the publication {slot.publication} leaves out the columns {', '.join(hidden)}",
            code="CDC_PUBLICATION",
            where=where,
            hint=f"leave them out too: columns: [{', '.join(names)}]",
        )
    return None if row_filter is None else str(row_filter)


def _has_publication(connection: psycopg.Connection, name: str) -> bool:
    return connection.execute("SELECT FROM pg_publication WHERE pubname = %s", (name,)).fetchone() is not None


def _leaves(connection: psycopg.Connection, table: Table) -> list[tuple[str, str]]:
    if not table.is_partitioned:
        return [(table.schema, table.name)]
    return connection.execute(
        "SELECT nspname, relname FROM pg_partition_tree(%s::regclass) JOIN pg_class AS c ON c.oid = relid "
        "JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE isleaf",
        (table.oid,),
    ).fetchall()


def _row(
    connection: psycopg.Connection, query: str, values: tuple[Any, ...] | None = None
) -> tuple[Any, ...]:
    row = connection.execute(query.encode(), values).fetchone()
    if row is None:
        raise ConnectorError("the table is gone", code="SOURCE_TABLE_MISSING")
    return row
