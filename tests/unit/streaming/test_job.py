"""The lease of a named query, from the first moment on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from penstock.backend import open_backend
from penstock.backend.lease import TTL_MS
from penstock.errors import StateError
from penstock.streaming.job import JobRecord, QueryJob


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
