"""`penstock state`: what jobs keep between their runs, and throwing it away."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.backend import Heartbeat, Job, Lease, this_process
from penstock.backend.checkpoint import remove_checkpoint
from penstock.cli.job_rows import open_state, write_list, write_record
from penstock.cli.main import DONE
from penstock.cli.options import State
from penstock.cli.output import Format, Output
from penstock.errors import ConfigError, StateError, suggest
from penstock.pipeline.group_folder import FOLDER, GroupFolder
from penstock.pipeline.group_name import NODES, jobs_of

if TYPE_CHECKING:
    from penstock.backend import Backend
    from penstock.pipeline.outside import Note

app = typer.Typer(help="Look at what jobs keep, and reset it.", no_args_is_help=True)

OFFSETS = "offsets"
LIST = ["name", "held", "last_epoch", "last_epoch_at", "values", "checkpoint"]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The job's name; that of a pipeline stands for all that it runs.",
        show_default=False,
    ),
]


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

    `offsets` of a pipeline is how far each of its sources has been read.

    \b
    Examples:
      penstock state show large-transactions offsets
      penstock state show large-transactions
      penstock state show large-transactions schema --output json
    """
    with open_state(state) as backend:
        names = _job_names(backend, name)
        if key == OFFSETS and (jobs := _pipeline_jobs(backend, names)):
            write_list(_offsets(backend, jobs), ["source", "read", "offset"], output)
            return DONE
        items = {job_name: backend.state.items(job_name) for job_name in names}
        if key is None:
            for job_name in names:
                row, last = _as_row(backend, job_name), backend.epochs.last(job_name)
                row["last_epoch_meta"] = None if last is None else last.meta
                row["values"] = {_path(*path): value for path, value in items[job_name].items()}
                write_record(row, output)
            return DONE
    values = [
        {
            **({"job": job_name} if len(names) > 1 else {}),
            "namespace": path[0],
            "key": path[1],
            "value": value,
        }
        for job_name in names
        for path, value in items[job_name].items()
        if key in (path[1], _path(*path))
    ]
    if not values:
        raise ConfigError(
            f"'{name}' keeps no value '{key}'",
            code="UNKNOWN_KEY",
            where=backend.location,
            hint=suggest(key, (_path(*path) for job_name in names for path in items[job_name]), what="key"),
        )
    write_list(values, list(values[0]), output)
    return DONE


@app.command("edit")
def edit(
    name: Name,
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="The dynamic table, by its node.", show_default=False)
    ],
    add: Annotated[
        list[str] | None, typer.Option("--add", "-a", metavar="VALUE", help="Add a value; repeatable.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", "-r", metavar="VALUE", help="Remove a value; repeatable.")
    ] = None,
    output: Output = Format.TABLE,
    state: State = None,
) -> int:
    """Add values to a dynamic table in memory, and remove others, also while its pipeline runs.

    The pipeline takes them when its next epoch begins. Without --add and --remove, show the values that it has stored last.

    \b
    Examples:
      penstock state edit shop blocked_customers --add 4711 --remove 12
      penstock state edit shop blocked_customers --output json
    """
    from penstock.backend.job_values import JobValues
    from penstock.streaming.job import SINK
    from penstock.transforms.dynamic_table import memory

    with open_state(state) as backend:
        tables = {
            node: JobValues(backend, job.name, SINK).within(node)
            for job in jobs_of(name, backend)
            for node, recorded in job.definition.get(NODES, {}).items()
            if recorded.get("type") == "dynamic_table"
        }
        node = next((node for node in tables if node.lower() == table.lower()), None)
        if node is None:
            raise ConfigError(
                f"'{name}' has no dynamic table '{table}'",
                code="DYNAMIC_TABLE_UNKNOWN",
                where=backend.location,
                hint=suggest(table, tables, what="dynamic table"),
            )
        if add or remove:
            memory.edit(tables[node], node, add=add or (), remove=remove or ())
            print(f"'{node}' is changed when the next epoch begins", file=sys.stderr)
        else:
            values = memory.contents(tables[node], node)
            write_list([{"value": value} for value in values], ["value"], output)
            if not values:
                print(f"'{node}' has no values yet", file=sys.stderr)
            if count := memory.waiting(tables[node], node):
                print(
                    f"{_count(count, 'edit')} of '{node}' {'waits' if count == 1 else 'wait'} for the next epoch",
                    file=sys.stderr,
                )
    return DONE


@app.command("reset")
def reset(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dead_letters: Annotated[
        bool, typer.Option("--dead-letters", help="Of a pipeline: delete its dead letters, too.")
    ] = False,
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="SOURCE",
            help="Of a pipeline: only remove what this source, which is not in its file any more, has left in other systems.",
            show_default=False,
        ),
    ] = None,
    state: State = None,
) -> int:
    """Delete what a job keeps: its checkpoint, epochs and values. Its next start begins from nothing.

    Of a pipeline also its views, and the replication slots of its sources. Refused while the job runs. With --source
    only the slot goes that a source has left which is gone from the file, also while the pipeline runs.

    \b
    Examples:
      penstock state reset per_minute
      penstock state reset per_minute --yes
      penstock state reset shop --source orders
    """
    with open_state(state) as backend:
        names = _job_names(backend, name)
        if source is not None:
            return _reset_source(backend, name, names, source, yes=yes)
        places = [place for job_name in names if (place := _place(backend.jobs.find(job_name)))]
        if not (yes or _confirmed(name, places)):
            print("nothing was deleted", file=sys.stderr)
            return DONE
        with ExitStack() as leases:
            # All of them first: when one job runs, nothing of the others is deleted.
            for lease in [leases.enter_context(_lease(backend, job_name)) for job_name in names]:
                removed = _remove(
                    backend, backend.jobs.find(lease.job), others=names, dead_letters=dead_letters
                )
                epochs = backend.epochs.clear(lease)
                values = _clear_values(backend, lease, dead_letters=dead_letters)
                what = "".join(f"{item}, " for item in removed)
                print(
                    f"'{lease.job}' is reset: {what}{_count(epochs, 'epoch')} and {_count(values, 'value')} deleted"
                )
    return DONE


@contextmanager
def _lease(backend: Backend, name: str) -> Iterator[Lease]:
    """The lease of a job, for as long as it takes."""
    lease = backend.leases.acquire(name, this_process("state reset"))
    try:
        # Deleting a large checkpoint can take longer than a lease lasts.
        with Heartbeat(backend, lease, on_lost=lambda _: None):
            yield lease
    finally:
        backend.leases.release(lease)


def _place(job: Job | None) -> str | None:
    """The folder in which a job keeps its state."""
    return None if job is None else job.definition.get(FOLDER) or job.checkpoint


def _remove(backend: Backend, job: Job | None, *, others: list[str], dead_letters: bool) -> list[str]:
    """Delete what a job keeps outside of the state database; return what was there. `others` are all jobs that are reset."""
    if job is None:
        return []
    if FOLDER not in job.definition:
        return [job.checkpoint] if job.checkpoint is not None and remove_checkpoint(job.checkpoint) else []
    return _remove_group(backend, job, others=others, dead_letters=dead_letters)


def _remove_group(backend: Backend, job: Job, *, others: list[str], dead_letters: bool) -> list[str]:
    """Delete what a group of a pipeline keeps."""
    from penstock.pipeline import record, reset
    from penstock.pipeline.outside import OUTSIDE, notes

    definition = job.definition
    folder = GroupFolder(Path(definition[FOLDER]))
    removed = [str(folder.path)] if folder.remove() else []
    used = _used_elsewhere(backend, others)
    noted = notes(backend, job.name)
    for note in noted:
        if str(note.resource) in used:
            backend.state.remove(job.name, note.resource.what, namespace=OUTSIDE)
    own = [note for note in noted if str(note.resource) not in used]
    for note, reason in _remove_resources(backend, job, own):
        if reason:
            print(f"warning: the {note} may still be there: {reason}", file=sys.stderr)
        else:
            removed.append(note.resource.what)
    for node, letters in definition.get(record.LETTERS, {}).items() if dead_letters else ():
        if letters is None:
            print(
                f"warning: the dead letters of '{node}' are in a place of your own, and stay", file=sys.stderr
            )
        elif reset.remove_tree(Path(letters)):
            removed.append(letters)
    return removed


def _used_elsewhere(backend: Backend, names: list[str]) -> set[str]:
    """What sources of other jobs than these have made, and go on from."""
    from penstock.pipeline.outside import notes

    return {
        str(note.resource)
        for other in backend.jobs.list()
        if other.kind == "pipeline" and other.name not in names
        for note in notes(backend, other.name)
        if not note.is_left
    }


def _reset_source(backend: Backend, name: str, jobs: list[str], source: str, *, yes: bool) -> int:
    """Remove what a source has left that is gone; the state of its pipeline stays, and it may run."""
    from penstock.pipeline.outside import notes, removal

    noted = [(job, note) for job in jobs for note in notes(backend, job)]
    chosen = [(job, note) for job, note in noted if note.node.lower() == source.lower()]
    elsewhere = _used_elsewhere(backend, jobs)
    left = [(job, note) for job, note in chosen if note.is_left and str(note.resource) not in elsewhere]
    if not left:
        used = next((job for job, note in chosen if not note.is_left), None)
        raise ConfigError(
            f"the source '{source}' of '{name}' has left nothing that is not used"
            if used is None
            else f"'{source}' was a source of '{used}' at its last start, and goes on from what it has made",
            code="PIPELINE_RESET_SOURCE",
            where=backend.location,
            hint=suggest(source, sorted({note.node for _, note in noted if note.is_left}), what="source")
            if used is None
            else f"take it out of the file and run the pipeline, or give up all that it keeps: {removal(used)}",
        )
    if not (yes or _confirmed_source(name, source, [str(note.resource) for _, note in left])):
        print("nothing was removed", file=sys.stderr)
        return DONE
    for job, note in left:
        for _, reason in _remove_resources(backend, backend.jobs.get(job), [note]):
            if reason:
                raise StateError(
                    f"the {note} cannot be removed: {reason}",
                    code="PIPELINE_RESET_SOURCE",
                    where=backend.location,
                )
            print(f"removed the {note}")
    return DONE


def _remove_resources(backend: Backend, job: Job, notes: list[Note]) -> Iterator[tuple[Note, str]]:
    """Remove what sources have made, and the notes of it; yields each, and why it may still be there or an empty text."""
    from penstock import config
    from penstock.pipeline import record, reset
    from penstock.pipeline.outside import OUTSIDE

    file = job.start.place if job.start and job.start.place else job.definition.get(record.PIPELINE, "")
    for note, reason in reset.remove_outside(Path(file), notes, config.load()):
        if not reason:
            backend.state.remove(job.name, note.resource.what, namespace=OUTSIDE)
        yield note, reason


def _clear_values(backend: Backend, lease: Lease, *, dead_letters: bool) -> int:
    """Delete the values of a job.

    Which dead letters were replayed stays known as long as there are some, and what is left in other systems as long as it is.
    """
    from penstock.pipeline.outside import OUTSIDE
    from penstock.pipeline.replay import NAMESPACE

    namespaces = {namespace for namespace, _ in backend.state.items(lease.job)} - {OUTSIDE}
    if not dead_letters:
        namespaces -= {NAMESPACE}
    return sum(backend.state.clear(lease.job, namespace=namespace, lease=lease) for namespace in namespaces)


def _pipeline_jobs(backend: Backend, names: list[str]) -> list[Job]:
    """Those of some jobs that run groups of a pipeline."""
    jobs = filter(None, map(backend.jobs.find, names))
    return [job for job in jobs if job.kind == "pipeline"]


def _offsets(backend: Backend, jobs: list[Job]) -> list[dict[str, Any]]:
    """How far each source of a pipeline has been read, and what those that are gone have left."""
    from penstock.pipeline import record
    from penstock.pipeline.offset import offsets
    from penstock.pipeline.outside import notes

    read = [
        {"source": source.node, "read": source.read, "offset": source.offset}
        for job in jobs
        if job.checkpoint is not None
        for source in offsets(Path(job.checkpoint), job.definition.get(record.SOURCES, []))
    ]
    left = [
        {"source": note.node, "read": f"not any more, and the {note.resource} is still there", "offset": None}
        for job in jobs
        for note in notes(backend, job.name)
        if note.is_left
    ]
    return read + left


def _names(backend: Backend) -> list[str]:
    jobs = (job.name for job in backend.jobs.list())
    return sorted({*jobs, *backend.epochs.jobs(), *backend.state.jobs()})


def _job_names(backend: Backend, name: str) -> list[str]:
    """The names of the jobs that a name selects; some have state and are no job any more."""
    names = _names(backend)
    if backend.jobs.find(name) is None and name in names:
        return [name]
    return [job.name for job in jobs_of(name, backend, also=names)]


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


def _confirmed(name: str, places: list[str]) -> bool:
    if not sys.stdin.isatty():
        raise ConfigError(
            "this deletes state, and there is nobody to ask",
            code="USAGE",
            hint=f"penstock state reset {name} --yes",
        )
    what = "".join(f"{place}, " for place in places) + "its epochs and values"
    return typer.confirm(f"Delete what '{name}' keeps: {what}?", err=True)


def _confirmed_source(name: str, source: str, resources: list[str]) -> bool:
    if not sys.stdin.isatty():
        raise ConfigError(
            "this removes what another system keeps, and there is nobody to ask",
            code="USAGE",
            hint=f"penstock state reset {name} --source {source} --yes",
        )
    return typer.confirm(f"Remove the {', the '.join(resources)}?", err=True)


def _path(namespace: str, key: str) -> str:
    return f"{namespace}/{key}" if namespace else key


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
