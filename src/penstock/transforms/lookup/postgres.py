"""Look-ups in PostgreSQL: one query for many keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.errors import DataError, PenstockError
from penstock.transforms.lookup.keyed import Answer, Key, LookupClient, RefusedKey, Row, retrying
from penstock.transforms.postgres_table import PostgresColumn, PostgresTable, refusal_of

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from psycopg import sql


@dataclass(frozen=True)
class PostgresBackend:
    """A table or query, the columns of its key, and those with the values."""

    url: str = field(repr=False)
    table: str | None
    query: str | None
    keys: tuple[PostgresColumn, ...]
    values: tuple[PostgresColumn, ...]
    batch_size: int
    timeout: float
    retry_for: float

    @property
    def kinds(self) -> Sequence[str]:
        return [column.kind for column in self.values]

    def connect(self) -> LookupClient:
        return PostgresClient(self)


class PostgresClient:
    """A connection that stays open from one batch of rows to the next."""

    def __init__(self, backend: PostgresBackend) -> None:
        self._backend = backend
        self._source = PostgresTable(backend.url, backend.table, query=backend.query)
        self._connection: psycopg.Connection | None = None

    def fetch(self, keys: Sequence[Key]) -> Mapping[Key, Answer]:
        answers: dict[Key, Answer] = {}
        size = self._backend.batch_size
        for first in range(0, len(keys), size):
            answers.update(self._fetch(keys[first : first + size]))
        return answers

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _fetch(self, keys: Sequence[Key]) -> Mapping[Key, Answer]:
        try:
            return retrying(
                lambda: self._query(keys),
                seconds=self._backend.retry_for,
                description=self._source.where,
                transient=self._transient,
            )
        except PenstockError as error:
            if not isinstance(error, DataError):
                raise
            if len(keys) == 1:
                return {keys[0]: RefusedKey(error.message)}
            middle = len(keys) // 2
            return {**self._fetch(keys[:middle]), **self._fetch(keys[middle:])}

    def _query(self, keys: Sequence[Key]) -> dict[Key, Answer]:
        import psycopg

        if self._connection is None or self._connection.closed:
            self._connection = self._source.connect()
            milliseconds = f"{max(1, round(self._backend.timeout * 1000))}"
            self._connection.execute("SELECT set_config('statement_timeout', %s, false)", (milliseconds,))
        try:
            rows = self._connection.execute(
                self._statement(), [list(column) for column in zip(*keys, strict=True)]
            ).fetchall()
        except psycopg.DataError as error:
            raise DataError(
                f"PostgreSQL refuses the key or a value: {str(error).strip().splitlines()[0]}"
            ) from error
        except psycopg.Error as error:
            if isinstance(error, psycopg.errors.QueryCanceled):
                raise TimeoutError(f"no answer within {self._backend.timeout:g} s") from error
            raise
        self._check(rows)
        answers: dict[Key, Answer] = {}
        for number, *values in rows:
            key = keys[number - 1]
            several = key in answers
            answers[key] = RefusedKey("several rows have the key") if several else Row(tuple(values))
        return answers

    def _statement(self) -> sql.Composed:
        from psycopg import sql

        backend = self._backend
        values = [_selected(column) for column in backend.values]
        arrays = [sql.SQL("%s::") + sql.SQL(f"{column.declared}[]") for column in backend.keys]
        labels = [sql.SQL(f"k{at}") for at in range(len(backend.keys))]
        same = [
            sql.SQL("t.{} = k.{}").format(sql.Identifier(column.name), label)
            for column, label in zip(backend.keys, labels, strict=True)
        ]
        return (
            sql.SQL("SELECT ")
            + sql.SQL(", ").join([sql.SQL("k.n::int"), *values])
            + sql.SQL(" FROM unnest(")
            + sql.SQL(", ").join(arrays)
            + sql.SQL(") WITH ORDINALITY AS k (")
            + sql.SQL(", ").join([*labels, sql.SQL("n")])
            + sql.SQL(") JOIN ")
            + self._source.relation(parameters=True)
            + sql.SQL(" AS t ON ")
            + sql.SQL(" AND ").join(same)
        )

    def _check(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """DataError when a value has no place in its type."""
        for at, column in enumerate(self._backend.values):
            as_array([row[at + 1] for row in rows], column.kind)

    def _transient(self, error: Exception) -> str | None:
        if isinstance(error, PenstockError):
            return error.message if getattr(error, "retryable", False) else None
        if isinstance(error, TimeoutError):
            return str(error)
        refusal = refusal_of(error, self._source.where)
        if refusal is None:
            return None
        self._connection = None
        if not getattr(refusal, "retryable", False):
            raise refusal from error
        return refusal.message


def as_array(values: Sequence[Any], kind: str) -> pa.Array:
    """Values of PostgreSQL's client as an array; DataError when one has no place in the type."""
    import pyarrow as pa

    from penstock.data.schema import to_arrow_type

    try:
        return pa.array(values, to_arrow_type(kind))
    except (pa.ArrowInvalid, OverflowError) as error:
        raise DataError(f"a value has no place in {kind}: {error}") from error


def _selected(column: PostgresColumn) -> sql.Composed:
    from psycopg import sql

    name = sql.SQL("t.") + sql.Identifier(column.name)
    return name + sql.SQL("::text" if column.kind == "string" else "")
