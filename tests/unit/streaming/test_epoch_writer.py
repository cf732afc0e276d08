"""The commit protocol: the order of its steps, and the two threads in which they run."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import config
from penstock.backend import open_backend
from penstock.errors import StateError
from penstock.sinks.base import Epoch, Guarantee, Sink, Target
from penstock.streaming.consumer_groups import ConsumerGroups
from penstock.streaming.epoch_writer import EpochWriter, WrittenEpoch, WrittenEpochs
from penstock.streaming.job import JobRecord, QueryJob
from penstock.streaming.listener import Dispatcher, QueryProgressEvent, StreamingQueryListener
from penstock.streaming.metrics import Metrics
from penstock.streaming.query_events import QueryEvents
from penstock.streaming.side_output import TapOutputs

ROWS: Any = None  # the sink of these tests does not look at rows


class RecordingSink(Sink):
    def __init__(self, steps: list[str]) -> None:
        super().__init__({})
        self.steps = steps
        self.refuses = False
        self.target: Target | None = None

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.AT_LEAST_ONCE

    def open(self, target: Target) -> None:
        self.steps.append("open")
        self.target = target

    def write(self, epoch: Epoch) -> int | None:
        if self.refuses:
            raise OSError("the disk is full")
        self.steps.append(f"write {epoch.number}")
        return 10 + epoch.number

    def finalize(self, epoch: int) -> None:
        self.steps.append(f"finalize {epoch}")

    def close(self) -> None:
        self.steps.append("close")


class RecordingJob(QueryJob):
    steps: list[str]

    def fence(self) -> None:
        super().fence()
        self.steps.append("fence")

    def begin(self, epoch: int) -> None:
        super().begin(epoch)
        self.steps.append(f"begin {epoch}")

    def commit(self, epoch: int, rows: int | None) -> None:
        super().commit(epoch, rows)
        self.steps.append(f"commit {epoch}: {rows}")


class RecordingListener(StreamingQueryListener):
    def __init__(self) -> None:
        self.rows: list[tuple[int, int | None]] = []

    def on_query_progress(self, event: QueryProgressEvent) -> None:
        self.rows.append((event.progress.batch_id, event.progress.output_rows))


def _report(number: int) -> dict[str, Any]:
    return {
        "batchId": number,
        "numInputRows": 1,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "durationMs": {"triggerExecution": 5},
    }


class Query:
    """An epoch writer with everything around it, and the steps that were taken."""

    def __init__(self, folder: Path) -> None:
        self.steps: list[str] = []
        self.backend = open_backend(f"sqlite:///{folder}/state.db")
        self.job = RecordingJob(
            self.backend,
            "q",
            session="s",
            logs=folder / "logs",
            on_lost=lambda error: None,
            on_request=lambda request: None,
        )
        self.job.steps = self.steps
        self.job.record(JobRecord("q-1", None, None, {}))
        self.sink = RecordingSink(self.steps)
        self.dispatcher, self.listener = Dispatcher(), RecordingListener()
        self.dispatcher.add(self.listener)
        self.groups = groups = ConsumerGroups([], note=self.job.note)
        events = QueryEvents("q-1", "q", job=self.job, metrics=Metrics(), dispatcher=self.dispatcher)
        target = Target(ROWS, "q-1", "q", "append", ROWS, settings=config.Settings(home=folder))
        events.started(target.status, groups)
        self.writer = EpochWriter(
            self.sink,
            target,
            trigger="processing_time(0)",
            job=self.job,
            side_outputs=TapOutputs((), spark=ROWS, kafka_sources=()),
            groups=groups,
            events=events,
        )


@pytest.fixture
def query(tmp_path: Path) -> Iterator[Query]:
    query = Query(tmp_path)
    yield query
    query.dispatcher.close()
    query.job.release()
    query.backend.close()


def test_the_steps_of_epochs_and_their_order(query: Query) -> None:
    query.writer.open()
    query.writer.write(ROWS, 0)
    query.writer.report(_report(0))
    query.writer.write(ROWS, 1)
    query.writer.report(_report(1))
    query.writer.close()
    assert query.steps == [
        "open",
        "fence",
        "begin 0",
        "write 0",
        "commit 0: 10",
        "fence",
        "finalize 0",
        "begin 1",
        "write 1",
        "commit 1: 11",
        "finalize 1",
        "close",
    ]
    query.dispatcher.close()
    assert query.listener.rows == [(0, 10), (1, 11)]


def test_an_epoch_that_spark_has_not_committed_is_not_finalized(query: Query) -> None:
    query.writer.open()
    query.writer.write(ROWS, 0)
    query.writer.close()
    assert query.steps[-2:] == ["commit 0: 10", "close"]


def test_an_epoch_that_fails_is_not_logged_as_committed(query: Query) -> None:
    query.writer.open()
    query.sink.refuses = True
    with pytest.raises(OSError, match="the disk is full"):
        query.writer.write(ROWS, 0)
    assert query.steps == ["open", "fence", "begin 0"]


def test_a_query_that_lost_its_lease_writes_nothing_more(query: Query) -> None:
    query.writer.open()
    query.writer.write(ROWS, 0)
    query.backend.leases.release(query.job._lease)
    query.job._heartbeat._lose("the test took it")
    before = list(query.steps)
    with pytest.raises(StateError):
        query.writer.write(ROWS, 1)
    assert query.steps == before


def test_a_second_run_closes_the_sink_and_finalizes_before_it_opens_it_again(query: Query) -> None:
    query.writer.open()
    query.writer.write(ROWS, 0)
    query.writer.report(_report(0))
    query.writer.open()
    query.writer.close()
    assert query.steps[-5:] == ["commit 0: 10", "finalize 0", "close", "open", "close"]


def test_epochs_are_committed_in_another_thread_while_others_are_added() -> None:
    written, waiting, more = WrittenEpochs(), 500, 20_000
    failures: list[BaseException] = []
    for number in range(waiting):
        written.add(number, WrittenEpoch(number))

    def commit() -> None:
        try:
            for number in range(waiting):
                assert written.commit(number) == WrittenEpoch(number)
        except BaseException as error:
            failures.append(error)

    committer, interval = threading.Thread(target=commit), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        committer.start()
        for number in range(waiting, waiting + more):
            written.add(number, WrittenEpoch(number))
        committer.join()
    finally:
        sys.setswitchinterval(interval)
    assert failures == []
    assert written.committed == waiting - 1


def test_a_second_run_begins_where_the_checkpoint_is_by_then(query: Query) -> None:
    query.writer.open(committed=-1, begun=-1)
    query.writer.write(ROWS, 0)
    query.writer.report(_report(0))
    query.writer.open(committed=0, begun=1)
    assert query.sink.target is not None
    assert (query.sink.target.committed, query.sink.target.begun) == (0, 1)


def test_what_cannot_be_closed_does_not_keep_the_rest_open(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise OSError("the broker is away")

    query.writer.open()
    monkeypatch.setattr(query.groups, "close", fails)
    with pytest.raises(OSError, match="the broker is away"):
        query.writer.close()
    assert query.steps[-1] == "close"
