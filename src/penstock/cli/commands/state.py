"""`penstock state`: what jobs keep between their runs, and throwing it away."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.backend import Heartbeat, this_process
from penstock.backend.checkpoint import remove_checkpoint
from penstock.backend.job_name import unknown_job
from penstock.cli.job_rows import open_state, write_list, write_record
from penstock.cli.main import DONE
from penstock.cli.options import State
from penstock.cli.output import Format, Output
from penstock.errors import ConfigError, suggest
from penstock.pipeline.group_folder import FOLDER, GroupFolder

if TYPE_CHECKING:
    from penstock.backend import Backend, Job

app = typer.Typer(help="Look at what jobs keep, and reset it.", no_args_is_help=True)

LIST = ["name", "held", "last_epoch", "last_epoch_at", "values", "checkpoint"]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The job's name.", show_default=False)]


@app.command("list")
def list_(output: Output = Format.TABLE, state: State = None) -> int:
    """List what every job keeps: its last committed epoch, how many values, where its checkpoint is.

    \b
    Examples:
      penstock state list
      penstock state list --output json
    """
    with open_state(state) as backend:
        rows = [_as_row(backend, name) for name in _names(backend)]
    if not rows:
        print(f"no state yet in {backend.location}", file=sys.stderr)
    write_list(rows, LIST, output)
    return DONE


@app.command("show")
def show(
    name: Name,
    key: Annotated[
        str | None, typer.Argument(metavar="[KEY]", help="Only this value.", show_default=False)
    ] = None,
    output: Output = Format.TABLE,
    state: State = None,
) -> int:
    """Show what a job keeps: its epochs, its checkpoint and its values; or one value.

    \b
    Examples:
      penstock state show large-transactions
      penstock state show large-transactions schema --output json
    """
    with open_state(state) as backend:
        job_name = _job_name(backend, name)
        items = backend.state.items(job_name)
        row = _as_row(backend, job_name)
        if key is None:
            last = backend.epochs.last(job_name)
            row["last_epoch_meta"] = None if last is None else last.meta
            row["values"] = {_path(*path): value for path, value in items.items()}
            write_record(row, output)
            return DONE
    values = [
        {"namespace": path[0], "key": path[1], "value": value}
        for path, value in items.items()
        if key in (path[1], _path(*path))
    ]
    if not values:
        raise ConfigError(
            f"'{job_name}' keeps no value '{key}'",
            code="UNKNOWN_KEY",
            where=backend.location,
            hint=suggest(key, (_path(*path) for path in items), what="key"),
        )
    write_list(values, ["namespace", "key", "value"], output)
    return DONE


@app.command("reset")
def reset(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    state: State = None,
) -> int:
    """Delete what a job keeps: its checkpoint, epochs and values. Its next start begins from nothing.

    Refused while the job runs.

    \b
    Examples:
      penstock state reset per_minute
      penstock state reset per_minute --yes
    """
    with open_state(state) as backend:
        job_name = _job_name(backend, name)
        job = backend.jobs.find(job_name)
        checkpoint = None if job is None else job.checkpoint
        if job is not None and job.kind == "pipeline":
            checkpoint = job.definition.get(FOLDER, checkpoint)
        if not (yes or _confirmed(job_name, checkpoint)):
            print("nothing was deleted", file=sys.stderr)
            return DONE
        lease = backend.leases.acquire(job_name, this_process("state reset"))
        try:
            # Deleting a large checkpoint can take longer than a lease lasts.
            with Heartbeat(backend, lease, on_lost=lambda _: None):
                removed = checkpoint is not None and _remove(job, checkpoint)
                epochs = backend.epochs.clear(lease)
                values = backend.state.clear(job_name, lease=lease)
        finally:
            backend.leases.release(lease)
    what = f"{checkpoint}, " if removed else ""
    print(f"'{job_name}' is reset: {what}{_count(epochs, 'epoch')} and {_count(values, 'value')} deleted")
    return DONE


def _remove(job: Job | None, checkpoint: str) -> bool:
    """Delete the checkpoint of a job; that of a pipeline with all that stands beside it, which belongs to it."""
    folder = None if job is None or job.kind != "pipeline" else job.definition.get(FOLDER)
    return remove_checkpoint(checkpoint) if folder is None else GroupFolder(Path(folder)).remove()


def _names(backend: Backend) -> list[str]:
    jobs = (job.name for job in backend.jobs.list())
    return sorted({*jobs, *backend.epochs.jobs(), *backend.state.jobs()})


def _job_name(backend: Backend, name: str) -> str:
    names = _names(backend)
    if name in names:
        return name
    job = backend.jobs.find(name)
    if job is None:
        raise unknown_job(name, names, location=backend.location)
    return job.name


def _as_row(backend: Backend, name: str) -> dict[str, Any]:
    job, lease, last = backend.jobs.find(name), backend.leases.get(name), backend.epochs.last(name)
    return {
        "name": name,
        "held": f"{lease.owner.host}:{lease.owner.pid}" if lease is not None and lease.active else None,
        "last_epoch": None if last is None else last.number,
        "last_epoch_at": None if last is None else last.committed_at,
        "values": len(backend.state.items(name)),
        "checkpoint": None if job is None else job.checkpoint,
    }


def _confirmed(name: str, checkpoint: str | None) -> bool:
    if not sys.stdin.isatty():
        raise ConfigError(
            "this deletes state, and there is nobody to ask",
            code="USAGE",
            hint=f"penstock state reset {name} --yes",
        )
    what = f"its checkpoint {checkpoint}, its epochs and values" if checkpoint else "its epochs and values"
    return typer.confirm(f"Delete what '{name}' keeps: {what}?", err=True)


def _path(namespace: str, key: str) -> str:
    return f"{namespace}/{key}" if namespace else key


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
