"""The life of a query without Spark: its runs, what others ask of it meanwhile, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StructType

from penstock import config
from penstock.backend import JobState
from penstock.errors import ConnectorError, DataError, StateError
from penstock.sinks.base import Target
from penstock.sinks.blackhole import BlackholeSink
from penstock.sinks.retry import RetryPolicy
from penstock.spark.micro_batch.checkpoint import CheckpointState
from penstock.streaming import runtime
from penstock.streaming.queries import Queries
from penstock.streaming.query import QueryState
from penstock.streaming.query_plan import QueryPlan
from penstock.streaming.query_sources import QuerySources
from penstock.streaming.runtime import QueryRuntime
from penstock.streaming.schedule import RunSchedule
from penstock.streaming.trigger import OutputMode, Trigger
from waiting import wait_for

WAIT = 20
FRAME: Any = SimpleNamespace(isStreaming=False, sparkSession=None)  # these runs do not read it


def away() -> ConnectorError:
    return ConnectorError("the broker does not answer", code="KAFKA_UNREACHABLE", retryable=True)


class ScriptedRun:
    """A run that ends when it is told to, or when its query asks it; `steps` is what was asked of it."""

    def __init__(self, started: Callable[[], None]) -> None:
        self.steps: list[str] = []
        self.may_drain = threading.Event()
        self.may_drain.set()
        self._started = started
        self._ended = threading.Event()
        self._error: BaseException | None = None

    def start(self) -> None:
        self.steps.append("start")
        self._started()

    def wait(self) -> BaseException | None:
        assert self._ended.wait(WAIT)
        return self._error

    def end(self, error: BaseException | None = None) -> None:
        self._error = error
        self._ended.set()

    def hold(self) -> None:
        self.steps.append("hold")

    def drain(self, seconds: float | None) -> bool:
        self.steps.append("drain")
        assert self.may_drain.wait(WAIT)
        self.end()
        return True

    def abort(self) -> None:
        self.steps.append("abort")
        self.end()

    def spark_status(self) -> str:
        return "reading"


class ScriptedSchedule(RunSchedule):
    """Runs that a test ends; `on_start` is called while a run starts, with its number."""

    def __init__(self) -> None:
        self.runs: list[ScriptedRun] = []
        self.on_start: Callable[[int], None] = lambda number: None

    def first(self) -> ScriptedRun:
        number = len(self.runs)
        self.runs.append(ScriptedRun(lambda: self.on_start(number)))
        return self.runs[-1]


class ScriptedRuntime(QueryRuntime):
    """A runtime whose runs are not Spark's."""

    schedule: ScriptedSchedule

    def _prepare_checkpoint(self) -> tuple[str | None, CheckpointState]:
        return None, CheckpointState(self.plan.id, -1, checksums=False)

    def _new_schedule(self, location: str | None, state: CheckpointState) -> RunSchedule:
        self.schedule = ScriptedSchedule()
        return self.schedule

    @property
    def runs(self) -> list[ScriptedRun]:
        return self.schedule.runs

    def ended(self) -> QueryState:
        assert self.wait(WAIT)
        return self.state

    def has_runs(self, count: int) -> None:
        wait_for(lambda: len(self.runs) == count and self.runs[-1].steps, f"run {count}")


@pytest.fixture
def queries(tmp_path: Path) -> Iterator[Queries]:
    settings = config.Settings(home=tmp_path, state=f"sqlite:///{tmp_path}/state.db")
    queries = Queries(settings, session="s")
    yield queries
    queries.close()


@pytest.fixture
def query(queries: Queries) -> ScriptedRuntime:
    sink = BlackholeSink({}, queries.settings)
    plan = QueryPlan(
        name="q",
        named=True,
        call_site="shop.py:7",
        frame=FRAME,
        mode=OutputMode.APPEND,
        trigger=Trigger.processing_time(0),
        sink=sink,
        target=Target(FRAME.sparkSession, "q-1", "q", "append", StructType(), settings=queries.settings),
        sources=QuerySources(FRAME, queries.taps, queries.settings),
        logical_plan="",
    )
    return ScriptedRuntime(plan, queries)


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "SOURCE_RETRY", RetryPolicy(seconds=300, first=0.001, longest=0.002))


def recorded_state(queries: Queries) -> JobState | None:
    job = queries.backend().jobs.find("q")
    return None if job is None else job.state


def test_a_query_goes_on_when_its_source_is_back(
    query: ScriptedRuntime, queries: Queries, quickly: None
) -> None:
    query.start()
    for count in (2, 3):
        query.runs[-1].end(away())
        query.has_runs(count)
    wait_for(lambda: query.state is QueryState.RUNNING and recorded_state(queries) is JobState.RUNNING)
    assert query.status.retries == 2
    assert query.status.message is None
    query.runs[-1].end(DataError("a row is wrong", code="DATA_WRONG"))
    assert query.ended() is QueryState.FAILED
    assert query.error is not None
    assert (query.error.code, query.error.where) == ("DATA_WRONG", "shop.py:7")
    assert len(query.runs) == 3
    assert recorded_state(queries) is JobState.FAILED
    assert queries.active() == []


def test_a_source_that_stays_away_ends_the_query(
    query: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "SOURCE_RETRY", RetryPolicy(seconds=-1))
    query.start()
    query.runs[0].end(away())
    assert query.ended() is QueryState.FAILED
    assert query.error is not None
    assert query.error.code == "KAFKA_UNREACHABLE"
    assert len(query.runs) == 1


def test_a_query_that_ends_by_itself_does_not_wait_for_its_source(
    query: ScriptedRuntime, quickly: None
) -> None:
    query.plan = replace(query.plan, trigger=Trigger.available_now())
    query.start()
    query.runs[0].end(away())
    assert query.ended() is QueryState.FAILED
    assert len(query.runs) == 1


def test_a_stop_does_not_wait_for_a_source_that_is_away(
    query: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "SOURCE_RETRY", RetryPolicy(seconds=10_000, first=5_000, longest=5_000))
    query.start()
    query.runs[0].end(away())
    wait_for(lambda: query.status.message is not None)
    assert "the broker does not answer (attempt 1, next in" in query.state_and_message()[1]
    query.stop()
    assert query.ended() is QueryState.STOPPED
    assert query.error is None
    assert len(query.runs) == 1


def test_a_restart_begins_again_behind_the_batch_that_runs(query: ScriptedRuntime, queries: Queries) -> None:
    query.start()
    query.restart()
    query.has_runs(2)
    assert query.runs[0].steps == ["start", "drain"]
    wait_for(lambda: recorded_state(queries) is JobState.RUNNING)
    query.runs[1].end()
    assert query.ended() is QueryState.STOPPED
    assert len(query.runs) == 2, "what comes to its end by itself is over"


def test_a_query_that_is_stopping_does_not_start_again(query: ScriptedRuntime, queries: Queries) -> None:
    query.start()
    assert query.begin_stop() is not None
    query.restart()
    assert query.runs[0].steps == ["start", "hold"]
    assert recorded_state(queries) is JobState.STOPPING
    query.stop()
    assert query.ended() is QueryState.STOPPED
    assert query.was_stopped
    assert len(query.runs) == 1
    query.restart()
    assert query.begin_stop() is None
    assert recorded_state(queries) is JobState.STOPPED


def test_a_stop_comes_before_a_restart_that_waits_for_its_batch(query: ScriptedRuntime) -> None:
    query.start()
    query.runs[0].may_drain.clear()
    restarting = threading.Thread(target=query.restart)
    restarting.start()
    wait_for(lambda: "drain" in query.runs[0].steps)
    query.begin_stop()
    query.runs[0].may_drain.set()
    restarting.join(WAIT)
    assert query.ended() is QueryState.STOPPED
    assert len(query.runs) == 1


def test_a_stop_while_the_next_run_starts_ends_that_run(query: ScriptedRuntime) -> None:
    query.start()

    def stop(number: int) -> None:
        query.begin_stop()

    query.schedule.on_start = stop
    query.restart()
    assert query.ended() is QueryState.STOPPED
    assert query.runs[0].steps == ["start", "drain", "hold"]
    assert query.runs[1].steps == ["start", "abort"]


def test_a_lost_lease_cuts_the_batch_short(query: ScriptedRuntime, queries: Queries) -> None:
    query.start()
    assert query._job is not None
    query._job._heartbeat._lose("the test took it")
    assert query.ended() is QueryState.FAILED
    assert query.runs[0].steps == ["start", "abort"]
    assert isinstance(query.error, StateError)
    assert "the test took it" in str(query.error)


def test_a_lease_that_is_lost_while_a_source_is_away_ends_the_query(
    query: ScriptedRuntime, quickly: None
) -> None:
    query.start()
    assert query._job is not None
    lose = query._job._heartbeat._lose

    def start(number: int) -> None:
        if number == 1:
            lose("the test took it")

    query.schedule.on_start = start
    query.runs[0].end(away())
    assert query.ended() is QueryState.FAILED
    assert query.runs[1].steps == ["start", "abort"]
    assert "the test took it" in str(query.error)


def test_what_is_refused_at_the_start_leaves_no_lease(queries: Queries, query: ScriptedRuntime) -> None:
    def refuse(number: int) -> None:
        raise DataError("no such topic", code="KAFKA_TOPIC_MISSING")

    query.schedule.on_start = refuse
    with pytest.raises(DataError, match="no such topic"):
        query.start()
    assert query.ended() is QueryState.FAILED
    assert query.runs[0].steps == ["start"]
    queries.job("q", on_lost=lambda error: None, on_request=lambda request: None).release()
