"""Jobs: what was started under a name, how it is, and what somebody asks of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Row, and_, case, not_, null, or_, select, update

from penstock.backend.codec import to_datetime
from penstock.backend.job_name import check_job_name, unknown_job
from penstock.backend.lease import as_lease
from penstock.backend.model import Job, JobState, Lease, Request, Start
from penstock.backend.table import jobs, leases
from penstock.errors import StateError

if TYPE_CHECKING:
    from penstock.backend.database import Database
    from penstock.backend.lease import Leases

_ANSWERS: Mapping[JobState, Request] = {
    JobState.STARTING: "restart",
    JobState.PAUSED: "pause",
    JobState.RUNNING: "resume",
}
"""The requests that are done when a job is in a state."""


class Jobs:
    """The jobs of a backend, one per name."""

    def __init__(self, database: Database, leases: Leases) -> None:
        self._database = database
        self._leases = leases

    def record(self, job: Job, lease: Lease) -> Job:
        """Write down that the owner of the lease starts a job; what an earlier job of this name was is replaced."""
        check_job_name(job.name)
        now = self._database.dialect.now()
        columns = {
            "id": job.id,
            "kind": job.kind,
            "definition": dict(job.definition),
            "checkpoint": job.checkpoint,
            "log": job.log,
            "start": None if job.start is None else asdict(job.start),
            "state": job.state.value,
            "message": _text(job.message),
            "progress": None if job.progress is None else dict(job.progress),
            "lease_epoch": lease.epoch,
            "started_at": now,
            "updated_at": now,
            "ended_at": now if job.state.ended else None,
        }
        # A request that came after the lease was taken is meant for this very start.
        late = and_(
            jobs.c.requested_at >= int(lease.acquired_at.timestamp() * 1000),
            # This is the restart that was asked for.
            not_(and_(jobs.c.request == "restart", jobs.c.lease_epoch == lease.epoch)),
        )
        requests = {
            "request": case((late, jobs.c.request), else_=null()),
            "requested_at": case((late, jobs.c.requested_at), else_=null()),
        }
        insert = self._database.dialect.insert(jobs).values(name=job.name, **columns)
        with self._leases.fenced(lease) as connection:
            connection.execute(
                insert.on_conflict_do_update(index_elements=["name"], set_={**columns, **requests})
            )
        return self.get(job.name)

    def update(
        self,
        lease: Lease,
        *,
        state: JobState | None = None,
        message: str | None = None,
        progress: Mapping[str, Any] | None = None,
    ) -> None:
        """Change what has a value; raises STATE_LEASE_LOST when the lease is not the job's last.

        An end has its time noted. STARTING is a new start in the same process: it is what a request to restart waits for.
        """
        now = self._database.dialect.now()
        changes: dict[str, Any] = {"updated_at": now}
        if state is not None:
            changes["state"] = state.value
            changes["ended_at"] = now if state.ended else None
        if state is not None and state.ended:
            changes |= {"request": None, "requested_at": None}
        if state is JobState.STARTING:
            changes["started_at"] = now
        if state is not None and (answered := _ANSWERS.get(state)) is not None:
            changes["request"] = case((jobs.c.request == answered, null()), else_=jobs.c.request)
        if message is not None:
            changes["message"] = _text(message)
        if progress is not None:
            changes["progress"] = dict(progress)
        with self._leases.fenced(lease) as connection:
            connection.execute(update(jobs).where(jobs.c.name == lease.job).values(**changes))

    def find(self, name_or_id: str) -> Job | None:
        """The job of that name, or else of that id; None when there is none."""
        query = self._select().where(or_(jobs.c.name == name_or_id, jobs.c.id == name_or_id))
        with self._database.reading() as connection:
            matches = [_as_job(row) for row in connection.execute(query.order_by(jobs.c.started_at.desc()))]
        return min(matches, key=lambda job: job.name != name_or_id, default=None)

    def get(self, name_or_id: str) -> Job:
        """The job of that name, or else of that id; an unknown one is an error that suggests the nearest."""
        job = self.find(name_or_id)
        if job is None:
            raise unknown_job(
                name_or_id, (other.name for other in self.list()), location=self._database.location
            )
        return job

    def list(self, state: JobState | None = None) -> list[Job]:
        """All jobs, or those in one state, by name."""
        with self._database.reading() as connection:
            all_jobs = [_as_job(row) for row in connection.execute(self._select().order_by(jobs.c.name))]
        return [job for job in all_jobs if state is None or job.state is state]

    def request(self, name_or_id: str, what: Request) -> datetime:
        """Ask the process that runs the job for something; its heartbeat hands that on."""
        job = self.get(name_or_id)
        if job.state.ended:
            raise StateError(
                f"'{job.name}' does not run: it is {job.state}",
                code="JOB_NOT_RUNNING",
                where=self._database.location,
            )
        now = self._database.dialect.now()
        with self._database.transaction() as connection:
            requested_at: int = connection.execute(
                update(jobs)
                .where(jobs.c.name == job.name)
                .values(request=what, requested_at=now)
                .returning(jobs.c.requested_at)
            ).scalar_one()
        return to_datetime(requested_at)

    def _select(self) -> Any:
        active = (leases.c.expires_at > self._database.dialect.now()).label("active")
        mine = and_(leases.c.job == jobs.c.name, leases.c.epoch == jobs.c.lease_epoch)
        of_lease = [column for column in leases.c if column.name != "job"]
        return select(jobs, leases.c.job, *of_lease, active).select_from(jobs.outerjoin(leases, mine))


def _as_job(row: Row[Any]) -> Job:
    lease = None if row.job is None else as_lease(row)
    state = JobState(row.state)
    if not state.ended and (lease is None or not lease.active):
        state = JobState.LOST
    start = None if row.start is None else Start(**{**row.start, "argv": tuple(row.start["argv"])})
    return Job(
        name=row.name,
        kind=row.kind,
        definition=row.definition or {},
        checkpoint=row.checkpoint,
        log=row.log,
        start=start,
        id=row.id,
        state=state,
        message=row.message,
        progress=row.progress,
        started_at=to_datetime(row.started_at),
        updated_at=to_datetime(row.updated_at),
        ended_at=to_datetime(row.ended_at),
        request=row.request,
        requested_at=to_datetime(row.requested_at),
        lease=lease,
    )


def _text(message: str | None) -> str | None:
    # Postgres keeps no NUL in texts, and messages come from anywhere.
    return None if message is None else message.replace("\x00", "\\x00")
