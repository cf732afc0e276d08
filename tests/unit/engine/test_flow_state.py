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
    before = flow.attach_query("orders", "query-1", epochs=0)
    flow.tick("orders", [{"id": 1, "ts": "2024-01-01T10:00:00Z", "note": "é"}], ordinal=before + 1)
    flow.tick("orders", [{"id": 2, "ts": "2024-01-01T09:00:00Z", "note": None}], ordinal=before + 2)
    flow.tick("keyed", ps.DeltaBatch.deletes([{"id": 9}]))
    return flow


def test_everything_comes_back() -> None:
    state = fed_flow()._graph.state
    text = json.dumps(state.to_dict())
    again = FlowState.from_dict(json.loads(text))
    assert json.dumps(again.to_dict()) == text
    assert (again.ticks, again.micros) == (3, 1_700_000_000_000_000)
    orders = again.sources["orders"]
    assert (orders.ordinal, orders.feeders, orders.late) == (2, {"query-1": 0}, 1)
    assert orders.mark == state.sources["orders"].mark is not None
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
    for value in (FlowState(), SourceState()):
        assert set(type(value).__slots__) <= value.to_dict().keys()


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
    assert flow.attach_query("orders", "query-1", epochs=2) == 0
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
    assert other.attach_query("orders", "query-2", epochs=0) == 0
    with pytest.raises(StateError, match="another query feeds the source 'orders'") as taken:
        one.attach_query("orders", "query-2", epochs=0)
    assert taken.value.code == "STREAM_FLOW_TAKEN"
    one.detach_query("orders", "query-2")
    with pytest.raises(StateError):
        one.attach_query("orders", "query-2", epochs=0)
    one.detach_query("orders", "query-1")
    assert one.attach_query("orders", "query-2", epochs=0) == 2
    one.detach_query("orders", "query-2")
    with pytest.raises(StateError, match=r"done 5 epochs .* seen 2 of them") as behind:
        one.attach_query("orders", "query-3", epochs=5)
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
        before = flow.attach_query("orders", f"query-{number}", epochs=0)
        flow.tick("orders", [{"id": number}], ordinal=before + 1)
        flow.detach_query("orders", f"query-{number}")
    assert flow._graph.state.sources["orders"].feeders == {"query-2": 2, "query-3": 3, "query-4": 4}
    assert flow.attach_query("orders", "query-3", epochs=1) == 3
    flow.detach_query("orders", "query-3")
    assert list(flow._graph.state.sources["orders"].feeders) == ["query-2", "query-4", "query-3"]
