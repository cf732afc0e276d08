"""`penstock jobs`: what runs, and stopping or restarting it from another process."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.backend import Job, JobState
from penstock.backend.address import hidden
from penstock.cli.job_rows import LIST, as_record, as_row, message_of, open_state, write_list, write_record
from penstock.cli.main import DONE, FAILED
from penstock.cli.options import State
from penstock.cli.output import Format, Output
from penstock.cli.pause import pause_job, paused_jobs, resume_job
from penstock.cli.restart import restart_jobs
from penstock.cli.stop import stop_job
from penstock.cli.tail import JobLog, read
from penstock.errors import StateError
from penstock.pipeline.group_name import jobs_of

if TYPE_CHECKING:
    from penstock.backend import Backend

app = typer.Typer(help="List, stop, pause and restart queries and pipelines.", no_args_is_help=True)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The job's name or id; that of a pipeline stands for all that it runs.",
        show_default=False,
    ),
]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0, help="Wait at most so long; 0 does not wait.")
]

Node = Annotated[
    str | None,
    typer.Option(
        "--node", metavar="NODE", help="Of a pipeline: the job that runs this node.", show_default=False
    ),
]


@app.command("list")
def list_(output: Output = Format.TABLE, state: State = None) -> int:
    """List the jobs: where each runs, since when, its last batch, rows per second, and how far it is behind.

    A job whose process ended without a word is LOST once its lease has ended.

    \b
    Examples:
      penstock jobs list
      penstock jobs list --output json | jq 'select(.state != "RUNNING")'
      penstock jobs list --state postgresql://ann@db/penstock
    """
    with open_state(state) as backend:
        rows = [as_row(job) for job in backend.jobs.list()]
    if not rows:
        print(f"no jobs yet in {backend.location}", file=sys.stderr)
    write_list(rows, LIST, output)
    return DONE


@app.command("show")
def show(name: Name, output: Output = Format.TABLE, state: State = None) -> int:
    """Show all about a job: its owner and lease, epochs, checkpoint, last progress, error and definition.

    \b
    Examples:
      penstock jobs show per_minute
      penstock jobs show per_minute --output json | jq .progress
    """
    with open_state(state) as backend:
        for job in jobs_of(name, backend):
            write_record(as_record(job, backend), output)
    return DONE


@app.command("stop")
def stop(name: Name, timeout: Timeout = 60, state: State = None) -> int:
    """Ask the process that runs a job to stop it, and wait until it has.

    The running batch is finished first. A job that does not run is left as it is.

    \b
    Examples:
      penstock jobs stop per_minute
      penstock jobs stop per_minute --timeout 300
    """
    with open_state(state) as backend:
        return max(_stop(backend, job, timeout) for job in jobs_of(name, backend))


@app.command("restart")
def restart(name: Name, timeout: Timeout = 120, state: State = None) -> int:
    """Stop a job and start it again from what was recorded: pipelines, and queries that are defined in SQL.

    A pipeline that runs begins again in its process, with the file as it was read then. One that has ended is run by the command
    that ran it, in this environment and with the file as it is now. A query of a Python program can only be started again by that
    program; its command line is shown.

    \b
    Examples:
      penstock jobs restart large-transactions
    """
    with open_state(state) as backend:
        restarted = restart_jobs(backend, jobs_of(name, backend), timeout)
    for job in restarted:
        print(f"'{job.name}' is {job.state}" + (f": {message_of(job)}" if message_of(job) else ""))
    return FAILED if any(job.state in (JobState.FAILED, JobState.LOST) for job in restarted) else DONE


@app.command("pause")
def pause(name: Name, node: Node = None, timeout: Timeout = 60, state: State = None) -> int:
    """Hold a job between two batches: it keeps its place and its lease, and reads and writes nothing until it is resumed.

    All nodes of a pipeline that hang together pause together: rows that one sink has and another has not would be lost.
    A job that is started again runs.

    \b
    Examples:
      penstock jobs pause large-transactions
      penstock jobs pause shop --node orders_table
    """
    code = DONE
    with open_state(state) as backend:
        for job in paused_jobs(backend, name, node):
            now = pause_job(backend, job, timeout)
            code = max(code, _answer(job, now, JobState.PAUSED))
    return code


@app.command("resume")
def resume(name: Name, node: Node = None, timeout: Timeout = 60, state: State = None) -> int:
    """Let a paused job go on where it is.

    \b
    Examples:
      penstock jobs resume large-transactions
    """
    code = DONE
    with open_state(state) as backend:
        for job in paused_jobs(backend, name, node):
            now = resume_job(backend, job, timeout)
            code = max(code, _answer(job, now, JobState.RUNNING))
    return code


@app.command("logs")
def logs(
    name: Name,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is written until the job ends.")
    ] = False,
    lines: Annotated[
        int | None,
        typer.Option(
            "--lines", "-n", metavar="LINES", min=0, help="Only the last lines.", show_default="all"
        ),
    ] = None,
    state: State = None,
) -> int:
    """Print the log of a job.

    \b
    Examples:
      penstock jobs logs per_minute -n 100
      penstock jobs logs per_minute -f
    """
    with open_state(state) as backend:

        def running(name: str) -> bool:
            return not backend.jobs.get(name).state.ended

        logs = [
            JobLog(job.name, _log_of(job, backend.location), partial(running, job.name) if follow else None)
            for job in jobs_of(name, backend)
        ]
        for block in read(logs, lines):
            sys.stdout.buffer.write(block)
            sys.stdout.flush()
    return DONE


def _stop(backend: Backend, job: Job, timeout: float) -> int:
    """Stop one job and say how it ended; return the exit code for it."""
    if job.state.ended:
        print(f"'{job.name}' does not run, it {_ended(job)}")
        return DONE
    ended = stop_job(backend, job, timeout)
    if ended is None:
        print(f"asked {job.lease.owner if job.lease else 'its process'} to stop '{job.name}'")
        return DONE
    print(f"'{job.name}' has stopped" if ended.state is JobState.STOPPED else f"'{job.name}' {_ended(ended)}")
    return FAILED if ended.state is JobState.FAILED else DONE


def _log_of(job: Job, database: str) -> Path:
    if job.log is None:
        ran = f"it goes where `{hidden(shlex.join(job.start.argv))}` writes" if job.start else None
        raise StateError(f"'{job.name}' has no log file", code="JOB_NO_LOG", where=database, hint=ran)
    path = Path(job.log)
    if not path.is_file():
        host = job.lease.owner.host if job.lease else "the machine that ran it"
        raise StateError(
            f"the log of '{job.name}' is not on this machine: {path}",
            code="JOB_NO_LOG",
            where=database,
            hint=f"it was written on {host}",
        )
    return path


def _answer(job: Job, now: Job | None, wanted: JobState) -> int:
    """Say how a job is after a request, and return the exit code for it."""
    if now is None:
        verb = "pause" if wanted is JobState.PAUSED else "resume"
        print(f"asked {job.lease.owner if job.lease else 'its process'} to {verb} '{job.name}'")
        return DONE
    if now.state is wanted:
        print(f"'{job.name}' is paused" if wanted is JobState.PAUSED else f"'{job.name}' goes on")
        return DONE
    print(f"'{job.name}' {_ended(now)}")
    return FAILED


def _ended(job: Job) -> str:
    message = message_of(job)
    return f"is {job.state}" + (f": {message}" if message else "")
