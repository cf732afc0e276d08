"""The state backend: jobs, leases, epochs and values in SQLite or Postgres.

with open_backend("sqlite:///state.db") as backend:
    lease = backend.leases.acquire("per_minute", this_process())
    backend.jobs.record(Job("per_minute", checkpoint="ckpt/"), lease)
    with Heartbeat(backend, lease, on_lost=stop_at_once):
        backend.jobs.update(lease, state=JobState.RUNNING)
        backend.epochs.commit(lease, 0)
    backend.jobs.update(lease, state=JobState.STOPPED)
    backend.leases.release(lease)

Nothing here imports SQLAlchemy before a backend is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.backend.heartbeat import Heartbeat
from penstock.backend.model import Beat, EpochRecord, Job, JobState, Lease, Start
from penstock.backend.open import open_backend, state_url
from penstock.backend.process import Owner, is_gone, this_process

if TYPE_CHECKING:
    from penstock.backend.backend import Backend

__all__ = [
    "Backend",
    "Beat",
    "EpochRecord",
    "Heartbeat",
    "Job",
    "JobState",
    "Lease",
    "Owner",
    "Start",
    "is_gone",
    "open_backend",
    "state_url",
    "this_process",
]


def __getattr__(name: str) -> Any:
    if name == "Backend":
        from penstock.backend.backend import Backend

        return Backend
    raise AttributeError(f"module 'penstock.backend' has no attribute '{name}'")
