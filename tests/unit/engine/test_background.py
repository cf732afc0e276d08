"""Background stepping: what `feed` has accepted is not forgotten, one bad batch does not stop the others, and an end is reported."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import pytest

import penstock as ps
from penstock.engine import registration, tick
from penstock.engine.graph import FedBatch, Graph
from penstock.engine.registration import Prepared, install
from penstock.plan import node as plan
from penstock.plan.expression import Call, Column, Literal
from penstock.plan.node import Field

FIELDS = (Field("id", "bigint"), Field("v", "bigint"))
INVERSE = plan.Project(
    (Field("id", "bigint"), Field("d", "double")),
    plan.Scan(FIELDS, "rows", (0, 1)),
    (
        Column(0, "bigint"),
        Call(
            "Divide",
            (Literal(1.0, "double"), Call("Cast", (Column(1, "bigint"),), "double", True)),
            "double",
            True,
            options=(("evalMode", "ANSI"),),
        ),
    ),
)
LONG = 3_600_000


def no_fragment(node: plan.Spark) -> Any:
    raise AssertionError(node)


@pytest.fixture
def flow() -> ps.IncrementalFlow:
    made = ps.IncrementalFlow()
    made.register_source("rows", "id BIGINT, v BIGINT")
    made.register_source("other", "id BIGINT")
    install(made._graph, Prepared(plan.View("inverse", "", INVERSE), no_fragment), 0)
    return made


def row(number: int, value: int = 1) -> dict[str, int]:
    return {"id": number, "v": value}


def ids(flow: ps.IncrementalFlow, name: str = "inverse") -> list[int]:
    return sorted(flow.snapshot(name)["id"].to_pylist())


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("bad", [[0], [7], [3, 4], [0, 2, 7], list(range(8))], ids=str)
def test_a_bad_batch_is_quarantined_and_all_others_go_in(
    flow: ps.IncrementalFlow, bad: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    flow.run(every=LONG)
    for number in range(8):
        assert flow.feed("rows", [row(number, 0 if number in bad else 1)], ordinal=number + 1)
        assert flow.feed("other", [{"id": number}])
    with caplog.at_level(logging.WARNING, "penstock.flow"):
        flow.stop()
    assert ids(flow) == [number for number in range(8) if number not in bad]
    assert ids(flow, "other") == list(range(8))
    quarantined = flow.quarantined("rows").to_pylist()
    assert [row["id"] for row in quarantined] == bad
    assert all(row["_reason"].startswith("rejected: DATA_DIVIDE_BY_ZERO: ") for row in quarantined)
    assert flow.metrics()["penstock_rejected_batches_total"] == len(bad)
    assert len(caplog.records) == len(bad)
    assert flow.waiting_rows() == 0
    # A replay of quarantined rows is not quarantined twice.
    assert not flow.feed("rows", [row(7)], ordinal=8)


def test_stepping_goes_on_after_a_bad_batch(flow: ps.IncrementalFlow) -> None:
    flow.run(every=10)
    flow.feed("rows", [row(1, 0)])
    until(lambda: flow.quarantined("rows").num_rows == 1)
    flow.feed("rows", [row(2)])
    until(lambda: ids(flow) == [2])
    flow.stop()


def test_what_belongs_together_stays_together(flow: ps.IncrementalFlow) -> None:
    """A retraction that comes before its row is right in one tick; a bad batch elsewhere does not part them."""
    flow.run(every=LONG)
    flow.feed("rows", ps.DeltaBatch.deletes([row(1)]))
    flow.feed("rows", [row(1), row(2)])
    flow.feed("rows", [row(3, 0)])
    flow.feed("rows", [row(4)])
    flow.stop()
    assert ids(flow) == [2, 4]
    assert flow.quarantined("rows")["id"].to_pylist() == [3]


def test_a_tick_of_the_foreground_raises_and_forgets_only_its_own_rows(flow: ps.IncrementalFlow) -> None:
    flow.run(every=LONG)
    flow.feed("rows", [row(1)])
    with pytest.raises(ps.DataError):
        flow.tick("rows", [row(2, 0)])
    assert ids(flow) == [1]
    assert flow.quarantined("rows").num_rows == 0
    flow.feed("rows", [row(3, 0)])
    flow.feed("rows", [row(4)])
    assert flow.step().tick >= 3
    assert ids(flow) == [1, 4]
    assert flow.quarantined("rows")["id"].to_pylist() == [3]
    flow.stop()


def test_without_run_a_failed_step_forgets_what_was_fed(flow: ps.IncrementalFlow) -> None:
    """Then one program feeds and steps, and gets the error: what it fed is one transaction."""
    flow.feed("rows", [row(1)], ordinal=1)
    flow.feed("rows", [row(2, 0)], ordinal=2)
    with pytest.raises(ps.DataError):
        flow.step()
    assert flow.waiting_rows() == 0
    assert ids(flow) == []
    assert flow.feed("rows", [row(1)], ordinal=1)
    flow.step()
    assert ids(flow) == [1]


def _broken(monkeypatch: pytest.MonkeyPatch, when: Callable[[list[FedBatch]], bool]) -> None:

    def run_tick(graph: Graph, fed: list[FedBatch], micros: int, journal: tick.Journal) -> Any:
        if when(fed):
            raise ps.ConnectorError("Spark is away", code="CONNECTOR_TEST")
        return tick.run_tick(graph, fed, micros, journal)

    monkeypatch.setattr("penstock.engine.runner.run_tick", run_tick)


def test_another_error_ends_the_stepping_and_all_raise_it(
    flow: ps.IncrementalFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        _broken(patch, lambda fed: bool(fed))
        flow.run(every=10)
        flow.feed("rows", [row(1)], ordinal=1)
        until(lambda: flow._runner._stepper is not None and flow._runner._stepper.error is not None)
        for act in (
            lambda: flow.feed("rows", [row(2)]),
            lambda: flow.tick("rows", [row(2)]),
            lambda: flow.feed_snapshot("rows", [row(2)]),
            flow.step,
            flow.run,
        ):
            with pytest.raises(ps.StateError, match="Spark is away") as caught:
                act()
            assert caught.value.code == "FLOW_STOPPED"
        with pytest.raises(ps.ConnectorError):
            flow.stop()
    assert flow.waiting_rows() == 1, "what was accepted is still there"
    assert not flow.feed("rows", [row(1)], ordinal=1)
    flow.run(every=LONG)
    flow.stop()
    assert ids(flow) == [1]


def test_rows_behind_an_error_in_the_middle_go_on_waiting(
    flow: ps.IncrementalFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        # Together they are refused for their data; the second half then meets a server that is away.
        _broken(patch, lambda fed: any(3 in batch.delta.columns[0].to_pylist() for batch in fed[:1]))
        flow.run(every=LONG)
        for number, value in ((1, 1), (2, 0), (3, 1), (4, 1)):
            flow.feed("rows", [row(number, value)])
        with pytest.raises(ps.ConnectorError):
            flow.stop()
    assert ids(flow) == [1]
    assert flow.quarantined("rows")["id"].to_pylist() == [2]
    assert flow.waiting_rows() == 2
    flow.step()
    assert ids(flow) == [1, 3, 4]


def test_a_tick_that_fails_without_rows_rejects_nothing(
    flow: ps.IncrementalFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_tick(graph: Graph, fed: list[FedBatch], micros: int, journal: tick.Journal) -> Any:
        raise ps.DataError("the time itself divides by zero", code="DATA_TEST")

    with monkeypatch.context() as patch:
        patch.setattr("penstock.engine.runner.run_tick", run_tick)
        flow.run(every=LONG)
        flow.feed("rows", [row(1)])
        with pytest.raises(ps.DataError):
            flow.stop()
    assert flow.quarantined("rows").num_rows == 0
    assert flow.waiting_rows() == 1
    flow.step()
    assert ids(flow) == [1]


def test_an_interrupt_behind_a_tick_does_not_leave_its_rows_waiting(
    flow: ps.IncrementalFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow.run(every=LONG)
    flow.feed("rows", [row(1)])
    commit, interrupts = flow._graph.kernel.commit, [KeyboardInterrupt()]

    def interrupted() -> None:
        commit()
        if interrupts:
            raise interrupts.pop()

    with monkeypatch.context() as patch:
        patch.setattr(flow._graph.kernel, "commit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            flow.step()
    flow.stop()
    assert ids(flow) == [1]


def test_rows_that_come_while_it_steps_are_in_when_it_stops(flow: ps.IncrementalFlow) -> None:
    for _ in range(20):
        flow.run(every=1)
        for number in range(5):
            flow.feed("rows", [row(number)])
        flow.stop()
        assert flow.waiting_rows() == 0


def test_closing_closes_everything_and_tells_the_error(
    flow: ps.IncrementalFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = flow.watch_output("inverse")
    _broken(monkeypatch, lambda fed: True)
    flow.run(every=1)
    with pytest.raises(ps.ConnectorError):
        flow.close()
    assert watch.closed
    flow.close()


def test_ticks_do_not_wait_for_spark_to_plan_a_view(
    flow: ps.IncrementalFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one thread plans, others tick and read; a second registration waits for the first."""
    planning, planned = Event(), Event()

    def plan_query(session: Any, name: str, query: str, names: Any, statics: Any) -> Prepared:
        planning.set()
        assert planned.wait(20)
        return Prepared(plan.View(name, query, plan.Scan(FIELDS, "rows", (0, 1))), no_fragment)

    monkeypatch.setattr(registration, "plan_query", plan_query)
    monkeypatch.setattr(ps.IncrementalFlow, "session", property(lambda self: None))
    thread = Thread(target=flow.register_view, args=("late", "SELECT * FROM rows"))
    thread.start()
    assert planning.wait(20)
    flow.tick("rows", [row(1)])
    assert ids(flow) == [1]
    other = Thread(target=flow.register_source, args=("LATE", "id BIGINT"))
    errors: list[BaseException] = []
    monkeypatch.setattr(threading, "excepthook", lambda given: errors.append(given.exc_value))
    other.start()
    other.join(0.05)
    assert other.is_alive(), "the name is not known to be free until the view is there"
    planned.set()
    thread.join(20)
    other.join(20)
    assert ids(flow, "late") == [1]
    assert [getattr(error, "code", None) for error in errors] == ["FLOW_NAME_TAKEN"]
