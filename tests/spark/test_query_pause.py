"""A query that is paused between two batches, and goes on where it was."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import penstock as ps
from penstock.backend import JobState
from penstock.cli.main import main
from waiting import wait_for


def test_a_paused_query_keeps_its_place_and_its_lease(session: ps.Session, tmp_path: Path) -> None:
    folder, name = tmp_path / "rows", f"paused {tmp_path.name}"
    folder.mkdir()
    (folder / "1.json").write_text('{"id": 1}\n')
    rows: list[int] = []
    stream = session.read_stream.format("json").option("schema", "id BIGINT").load(str(folder))
    query = (
        stream.write_stream.foreach_batch(lambda frame, epoch: rows.extend(row.id for row in frame.collect()))
        .option("checkpoint.location", str(tmp_path / "checkpoint"))
        .start(name)
    )
    backend = session.queries.backend()
    try:
        wait_for(lambda: rows == [1], "the first row")
        assert main(["jobs", "pause", name, "--state", backend.url]) == 0
        job = backend.jobs.get(name)
        assert (job.state, job.request) == (JobState.PAUSED, None)
        assert job.lease is not None
        assert job.lease.active
        epochs = backend.epochs.list(name)
        (folder / "2.json").write_text('{"id": 2}\n')
        # A query that runs looks at the folder and would have begun an epoch.
        assert not threading.Event().wait(0.5)
        assert backend.epochs.list(name) == epochs
        assert rows == [1]
        assert query.status.message == "paused"
        assert main(["jobs", "resume", name, "--state", backend.url]) == 0
        wait_for(lambda: rows == [1, 2], "the row of the pause")
        # One that is not paused answers at once.
        assert main(["jobs", "resume", name, "--timeout", "30", "--state", backend.url]) == 0
        assert backend.jobs.get(name).request is None
        assert main(["jobs", "pause", name, "--state", backend.url]) == 0
        (folder / "3.json").write_text('{"id": 3}\n')
    finally:
        query.stop()  # a paused query ends at once
    assert rows == [1, 2]
    assert backend.jobs.get(name).state is JobState.STOPPED


def test_what_is_recorded_of_a_pause_is_true(
    session: ps.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"paused {tmp_path.name}"
    stream = session.read_stream.format("rate").load()
    query = (
        stream.write_stream.format("blackhole").option("checkpoint.location", str(tmp_path / "c")).start(name)
    )
    backend = session.queries.backend()
    runtime = query._runtime
    resuming = threading.Thread(target=runtime.resume)

    def note(text: str) -> None:
        if text == "paused":  # somebody else lets it go on at this very moment
            resuming.start()
            resuming.join(0.2)

    monkeypatch.setattr(runtime, "note", note)
    try:
        runtime.pause()
        resuming.join()
        assert (backend.jobs.get(name).state, query.status.message == "paused") == (JobState.RUNNING, False)
    finally:
        query.stop()
