"""Stopping a job that another process runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.backend import Job, is_gone
from penstock.errors import StateError

if TYPE_CHECKING:
    from penstock.backend import Backend

POLL_SECONDS = 0.2


def stop_job(backend: Backend, job: Job, timeout: float) -> Job | None:
    """Ask for a stop and return the job once it has ended, whichever way; None when nobody wants to wait."""
    backend.jobs.request(job.name, "stop")
    if timeout == 0:
        return None
    return wait_until(backend, job, lambda now: now.state.ended or is_newer(now, job), timeout, "stopped")


def wait_until(backend: Backend, job: Job, done: Callable[[Job], bool], timeout: float, what: str) -> Job:
    """Look at a job until something is true of it; when its process turns out to be gone, say so."""
    end = time.monotonic() + timeout
    reported = False
    while not done(now := backend.jobs.get(job.name)):
        owner = now.lease.owner if now.lease is not None else None
        if owner is not None and not reported and is_gone(owner):
            reported = True
            print(f"{owner} is gone; waiting for the end of its lease", file=sys.stderr)
        if time.monotonic() > end:
            raise StateError(
                f"'{job.name}' has not {what} within {timeout:g} seconds: it is {now.state}",
                code="JOB_TIMEOUT",
                where=backend.location,
                hint=f"the request stays; look at it with `penstock jobs show {job.name}`, wait longer with --timeout, "
                f"or end {owner or 'its process'} yourself",
            )
        time.sleep(POLL_SECONDS)
    return now


def is_newer(now: Job, before: Job) -> bool:
    """Whether a job was started again since it was looked at."""
    return now.started_at != before.started_at
