"""The lease of a named query, from the first moment on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.backend import Backend, open_backend
from penstock.backend.lease import TTL_MS
from penstock.errors import StateError
from penstock.streaming.job import JobRecord, QueryJob
from penstock.streaming.progress import QueryProgress
from waiting import wait_for

SHORT_MS = 1_000
RENEWED_MS = 6_000
"""A lease that is renewed after two seconds, and that a busy machine does not lose in between."""


def _job(
    backend: Backend,
    name: str,
    logs: Path,
    *,
    session: str = "s",
    ttl_ms: int = TTL_MS,
    on_lost: Callable[[StateError], None] = lambda error: None,
    on_request: Callable[[Any], None] = lambda request: None,
) -> QueryJob:
    return QueryJob(
        backend, name, session=session, logs=logs, ttl_ms=ttl_ms, on_lost=on_lost, on_request=on_request
    )


def test_a_start_that_takes_longer_than_a_lease_keeps_it(tmp_path: Path) -> None:
    lost: list[StateError] = []
    with open_backend(f"sqlite:///{tmp_path}/state.db") as backend:
        job = _job(backend, "slow", tmp_path / "logs", ttl_ms=RENEWED_MS, on_lost=lost.append)
        job.record(JobRecord("q-1", None, None, {}))
        first = backend.leases.get("slow")
        assert first is not None
        # Nothing but the heartbeat renews it while a sink waits for its server.
        wait_for(lambda: (lease := backend.leases.get("slow")) and lease.expires_at > first.expires_at)
        with pytest.raises(StateError):
            _job(backend, "slow", tmp_path / "logs", session="other")
        job.running()
        job.fence()
        job.begin(0)
        job.commit(0, 1)
        job.end(None)
        assert lost == []
        _job(backend, "slow", tmp_path / "logs", session="other").release()


def test_epochs_are_written_down_a_moment_later(tmp_path: Path) -> None:
    with open_backend(f"sqlite:///{tmp_path}/state.db") as backend:
        job = _job(backend, "quick", tmp_path / "logs")
        job.record(JobRecord("q-1", None, None, {}))
        for number in range(250):
            job.begin(number)
            job.commit(number, number)
        job.begin(250)
        wait_for(lambda: (last := backend.epochs.last("quick")) and last.number == 249)
        begun = backend.epochs.last("quick", committed=False)
        assert begun is not None
        assert (begun.number, begun.committed_at) == (250, None)
        job.commit(250, None)
        job.end(None)
        last = backend.epochs.last("quick")
        assert last is not None
        assert (last.number, last.meta) == (250, {"rows": None})


def test_a_job_whose_lease_is_over_is_fenced_off(tmp_path: Path) -> None:
    with open_backend(f"sqlite:///{tmp_path}/state.db") as backend:
        job = _job(backend, "late", tmp_path / "logs", ttl_ms=SHORT_MS)
        job.fence()
        job._heartbeat.stop()  # nobody renews any more
        wait_for(lambda: not (lease := backend.leases.get("late")) or not lease.active)
        with pytest.raises(StateError) as caught:
            job.fence()
        assert caught.value.code == "STATE_LEASE_LOST"
        job.release()


def test_requests_and_progress_go_through_the_heartbeat(tmp_path: Path) -> None:
    requests: list[str] = []
    with open_backend(f"sqlite:///{tmp_path}/state.db") as backend:
        job = _job(backend, "asked", tmp_path / "logs", ttl_ms=SHORT_MS, on_request=requests.append)
        job.record(JobRecord("q-1", None, None, {}))
        backend.jobs.request("asked", "stop")
        job.progress(QueryProgress("once", 7, 3, None, 5, "2026-01-01T00:00:00.000Z"))
        wait_for(lambda: requests == ["stop"])
        wait_for(lambda: (progress := backend.jobs.get("asked").progress) and progress["batch_id"] == 7)
        job.end(None)
    log = (tmp_path / "logs" / "asked.log").read_text()
    assert "epoch 7: 3 rows in, ? out, 5 ms" in log


def test_who_runs_one_epoch_only_does_not_change_how_it_is_started(tmp_path: Path) -> None:
    with open_backend(f"sqlite:///{tmp_path}/state.db") as backend:
        starts = []
        for keeps, place in ((True, "a.yaml"), (True, "b.yaml"), (False, "c.yaml")):
            job = _job(backend, "shop", tmp_path / "logs")
            job.record(JobRecord("q-1", None, place, {}, "pipeline", keeps_start=keeps))
            job.end(None)
            start = backend.jobs.get("shop").start
            assert start is not None
            starts.append(start.place)
    assert starts == ["a.yaml", "a.yaml", "c.yaml"]


def test_the_command_line_is_written_down_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["penstock", "run", "p.yaml", "--conf", "spark.hadoop.fs.s3a.secret.key=hunter2"]
    monkeypatch.setattr("sys.orig_argv", words)
    with open_backend(f"sqlite:///{tmp_path}/state.db") as backend:
        job = _job(backend, "shown", tmp_path / "logs")
        job.record(JobRecord("q-1", None, None, {}))
        job.end(None)
        start = backend.jobs.get("shown").start
    assert start is not None
    assert start.argv == (*words[:-1], "spark.hadoop.fs.s3a.secret.key=***")
