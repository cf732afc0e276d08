"""The flow as users drive it: declaring, feeding, stepping, reading, and every mistake that they can make."""

from __future__ import annotations

import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock import DeltaBatch, IncrementalFlow, Session

ORDERS = "id BIGINT, customer BIGINT, amount DECIMAL(10,2)"
TOTALS = "SELECT customer, SUM(amount) AS total, COUNT(*) AS n FROM orders GROUP BY customer"


def order(number: int, customer: int | None, amount: float) -> dict[str, Any]:
    return {"id": number, "customer": customer, "amount": Decimal(str(amount))}


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


@pytest.fixture
def flow(session: Session) -> IncrementalFlow:
    made = IncrementalFlow(session)
    made.register_source("orders", ORDERS)
    return made


@pytest.mark.smoke
def test_views_on_views_are_up_to_date_in_the_same_tick(flow: IncrementalFlow) -> None:
    flow.register_view("totals", TOTALS)
    flow.register_view("top", "SELECT * FROM totals ORDER BY total DESC LIMIT 1")
    summary = flow.tick("orders", DeltaBatch.inserts([order(1, 7, 5), order(2, 7, 6), order(3, 8, 20)]))
    assert (summary.tick, summary.rows_in, summary.rows_out) == (1, 3, 3)
    assert summary.views["totals"].inserted == 2
    assert flow.snapshot("top").to_pylist() == [{"customer": 8, "total": Decimal("20.00"), "n": 1}]
    summary = flow.tick("orders", DeltaBatch.deletes([order(3, 8, 20)]))
    assert flow.snapshot("top").to_pylist() == [{"customer": 7, "total": Decimal("11.00"), "n": 2}]
    assert (summary.views["top"].inserted, summary.views["top"].retracted) == (1, 1)
    assert flow.explain("top").tier == "kernel"


def test_several_sources_are_one_tick_and_clean_views_are_skipped(flow: IncrementalFlow) -> None:
    flow.register_source("customers", "id BIGINT, name STRING")
    flow.register_view("totals", TOTALS)
    flow.register_view("named", "SELECT name, total FROM totals JOIN customers ON customer = id")
    flow.feed("orders", [order(1, 7, 5)])
    flow.feed("customers", [{"id": 7, "name": "a"}])
    assert flow.step().views["named"].inserted == 1
    summary = flow.tick("customers", DeltaBatch.updates([{"id": 7, "name": "a"}], [{"id": 7, "name": "b"}]))
    assert summary.views["totals"].skipped
    assert not summary.views["named"].skipped
    assert rows(flow.snapshot("named")) == [("b", Decimal("5.00"))]


def test_a_view_registered_late_is_filled_without_a_tick(flow: IncrementalFlow) -> None:
    flow.tick("orders", [order(1, 7, 5), order(2, None, 6)])
    flow.register_view("totals", TOTALS)
    flow.register_view("count", "SELECT COUNT(*) AS n FROM totals")
    assert flow.snapshot("count").to_pylist() == [{"n": 2}]
    assert flow.tick("orders", [order(3, 9, 1)]).tick == 2
    assert flow.snapshot("count").to_pylist() == [{"n": 3}]


def test_a_failed_tick_changes_nothing(flow: IncrementalFlow) -> None:
    flow.register_view("totals", TOTALS)
    flow.register_view("ratio", "SELECT id, amount / (customer - 1) AS r FROM orders")
    flow.tick("orders", [order(1, 7, 5)])
    before = [rows(flow.snapshot(name)) for name in ("orders", "totals", "ratio")]
    with pytest.raises(ps.DataError) as caught:
        flow.tick("orders", [order(2, 7, 6), order(3, 1, 6)])
    assert caught.value.code == "DATA_DIVIDE_BY_ZERO"
    assert "ratio" in str(caught.value.where)
    assert [rows(flow.snapshot(name)) for name in ("orders", "totals", "ratio")] == before
    flow.tick("orders", [order(2, 7, 6)])
    assert rows(flow.snapshot("totals")) == [(7, Decimal("11.00"), 2)]


def test_a_retraction_of_a_missing_row_is_refused_or_quarantined(
    session: Session, flow: IncrementalFlow
) -> None:
    with pytest.raises(ps.DataError) as caught:
        flow.tick("orders", DeltaBatch.deletes([order(1, 7, 5)]))
    assert caught.value.code == "DATA_MISSING_ROW"
    lenient = IncrementalFlow(session)
    lenient.register_source("orders", ORDERS, on_missing_delete="quarantine")
    lenient.tick("orders", DeltaBatch.deletes([order(1, 7, 5)]) + DeltaBatch.inserts([order(2, 7, 5)]))
    assert lenient.quarantined("orders").to_pylist() == [
        {**order(1, 7, 5), "_weight": -1, "_reason": "retracted, but not there"}
    ]
    assert lenient.snapshot("orders").num_rows == 1


def test_ordinals_make_replays_safe(flow: IncrementalFlow) -> None:
    flow.register_view("totals", TOTALS)
    assert flow.feed("orders", [order(1, 7, 5)], ordinal=42)
    assert not flow.feed("orders", [order(1, 7, 5)], ordinal=42)
    flow.step()
    assert not flow.feed("orders", [order(1, 7, 5)], ordinal=41)
    assert flow.tick("orders", [order(1, 7, 5)], ordinal=42).rows_in == 0
    assert flow.feed("orders", [order(2, 7, 5)], ordinal=43)
    with pytest.raises(ps.DataError):
        flow.tick("orders", DeltaBatch.deletes([order(9, 9, 9)]))
    assert flow.feed("orders", [order(2, 7, 5)], ordinal=43), "a failed tick commits no ordinal"
    flow.step()
    assert rows(flow.snapshot("totals")) == [(7, Decimal("10.00"), 2)]


def test_content_dedup_counts_an_insert_its_delete_and_the_insert_again(session: Session) -> None:
    flow = IncrementalFlow(session)
    flow.register_source("orders", ORDERS, dedup=True)
    batch = DeltaBatch.inserts([order(1, 7, 5)])
    assert flow.tick("orders", batch).rows_in == 1
    assert flow.tick("orders", batch).rows_in == 0
    assert flow.tick("orders", -batch).rows_in == 1
    assert flow.tick("orders", batch).rows_in == 1
    flow.feed("orders", batch)
    flow.feed("orders", DeltaBatch.inserts([order(2, 7, 5)]))
    assert flow.step().rows_in == 1
    assert flow.snapshot("orders").num_rows == 2
    assert flow.metrics()["penstock_dedup_dropped_total"] == 0


def test_a_primary_key_replaces_and_deletes_by_key(session: Session) -> None:
    flow = IncrementalFlow(session)
    flow.register_source("orders", ORDERS, primary_key="id")
    flow.register_view("totals", TOTALS)
    flow.tick("orders", [order(1, 7, 5), order(2, 8, 6)])
    flow.tick("orders", DeltaBatch.upserts([order(1, 8, 1)], keys=["id"]))
    assert rows(flow.snapshot("totals")) == [(8, Decimal("7.00"), 2)]
    flow.tick("orders", DeltaBatch.deletes([{"id": 2}]))
    assert rows(flow.snapshot("totals")) == [(8, Decimal("1.00"), 1)]
    changes = [{"op": "d", **order(1, None, 0)}, {"op": "c", **order(3, 9, 4)}, {"op": "u", **order(3, 9, 5)}]
    flow.tick("orders", DeltaBatch.from_cdc(changes, keys=["id"]))
    assert rows(flow.snapshot("totals")) == [(9, Decimal("5.00"), 1)]


def test_changes_by_key_need_no_primary_key(flow: IncrementalFlow) -> None:
    flow.tick("orders", [order(1, 7, 5), order(1, 7, 6), order(2, 8, 1)])
    flow.feed("orders", [order(3, 8, 2)])
    flow.feed("orders", DeltaBatch.upserts([order(1, 7, 9), order(3, 8, 3), order(4, 8, 4)], keys=["id"]))
    flow.step()
    assert rows(flow.snapshot("orders")) == [
        (1, 7, Decimal("9.00")),
        (2, 8, Decimal("1.00")),
        (3, 8, Decimal("3.00")),
        (4, 8, Decimal("4.00")),
    ]


def test_a_snapshot_is_fed_as_its_difference(flow: IncrementalFlow) -> None:
    flow.register_view("totals", TOTALS)
    flow.tick("orders", [order(1, 7, 5), order(1, 7, 5), order(2, 8, 1)])
    flow.feed("orders", [order(9, 9, 9)])
    flow.feed_snapshot("orders", [order(1, 7, 5), order(3, 8, 2)])
    flow.step()
    assert rows(flow.snapshot("orders")) == [(1, 7, Decimal("5.00")), (3, 8, Decimal("2.00"))]
    assert rows(flow.snapshot("totals")) == [(7, Decimal("5.00"), 1), (8, Decimal("2.00"), 1)]


def test_a_source_that_keeps_only_what_views_use(session: Session) -> None:
    flow = IncrementalFlow(session)
    flow.register_source("orders", ORDERS, retain="used")
    flow.register_view("totals", TOTALS)
    flow.register_view("n", "SELECT COUNT(*) AS n FROM orders")
    flow.tick("orders", [order(1, 7, 5), order(2, 7, 5)])
    flow.tick("orders", DeltaBatch.deletes([order(2, 7, 5)]))
    assert rows(flow.snapshot("totals")) == [(7, Decimal("5.00"), 1)]
    assert flow.snapshot("n").to_pylist() == [{"n": 1}]
    with pytest.raises(ps.StateError) as caught:
        flow.register_view("ids", "SELECT id FROM orders")
    assert caught.value.code == "FLOW_NOT_RETAINED"
    with pytest.raises(ps.StateError):
        flow.snapshot("orders")


def test_watches(flow: IncrementalFlow) -> None:
    flow.register_view("totals", TOTALS)
    watch = flow.watch_output("totals")
    flow.tick("orders", [order(1, 7, 5)])
    flow.tick("orders", [order(2, 7, 1)])
    first, second = watch.recv(timeout=1), watch.recv(timeout=1)
    assert first is not None
    assert second is not None
    assert sorted(row["_weight"] for row in second.to_pylist()) == [-1, 1]
    assert (first + second).consolidate().table.to_pylist() == flow.snapshot("totals").to_pylist()
    with flow.watch_output("totals", snapshot=True) as late:
        received = late.recv(timeout=1)
        assert received is not None
        assert received.table.to_pylist() == flow.snapshot("totals").to_pylist()
    with flow.watch_output("totals", from_tick=2) as replay:
        received = replay.recv(timeout=1)
        assert received is not None
        assert sorted(row["_weight"] for row in received.to_pylist()) == [-1, 1]
    flow.tick("orders", DeltaBatch.inserts([order(3, 7, 1)]) + DeltaBatch.deletes([order(3, 7, 1)]))
    assert watch.recv(timeout=0) is None, "a tick without effect publishes nothing"


def test_lookups_use_an_index_that_follows_the_ticks(flow: IncrementalFlow) -> None:
    flow.register_view("totals", TOTALS)
    flow.tick("orders", [order(number, number % 50, 1) for number in range(500)])
    assert flow.lookup("totals", customer=7).to_pylist() == [
        {"customer": 7, "total": Decimal("10.00"), "n": 10}
    ]
    flow.tick("orders", [order(1000, 7, 1)])
    assert flow.lookup("totals", customer=7).column("n").to_pylist() == [11]
    assert flow.lookup("totals", customer=999).num_rows == 0
    assert flow.lookup("orders", customer=7, id=1000).num_rows == 1


def test_dataframes_are_views_too(flow: IncrementalFlow) -> None:
    flow.register_view("large", flow.table("orders").where(F.col("amount") > 5).select("id"))
    flow.register_view("count", flow.table("large").groupBy().agg(F.count("*").alias("n")))
    flow.tick("orders", [order(1, 7, 5), order(2, 7, 6)])
    assert flow.snapshot("large").to_pylist() == [{"id": 2}]
    assert flow.snapshot("count").to_pylist() == [{"n": 1}]


def test_a_table_of_the_session_is_a_static_side(session: Session, flow: IncrementalFlow) -> None:
    session.register_table("countries", [{"customer": 7, "country": "Peru"}])
    flow.register_view("placed", "SELECT id, country FROM orders JOIN countries USING (customer)")
    assert "countries (static)" in str(flow.explain("placed"))
    flow.tick("orders", [order(1, 7, 5), order(2, 8, 5)])
    assert rows(flow.snapshot("placed")) == [(1, "Peru")]
    session.register_table(
        "countries", [{"customer": 7, "country": "Peru"}, {"customer": 8, "country": "Ghana"}]
    )
    summary = flow.reload_static("countries")
    assert summary.views["placed"].inserted == 1
    assert rows(flow.snapshot("placed")) == [(1, "Peru"), (2, "Ghana")]


def test_views_and_static_tables_go(session: Session, flow: IncrementalFlow) -> None:
    session.register_table("countries_to_drop", [{"customer": 7, "country": "Peru"}])
    for name in ("placed", "placed_too"):
        flow.register_view(name, "SELECT id, country FROM orders JOIN countries_to_drop USING (customer)")
    flow.tick("orders", [order(1, 7, 5), order(2, 8, 5)])
    flow.drop_view("placed")
    assert flow.reload_static("countries_to_drop").rows_out == 0
    flow.tick("orders", [order(3, 7, 5)])
    assert rows(flow.snapshot("placed_too")) == [(1, "Peru"), (3, "Peru")]
    flow.drop_view("placed_too")
    with pytest.raises(ps.ConfigError):
        flow.reload_static("countries_to_drop")
    alone = IncrementalFlow(session)
    alone.register_source("orders", ORDERS)
    alone.tick("orders", [order(1, 7, 5), order(2, 8, 5)])
    alone.tick("orders", [order(3, 7, 5)])
    assert flow.metrics()["penstock_flow_state_bytes"] == alone.metrics()["penstock_flow_state_bytes"]
    session.register_table("countries_to_drop", [{"customer": 7, "country": "Ghana"}])
    flow.register_view("placed", "SELECT id, country FROM orders JOIN countries_to_drop USING (customer)")
    assert rows(flow.snapshot("placed")) == [(1, "Ghana"), (3, "Ghana")], (
        "loaded again for a view that comes after the drop"
    )


def test_time_moves_rows_out_and_in(session: Session) -> None:
    now = [1_000_000_000_000_000]
    flow = IncrementalFlow(session, clock=lambda: now[0])
    flow.register_source("events", "id BIGINT, at TIMESTAMP")
    flow.register_view("recent", "SELECT id FROM events WHERE at > now() - INTERVAL 1 HOUR AND id < 100")
    flow.register_view("count", "SELECT COUNT(*) AS n FROM recent")
    hour = 3_600_000_000
    events = pa.table(
        {
            "id": [1, 2, 3, 100],
            "at": pa.array(
                [now[0], now[0] + hour // 2, now[0] - 2 * hour, now[0]], pa.timestamp("us", "UTC")
            ),
        }
    )
    flow.tick("events", events)
    assert rows(flow.snapshot("recent")) == [(1,), (2,)]
    now[0] += hour
    assert flow.step().views["recent"].retracted == 1
    assert rows(flow.snapshot("recent")) == [(2,)]
    now[0] += hour
    flow.step()
    assert flow.snapshot("count").to_pylist() == [{"n": 0}]
    assert flow.explain("recent").operators[1].cost == "delta, and the rows that enter or leave"


def test_recomputing_gives_the_same_deltas(session: Session) -> None:
    queries = {
        "totals": "SELECT customer, SUM(amount) AS total, AVG(amount / 3) AS a FROM orders GROUP BY customer",
        "missing": "SELECT id FROM orders WHERE customer NOT IN (SELECT id FROM customers)",
        "named": "SELECT o.id, name FROM orders o LEFT JOIN customers c ON o.customer = c.id",
        "best": "SELECT * FROM totals ORDER BY total DESC LIMIT 2",
    }
    flows = []
    for forced in (False, True):
        flow = IncrementalFlow(session)
        flow.register_source("orders", ORDERS)
        flow.register_source("customers", "id BIGINT, name STRING")
        for name, query in queries.items():
            flow.register_view(name, query)
        if forced:
            flow.force_diff_based()
        flows.append(flow)
    ticks: list[tuple[str, DeltaBatch]] = [
        ("orders", DeltaBatch.inserts([order(number, number % 4, number / 2) for number in range(12)])),
        ("customers", DeltaBatch.inserts([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])),
        ("orders", DeltaBatch.deletes([order(number, number % 4, number / 2) for number in range(5)])),
        ("customers", DeltaBatch.deletes([{"id": 1, "name": "a"}])),
    ]
    watches = [{name: flow.watch_output(name) for name in queries} for flow in flows]
    for source, delta in ticks:
        summaries = [flow.tick(source, delta) for flow in flows]
        for name in queries:
            one, other = (summary.views[name] for summary in summaries)
            assert (one.inserted, one.retracted, one.skipped) == (
                other.inserted,
                other.retracted,
                other.skipped,
            )
            changes = [group[name].recv(timeout=0) for group in watches]
            assert [None if change is None else rows(change.to_arrow()) for change in changes[:1]] == [
                None if change is None else rows(change.to_arrow()) for change in changes[1:]
            ]


def test_what_only_spark_knows_is_named_and_right(flow: IncrementalFlow) -> None:
    flow.register_view("written", "SELECT id, to_csv(named_struct('id', id, 'x', 'y')) AS h FROM orders")
    flow.register_view(
        "sketched",
        "SELECT approx_count_distinct(CAST(customer AS STRING) COLLATE UTF8_LCASE) AS n FROM orders",
    )
    assert flow.explain("written").tier == "spark"
    assert flow.explain("sketched").tier == "recompute"
    assert all(line.reason for line in flow.explain("sketched").operators if line.tier != "kernel")
    flow.tick("orders", [order(1, 7, 5), order(2, 8, 5)])
    assert rows(flow.snapshot("written"))[0][1] == "1,y"
    assert flow.snapshot("sketched").to_pylist() == [{"n": 2}]
    flow.tick("orders", DeltaBatch.deletes([order(1, 7, 5)]))
    assert flow.snapshot("sketched").to_pylist() == [{"n": 1}]


def test_stepping_in_the_background(flow: IncrementalFlow) -> None:
    flow.register_view("totals", TOTALS)
    flow.run(every=20)
    with pytest.raises(ps.StateError):
        flow.run()
    flow.feed("orders", [order(1, 7, 5)])
    deadline = time.monotonic() + 20
    while flow.snapshot("totals").num_rows == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    flow.feed("orders", [order(2, 7, 5)])
    flow.stop()
    assert rows(flow.snapshot("totals")) == [(7, Decimal("10.00"), 2)]


MISTAKES: list[tuple[str, Callable[[IncrementalFlow], object], str, str]] = [
    ("unknown source", lambda flow: flow.feed("ordres", [order(1, 1, 1)]), "FLOW_UNKNOWN_SOURCE", "orders"),
    ("feeding a view", lambda flow: flow.feed("ids", [{"id": 1}]), "FLOW_UNKNOWN_SOURCE", "only sources"),
    (
        "unknown column",
        lambda flow: flow.feed("orders", [{**order(1, 1, 1), "amout": 1}]),
        "DATA_UNKNOWN_COLUMN",
        "amount",
    ),
    ("missing column", lambda flow: flow.feed("orders", [{"id": 1}]), "DATA_MISSING_COLUMN", "customer"),
    ("wrong type", lambda flow: flow.feed("orders", [{**order(1, 1, 1), "id": "x"}]), "DATA_TYPE", "'x'"),
    ("lossy", lambda flow: flow.feed("orders", [order(1, 1, 1.005)]), "DATA_TYPE", "amount"),
    ("taken", lambda flow: flow.register_source("ids", "id BIGINT"), "FLOW_NAME_TAKEN", "ids"),
    ("taken view", lambda flow: flow.register_view("orders", "SELECT 1"), "FLOW_NAME_TAKEN", "orders"),
    (
        "unknown table",
        lambda flow: flow.register_view("v", "SELECT * FROM ordres"),
        "SQL_UNKNOWN_TABLE",
        "orders",
    ),
    (
        "random",
        lambda flow: flow.register_view("v", "SELECT rand() FROM orders"),
        "SQL_NONDETERMINISTIC",
        "rand",
    ),
    ("itself", lambda flow: flow.register_view("v", "SELECT * FROM v"), "SQL_UNKNOWN_TABLE", "v"),
    ("snapshot", lambda flow: flow.snapshot("idz"), "FLOW_UNKNOWN_RELATION", "ids"),
    ("lookup", lambda flow: flow.lookup("ids", ident=1), "FLOW_UNKNOWN_COLUMN", "id"),
    ("no lookup", lambda flow: flow.lookup("ids"), "FLOW_LOOKUP", "id"),
    ("key", lambda flow: flow.register_source("s", "a INT", primary_key="b"), "FLOW_UNKNOWN_COLUMN", "a"),
    ("option", lambda flow: flow.register_source("s", "a INT", retain="some"), "FLOW_OPTION", "used"),
    (
        "twice",
        lambda flow: flow.register_source("s", pa.schema([("a", "int32")] * 2)),
        "FLOW_SCHEMA",
        "twice",
    ),
    ("static", lambda flow: flow.reload_static("orders"), "FLOW_UNKNOWN_STATIC", "orders"),
    ("explain", lambda flow: flow.explain("orders"), "FLOW_UNKNOWN_VIEW", "ids"),
]


@pytest.mark.parametrize(("what", "act", "code", "part"), MISTAKES, ids=[case[0] for case in MISTAKES])
def test_mistakes_are_named_and_change_nothing(
    flow: IncrementalFlow, what: str, act: Callable[[IncrementalFlow], object], code: str, part: str
) -> None:
    flow.register_view("ids", "SELECT id FROM orders")
    flow.tick("orders", [order(1, 7, 5)])
    with pytest.raises(ps.PenstockError) as caught:
        act(flow)
    assert caught.value.code == code
    assert part in str(caught.value)
    assert rows(flow.snapshot("ids")) == [(1,)]
    assert flow.tick("orders", [order(2, 7, 5)]).rows_out == 1
