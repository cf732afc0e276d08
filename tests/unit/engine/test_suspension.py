"""A view that fails is suspended, and the tick goes on without it and without the views that read it."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest

import penstock as ps
from penstock.circuit.circuit import Circuit
from penstock.circuit.local import LocalKernel
from penstock.circuit.recursive import ViewCompiler
from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.engine import resume
from penstock.engine import tick as ticks
from penstock.engine.flow_state import FlowState
from penstock.engine.graph import OnError
from penstock.engine.read import snapshot as read_snapshot
from penstock.engine.registration import Prepared, install
from penstock.operators.base import Operator
from penstock.operators.linear import Project
from penstock.plan import node as plan
from penstock.plan.expression import Call, Column, Expression, Literal
from penstock.plan.node import Field
from twin.rigs import through_bytes

FIELDS = (Field("k", "bigint"), Field("v", "bigint"))
ANSI = (("evalMode", "ANSI"),)
ROWS = plan.Scan(FIELDS, "rows", (0, 1))
V: Expression = Column(1, "bigint")
SUM = plan.AggregateCall("Sum", (1,), "bigint", options=ANSI)
COUNT = plan.AggregateCall("Count", (), "bigint")
POSITIVE = plan.Filter(FIELDS, ROWS, Call("GreaterThanOrEqual", (V, Literal(0, "bigint")), "boolean", True))


def inverse(below: plan.Node) -> plan.Project:
    """100 / v of every row, which fails where v is 0."""
    value = Call(
        "Divide", (Literal(100.0, "double"), Call("Cast", (V,), "double", True)), "double", True, ANSI
    )
    return plan.Project((Field("k", "bigint"), Field("d", "double")), below, (Column(0, "bigint"), value))


def totals(below: plan.Node) -> plan.Node:
    """The sum of v by k, which fails when it does not fit."""
    return plan.Aggregate(FIELDS, below, (0,), (SUM,))


def read(view: str, second: Field = FIELDS[1]) -> plan.Scan:
    return plan.Scan((FIELDS[0], second), view, (0, 1))


def count(below: plan.Node) -> plan.Node:
    return plan.Aggregate((Field("n", "bigint"),), below, (), (COUNT,))


INVERSE = inverse(ROWS)
QUOTIENT = Field("d", "double")
POSITIVE_INVERSE = plan.Filter(
    INVERSE.fields,
    INVERSE,
    Call("GreaterThan", (Column(1, "double"), Literal(0.0, "double")), "boolean", True),
)


def no_fragment(node: plan.Spark) -> Any:
    raise AssertionError(node)


def add(flow: ps.IncrementalFlow, name: str, root: plan.Node, on_error: OnError = "suspend") -> None:
    view = plan.View(name, "", root)
    install(flow._graph, Prepared(view, no_fragment, on_error=on_error), flow._graph.state.micros)


@pytest.fixture
def flow() -> ps.IncrementalFlow:
    empty = ps.IncrementalFlow(clock=lambda: 7)
    empty.register_source("rows", "k BIGINT, v BIGINT")
    return empty


def row(key: int, value: int) -> dict[str, int]:
    return {"k": key, "v": value}


def rows(flow: ps.IncrementalFlow, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(one.values()) for one in flow.snapshot(name).to_pylist())


def kernel(flow: ps.IncrementalFlow) -> LocalKernel:
    local = flow._graph.kernel
    assert isinstance(local, LocalKernel)
    return local


def vertex_count(flow: ps.IncrementalFlow) -> int:
    return len(kernel(flow)._circuit.vertices)


def suspended(flow: ps.IncrementalFlow) -> dict[str, tuple[int, str | None]]:
    return {name: (one.tick, one.because) for name, one in flow._graph.state.suspended.items()}


def test_the_tick_goes_on_without_the_view_that_fails(
    flow: ps.IncrementalFlow, caplog: pytest.LogCaptureFixture
) -> None:
    add(flow, "inverse", INVERSE)
    add(flow, "totals", totals(ROWS), "reject")
    flow.tick("rows", [row(1, 4)])
    with caplog.at_level(logging.WARNING, "penstock.flow"):
        summary = flow.tick("rows", [row(1, 0), row(2, 5)], ordinal=9)
    assert (summary.tick, summary.rows_in, summary.rows_out) == (2, 2, 1)
    assert rows(flow, "inverse") == [(1, 25.0)]
    assert rows(flow, "totals") == [(1, 4), (2, 5)]
    assert flow.source_info("rows").ordinal == 9
    left_out = summary.views["inverse"]
    assert left_out.skipped
    assert left_out.suspended is not None
    assert (left_out.suspended.tick, left_out.suspended.code) == (2, "DATA_DIVIDE_BY_ZERO")
    assert left_out.suspended.because is None
    assert left_out.suspended.where == "view 'inverse', project"
    assert summary.views["totals"].suspended is None
    assert "inverse  suspended since tick 2: DATA_DIVIDE_BY_ZERO: " in str(summary)
    assert "skipped" not in str(summary)
    assert [record.getMessage() for record in caplog.records] == [f"view 'inverse' is {left_out.suspended}"]
    later = flow.tick("rows", [row(3, 5)])
    assert later.views["inverse"] == left_out, "every later tick says so, too"
    assert rows(flow, "inverse") == [(1, 25.0)]


def test_a_view_that_rejects_is_the_default(flow: ps.IncrementalFlow) -> None:
    install(flow._graph, Prepared(plan.View("inverse", "", INVERSE), no_fragment), 0)
    with pytest.raises(ps.DataError):
        flow.tick("rows", [row(1, 0)])
    assert rows(flow, "rows") == []
    with pytest.raises(ps.ConfigError, match="on_error='ignore' is not known") as caught:
        flow.register_view("other", "SELECT 1", on_error="ignore")  # type: ignore[arg-type]
    assert "reject, suspend" in str(caught.value.hint)


def test_explain_and_metrics_say_why_and_since_when(flow: ps.IncrementalFlow) -> None:
    add(flow, 'in"verse', INVERSE)
    assert flow.metrics()["penstock_flow_suspended_views"] == 0
    flow.tick("rows", [row(1, 0)])
    explanation = flow.explain('in"verse')
    assert explanation.suspended == flow._graph.state.suspended['in"verse']
    assert str(explanation).splitlines()[1].startswith("  suspended since tick 1: DATA_DIVIDE_BY_ZERO: ")
    metrics = flow.metrics()
    assert metrics["penstock_flow_suspended_views"] == 1
    assert metrics[r'penstock_view_suspended{view="in\"verse",code="DATA_DIVIDE_BY_ZERO",tick="1"}'] == 1
    flow.tick("rows", ps.DeltaBatch.deletes([row(1, 0)]))
    flow.resume_view('IN"VERSE')
    assert flow.explain('in"verse').suspended is None
    assert [name for name in flow.metrics() if "penstock_view_suspended" in name] == []


def test_resuming_is_a_tick_whose_change_is_the_difference(flow: ps.IncrementalFlow) -> None:
    add(flow, "inverse", INVERSE)
    flow.tick("rows", [row(1, 4), row(2, 5)])
    watch = flow.watch_output("inverse")
    flow.tick("rows", [row(3, 0), row(3, 10)])
    flow.tick("rows", ps.DeltaBatch.deletes([row(3, 0), row(1, 4)]))
    assert watch.recv(timeout=0) is None
    flow.feed("rows", [row(9, 1)])
    summary = flow.resume_view("inverse")
    assert (summary.tick, summary.rows_in, summary.rows_out) == (4, 0, 2)
    step = summary.views["inverse"]
    assert (step.inserted, step.retracted, step.skipped, step.suspended) == (1, 1, False, None)
    change = watch.recv(timeout=0)
    assert change is not None
    assert sorted((one["k"], one["d"], one["_weight"]) for one in change.to_pylist()) == [
        (1, 25.0, -1),
        (3, 10.0, 1),
    ]
    assert flow.waiting_rows() == 1, "what was fed waits for its own tick"
    flow.step()
    assert rows(flow, "inverse") == [(2, 20.0), (3, 10.0), (9, 100.0)]
    again = flow.watch_output("inverse", from_tick=4)
    assert [again.recv(timeout=0) is not None for _ in range(3)] == [True, True, False]


def test_a_resume_that_fails_again_leaves_the_view_with_the_new_error(flow: ps.IncrementalFlow) -> None:
    add(flow, "totals", totals(ROWS))
    add(flow, "behind", count(read("totals")), "reject")
    flow.tick("rows", [row(1, 1)])
    flow.tick("rows", [row(2, 2**62), row(2, 2**62)])
    first = flow._graph.state.suspended["totals"].message
    flow.tick("rows", [row(5, 2**62), row(5, 2**62)])
    flow.tick("rows", ps.DeltaBatch.deletes([row(2, 2**62)]))
    vertices_before, ticks_before = vertex_count(flow), flow._graph.state.ticks
    with pytest.raises(ps.DataError) as caught:
        flow.resume_view("totals")
    again = flow._graph.state.suspended
    assert again["totals"].message == caught.value.message != first
    assert again["behind"].message == caught.value.message
    assert suspended(flow) == {"totals": (2, None), "behind": (2, "totals")}
    assert (vertex_count(flow), flow._graph.state.ticks) == (vertices_before, ticks_before)
    assert rows(flow, "totals") == [(1, 1)]
    assert rows(flow, "behind") == [(1,)]
    flow.tick("rows", ps.DeltaBatch.deletes([row(5, 2**62)]))
    assert flow.resume_view("totals").views["behind"].suspended is None
    assert rows(flow, "totals") == [(1, 1), (2, 2**62), (5, 2**62)]
    assert rows(flow, "behind") == [(3,)]


def test_views_on_a_suspended_view_are_suspended_with_it(flow: ps.IncrementalFlow) -> None:
    add(flow, "inverse", INVERSE)
    add(flow, "count", count(read("inverse", QUOTIENT)), "reject")
    add(flow, "counted", count(plan.Scan((Field("n", "bigint"),), "count", (0,))), "reject")
    add(flow, "totals", totals(ROWS), "reject")
    flow.tick("rows", [row(1, 4)])
    flow.tick("rows", [row(1, 0)])
    assert suspended(flow) == {"inverse": (2, None), "count": (2, "inverse"), "counted": (2, "inverse")}
    assert "suspended since tick 2 with view 'inverse': DATA_DIVIDE" in str(flow.explain("counted"))
    assert rows(flow, "count") == [(1,)]
    for name in ("count", "counted"):
        with pytest.raises(ps.StateError) as caught:
            flow.resume_view(name)
        assert caught.value.code == "FLOW_SUSPENDED"
        assert caught.value.hint == "flow.resume_view('inverse') lets it go on"
    flow.tick("rows", ps.DeltaBatch.deletes([row(1, 0)]))
    flow.tick("rows", [row(3, 1)])
    summary = flow.resume_view("inverse")
    assert summary.views["count"].inserted == summary.views["count"].retracted == 1
    assert not suspended(flow)
    assert (rows(flow, "count"), rows(flow, "counted")) == ([(2,)], [(1,)])
    flow.tick("rows", [row(4, 1)])
    assert rows(flow, "count") == [(3,)]


def test_a_view_behind_two_suspended_ones_waits_for_both(flow: ps.IncrementalFlow) -> None:
    add(flow, "inverse", INVERSE)
    add(flow, "totals", totals(ROWS))
    joined = plan.Join(
        (FIELDS[0], QUOTIENT, Field("key", "bigint"), FIELDS[1]),
        read("inverse", QUOTIENT),
        read("totals"),
        "inner",
        (0,),
        (0,),
        (False,),
    )
    add(flow, "both", joined)
    add(flow, "behind", count(plan.Scan(joined.fields, "both", (0, 1, 2, 3))))
    flow.tick("rows", [row(1, 4)])
    flow.tick("rows", [row(1, 0), row(2, 2**62), row(2, 2**62)])
    assert suspended(flow) == {
        "inverse": (2, None),
        "totals": (2, None),
        "both": (2, "inverse"),
        "behind": (2, "inverse"),
    }
    flow.tick("rows", ps.DeltaBatch.deletes([row(1, 0), row(2, 2**62)]))
    flow.resume_view("inverse")
    assert suspended(flow) == {"totals": (2, None), "both": (2, "totals"), "behind": (2, "totals")}
    assert flow._graph.state.suspended["behind"].code == flow._graph.state.suspended["totals"].code
    assert rows(flow, "both") == [(1, 25.0, 1, 4)]
    flow.resume_view("totals")
    assert not suspended(flow)
    assert rows(flow, "behind") == [(2,)]


def test_a_dependant_that_fails_when_its_view_goes_on_stays_suspended(flow: ps.IncrementalFlow) -> None:
    add(flow, "totals", totals(ROWS))
    add(flow, "inverse", inverse(read("totals")), "reject")
    add(flow, "count", count(read("inverse", QUOTIENT)), "reject")
    flow.tick("rows", [row(1, 4)])
    flow.tick("rows", [row(2, 2**62), row(2, 2**62)])
    flow.tick("rows", ps.DeltaBatch.weighted([{**row(2, 2**62), "_weight": -2}, {**row(3, 0), "_weight": 1}]))
    summary = flow.resume_view("totals")
    assert summary.views["totals"].suspended is None
    assert suspended(flow) == {"inverse": (2, None), "count": (2, "inverse")}
    assert summary.views["inverse"].suspended == flow._graph.state.suspended["inverse"]
    assert flow._graph.state.suspended["inverse"].code == "DATA_DIVIDE_BY_ZERO"
    assert rows(flow, "totals") == [(1, 4), (3, 0)]
    assert rows(flow, "inverse") == [(1, 25.0)]
    flow.tick("rows", [row(3, 1)])
    flow.resume_view("inverse")
    assert rows(flow, "inverse") == [(1, 25.0), (3, 100.0)]
    assert rows(flow, "count") == [(2,)]


def test_a_shared_operator_takes_down_all_that_need_it(flow: ps.IncrementalFlow) -> None:
    add(flow, "inverse", inverse(POSITIVE))
    add(flow, "twice", plan.Union(INVERSE.fields, (inverse(POSITIVE), inverse(POSITIVE))))
    add(flow, "positive", POSITIVE, "reject")
    flow.tick("rows", [row(1, 4)])
    before = vertex_count(flow)
    flow.tick("rows", [row(1, 0)])
    assert suspended(flow) == {"inverse": (2, None), "twice": (2, None)}
    assert rows(flow, "positive") == [(1, 0), (1, 4)]
    assert vertex_count(flow) == before - 2, "the projection and the union; the filter serves another view"
    flow.tick("rows", ps.DeltaBatch.deletes([row(1, 0)]))
    for name in ("inverse", "twice"):
        flow.resume_view(name)
    assert rows(flow, "twice") == [(1, 25.0), (1, 25.0)]


def test_a_view_that_rejects_and_shares_the_operator_rejects_the_tick(flow: ps.IncrementalFlow) -> None:
    add(flow, "one", INVERSE)
    add(flow, "other", inverse(ROWS), "reject")
    add(flow, "apart", totals(ROWS))
    flow.tick("rows", [row(1, 4)])
    with pytest.raises(ps.DataError, match="views 'one' and 'other', project"):
        flow.tick("rows", [row(1, 0), row(2, 2**62), row(2, 2**62)])
    assert not suspended(flow)
    assert rows(flow, "rows") == [(1, 4)]
    flow.tick("rows", [row(2, 1)])
    assert rows(flow, "one") == rows(flow, "other") == [(1, 25.0), (2, 100.0)]
    assert rows(flow, "apart") == [(1, 4), (2, 1)]


def test_a_source_that_refuses_rejects_the_tick(flow: ps.IncrementalFlow) -> None:
    add(flow, "inverse", INVERSE)
    with pytest.raises(ps.DataError) as caught:
        flow.tick("rows", ps.DeltaBatch.weighted([{**row(1, 0), "_weight": 1}, {**row(9, 9), "_weight": -1}]))
    assert caught.value.code == "DATA_MISSING_ROW"
    assert not suspended(flow)


def test_a_suspended_view_has_no_state_but_its_rows(flow: ps.IncrementalFlow) -> None:
    add(flow, "totals", totals(POSITIVE))
    flow.tick("rows", [row(number % 7, number) for number in range(5_000)])
    full = kernel(flow).memory()
    flow.tick("rows", [row(1, 2**62), row(1, 2**62)])
    assert vertex_count(flow) == 2, "the source and the rows of the view"
    assert kernel(flow).memory() < full
    assert len(rows(flow, "totals")) == 7
    assert flow.lookup("totals", k=3)["v"].to_pylist() == [sum(range(3, 5_000, 7))]
    flow.tick("rows", ps.DeltaBatch.deletes([row(1, 2**62)]))
    flow.resume_view("totals")
    assert flow.lookup("totals", k=1)["v"].to_pylist() == [2**62 + sum(range(1, 5_000, 7))]
    flow.tick("rows", [row(3, 1)])
    assert flow.lookup("totals", k=3)["v"].to_pylist() == [sum(range(3, 5_000, 7)) + 1]


def test_an_index_for_look_ups_follows_the_view(flow: ps.IncrementalFlow) -> None:
    add(flow, "inverse", INVERSE)
    flow.tick("rows", [row(1, 4)])
    assert flow.lookup("inverse", k=1).num_rows == 1
    flow.tick("rows", [row(1, 0), row(1, 5)])
    assert flow.lookup("inverse", k=1)["d"].to_pylist() == [25.0]
    assert flow.lookup("inverse", d=25.0)["k"].to_pylist() == [1], "also one that is made now"
    flow.tick("rows", ps.DeltaBatch.deletes([row(1, 0)]))
    flow.resume_view("inverse")
    assert sorted(flow.lookup("inverse", k=1)["d"].to_pylist()) == [20.0, 25.0]
    flow.tick("rows", [row(1, 10)])
    assert sorted(flow.lookup("inverse", k=1)["d"].to_pylist()) == [10.0, 20.0, 25.0]
    flow.drop_view("inverse")
    assert vertex_count(flow) == 1


def test_a_snapshot_that_is_read_while_the_view_is_suspended_or_resumed_is_that_of_its_moment(
    flow: ps.IncrementalFlow,
) -> None:
    add(flow, "totals", totals(ROWS))
    flow.tick("rows", [row(1, 4)])
    first = read_snapshot(flow._graph, "totals")
    flow.tick("rows", [row(1, 2**62), row(1, 2**62)])
    second = read_snapshot(flow._graph, "totals")
    flow.tick("rows", ps.DeltaBatch.deletes([row(1, 2**62)]))
    flow.resume_view("totals")
    third = read_snapshot(flow._graph, "totals")
    flow.tick("rows", [row(1, 1)])
    assert [snapshot()["v"].to_pylist() for snapshot in (first, second, third)] == [[4], [4], [2**62 + 4]]


def test_a_source_goes_on_keeping_what_a_suspended_view_reads(flow: ps.IncrementalFlow) -> None:
    flow.register_source("narrow", "k BIGINT, v BIGINT, note STRING", retain="used")
    add(flow, "inverse", inverse(plan.Scan(FIELDS, "narrow", (0, 1))))
    flow.tick("narrow", [{**row(1, 4), "note": "a"}])
    flow.tick("narrow", [{**row(1, 0), "note": "b"}, {**row(2, 5), "note": "c"}])
    flow.tick("narrow", ps.DeltaBatch.deletes([{**row(1, 0), "note": "b"}]))
    flow.resume_view("inverse")
    assert rows(flow, "inverse") == [(1, 25.0), (2, 20.0)]


def test_a_resumed_view_belongs_to_the_time_of_the_last_tick(flow: ps.IncrementalFlow) -> None:
    """No time passes in between, so that it agrees with what it reads."""
    now = [1_000_000]
    flow._runner._clock = lambda: now[0]
    at = (Field("at", "timestamp"),)
    time = Call("CurrentTimestamp", (), "timestamp")
    quotient = INVERSE.expressions
    for name, fields, below, expressions in (
        ("stamped", (*FIELDS, *at), ROWS, (Column(0, "bigint"), V, time)),
        ("failing", (*INVERSE.fields, *at), ROWS, (*quotient, time)),
    ):
        view = plan.View(name, "", plan.Project(fields, below, expressions), uses_time=True)
        install(flow._graph, Prepared(view, no_fragment, on_error="suspend"), 0)
    flow.tick("rows", [row(1, 0), row(2, 5)])
    assert list(suspended(flow)) == ["failing"]
    now[0] = 9_000_000
    flow.tick("rows", ps.DeltaBatch.deletes([row(1, 0)]))
    now[0] = 20_000_000
    flow.resume_view("failing")
    assert flow.snapshot("failing")["at"].to_pylist() == flow.snapshot("stamped")["at"].to_pylist()
    flow.step()
    assert flow.snapshot("failing")["at"].cast("int64").to_pylist() == [20_000_000]


def test_a_view_cannot_be_registered_on_a_suspended_one(flow: ps.IncrementalFlow) -> None:
    add(flow, "inverse", INVERSE)
    flow.tick("rows", [row(1, 0)])
    with pytest.raises(ps.StateError) as caught:
        add(flow, "count", count(read("inverse", QUOTIENT)))
    assert caught.value.code == "FLOW_SUSPENDED"
    assert caught.value.message.startswith("view 'inverse' is suspended since tick 1: DATA_DIVIDE_BY_ZERO")
    assert "count" not in flow._graph.views
    flow.tick("rows", ps.DeltaBatch.deletes([row(1, 0)]))
    flow.resume_view("inverse")
    with pytest.raises(ps.StateError) as healthy:
        flow.resume_view("inverse")
    assert healthy.value.code == "FLOW_NOT_SUSPENDED"
    add(flow, "count", count(read("inverse", QUOTIENT)))
    flow.tick("rows", [row(1, 1)])
    assert rows(flow, "count") == [(1,)]


def test_a_suspended_view_is_dropped_with_what_was_noted_of_it(flow: ps.IncrementalFlow) -> None:
    add(flow, "inverse", INVERSE)
    add(flow, "count", count(read("inverse", QUOTIENT)))
    flow.tick("rows", [row(1, 0)])
    with pytest.raises(ps.StateError, match="read by view 'count'"):
        flow.drop_view("inverse")
    flow.drop_view("count")
    flow.drop_view("inverse")
    assert vertex_count(flow) == 1
    assert not suspended(flow)
    add(flow, "inverse", totals(ROWS))
    flow.tick("rows", [row(1, 3)])
    assert rows(flow, "inverse") == [(1, 3)]


@pytest.mark.parametrize("early", [True, False], ids=["recomputed before", "recomputed after"])
def test_views_that_are_recomputed_are_suspended_and_resumed(flow: ps.IncrementalFlow, early: bool) -> None:
    add(flow, "inverse", INVERSE)
    add(flow, "count", count(read("inverse", QUOTIENT)), "reject")
    add(flow, "totals", totals(ROWS), "reject")
    flow.tick("rows", [row(1, 4)])
    flow.lookup("inverse", k=1)
    if early:
        flow.force_diff_based()
    flow.tick("rows", [row(1, 0)])
    assert suspended(flow) == {"inverse": (2, None), "count": (2, "inverse")}
    flow.force_diff_based()
    flow.tick("rows", [row(2, 5)])
    assert rows(flow, "totals") == [(1, 4), (2, 5)]
    assert rows(flow, "inverse") == [(1, 25.0)]
    with pytest.raises(ps.DataError):
        flow.resume_view("inverse")
    flow.tick("rows", ps.DeltaBatch.deletes([row(1, 0)]))
    summary = flow.resume_view("inverse")
    assert (summary.views["inverse"].inserted, summary.views["count"].inserted) == (1, 1)
    flow.tick("rows", [row(1, 10)])
    assert rows(flow, "inverse") == [(1, 10.0), (1, 25.0), (2, 20.0)]
    assert rows(flow, "count") == [(3,)]
    assert sorted(flow.lookup("inverse", k=1)["d"].to_pylist()) == [10.0, 25.0]


def test_a_recomputed_view_that_rejects_rejects_the_tick(flow: ps.IncrementalFlow) -> None:
    add(flow, "inverse", INVERSE)
    add(flow, "other", INVERSE, "reject")
    flow.tick("rows", [row(1, 4)])
    flow.force_diff_based()
    with pytest.raises(ps.DataError):
        flow.tick("rows", [row(1, 0)])
    assert not suspended(flow)
    assert rows(flow, "rows") == [(1, 4)]


def test_in_the_background_the_view_is_suspended_and_the_batch_goes_in(flow: ps.IncrementalFlow) -> None:
    add(flow, "inverse", INVERSE)
    add(flow, "totals", totals(ROWS), "reject")
    flow.run(every="1 hour")
    flow.feed("rows", [row(1, 4)])
    flow.feed("rows", [row(1, 0)])
    flow.feed("rows", [row(2, 2**62), row(2, 2**62)])
    flow.stop()
    assert rows(flow, "rows") == [(1, 0), (1, 4)]
    assert flow.quarantined("rows")["v"].to_pylist() == [2**62, 2**62], "the view that rejects refuses it"
    assert list(suspended(flow)) == ["inverse"]
    assert rows(flow, "totals") == [(1, 4)]


def test_a_fault_behind_the_step_suspends_nothing(
    flow: ps.IncrementalFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(flow, "totals", totals(ROWS))
    flow.tick("rows", [row(1, 4)])
    with monkeypatch.context() as patch:
        patch.setattr(ticks, "_memory", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            flow.tick("rows", [row(1, 2**62), row(1, 2**62)])
    assert not suspended(flow)
    assert flow.explain("totals").suspended is None
    flow.tick("rows", [row(1, 5), row(2, 5)])
    assert rows(flow, "totals") == [(1, 9), (2, 5)]
    flow.tick("rows", [row(1, 2**62), row(1, 2**62)])
    assert list(suspended(flow)) == ["totals"]


class Broken(Operator):
    """An operator with a fault of ours."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        raise self._error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("a fault"), "INTERNAL"),
        (MemoryError("too large"), "OUT_OF_MEMORY"),
        (RuntimeError("Spark is gone"), "INTERNAL"),
    ],
)
def test_any_error_of_a_view_suspends_it(flow: ps.IncrementalFlow, error: Exception, code: str) -> None:
    add(flow, "totals", totals(ROWS))
    vertex = list(kernel(flow)._circuit.vertices.values())[1]
    vertex.operator = Broken(error)
    summary = flow.tick("rows", [row(1, 4)])
    stopped = summary.views["totals"].suspended
    assert stopped is not None
    assert (stopped.code, stopped.message) == (code, f"tick 1 failed: {type(error).__name__}: {error}")
    flow.resume_view("totals")
    assert rows(flow, "totals") == [(1, 4)]


def test_an_interrupt_is_no_error_of_a_view(flow: ps.IncrementalFlow) -> None:
    add(flow, "totals", totals(ROWS))
    vertex = list(kernel(flow)._circuit.vertices.values())[1]
    vertex.operator = Broken(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        flow.tick("rows", [row(1, 4)])
    assert not suspended(flow)


def calls_of(kernel: LocalKernel) -> list[tuple[Any, str]]:
    """What a commit that suspends or resumes calls behind the commit of the operators."""
    return [
        (kernel._circuit, "disown"),
        (kernel._circuit, "reachable"),
        (kernel._relations.shared, "forget"),
        (kernel._relations.shared, "keep"),
        (kernel._relations.indexes, "drop"),
    ]


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("after", [False, True], ids=["before its work", "after its work"])
def test_an_interrupt_while_views_are_suspended_or_resumed_comes_behind_it(
    flow: ps.IncrementalFlow, monkeypatch: pytest.MonkeyPatch, number: int, after: bool
) -> None:
    add(flow, "inverse", inverse(POSITIVE))
    add(flow, "count", count(read("inverse", QUOTIENT)))
    add(flow, "positive", POSITIVE)
    flow.tick("rows", [row(1, 4)])
    flow.lookup("inverse", k=1)
    owner, name = calls_of(kernel(flow))[number]
    call = getattr(type(owner), name)
    seen: list[str] = []

    def interrupted(self: Any, *args: Any, **options: Any) -> Any:
        behind_commit = kernel(flow)._changed_views and not kernel(flow)._circuit._running
        if seen or not behind_commit:
            return call(self, *args, **options)
        seen.append(name)
        if after:
            call(self, *args, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(type(owner), name, interrupted)
    interrupts = 0
    for act in (
        lambda: flow.tick("rows", [row(1, 0)]),
        lambda: flow.tick("rows", ps.DeltaBatch.deletes([row(1, 0)])),
        lambda: flow.resume_view("inverse"),
    ):
        try:
            act()
        except KeyboardInterrupt:
            interrupts += 1
            seen.clear()
    assert interrupts == (1 if name == "drop" else 2)
    assert not suspended(flow)
    flow.tick("rows", [row(2, 5)])
    assert rows(flow, "inverse") == [(1, 25.0), (2, 20.0)]
    assert rows(flow, "count") == [(2,)]
    for view in ("count", "inverse", "positive"):
        flow.drop_view(view)
    assert vertex_count(flow) == 1
    assert not kernel(flow)._relations.shared.nodes.keys() - {ROWS}


@pytest.mark.parametrize(
    ("owner", "name", "calls"),
    [
        (ViewCompiler, "add", 1),
        (ViewCompiler, "add", 3),
        (Circuit, "own", 1),
        (Circuit, "own", 2),
        (Circuit, "fill", 1),
        (Project, "step", 1),
        (Project, "step", 2),
        (resume, "after_resume", 1),
        (resume, "view_steps", 1),
    ],
)
def test_a_fault_anywhere_in_a_resume_leaves_the_views_as_they_were(
    flow: ps.IncrementalFlow, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, calls: int
) -> None:
    add(flow, "inverse", inverse(POSITIVE))
    add(flow, "again", inverse(read("inverse", Field("v", "double"))))
    flow.tick("rows", [row(1, 4)])
    flow.tick("rows", [row(1, 0), row(2, 5)])
    flow.tick("rows", ps.DeltaBatch.deletes([row(1, 0)]))
    before = vertex_count(flow), suspended(flow), rows(flow, "inverse"), rows(flow, "again")
    call, left = getattr(owner, name), [calls]

    def faulty(*args: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return call(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, faulty)
        with pytest.raises(KeyboardInterrupt):
            flow.resume_view("inverse")
    assert (vertex_count(flow), suspended(flow), rows(flow, "inverse"), rows(flow, "again")) == before
    flow.tick("rows", [row(3, 10)])
    flow.resume_view("inverse")
    assert rows(flow, "inverse") == [(1, 25.0), (2, 20.0), (3, 10.0)]
    assert rows(flow, "again") == [(1, 4.0), (2, 5.0), (3, 10.0)]
    flow.drop_view("again")
    flow.drop_view("inverse")
    assert vertex_count(flow) == 1


def restored(flow: ps.IncrementalFlow) -> ps.IncrementalFlow:
    """A flow that goes on from what was saved of another one."""
    state = FlowState.from_dict(json.loads(json.dumps(flow._graph.state.to_dict())))
    images = {key: through_bytes(image) for key, image in kernel(flow).save().items()}
    again = ps.IncrementalFlow(clock=lambda: 7)
    again._graph.state = state
    again._graph.kernel.load(images)
    again.register_source("rows", "k BIGINT, v BIGINT")
    for name, entry in flow._graph.views.items():
        add(again, name, entry.view.root, entry.on_error)
    return again


@pytest.mark.parametrize("root", [INVERSE, POSITIVE_INVERSE], ids=["read from below", "stored"])
def test_a_suspension_survives_a_restart(flow: ps.IncrementalFlow, root: plan.Node) -> None:
    add(flow, "inverse", root)
    add(flow, "count", count(read("inverse", QUOTIENT)))
    flow.tick("rows", [row(1, 4)])
    flow.tick("rows", [row(1, 0), row(2, 5)])
    # A view of the same plan that goes on has other rows than the suspended one.
    flow.tick("rows", ps.DeltaBatch.deletes([row(1, 0)]))
    add(flow, "same", root)
    again = restored(flow)
    assert again._graph.state.suspended == flow._graph.state.suspended
    assert again.step().views["inverse"].suspended == flow._graph.state.suspended["inverse"]
    assert vertex_count(again) == vertex_count(flow)
    assert rows(again, "inverse") == [(1, 25.0)]
    assert rows(again, "same") == [(1, 25.0), (2, 20.0)]
    assert again.lookup("inverse", k=1)["d"].to_pylist() == [25.0]
    watch = again.watch_output("count")
    again.resume_view("inverse")
    change = watch.recv(timeout=0)
    assert change is not None
    assert sorted((one["n"], one["_weight"]) for one in change.to_pylist()) == [(1, -1), (2, 1)]
    again.tick("rows", [row(3, 1)])
    assert rows(again, "inverse") == rows(again, "same")


def test_the_definition_has_what_a_tick_does_with_an_error(flow: ps.IncrementalFlow) -> None:
    flow.register_source("other", "k BIGINT, v BIGINT")
    options: dict[str, Any] = {
        "left": "rows",
        "right": "other",
        "by": "k",
        "left_time": "v",
        "right_time": "v",
    }
    flow.register_asof_view("near", **options, columns={"at": "v"}, on_error="suspend")
    flow.register_asof_view("also", **options, columns={"at": "v"})
    text = flow.definition()
    again = ps.IncrementalFlow.from_definition(text)
    assert {name: entry.on_error for name, entry in again._graph.views.items()} == {
        "near": "suspend",
        "also": "reject",
    }
    earlier = {key: value for key, value in json.loads(text).items() if key != "on_error"}
    older = ps.IncrementalFlow.from_definition(json.dumps(earlier))
    assert older._graph.views["near"].on_error == "reject"


def test_a_state_of_before_has_no_suspended_views() -> None:
    saved = FlowState().to_dict()
    del saved["suspended"]
    assert FlowState.from_dict(saved).suspended == {}
