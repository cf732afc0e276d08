"""Jobs as rows: what `penstock jobs` and `penstock state` print about them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.backend import Job, JobState, Lease
from penstock.backend.address import hidden_values
from penstock.backend.checkpoint import durability_of
from penstock.cli.output import Format, write_rows

if TYPE_CHECKING:
    from penstock.backend import Backend

LIST = [
    "name",
    "kind",
    "state",
    "durability",
    "owner",
    "since",
    "last_batch",
    "input_rows_per_second",
    "output_rows_per_second",
    "lag",
]

# On a terminal the column must not be wider than its numbers.
SHORT = {"last_batch": "last batch", "input_rows_per_second": "in/s", "output_rows_per_second": "out/s"}


def open_state(url: str | None) -> Backend:
    """Open the state database of a command; only the default one is created when it is missing."""
    from penstock import config
    from penstock.backend import open_backend

    settings = config.load()
    return open_backend(url or settings, create=url is None and settings.state is None)


def as_row(job: Job) -> dict[str, Any]:
    """A job as a row of the list."""
    progress = job.progress or {}
    return {
        "name": job.name,
        "kind": job.kind,
        "state": job.state.value,
        "durability": _durability(job),
        "owner": None if job.lease is None else f"{job.lease.owner.host}:{job.lease.owner.pid}",
        "since": job.ended_at or job.started_at,
        "last_batch": progress.get("batch_id"),
        "input_rows_per_second": _rate(progress, "input_rows"),
        "output_rows_per_second": _rate(progress, "output_rows"),
        "lag": _lag(progress),
    }


def as_record(job: Job, backend: Backend) -> dict[str, Any]:
    """Everything about a job."""
    last, begun = backend.epochs.last(job.name), backend.epochs.last(job.name, committed=False)
    start = job.start
    return {
        "name": job.name,
        "id": job.id,
        "kind": job.kind,
        "state": job.state.value,
        "message": message_of(job),
        "started_at": job.started_at,
        "updated_at": job.updated_at,
        "ended_at": job.ended_at,
        "owner": None if job.lease is None else _owner(job.lease),
        "lease": None if job.lease is None else _lease(job.lease),
        "request": job.request,
        "requested_at": job.requested_at,
        "checkpoint": job.checkpoint,
        "durability": _durability(job),
        "log": job.log,
        "command": None if start is None else list(start.argv),
        "directory": None if start is None else start.directory,
        "place": None if start is None else start.place,
        "restart": None if start is None else start.again,
        "last_epoch": None if last is None else last.number,
        "last_epoch_at": None if last is None else last.committed_at,
        "last_epoch_meta": None if last is None else last.meta,
        "open_epoch": None if begun is None or begun.committed else begun.number,
        "lag": _lag(job.progress or {}),
        "progress": job.progress,
        "definition": job.definition,
        "state_database": backend.location,
    }


def _durability(job: Job) -> str:
    """What of a job lasts: what it says itself, or what follows from the place of its checkpoint."""
    return job.definition.get("durability") or durability_of(job.checkpoint)


def message_of(job: Job) -> str | None:
    """What there is to say about a job: its own message, or that it ended without one."""
    if job.state is not JobState.LOST:
        return job.message
    if job.lease is None:
        return "ended without a word: its process is gone or was cut off, and its lease has ended"
    renewed_at = job.lease.expires_at - dt.timedelta(milliseconds=job.lease.ttl_ms)
    who = f"{job.lease.owner}, last heard of at {local(renewed_at)}"
    return f"ended without a word: {who}, is gone or was cut off"


def write_list(rows: list[dict[str, Any]], columns: list[str], output: Format) -> None:
    """Print rows, one per job or value."""
    if output is not Format.TABLE:
        write_rows([_shown(row, output) for row in rows], columns, output=output)
    elif rows:
        titles = [SHORT.get(name, name) for name in columns]
        titled = [
            dict(zip(titles, (_shown(row, output)[name] for name in columns), strict=True)) for row in rows
        ]
        write_rows(titled, titles)


def write_record(record: dict[str, Any], output: Format) -> None:
    """Print one thing: an object, or in a table a line for each field that there is."""
    shown = _shown(record, output)
    if output is not Format.TABLE:
        write_rows([shown], list(shown), output=output)
        return
    fields = [
        {"field": key, "value": value} for key, value in shown.items() if value not in (None, "", {}, [])
    ]
    write_rows(fields, ["field", "value"])


def _shown(record: dict[str, Any], output: Format) -> dict[str, Any]:
    """The record without secrets; in a table with times of the wall clock, in Arrow with nested values as JSON."""
    safe = {key: hidden_values(value) for key, value in record.items()}
    if output is Format.TABLE:
        return {key: local(value) for key, value in safe.items()}
    return {key: _flat(value) for key, value in safe.items()} if output is Format.ARROW else safe


def local(value: Any) -> Any:
    """A time as the clock on the wall shows it; anything else as it is."""
    return value.astimezone().replace(microsecond=0, tzinfo=None) if isinstance(value, dt.datetime) else value


def _rate(progress: Mapping[str, Any], rows: str) -> float | None:
    """Rows per second: what the job says, or else of its last batch."""
    rate = progress.get(f"{rows}_per_second")
    if isinstance(rate, int | float):
        return round(rate, 1)
    count, duration = progress.get(rows), progress.get("duration_ms")
    if isinstance(count, int | float) and isinstance(duration, int | float) and duration > 0:
        return round(count * 1000 / duration, 1)
    return None


def _lag(progress: Mapping[str, Any]) -> int | None:
    """How far a job is behind: what it says, or else the sum over its sources that can tell."""
    job_lag = progress.get("lag")
    sources = [source.get("lag") for source in progress.get("sources", ()) if isinstance(source, Mapping)]
    lags = [lag for lag in ([job_lag] if isinstance(job_lag, int) else sources) if isinstance(lag, int)]
    return sum(lags) if lags else None


def _owner(lease: Lease) -> dict[str, Any]:
    return {"host": lease.owner.host, "pid": lease.owner.pid, "session": lease.owner.session or None}


def _lease(lease: Lease) -> dict[str, Any]:
    return {
        "epoch": lease.epoch,
        "held": lease.active,
        "since": lease.acquired_at.isoformat(),
        "until": lease.expires_at.isoformat(),
    }


def _flat(value: Any) -> Any:
    from penstock.cli.value import json_text

    return json_text(value) if isinstance(value, dict | list) else value
