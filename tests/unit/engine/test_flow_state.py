"""What a restored flow needs, as one value that survives JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

import penstock as ps
from penstock.engine import feeder
from penstock.engine.flow_state import FlowState, SourceState
from penstock.engine.registration import Prepared, install
from penstock.errors import StateError
from penstock.plan import node as plan


def fed_flow() -> ps.IncrementalFlow:
    now = [1_700_000_000_000_000]
    flow = ps.IncrementalFlow(clock=lambda: now[0])
    flow.register_source(
        "orders", "id BIGINT, ts TIMESTAMP, note STRING", dedup=True, lateness=("ts", "1 minute")
    )
    flow.register_source("keyed", "id BIGINT", primary_key="id", on_missing_delete="quarantine")
    flow.register_source("empty", "id BIGINT")
    flow.attach_query("orders", "query-1", epochs=0)
    for epoch, row in enumerate(
        (
            {"id": 1, "ts": "2024-01-01T10:00:00Z", "note": "é"},
            {"id": 2, "ts": "2024-01-01T09:00:00Z", "note": None},
        )
    ):
        flow.tick_epoch("orders", [row], query="query-1", epoch=epoch)
    flow.tick("keyed", ps.DeltaBatch.deletes([{"id": 9}]))
    return flow


def test_everything_comes_back() -> None:
    state = fed_flow()._graph.state
    text = json.dumps(state.to_dict())
    again = FlowState.from_dict(json.loads(text))
    assert json.dumps(again.to_dict()) == text
    assert (again.ticks, again.micros) == (3, 1_700_000_000_000_000)
    orders = again.sources["orders"]
    assert (orders.ordinal, orders.feeders, orders.late) == (2, {"query-1": 2}, 1)
    assert orders.latest_event_time == state.sources["orders"].latest_event_time is not None
    assert set(orders.seen.digests) == set(state.sources["orders"].seen.digests)
    assert len(orders.seen) == 2
    (late,) = orders.quarantine.parts
    assert late.reason.startswith("late: before 2024-01-01 09:59")
    assert late.rows.columns[2].to_pylist() == [None]
    (missing,) = again.sources["keyed"].quarantine.parts
    assert missing.rows.weights.tolist() == [-1]
    assert again.sources["empty"].to_dict() == SourceState().to_dict()


def test_every_field_is_saved() -> None:
    """A field that is added and forgotten in `to_dict` would be lost by every restore."""
    format_names = {"latest_event_time": "mark"}
    for value in (FlowState(), SourceState()):
        assert {format_names.get(name, name) for name in type(value).__slots__} <= value.to_dict().keys()


def test_a_restored_flow_knows_what_came_before() -> None:
    state = FlowState.from_dict(json.loads(json.dumps(fed_flow()._graph.state.to_dict())))
    flow = ps.IncrementalFlow()
    flow._graph.state = state
    flow.register_source(
        "orders", "id BIGINT, ts TIMESTAMP, note STRING", dedup=True, lateness=("ts", "1 minute")
    )
    row: dict[str, Any] = {"id": 1, "ts": "2024-01-01T10:00:00Z", "note": "é"}
    assert not flow.feed("orders", [row], ordinal=2)
    assert flow.tick("orders", [row]).rows_in == 0, "the same batch again"
    assert flow.tick("orders", [row | {"ts": "2024-01-01T09:58:00Z"}]).late == 1
    flow.attach_query("orders", "query-1", epochs=2)
    assert flow.tick_epoch("orders", [row], query="query-1", epoch=1) is None
    assert flow.source_info("orders").ordinal == 2
    assert flow.quarantined("orders").num_rows == 2
    assert flow.step().tick == 6


def test_another_version_is_refused() -> None:
    with pytest.raises(StateError) as caught:
        FlowState.from_dict({"version": 99})
    assert caught.value.code == "STATE_FLOW_VERSION"


def test_two_flows_do_not_share_what_queries_fed() -> None:
    one, other = fed_flow(), ps.IncrementalFlow()
    other.register_source("orders", "id BIGINT")
    other.attach_query("orders", "query-2", epochs=0)
    with pytest.raises(StateError, match="another query feeds the source 'orders'") as taken:
        one.attach_query("orders", "query-2", epochs=0)
    assert taken.value.code == "STREAM_FLOW_TAKEN"
    one.detach_query("orders", "query-2")
    with pytest.raises(StateError):
        one.attach_query("orders", "query-2", epochs=0)
    one.detach_query("orders", "query-1")
    one.attach_query("orders", "query-2", epochs=0)
    one.detach_query("orders", "query-2")
    for query, seen in (("query-1", 2), ("query-3", 0)):
        with pytest.raises(StateError, match=rf"done 5 epochs .* seen {seen} of them") as behind:
            one.attach_query("orders", query, epochs=5)
    assert behind.value.code == "STREAM_FLOW_BEHIND"


def test_time_does_not_go_back_behind_a_registration() -> None:
    now = [2_000_000]
    flow = ps.IncrementalFlow(clock=lambda: now[0])
    flow.register_source("rows", "n BIGINT")
    view = plan.View("same", "", plan.Scan((plan.Field("n", "bigint"),), "rows", (0,)))
    install(flow._graph, Prepared(view, lambda node: (_ for _ in ()).throw(AssertionError)), now[0])
    now[0] = 1_000_000
    flow.step()
    assert flow._graph.state.micros == 2_000_000


def test_queries_that_never_come_back_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeder, "MOST_QUERIES", 3)
    flow = ps.IncrementalFlow()
    flow.register_source("orders", "id BIGINT")
    for number in range(5):
        flow.attach_query("orders", f"query-{number}", epochs=0)
        flow.tick_epoch("orders", [{"id": number}], query=f"query-{number}", epoch=0)
        flow.detach_query("orders", f"query-{number}")
    assert flow._graph.state.sources["orders"].feeders == {"query-2": 1, "query-3": 1, "query-4": 1}
    with pytest.raises(StateError, match="seen 0 of them"):
        flow.attach_query("orders", "query-0", epochs=1)
    flow.attach_query("orders", "query-3", epochs=1)
    assert list(flow._graph.state.sources["orders"].feeders) == ["query-2", "query-4", "query-3"]


def test_a_query_that_comes_back_after_another_one_goes_on_with_its_own_epochs() -> None:
    flow = ps.IncrementalFlow()
    flow.register_source("orders", "id BIGINT")

    def run(query: str, epochs: range) -> list[bool]:
        flow.attach_query("orders", query, epochs=epochs.start)
        taken = [
            flow.tick_epoch("orders", [{"id": epoch}], query=query, epoch=epoch) is not None
            for epoch in epochs
        ]
        flow.detach_query("orders", query)
        return taken

    assert run("first", range(2)) == [True, True]
    assert run("second", range(3)) == [True, True, True]
    flow.tick("orders", [{"id": 100}], ordinal=50)
    assert run("first", range(1, 4)) == [False, True, True]
    assert flow.snapshot("orders").num_rows == 8
    assert flow.source_info("orders").ordinal == 52


def test_an_epoch_that_fails_comes_again() -> None:
    flow = ps.IncrementalFlow()
    flow.register_source("orders", "id BIGINT")
    flow.attach_query("orders", "query", epochs=0)
    with pytest.raises(ps.DataError):
        flow.tick_epoch("orders", ps.DeltaBatch.deletes([{"id": 1}]), query="query", epoch=0)
    assert flow.tick_epoch("orders", [{"id": 1}], query="query", epoch=0) is not None
