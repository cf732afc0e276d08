"""Holding a job that another process runs between two batches, and letting it go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.backend import Job, JobState
from penstock.cli.stop import wait_until
from penstock.errors import ConfigError, StateError, suggest
from penstock.pipeline.group_name import NODES, jobs_of

if TYPE_CHECKING:
    from penstock.backend import Backend


def paused_jobs(backend: Backend, name: str, node: str | None) -> list[Job]:
    """The job of a name, or those of the groups of a pipeline that run; with a node, the one that runs it."""
    jobs = jobs_of(name, backend)
    running = [job for job in jobs if not job.state.ended]
    if node is None:
        return running or jobs
    nodes = {own: job for job in (*jobs, *running) for own in job.definition.get(NODES, {})}
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
    return _ask(backend, job, JobState.PAUSED, timeout)


def resume_job(backend: Backend, job: Job, timeout: float) -> Job | None:
    """Ask a job to go on and return it once it does, or has ended; None when nobody wants to wait."""
    return _ask(backend, job, JobState.RUNNING, timeout)


def _ask(backend: Backend, job: Job, state: JobState, timeout: float) -> Job | None:
    if not job.state.ended and not job.definition.get("pausable"):
        raise StateError(
            f"'{job.name}' has no batches between which it could be paused",
            code="JOB_PAUSE",
            where=backend.location,
            hint=f"penstock jobs stop {job.name}",
        )
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
