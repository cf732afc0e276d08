"""Epochs: which numbered step of a job began, and which is committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, delete, select

from penstock.backend.codec import to_datetime
from penstock.backend.model import EpochRecord, Lease
from penstock.backend.table import epochs

if TYPE_CHECKING:
    from penstock.backend.database import Database
    from penstock.backend.lease import Leases

MOST_EPOCHS = 100
"""How many epochs of a job are kept; older ones go when a later one is committed."""


class Epochs:
    """The epochs of all jobs of a backend; every write is fenced."""

    def __init__(self, database: Database, leases: Leases) -> None:
        self._database = database
        self._leases = leases

    def begin(
        self,
        lease: Lease,
        number: int,
        meta: Mapping[str, Any] | None = None,
        *,
        connection: Connection | None = None,
    ) -> EpochRecord:
        """Write down that an epoch begins; one that is committed already is returned as it is, and must be skipped.

        With `connection`, of `Backend.transaction`, it is written together with what else that transaction writes.
        """
        now = self._database.dialect.now()
        document = None if meta is None else dict(meta)
        insert = self._database.dialect.insert(epochs).values(
            job=lease.job, number=number, started_at=now, meta=document
        )
        again = insert.on_conflict_do_update(
            index_elements=["job", "number"],
            set_={"started_at": now, "meta": insert.excluded.meta},
            where=epochs.c.committed_at.is_(None),
        )
        with self._leases.fenced(lease, connection) as writing:
            writing.execute(again)
            return _one(writing, lease.job, number)

    def commit(
        self,
        lease: Lease,
        number: int,
        meta: Mapping[str, Any] | None = None,
        *,
        connection: Connection | None = None,
    ) -> EpochRecord:
        """Write down that an epoch is committed; doing so twice changes nothing.

        With `connection`, of `Backend.transaction`, it is committed together with what else that transaction writes.
        """
        now = self._database.dialect.now()
        changes: dict[str, Any] = {"committed_at": now}
        if meta is not None:
            changes["meta"] = dict(meta)
        insert = self._database.dialect.insert(epochs).values(
            job=lease.job, number=number, started_at=now, **changes
        )
        again = insert.on_conflict_do_update(
            index_elements=["job", "number"], set_=changes, where=epochs.c.committed_at.is_(None)
        )
        old = delete(epochs).where(epochs.c.job == lease.job, epochs.c.number <= number - MOST_EPOCHS)
        with self._leases.fenced(lease, connection) as writing:
            writing.execute(again)
            writing.execute(old)
            return _one(writing, lease.job, number)

    def last(self, job: str, *, committed: bool = True) -> EpochRecord | None:
        """The last committed epoch of a job, or the last that began."""
        last = self.list(job, limit=1, committed=committed)
        return last[0] if last else None

    def list(self, job: str, *, limit: int = MOST_EPOCHS, committed: bool = False) -> list[EpochRecord]:
        """The last epochs of a job, the newest first."""
        query = select(epochs).where(epochs.c.job == job).order_by(epochs.c.number.desc()).limit(limit)
        if committed:
            query = query.where(epochs.c.committed_at.is_not(None))
        with self._database.reading() as connection:
            return [_as_epoch(row) for row in connection.execute(query)]

    def jobs(self) -> set[str]:
        """The names of the jobs that have epochs."""
        with self._database.reading() as connection:
            return set(connection.execute(select(epochs.c.job).distinct()).scalars())

    def clear(self, lease: Lease) -> int:
        """Forget all epochs of the job, and return how many there were."""
        with self._leases.fenced(lease) as connection:
            return connection.execute(delete(epochs).where(epochs.c.job == lease.job)).rowcount


def _one(connection: Connection, job: str, number: int) -> EpochRecord:
    query = select(epochs).where(epochs.c.job == job, epochs.c.number == number)
    return _as_epoch(connection.execute(query).one())


def _as_epoch(row: Row[Any]) -> EpochRecord:
    return EpochRecord(
        row.job, row.number, to_datetime(row.started_at), to_datetime(row.committed_at), row.meta
    )
