"""Starting a job again from what was recorded when it was started."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import config
from penstock.backend import Job, JobState, Start
from penstock.backend.address import hidden
from penstock.cli.stop import is_newer, stop_job, wait_until
from penstock.errors import StateError
from penstock.pipeline.secret import HIDDEN

if TYPE_CHECKING:
    from penstock.backend import Backend


def restart_jobs(backend: Backend, jobs: Sequence[Job], timeout: float) -> list[Job]:
    """Start jobs of one name again: one, or those of a pipeline, whose command starts them all; return those that
    were started."""
    running = [job for job in jobs if not job.state.ended]
    if running or len(jobs) == 1:
        # A group of a pipeline that has come to its end does not keep the others from it.
        return [restart_job(backend, job, timeout) for job in running or jobs]
    # Groups start one after the other: with the last one all do.
    restart_job(backend, max(jobs, key=lambda job: (job.started_at is not None, job.started_at)), timeout)
    return [now for job in jobs if is_newer(now := backend.jobs.get(job.name), job)]


def restart_job(backend: Backend, job: Job, timeout: float) -> Job:
    """Stop a job if it runs and start it again; return it once it runs or has ended."""
    start = job.start
    if start is None or start.again is None:
        raise _only_by_hand(job, backend.location, "only its program can start it again")
    if start.again == "request":
        if job.state.ended and job.kind == "pipeline" and start.place and Path(start.place).is_file():
            if any(HIDDEN in word for word in start.argv):
                raise _only_by_hand(job, backend.location, "its command line had secrets, which are not kept")
            return _launch(backend, job, start, timeout, log=_log(f"{job.name}.run"))
        if job.state.ended:
            raise _only_by_hand(
                job, backend.location, f"it is {job.state} and the process that ran it is gone"
            )
        backend.jobs.request(job.name, "restart")
        return wait_until(
            backend, job, lambda now: is_newer(now, job) and _settled(now), timeout, "restarted"
        )
    if not job.state.ended:
        ended = stop_job(backend, job, max(timeout, 1))
        print(f"'{job.name}' is {ended.state if ended else 'asked to stop'}", file=sys.stderr)
    return _launch(backend, job, start, timeout, log=Path(job.log) if job.log else _log(job.name))


def _log(name: str) -> Path:
    return config.load().home / "logs" / (re.sub(r"[^\w.-]", "_", name) + ".log")


def _launch(backend: Backend, job: Job, start: Start, timeout: float, *, log: Path) -> Job:
    log.parent.mkdir(parents=True, exist_ok=True)
    print(f"starting `{hidden(shlex.join(start.argv))}`, its output goes to {log}", file=sys.stderr)
    try:
        with log.open("ab") as output:
            # It outlives this command, and Ctrl-C in this terminal is not meant for it.
            child = subprocess.Popen(
                start.argv,
                cwd=start.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=config.child_environment({"PENSTOCK_STATE": backend.url}),
            )
    except OSError as error:
        raise StateError(
            f"'{job.name}' cannot be started: {error.strerror}",
            code="JOB_RESTART",
            where=f"{start.directory}: {hidden(shlex.join(start.argv))}",
        ) from error

    def ready(now: Job) -> bool:
        if is_newer(now, job):
            return _settled(now)
        code = child.poll()
        if code is not None:
            raise StateError(
                f"'{job.name}' did not start: its command ended with {code}",
                code="JOB_RESTART",
                where=str(log),
                hint="the log says why",
            )
        return False

    restarted = wait_until(backend, job, ready, timeout, "started again")
    # A child that goes on is nobody's business any more; without this Python warns about it.
    child.returncode = child.returncode or 0
    return restarted


def _settled(job: Job) -> bool:
    return job.state in (JobState.RUNNING, JobState.PAUSED) or job.state.ended


def _only_by_hand(job: Job, database: str, why: str) -> StateError:
    start = job.start
    hint = None
    if start is not None:
        at = f", at {start.place}" if start.place else ""
        hint = f"it was started in {start.directory} by `{hidden(shlex.join(start.argv))}`{at}"
    return StateError(
        f"'{job.name}' cannot be restarted from here: {why}", code="JOB_RESTART", where=database, hint=hint
    )
