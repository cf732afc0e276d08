"""The lease of a named query, from the first moment on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from penstock.backend import open_backend
from penstock.backend.lease import TTL_MS
from penstock.errors import StateError
from penstock.streaming.job import JobRecord, QueryJob
from waiting import wait_for


def test_a_start_that_takes_longer_than_a_lease_keeps_it(tmp_path: Path) -> None:
    lost: list[StateError] = []
    with open_backend(f"sqlite:///{tmp_path}/state.db") as backend:
        job = QueryJob(backend, "slow", session="s", logs=tmp_path / "logs")
        job.record(JobRecord("q-1", None, None, {}))
        time.sleep(TTL_MS / 1000 + 1)  # a sink that waits for its server
        with pytest.raises(StateError):
            QueryJob(backend, "slow", session="other", logs=tmp_path / "logs")
        job.run(on_lost=lost.append, on_request=lambda request: None, progress=lambda: None)
        job.begin(0)
        job.commit(0, 1)
        job.end(None, None)
        assert lost == []
        QueryJob(backend, "slow", session="other", logs=tmp_path / "logs").release()


def test_epochs_are_written_down_a_moment_later(tmp_path: Path) -> None:
    with open_backend(f"sqlite:///{tmp_path}/state.db") as backend:
        job = QueryJob(backend, "quick", session="s", logs=tmp_path / "logs")
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
        job.end(None, None)
        last = backend.epochs.last("quick")
        assert last is not None
        assert (last.number, last.meta) == (250, {"rows": None})


def test_a_job_whose_lease_is_over_begins_no_epoch(tmp_path: Path) -> None:
    with open_backend(f"sqlite:///{tmp_path}/state.db") as backend:
        job = QueryJob(backend, "late", session="s", logs=tmp_path / "logs")
        job.begin(0)
        job._heartbeat.stop()  # nobody renews any more
        time.sleep(TTL_MS / 1000)
        with pytest.raises(StateError) as caught:
            job.begin(1)
        assert caught.value.code == "STATE_LEASE_LOST"
        job.release()
