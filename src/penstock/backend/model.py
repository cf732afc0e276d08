"""What the state backend keeps, as values: jobs, the leases on them, and their epochs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from penstock.backend.process import Owner

Kind = Literal["query", "pipeline", "flow"]
Request = Literal["stop", "restart", "pause", "resume"]


class JobState(StrEnum):
    """Where a job is in its life; LOST is never stored, it follows from a lease that ran out."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    LOST = "LOST"

    @property
    def ended(self) -> bool:
        """Whether nothing of the job runs any more."""
        return self in (JobState.STOPPED, JobState.FAILED, JobState.LOST)


@dataclass(frozen=True, slots=True)
class Start:
    """How a job was started, and whether it can be started again without its program.

    `again="request"`: the process that runs it restarts it when asked to; `"command"`: the command line starts it again;
    None: only the program can, because the job is made of its code.
    """

    argv: tuple[str, ...]
    directory: str
    place: str | None = None
    again: Literal["request", "command"] | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A named query, pipeline or flow: what its owner says about it, and from `state` on what the backend knows."""

    name: str
    kind: Kind = "query"
    definition: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: str | None = None
    log: str | None = None
    start: Start | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    state: JobState = JobState.STARTING
    message: str | None = None
    progress: Mapping[str, Any] | None = None
    started_at: datetime | None = None
    updated_at: datetime | None = None
    ended_at: datetime | None = None
    request: Request | None = None
    requested_at: datetime | None = None
    lease: Lease | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run a job until `expires_at`, a time of the database's clock.

    Every acquisition has a higher epoch than all before it; `token` tells two databases apart that both began at one.
    `deadline` is the end of the lease on the owner's own `clock()`, never later than the database's.
    """

    job: str
    owner: Owner
    epoch: int
    ttl_ms: int
    token: str
    acquired_at: datetime
    expires_at: datetime
    deadline: float = 0.0
    active: bool = True


@dataclass(frozen=True, slots=True)
class Beat:
    """The outcome of a renewal: False in `renewed` when the lease is lost, and what somebody asks of the job."""

    renewed: bool
    request: Request | None = None
    requested_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """One epoch of a job: begun, and committed unless `committed_at` is None."""

    job: str
    number: int
    started_at: datetime
    committed_at: datetime | None = None
    meta: Mapping[str, Any] | None = None

    @property
    def committed(self) -> bool:
        return self.committed_at is not None
