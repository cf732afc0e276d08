"""Names of sources and views: with points, quoted, and in any case, as Spark takes them."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock import DeltaBatch, IncrementalFlow, Session


@pytest.fixture
def flow(session: Session) -> IncrementalFlow:
    made = IncrementalFlow(session)
    made.register_source("Shop.Orders", "Id BIGINT, Customer BIGINT", primary_key="ID")
    made.register_source("my customers", "id BIGINT, `full name` STRING")
    return made


QUERIES = {
    "whole name": "SELECT id FROM shop.orders",
    "quoted parts": "SELECT id FROM `shop`.`Orders`",
    "quoted as one": "SELECT id FROM `Shop.Orders`",
    "qualified": "SELECT shop.orders.id FROM SHOP . ORDERS",
    "by the last part": "SELECT orders.id FROM shop.orders WHERE Orders.customer > 0",
    "alias": "SELECT o.id FROM shop.orders AS o JOIN shop.orders p ON o.id = p.id",
    "subquery": "SELECT id FROM shop.orders WHERE id IN (SELECT o.id FROM Shop.Orders o)",
    "scalar": "SELECT id FROM shop.orders WHERE id >= (SELECT MIN(id) FROM shop.orders)",
    "with": "WITH a AS (SELECT * FROM shop.orders), b AS (WITH c AS (SELECT * FROM a) SELECT * FROM c) SELECT id FROM b",
    "recursive": """WITH RECURSIVE w(id) AS (
        SELECT MIN(id) FROM shop.orders UNION ALL SELECT o.id FROM w JOIN shop.orders o ON o.id = w.id + 1)
        SELECT id FROM w""",
    "shadowed": "WITH orders AS (SELECT id FROM shop.orders) SELECT id FROM orders",
    "union": "SELECT id FROM shop.orders WHERE id = 1 UNION ALL (TABLE `my customers` |> SELECT id) UNION ALL SELECT id FROM shop.orders WHERE id = 2",
}


@pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
def test_sql_finds_relations_by_any_spelling(flow: IncrementalFlow, query: str) -> None:
    flow.register_view("Mart.V", query)
    flow.register_view("n", "SELECT COUNT(*) AS n FROM mart.v")
    flow.feed("shop.orders", [{"id": 1, "customer": 7}])
    flow.feed("shop.orders", [{"ID": 2, "CUSTOMER": 8}])
    flow.step()
    assert sorted(flow.snapshot("MART.v").column(0).to_pylist()) == [1, 2]
    flow.tick("SHOP.ORDERS", DeltaBatch.deletes([{"id": 2}]))
    assert flow.snapshot("mart.v").to_pylist() == [{flow.snapshot("mart.v").column_names[0]: 1}]
    assert flow.snapshot("N").to_pylist() == [{"n": 1}]


def test_python_takes_any_case(flow: IncrementalFlow) -> None:
    flow.register_view(
        "Names",
        "SELECT `full name` AS name, o.id FROM `My Customers` c JOIN shop.orders o ON c.id = o.customer",
    )
    watch = flow.watch_output("names")
    flow.feed("MY CUSTOMERS", [{"id": 7, "Full Name": "a"}])
    flow.feed("shop.orders", DeltaBatch.upserts([{"id": 1, "customer": 7}], keys=["id"]))
    summary = flow.step()
    assert list(summary.views) == ["Names"]
    assert watch.recv(timeout=1) is not None
    assert flow.lookup("NAMES", ID=1).to_pylist() == [{"name": "a", "id": 1}]
    assert flow.lookup("shop.orders", id=1).num_rows == 1
    assert flow.explain("names").view == "Names"
    flow.register_view("from_frame", flow.table("shop.ORDERS").select("id"))
    assert flow.snapshot("from_frame").to_pylist() == [{"id": 1}]
    flow.feed_snapshot("Shop.orders", [{"id": 3, "customer": 7}])
    flow.step()
    assert flow.snapshot("names").column("id").to_pylist() == [3]
    again = IncrementalFlow.from_definition(flow.definition())
    assert again.snapshot("NAMES").num_rows == 0


@pytest.mark.parametrize(
    ("act", "code", "part"),
    [
        (lambda flow: flow.register_source("shop.ORDERS", "a INT"), "FLOW_NAME_TAKEN", "differ only in case"),
        (lambda flow: flow.register_view("SHOP.orders", "SELECT 1"), "FLOW_NAME_TAKEN", "Shop.Orders"),
        (lambda flow: flow.register_source("shop..orders", "a INT"), "FLOW_NAME", "schema.orders"),
        (lambda flow: flow.register_source(" ", "a INT"), "FLOW_NAME", "' '"),
        (
            lambda flow: flow.register_view("v", "SELECT * FROM shop.ordres"),
            "SQL_UNKNOWN_TABLE",
            "Shop.Orders",
        ),
        (lambda flow: flow.register_view("v", "SELECT ident FROM shop.orders"), "SQL_UNKNOWN_COLUMN", "id"),
    ],
)
def test_mistakes(flow: IncrementalFlow, act: Any, code: str, part: str) -> None:
    with pytest.raises(ps.PenstockError) as caught:
        act(flow)
    assert caught.value.code == code
    assert part.lower() in str(caught.value).lower()


def test_a_name_with_a_backquote(session: Session) -> None:
    flow = IncrementalFlow(session)
    flow.register_source("odd`name", "a INT")
    flow.register_view("v", "SELECT a FROM `odd``name`")
    flow.tick("odd`name", [{"a": 1}])
    assert flow.snapshot("v").to_pylist() == [{"a": 1}]
