"""Rows in a PostgreSQL table, in one transaction with the mark of their epoch: exactly once.

The table `penstock_epochs` has a row per query with the last epoch that is stored. A transaction locks that row, leaves when its
epoch is there already, copies the rows (streamed, a few partitions at a time), and moves the mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from penstock import config
from penstock.errors import ConfigError, DataError, PenstockError
from penstock.sinks.base import Epoch, Guarantee, Sink, Target, require_key
from penstock.sinks.errors import refused, row_refused
from penstock.sinks.held_rows import Held
from penstock.sinks.postgres.column import Existing, declared, refuse_misfits, sent
from penstock.sinks.require import need
from penstock.sinks.retry import RETRY_FOR, RetryPolicy, retry

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

T = TypeVar("T")

MARKS = "penstock_epochs"
STAGE = "penstock_stage"
ORDER = "penstock_order"

# A refused connection has no SQLSTATE for its client: only these words tell a server that comes back from one that says no.
PASSING_WORDS = (
    "starting up",
    "shutting down",
    "recovery mode",
    "not yet accepting",
    "not accepting",
    "too many",
    "remaining connection slots",
    "terminating connection",
)
PASSING_STATES = ("08", "40001", "40P01", "53300", "55P03", "57P01", "57P02", "57P03", "25006")


class PostgresSink(Sink):
    """Inserts in append mode, upserts by key in update mode, replaces all rows in complete mode."""

    taken: ClassVar[tuple[str, ...]] = ("url", "table", "create", "retry_for")

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        need("psycopg", extra="postgres")
        self.only_known()
        self.table = str(self.required("table"))
        url = self.options.get("url") or config.load().postgres_url
        if not url:
            raise ConfigError(
                "the postgres sink needs the address of a database",
                code="STREAM_OPTION_MISSING",
                hint='add .option("url", "postgresql://user:password@host/database"), or set PENSTOCK_POSTGRES_URL',
            )
        self._url = str(url)
        self._create = str(self.options.get("create", True)).lower() == "true"
        self._policy = RetryPolicy.of(self.options.get("retry_for", RETRY_FOR))
        self._place = _place(self._url)
        self._connection: psycopg.Connection | None = None
        self._target: Target | None = None

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.EXACTLY_ONCE

    def describe(self) -> str:
        return f"postgres table {self.table} in {self._place}"

    def check(self, target: Target) -> None:
        self._status = target.status
        require_key(target)
        for field in target.schema:
            declared(field.dataType, name=field.name)
        self._at_start(lambda: self._checked(target))

    def open(self, target: Target) -> None:
        self._target, self._status = target, target.status
        self._at_start(lambda: self._prepare(target))

    def write(self, epoch: Epoch) -> int | None:
        target = self._opened()
        if self._retry(lambda: self._mark(target.query)) >= epoch.number:
            return 0
        with Held(sent(epoch.frame)) as held:
            return self._retry(lambda: self._store(target, epoch.number, held))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _store(self, target: Target, number: int, held: Held) -> int:
        connection = self._connected()
        with connection.transaction():
            if self._mark(target.query, lock=True) >= number:
                return 0
            rows = self._write_rows(connection, target, held)
            connection.execute(
                _sql("UPDATE {} SET epoch = %s, committed_at = now() WHERE query = %s", MARKS),
                (number, target.query),
            )
        return rows

    def _write_rows(self, connection: psycopg.Connection, target: Target, held: Held) -> int:
        if target.mode == "update":
            return self._upsert(connection, target, held)
        if target.mode == "complete":
            connection.execute(_sql("DELETE FROM {}", self.table))
        return self._copy(connection, self.table, target.schema.names, held)

    def _upsert(self, connection: psycopg.Connection, target: Target, held: Held) -> int:
        """Copy into a table of this transaction, then merge; of several rows of one key the last one stays."""
        from psycopg import sql

        names = target.schema.names
        keys = _names(target.keys)
        connection.execute(
            _sql("CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT ", STAGE)
            + _names(names)
            + _sql(" FROM {} WITH NO DATA", self.table)
        )
        connection.execute(
            _sql("ALTER TABLE {} ADD COLUMN {} BIGINT GENERATED ALWAYS AS IDENTITY", STAGE, ORDER)
        )
        self._copy(connection, STAGE, names, held)
        rest = [name for name in names if name not in target.keys]
        then = (
            sql.SQL("UPDATE SET ")
            + sql.SQL(", ").join(
                _sql("{} = EXCLUDED.{}", sql.Identifier(name), sql.Identifier(name)) for name in rest
            )
            if rest
            else sql.SQL("NOTHING")
        )
        done = connection.execute(
            _sql("INSERT INTO {} (", self.table)
            + _names(names)
            + sql.SQL(") SELECT DISTINCT ON (")
            + keys
            + sql.SQL(") ")
            + _names(names)
            + _sql(" FROM {} ORDER BY ", STAGE)
            + keys
            + _sql(", {} DESC ON CONFLICT (", ORDER)
            + keys
            + sql.SQL(") DO ")
            + then
        )
        return done.rowcount

    def _copy(self, connection: psycopg.Connection, table: str, names: list[str], held: Held) -> int:
        import pyarrow as pa
        from pyarrow import csv

        plain = csv.WriteOptions(include_header=False)
        rows = 0
        command = _sql("COPY {} (", table) + _names(names) + _sql(") FROM STDIN (FORMAT csv)")
        with connection.cursor() as cursor, cursor.copy(command) as copy:
            for batch in held.batches():
                buffer = pa.BufferOutputStream()
                csv.write_csv(batch, buffer, plain)
                copy.write(memoryview(buffer.getvalue()))
                rows += batch.num_rows
        return rows

    def _mark(self, query: str, *, lock: bool = False) -> int:
        command = _sql(f"SELECT epoch FROM {{}} WHERE query = %s{' FOR UPDATE' if lock else ''}", MARKS)
        found = self._connected().execute(command, (query,)).fetchone()
        return -1 if found is None else int(found[0])

    def _checked(self, target: Target) -> None:
        there = self._columns()
        if there is None:
            if not self._create:
                raise DataError(
                    f"there is no table {self.table}",
                    code="SINK_TABLE_MISSING",
                    where=self._place,
                    hint='create it, or let penstock do it with .option("create", True)',
                )
            return
        refuse_misfits(target.schema, there, where=self.describe(), adds=self._create)
        if target.mode == "update" and not self._is_unique(target.keys):
            keys = ", ".join(target.keys)
            raise ConfigError(
                f"the table {self.table} has no unique index on ({keys}), which an upsert needs",
                code="STREAM_KEY",
                where=self._place,
                hint=f"ALTER TABLE {self.table} ADD UNIQUE ({keys})",
            )

    def _prepare(self, target: Target) -> None:
        """Create or widen the table, and have a row for the mark that transactions can lock."""
        from psycopg import sql

        connection = self._connected()
        kinds = {field.name: sql.SQL(declared(field.dataType, name=field.name)) for field in target.schema}
        with connection.transaction():
            # One at a time: IF NOT EXISTS alone fails when two sessions create the same table at once.
            connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (MARKS,))
            there = self._columns()
            if there is None:
                parts = [_sql("{} ", sql.Identifier(name)) + kind for name, kind in kinds.items()]
                if target.mode == "update":
                    parts.append(sql.SQL("PRIMARY KEY (") + _names(target.keys) + sql.SQL(")"))
                connection.execute(
                    _sql("CREATE TABLE {} (", self.table) + sql.SQL(", ").join(parts) + sql.SQL(")")
                )
            else:
                for name in refuse_misfits(target.schema, there, where=self.describe(), adds=self._create):
                    connection.execute(
                        _sql("ALTER TABLE {} ADD COLUMN {} ", self.table, sql.Identifier(name)) + kinds[name]
                    )
            connection.execute(
                _sql(
                    "CREATE TABLE IF NOT EXISTS {} (query TEXT PRIMARY KEY, name TEXT NOT NULL, "
                    "epoch BIGINT NOT NULL, committed_at TIMESTAMPTZ NOT NULL DEFAULT now())",
                    MARKS,
                )
            )
            connection.execute(
                _sql("INSERT INTO {} (query, name, epoch) VALUES (%s, %s, -1) ON CONFLICT DO NOTHING", MARKS),
                (target.query, target.name),
            )

    def _columns(self) -> list[Existing] | None:
        """The columns of the table; None when there is no such table."""
        connection = self._connected()
        found = connection.execute("SELECT to_regclass(%s)::oid", (_quoted(self.table),)).fetchone()
        if found is None or found[0] is None:
            return None
        rows = connection.execute(
            "SELECT attname, format_type(atttypid, atttypmod), "
            "attnotnull AND NOT atthasdef AND attidentity = '' "
            "FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            (found[0],),
        )
        return [Existing(*row) for row in rows]

    def _is_unique(self, keys: tuple[str, ...]) -> bool:
        rows = self._connected().execute(
            "SELECT array_agg(a.attname::text) FROM pg_index AS i "
            "JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) "
            "WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indimmediate AND i.indpred IS NULL "
            "AND i.indexprs IS NULL GROUP BY i.indexrelid",
            (_quoted(self.table),),
        )
        return any(set(row[0]) == set(keys) for row in rows)

    def _connected(self) -> psycopg.Connection:
        import psycopg

        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(
                self._url, autocommit=True, connect_timeout=10, application_name="penstock"
            )
        return self._connection

    def _at_start(self, action: Callable[[], T]) -> T:
        policy = self._policy.at_start()
        try:
            return self._guarded(
                lambda: retry(
                    action,
                    status=self._status,
                    description=self.describe(),
                    policy=policy,
                    transient=self._passing,
                )
            )
        except BaseException:
            self.close()  # a query that does not start has nobody who would
            raise

    def _retry(self, action: Callable[[], T]) -> T:
        return self._guarded(
            lambda: retry(
                action,
                status=self._status,
                description=self.describe(),
                policy=self._policy,
                transient=self._passing,
            )
        )

    def _guarded(self, action: Callable[[], T]) -> T:
        import psycopg

        try:
            return action()
        except psycopg.Error as error:
            raise self._told(error) from error

    def _passing(self, error: Exception) -> str | None:
        """What an error means that goes away by itself; the connection is not used again."""
        import psycopg

        if not isinstance(error, psycopg.Error):
            return None
        text = str(error).strip() or type(error).__name__
        if error.sqlstate is not None:
            passes = error.sqlstate.startswith(PASSING_STATES)
        elif isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            passes = "FATAL" not in text or any(word in text for word in PASSING_WORDS)
        else:
            passes = False
        if not passes:
            return None
        self.close()
        lines = [line.strip() for line in text.splitlines()]
        return next((line for line in lines if "failed:" in line or "FATAL" in line), lines[0])

    def _told(self, error: psycopg.Error) -> PenstockError:
        text = str(error).strip()
        state = error.sqlstate or ""
        if state.startswith(("22", "23")):
            return row_refused(
                "PostgreSQL",
                text,
                where=self.describe(),
                hint="nothing of the batch was stored; correct the query or the table, and start the query again",
            )
        return refused("PostgreSQL", text, where=self.describe())

    def _opened(self) -> Target:
        assert self._target is not None, "the sink was not opened"
        return self._target


def _place(url: str) -> str:
    """Where a database is, without the secrets of its address."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = conninfo_to_dict(url)
    except ProgrammingError as error:
        raise ConfigError(
            f"the url of the postgres sink is not an address of PostgreSQL: {error}",
            code="STREAM_OPTION_VALUE",
            hint="for example postgresql://user:password@host:5432/database",
        ) from None
    return f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"


def _sql(text: str, *names: str | sql.Identifier) -> sql.Composed:
    """A statement of our own words with names in their quotes; a dotted one is a schema's."""
    from psycopg import sql

    made = sql.SQL(text)
    return made.format(
        *(sql.Identifier(*name.split(".")) if isinstance(name, str) else name for name in names)
    )


def _quoted(name: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def _names(names: Iterable[str]) -> sql.Composed:
    """Columns, with commas between them; a dot in a name is part of it."""
    from psycopg import sql

    return sql.SQL(", ").join(sql.Identifier(name) for name in names)
