"""Leases: at most one process runs a job, and one that lost its lease writes nothing more here.

A lease ends by the database's clock, so the clocks of the machines do not matter. It cannot stop a process that slept
past its end and goes on: the fence does. It is checked in the same transaction as the write, and a takeover waits for it.
On Postgres the fence takes the row FOR KEY SHARE: a renewal does not wait for a long fenced transaction, a takeover does.
Outside this database a fence must be the other system's own: Kafka's transactional id, an epoch column.
"""

from __future__ import annotations

import time
import uuid
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Row, and_, select, update

from penstock.backend.codec import to_datetime
from penstock.backend.job_name import check_job_name
from penstock.backend.model import Beat, Lease
from penstock.backend.process import Owner, clock, is_gone
from penstock.backend.table import jobs, leases
from penstock.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.backend.database import Database

TTL_MS = 5_000
POLL_SECONDS = 0.1


class Leases:
    """The leases of a backend."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def acquire(self, job: str, owner: Owner, *, ttl_ms: int = TTL_MS, wait_ms: int | None = None) -> Lease:
        """Take the lease of a job, or raise STATE_LEASE_HELD, which names its owner.

        Waits up to `wait_ms` for it. Without that number it waits only when the owner is a process of this machine that
        is gone, as after a crash: its lease ends within its time to live, and what it started has ended by then.
        """
        check_job_name(job)
        end = None if wait_ms is None else clock() + wait_ms / 1000
        while True:
            sent_at = clock()
            acquired, row = self._try(job, owner, ttl_ms)
            lease = as_lease(row)
            if acquired:
                return replace(lease, deadline=sent_at + ttl_ms / 1000)
            waits = is_gone(lease.owner) if end is None else clock() < end
            if not waits:
                raise _owned_by_another(lease, owner, self._database)
            time.sleep(POLL_SECONDS)

    def renew(self, lease: Lease) -> bool:
        """Prolong the lease by its time to live; False means that it is lost, and the owner must stop at once."""
        return self.beat(lease).renewed

    def beat(self, lease: Lease, progress: Mapping[str, Any] | None = None) -> Beat:
        """Renew, record the job's progress when one is given, and look for requests, all in one transaction."""
        now = self._database.dialect.now()
        with self._database.transaction() as connection:
            renewed = connection.execute(
                update(leases)
                .where(_is(lease), leases.c.expires_at > now)
                .values(expires_at=now + lease.ttl_ms)
                .returning(leases.c.expires_at)
            ).first()
            if renewed is None:
                return Beat(renewed=False)
            mine = and_(jobs.c.name == lease.job, jobs.c.lease_epoch == lease.epoch)
            if progress is not None:
                connection.execute(update(jobs).where(mine).values(progress=dict(progress), updated_at=now))
            request = connection.execute(select(jobs.c.request, jobs.c.requested_at).where(mine)).first()
        return (
            Beat(renewed=True, request=request[0], requested_at=to_datetime(request[1]))
            if request
            else Beat(renewed=True)
        )

    def release(self, lease: Lease) -> bool:
        """End the lease now; False when it was lost already."""
        now = self._database.dialect.now()
        with self._database.transaction() as connection:
            done = connection.execute(
                update(leases).where(_is(lease), leases.c.expires_at > now).values(expires_at=now)
            )
            return done.rowcount == 1

    def get(self, job: str) -> Lease | None:
        """The last lease of a job; `active` says whether it still lasts."""
        with self._database.reading() as connection:
            row = connection.execute(self._select().where(leases.c.job == job)).first()
        return None if row is None else as_lease(row)

    def fence(self, connection: Connection, lease: Lease) -> None:
        """Raise STATE_LEASE_LOST unless the lease is the job's last; nobody takes it before the transaction ends."""
        row = connection.execute(
            select(leases.c.epoch).where(_is(lease)).with_for_update(read=True, key_share=True)
        ).first()
        if row is None:
            raise lost(lease, "another process has taken it", location=self._database.location)

    @contextmanager
    def fenced(self, lease: Lease, connection: Connection | None = None) -> Iterator[Connection]:
        """A transaction that is fenced first: that of the connection, which goes on after the block, or its own."""
        with self._database.transaction() if connection is None else nullcontext(connection) as writing:
            self.fence(writing, lease)
            yield writing

    def _try(self, job: str, owner: Owner, ttl_ms: int) -> tuple[bool, Row[Any]]:
        now = self._database.dialect.now()
        fresh = {
            "token": uuid.uuid4().hex,
            "ttl_ms": ttl_ms,
            "host": owner.host,
            "pid": owner.pid,
            "process_started": owner.started,
            "session": owner.session,
            "machine": owner.machine,
        }
        first = self._database.dialect.insert(leases).values(
            job=job, epoch=0, acquired_at=0, expires_at=0, **fresh
        )
        free = and_(leases.c.job == job, leases.c.expires_at <= now)
        with self._database.transaction() as connection:
            connection.execute(first.on_conflict_do_nothing(index_elements=["job"]))
            # FOR UPDATE waits for fenced transactions of the last owner, which an UPDATE alone would not.
            if connection.execute(select(leases.c.epoch).where(free).with_for_update()).first() is not None:
                taken = connection.execute(
                    update(leases)
                    .where(free)
                    .values(epoch=leases.c.epoch + 1, acquired_at=now, expires_at=now + ttl_ms, **fresh)
                ).rowcount
                if taken:
                    return True, connection.execute(self._select().where(leases.c.job == job)).one()
            return False, connection.execute(self._select().where(leases.c.job == job)).one()

    def _select(self) -> Any:
        return select(leases, (leases.c.expires_at > self._database.dialect.now()).label("active"))


def as_lease(row: Row[Any]) -> Lease:
    """A row of the table, with its column `active`, as a value."""
    return Lease(
        job=row.job,
        owner=Owner(row.host, row.pid, row.process_started, row.session, row.machine),
        epoch=row.epoch,
        ttl_ms=row.ttl_ms,
        token=row.token,
        acquired_at=to_datetime(row.acquired_at),
        expires_at=to_datetime(row.expires_at),
        active=bool(row.active),
    )


def lost(lease: Lease, why: str, *, location: str) -> StateError:
    """The error for an owner that has lost its lease."""
    return StateError(
        f"this process does not run '{lease.job}' any more: {why}",
        code="STATE_LEASE_LOST",
        where=location,
        hint="it was paused or cut off from the state database for longer than its lease; start it again",
    )


def _is(lease: Lease) -> ColumnElement[bool]:
    return and_(leases.c.job == lease.job, leases.c.epoch == lease.epoch, leases.c.token == lease.token)


def _owned_by_another(lease: Lease, owner: Owner, database: Database) -> StateError:
    rest = max(0.0, (lease.expires_at - database.now()).total_seconds())
    mine = (lease.owner.machine, lease.owner.pid, lease.owner.started) == (
        owner.machine,
        owner.pid,
        owner.started,
    )
    who = f"this process ({lease.owner.pid})" if mine else str(lease.owner)
    gone = " and is gone" if is_gone(lease.owner) else ""
    since, until = (at.isoformat(sep=" ", timespec="seconds") for at in (lease.acquired_at, lease.expires_at))
    return StateError(
        f"'{lease.job}' is owned by {who}{gone}, since {since}, until {until} unless renewed",
        code="STATE_LEASE_HELD",
        where=database.location,
        hint=f"stop it with `penstock jobs stop {lease.job}`, or choose another name; "
        f"a lease that is not renewed ends in {rest:.1f} seconds",
    )
