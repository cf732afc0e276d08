"""Values that belong to a job, by namespace and key: what plugins remember, schemas that were inferred."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, or_, select

from penstock.backend.codec import as_stored
from penstock.backend.job_name import check_job_name
from penstock.backend.model import Lease
from penstock.backend.table import values

if TYPE_CHECKING:
    from penstock.backend.database import Database
    from penstock.backend.lease import Leases


class StoredValues:
    """Key-value state: a value is `bytes`, or anything that JSON can say.

    A write with a lease is fenced; one with a connection, of `Backend.transaction`, is part of what that commits.
    """

    def __init__(self, database: Database, leases: Leases) -> None:
        self._database = database
        self._leases = leases

    def get(self, job: str, key: str, default: Any = None, *, namespace: str = "") -> Any:
        """The value of a key, or the default."""
        with self._database.reading() as connection:
            return self._read(connection, job, key, namespace, default)

    def put(
        self,
        job: str,
        key: str,
        value: Any,
        *,
        namespace: str = "",
        lease: Lease | None = None,
        connection: Connection | None = None,
    ) -> None:
        """Set the value of a key."""
        with self._writing(lease, connection) as open_:
            self._write(open_, job, key, namespace, value)

    def swap(
        self, job: str, key: str, old: Any, new: Any, *, namespace: str = "", lease: Lease | None = None
    ) -> bool:
        """Set the value of a key if it is still `old` (None: not there); False, and nothing set, when it is not."""
        with self._writing(lease) as connection:
            # The row is made first, so that there is one to lock for all who swap this key.
            insert = self._database.dialect.insert(values).values(
                job=job, namespace=namespace, key=key, updated_at=0
            )
            key_columns = ["job", "namespace", "key"]
            connection.execute(insert.on_conflict_do_nothing(index_elements=key_columns))
            locked = select(values.c.key).where(_at(job, namespace, key)).with_for_update()
            connection.execute(locked).one()
            swapped = _same(self._read(connection, job, key, namespace, None), old)
            if swapped:
                self._write(connection, job, key, namespace, new)
            connection.execute(delete(values).where(_at(job, namespace, key), values.c.updated_at == 0))
            return swapped

    def remove(
        self,
        job: str,
        key: str,
        *,
        namespace: str = "",
        lease: Lease | None = None,
        connection: Connection | None = None,
    ) -> bool:
        """Remove a key; False when it was not there."""
        with self._writing(lease, connection) as open_:
            return open_.execute(delete(values).where(_at(job, namespace, key))).rowcount == 1

    def clear(
        self,
        job: str,
        *,
        namespace: str | None = None,
        lease: Lease | None = None,
        connection: Connection | None = None,
    ) -> int:
        """Remove all keys of a job, or of one of its namespaces and those within it, and return how many there were."""
        with self._writing(lease, connection) as open_:
            return open_.execute(delete(values).where(_within(job, namespace))).rowcount

    def items(self, job: str, *, namespace: str | None = None) -> dict[tuple[str, str], Any]:
        """All values of a job, or of one of its namespaces and those within it, by (namespace, key), in order."""
        query = select(values).where(_within(job, namespace)).order_by(values.c.namespace, values.c.key)
        with self._database.reading() as connection:
            return {(row.namespace, row.key): _value(row) for row in connection.execute(query)}

    def jobs(self) -> set[str]:
        """The names of the jobs that have values."""
        with self._database.reading() as connection:
            return set(connection.execute(select(values.c.job).distinct()).scalars())

    def _writing(
        self, lease: Lease | None, connection: Connection | None = None
    ) -> AbstractContextManager[Connection]:
        if lease is not None:
            return self._leases.fenced(lease, connection)
        return self._database.transaction() if connection is None else nullcontext(connection)

    def _read(self, connection: Connection, job: str, key: str, namespace: str, default: Any) -> Any:
        row = connection.execute(select(values).where(_at(job, namespace, key))).first()
        return default if row is None or row.updated_at == 0 else _value(row)

    def _write(self, connection: Connection, job: str, key: str, namespace: str, value: Any) -> None:
        check_job_name(job)
        binary = isinstance(value, bytes | bytearray | memoryview)
        content = {
            "bytes": bytes(value) if binary else None,
            # A list of one, since a column that is NULL stands for bytes and JSON has a null of its own.
            "document": None if binary else [value],
            "updated_at": self._database.dialect.now(),
        }
        insert = self._database.dialect.insert(values).values(
            job=job, namespace=namespace, key=key, **content
        )
        key_columns = ["job", "namespace", "key"]
        connection.execute(insert.on_conflict_do_update(index_elements=key_columns, set_=content))


def _at(job: str, namespace: str, key: str) -> ColumnElement[bool]:
    return and_(values.c.job == job, values.c.namespace == namespace, values.c.key == key)


def _within(job: str, namespace: str | None) -> ColumnElement[bool]:
    of_job = values.c.job == job
    if namespace is None:
        return of_job
    name = values.c.namespace
    return and_(of_job, or_(name == namespace, name.startswith(f"{namespace}/", autoescape=True)))


def _value(row: Row[Any]) -> Any:
    return row.bytes if row.document is None else row.document[0]


def _same(stored: Any, expected: Any) -> bool:
    """Equal as they are stored: a tuple is a list there."""
    if isinstance(stored, bytes) or isinstance(expected, bytes | bytearray | memoryview):
        return isinstance(stored, bytes) and stored == expected
    return bool(stored == as_stored(expected))
