"""Holding a job that another process runs between two batches, and letting it go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.backend import Job, JobState
from penstock.backend.job_name import unknown_job
from penstock.cli.stop import wait_until
from penstock.errors import ConfigError, StateError, suggest

if TYPE_CHECKING:
    from penstock.backend import Backend

NODES = "nodes"
"""Where the definition of a pipeline's job has its nodes."""


def jobs_of(backend: Backend, name: str, node: str | None) -> list[Job]:
    """The job of a name, or those of the groups of a pipeline; with a node, the one that runs it."""
    one = backend.jobs.find(name)
    jobs = (
        [one] if one is not None else [job for job in backend.jobs.list() if job.name.startswith(f"{name}/")]
    )
    if not jobs:
        raise unknown_job(name, (job.name for job in backend.jobs.list()), location=backend.location)
    if node is None:
        return jobs
    nodes = {own: job for job in jobs for own in job.definition.get(NODES, {})}
    if node not in nodes:
        raise ConfigError(
            f"'{name}' has no node '{node}'",
            code="PIPELINE_NODE",
            where=backend.location,
            hint=suggest(node, nodes, what="node"),
        )
    return [nodes[node]]


def pause_job(backend: Backend, job: Job, timeout: float) -> Job | None:
    """Ask for a pause and return the job once it has one, or has ended; None when nobody wants to wait."""
    if not job.state.ended and "trigger" not in job.definition:
        raise StateError(
            f"'{job.name}' has no batches between which it could be paused",
            code="JOB_PAUSE",
            where=backend.location,
            hint=f"penstock jobs stop {job.name}",
        )
    return _ask(backend, job, JobState.PAUSED, timeout)


def resume_job(backend: Backend, job: Job, timeout: float) -> Job | None:
    """Ask a job to go on and return it once it does, or has ended; None when nobody wants to wait."""
    return _ask(backend, job, JobState.RUNNING, timeout)


def _ask(backend: Backend, job: Job, state: JobState, timeout: float) -> Job | None:
    backend.jobs.request(job.name, "pause" if state is JobState.PAUSED else "resume")
    if timeout == 0:
        return None
    done = "been paused" if state is JobState.PAUSED else "gone on"
    return wait_until(
        backend,
        job,
        lambda now: now.state.ended or (now.state is state and now.request is None),
        timeout,
        done,
    )
