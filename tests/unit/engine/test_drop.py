"""Views and sources go when nobody reads them, with everything that only they needed."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.engine.registration import Prepared, install
from penstock.plan import node as plan
from penstock.plan.node import Field

FIELDS = (Field("k", "bigint"), Field("v", "bigint"))
SUM = plan.AggregateCall("Sum", (1,), "bigint", options=(("evalMode", "ANSI"),))


def no_fragment(node: plan.Spark) -> Any:
    raise AssertionError(node)


def add(flow: ps.IncrementalFlow, name: str, below: str, *, limit: int | None = None) -> None:
    scan = plan.Scan(FIELDS, below, (0, 1))
    root: plan.Node = plan.Aggregate(FIELDS, scan, (0,), (SUM,))
    if limit is not None:
        root = plan.TopK(FIELDS, root, (), (plan.SortKey(1, True, False),), limit)
    install(flow._graph, Prepared(plan.View(name, "", root), no_fragment), 0)


@pytest.fixture
def flow() -> ps.IncrementalFlow:
    made = ps.IncrementalFlow()
    made.register_source("rows", "k BIGINT, v BIGINT")
    add(made, "totals", "rows")
    add(made, "top", "totals", limit=1)
    made.tick("rows", [{"k": 1, "v": 5}, {"k": 2, "v": 7}])
    return made


def test_what_is_read_is_not_dropped_and_the_error_says_by_whom(flow: ps.IncrementalFlow) -> None:
    with pytest.raises(ps.StateError) as view:
        flow.drop_view("TOTALS")
    assert view.value.code == "FLOW_IN_USE"
    assert "view 'totals' is read by view 'top'" in str(view.value)
    assert "flow.drop_view('top')" in str(view.value.hint)
    with pytest.raises(ps.StateError, match="source 'rows' is read by view 'totals'"):
        flow.drop_source("rows")
    flow.tick("rows", [{"k": 1, "v": 5}])
    assert flow.snapshot("top").to_pylist() == [{"k": 1, "v": 10}]


def test_a_name_can_be_used_again_for_something_else(flow: ps.IncrementalFlow) -> None:
    watch = flow.watch_output("top")
    flow.lookup("top", k=1)
    flow.drop_view("top")
    assert watch.closed
    assert watch.recv(timeout=0) is None
    for act in (flow.snapshot, flow.explain, flow.drop_view):
        with pytest.raises(ps.ConfigError):
            act("top")
    add(flow, "top", "totals", limit=2)
    assert flow.snapshot("top").num_rows == 2
    assert flow.lookup("top", k=2).to_pylist() == [{"k": 2, "v": 7}]
    again = flow.watch_output("top")
    summary = flow.tick("rows", [{"k": 3, "v": 100}])
    assert set(summary.views) == {"totals", "top"}
    assert again.recv(timeout=0) is not None
    with pytest.raises(ps.StateError):
        flow.watch_output("top", from_tick=1)


def test_a_source_goes_with_its_rows_and_what_waits(flow: ps.IncrementalFlow) -> None:
    bytes_before = flow.metrics()["penstock_flow_state_bytes"]
    flow.register_source("more", "k BIGINT", dedup=True)
    flow.tick("more", [{"k": number} for number in range(1_000)], ordinal=3)
    flow.lookup("more", k=1)
    flow.feed("more", [{"k": 1}])
    flow.drop_source("more")
    assert flow.waiting_rows() == 0
    assert flow.metrics()["penstock_flow_state_bytes"] == bytes_before
    assert flow.step().rows_in == 0
    flow.register_source("more", "name STRING")
    assert flow.source_info("more").ordinal is None
    flow.tick("more", [{"name": "x"}], ordinal=1)
    assert flow.snapshot("more").to_pylist() == [{"name": "x"}]


def test_a_source_that_a_query_feeds_is_not_dropped(flow: ps.IncrementalFlow) -> None:
    flow.register_source("fed", "k BIGINT")
    flow.attach_query("fed", "q", epochs=0)
    with pytest.raises(ps.StateError, match="fed by a streaming query"):
        flow.drop_source("fed")
    flow.detach_query("fed", "q")
    flow.drop_source("fed")
    flow.detach_query("fed", "q")


def test_the_definition_follows(flow: ps.IncrementalFlow) -> None:
    flow.drop_view("top")
    again = ps.IncrementalFlow.from_definition(flow.definition())
    assert list(again._graph.views) == ["totals"]
    flow.drop_view("totals")
    flow.drop_source("rows")
    assert flow._graph.kernel.memory() == 0
    assert not flow._graph.kernel.states()


def test_dropping_and_adding_many_times_leaves_nothing(flow: ps.IncrementalFlow) -> None:
    kernel = flow._graph.kernel
    names, memory = set(kernel.states()), kernel.memory()
    for number in range(20):
        add(flow, f"view{number}", "rows", limit=number + 1)
        flow.lookup(f"view{number}", k=1)
        flow.drop_view(f"view{number}")
    assert set(kernel.states()) == names
    assert kernel.memory() == memory


def test_a_column_may_be_called_as_the_parameters_are() -> None:
    flow = ps.IncrementalFlow()
    flow.register_source("people", "name STRING, self BIGINT")
    flow.tick("people", [{"name": "a", "self": 1}, {"name": "b", "self": 2}])
    assert flow.lookup("people", name="b").num_rows == 1
    assert flow.lookup("people", self=1, name="a").num_rows == 1
