"""Sources that keep only what views use."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.engine.registration import Prepared, install
from penstock.plan import node as plan
from penstock.plan.node import Field

SCHEMA = "id BIGINT, customer BIGINT, note STRING, amount BIGINT"
SUM = plan.AggregateCall("Sum", (1,), "bigint", options=(("evalMode", "ANSI"),))


def no_fragment(node: plan.Spark) -> Any:
    raise AssertionError(node)


def scan(*columns: int) -> plan.Scan:
    fields = (
        Field("id", "bigint"),
        Field("customer", "bigint"),
        Field("note", "string"),
        Field("amount", "bigint"),
    )
    return plan.Scan(tuple(fields[column] for column in columns), "orders", columns)


def view(flow: ps.IncrementalFlow, name: str, root: plan.Node) -> None:
    install(flow._graph, Prepared(plan.View(name, "", root), no_fragment), 0)


def totals(*, by: int = 1, of: int = 3) -> plan.Node:
    fields = (Field("customer", "bigint"), Field("total", "bigint"))
    return plan.Aggregate(fields, scan(by, of), (0,), (SUM,))


def flow_of(**options: Any) -> ps.IncrementalFlow:
    flow = ps.IncrementalFlow()
    flow.register_source("orders", SCHEMA, retain="used", **options)
    view(flow, "totals", totals())
    return flow


def row(number: int, customer: int, amount: int, note: str = "") -> dict[str, Any]:
    return {"id": number, "customer": customer, "note": note or f"note {number}", "amount": amount}


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(item.values()) for item in table.to_pylist())


def test_retractions_find_their_row_by_all_columns() -> None:
    flow = flow_of()
    flow.tick("orders", [row(1, 7, 5), row(2, 7, 5), row(2, 7, 5), row(3, 8, 1)])
    flow.tick("orders", ps.DeltaBatch.deletes([row(2, 7, 5), row(3, 8, 1)]))
    assert rows(flow.snapshot("totals")) == [(7, 10)]
    with pytest.raises(ps.DataError) as caught:
        flow.tick("orders", ps.DeltaBatch.deletes([row(1, 7, 5, "another note")]))
    assert caught.value.code == "DATA_MISSING_ROW"
    assert rows(flow.snapshot("totals")) == [(7, 10)]


def test_an_empty_source_begins_to_keep_what_a_later_view_needs() -> None:
    flow = flow_of()
    flow.tick("orders", [row(1, 7, 5)])
    flow.tick("orders", ps.DeltaBatch.deletes([row(1, 7, 5)]))
    view(flow, "by_id", totals(by=0))
    flow.tick("orders", [row(1, 7, 5), row(2, 7, 6)])
    assert rows(flow.snapshot("by_id")) == [(1, 5), (2, 6)]
    assert rows(flow.snapshot("totals")) == [(7, 11)]


def test_a_view_that_needs_a_lost_column_is_refused_and_changes_nothing() -> None:
    flow = flow_of()
    flow.tick("orders", [row(1, 7, 5)])
    with pytest.raises(ps.StateError) as caught:
        view(flow, "by_id", totals(by=0))
    assert caught.value.code == "FLOW_NOT_RETAINED"
    assert "column id of source 'orders'" in str(caught.value)
    view(flow, "again", totals(of=1))
    flow.tick("orders", [row(2, 7, 5)])
    assert rows(flow.snapshot("totals")) == [(7, 10)]
    assert rows(flow.snapshot("again")) == [(7, 14)]


def test_reading_such_a_source_says_what_it_keeps() -> None:
    flow = flow_of()
    flow.tick("orders", [row(1, 7, 5)])
    for read in (
        lambda: flow.snapshot("orders"),
        lambda: flow.lookup("orders", id=1),
        lambda: flow.feed_snapshot("orders", [row(1, 7, 5)]),
        lambda: flow.feed("orders", ps.DeltaBatch.upserts([row(1, 7, 5)], keys=["id"])),
    ):
        with pytest.raises(ps.StateError) as caught:
            read()
        assert "keeps columns customer, amount only, and not columns id, note" in str(caught.value)
    assert flow.step().rows_in == 0


def test_a_source_whose_columns_are_all_used_is_whole() -> None:
    flow = flow_of()
    view(flow, "rest", scan(2, 0))
    flow.tick("orders", [row(1, 7, 5), row(2, 8, 6)])
    assert rows(flow.snapshot("orders")) == [(1, 7, "note 1", 5), (2, 8, "note 2", 6)]
    assert flow.lookup("orders", id=2).to_pylist() == [row(2, 8, 6)]
    flow.feed("orders", ps.DeltaBatch.upserts([row(2, 8, 7)], keys=["id"]))
    with pytest.raises(ps.StateError) as caught:
        flow.feed_snapshot("orders", [row(2, 8, 7)])
    assert caught.value.code == "FLOW_PENDING"
    flow.step()
    flow.feed_snapshot("orders", [row(2, 8, 7), row(4, 9, 9)])
    flow.step()
    assert rows(flow.snapshot("rest")) == [("note 2", 2), ("note 4", 4)]
    assert flow.lookup("orders", id=4).to_pylist() == [row(4, 9, 9)]


def test_with_a_primary_key_rows_are_replaced_deleted_and_compared_by_key() -> None:
    flow = flow_of(primary_key="id")
    flow.tick("orders", [row(1, 7, 5), row(2, 8, 6), row(3, 8, 7)])
    flow.tick("orders", [row(1, 8, 5)])
    flow.tick("orders", ps.DeltaBatch.deletes([{"id": 2}]))
    assert rows(flow.snapshot("totals")) == [(8, 12)]
    flow.tick("orders", [row(1, 8, 5, "only the note is new")])
    assert rows(flow.snapshot("totals")) == [(8, 12)]
    flow.feed_snapshot("orders", [row(3, 8, 7), row(4, 9, 9)])
    summary = flow.step()
    assert rows(flow.snapshot("totals")) == [(8, 7), (9, 9)]
    assert summary.views["totals"].inserted == 2


def test_recomputing_reads_the_kept_columns() -> None:
    flow = flow_of()
    flow.force_diff_based()
    flow.tick("orders", [row(1, 7, 5), row(2, 7, 5)])
    flow.tick("orders", ps.DeltaBatch.deletes([row(2, 7, 5)]))
    assert rows(flow.snapshot("totals")) == [(7, 5)]


def test_memory_goes_down() -> None:
    state_bytes = {}
    for retain in ("all", "used"):
        flow = ps.IncrementalFlow()
        flow.register_source("orders", SCHEMA, retain=retain)
        view(flow, "totals", totals())
        flow.tick("orders", [row(number, number % 10, 1, f"{number:0>200}") for number in range(20_000)])
        state_bytes[retain] = flow.metrics()["penstock_flow_state_bytes"]
    # 200 bytes of text and a number against a hash of 16 bytes.
    assert state_bytes["used"] < state_bytes["all"] / 4
    assert state_bytes["used"] < 20_000 * 50
