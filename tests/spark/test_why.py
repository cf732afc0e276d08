"""The source rows behind a row of a view in SQL: a fresh flow over them alone has the row again."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps

VIEWS = {
    "large": "SELECT id, amount * 2 AS doubled FROM orders WHERE amount > 5",
    "with_city": "SELECT o.id, c.city FROM orders o LEFT JOIN customers c ON o.customer = c.id",
    "totals": "SELECT customer, SUM(amount) AS total, COUNT(*) AS n FROM orders GROUP BY customer",
    "large_totals": "SELECT customer, MAX(amount) AS top FROM orders GROUP BY customer HAVING COUNT(*) > 1",
    "city_totals": "SELECT c.city, SUM(t.total) AS total FROM totals t JOIN customers c ON t.customer = c.id GROUP BY c.city",
    "best": "SELECT * FROM city_totals ORDER BY total DESC LIMIT 1",
    "cities": "SELECT city FROM customers UNION SELECT upper(city) FROM customers",
    "idle": "SELECT id FROM customers WHERE id NOT IN (SELECT customer FROM orders WHERE customer IS NOT NULL)",
    "busy": "SELECT c.id FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id AND o.amount > 5)",
    "above": "SELECT id FROM orders WHERE amount > (SELECT AVG(amount) FROM orders)",
    "first_two": """SELECT customer, id FROM (
        SELECT *, row_number() OVER (PARTITION BY customer ORDER BY amount DESC, id) AS n FROM orders) WHERE n <= 2""",
    "running": "SELECT id, SUM(amount) OVER (PARTITION BY customer ORDER BY id) AS so_far FROM orders",
    "tags": "SELECT id, tag FROM orders LATERAL VIEW explode(split(tags, ',')) AS tag",
    "by_set": "SELECT customer, tags, SUM(amount) AS total FROM orders GROUP BY ROLLUP (customer, tags)",
    "several": "SELECT customer, COUNT(DISTINCT tags) AS tags FROM orders GROUP BY customer",
    "countries": "SELECT c.id, s.country FROM customers c JOIN why_cities s ON c.city = s.city",
    "spelled": "SELECT id, quote(city) AS quoted FROM customers",
}
REFUSED = {
    "reachable": """WITH RECURSIVE r(id) AS (SELECT id FROM orders WHERE id = 1 UNION ALL
        SELECT o.id FROM orders o JOIN r ON o.id = r.id + 1) SELECT * FROM r""",
    "sketched": "SELECT customer, approx_count_distinct(CAST(id AS STRING) COLLATE UTF8_LCASE) AS n FROM orders GROUP BY customer",
}


def rows_of(view: str, flow: ps.IncrementalFlow) -> list[dict[str, Any]]:
    return list({str(row): row for row in flow.snapshot(view).to_pylist()}.values())


@pytest.fixture(scope="module")
def flow(session: ps.Session) -> ps.IncrementalFlow:
    session.register_table(
        "why_cities", [{"city": "Oslo", "country": "no"}, {"city": "Lima", "country": "pe"}]
    )
    flow = ps.IncrementalFlow(session)
    flow.register_source("orders", "id BIGINT, customer BIGINT, amount DECIMAL(10,2), tags STRING")
    flow.register_source("customers", "id BIGINT, city STRING", primary_key="id")
    for name, query in (VIEWS | REFUSED).items():
        flow.register_view(name, query)
    orders = [
        (1, 1, 5, "a"),
        (2, 1, 7, "a,b"),
        (3, 2, 9, "b"),
        (4, 3, 1, None),
        (5, 3, 20, "c,a"),
        (6, None, 8, ""),
    ]
    flow.feed("orders", [dict(zip(("id", "customer", "amount", "tags"), row, strict=True)) for row in orders])
    cities = [(1, "Oslo"), (2, "Lima"), (3, "Oslo"), (4, "Lima"), (5, None)]
    flow.feed("customers", [{"id": number, "city": city} for number, city in cities])
    flow.step()
    return flow


@pytest.mark.parametrize("view", list(VIEWS))
def test_the_rows_behind_a_row_of_sql(flow: ps.IncrementalFlow, session: ps.Session, view: str) -> None:
    rows = rows_of(view, flow)
    assert rows
    definition = flow.definition()
    for row in rows[:3]:
        sources = flow.why(view, row).sources
        again = ps.IncrementalFlow.from_definition(definition, session)
        for name in sources.keys() & {"orders", "customers"}:
            again.feed(name, ps.DeltaBatch.weighted(sources[name]))
        again.step()
        assert row in again.snapshot(view).to_pylist()


def test_a_part_of_the_rows_is_given(flow: ps.IncrementalFlow) -> None:
    behind = flow.why("best", {"city": "Oslo"})
    assert [row["id"] for row in behind["orders"].to_pylist()] == [1, 2, 4, 5]
    assert [row["id"] for row in behind["customers"].to_pylist()] == [1, 3]
    assert flow.why("countries", {"id": 1})["why_cities"].to_pylist() == [
        {"city": "Oslo", "country": "no", "_weight": 1}
    ]
    assert [row["id"] for row in flow.why("busy", {"id": 3})["orders"].to_pylist()] == [5]


@pytest.mark.parametrize("view", list(REFUSED))
def test_what_cannot_be_known_is_refused_with_the_reason(flow: ps.IncrementalFlow, view: str) -> None:
    with pytest.raises(ps.StateError) as refused:
        flow.why(view, rows_of(view, flow)[0])
    assert refused.value.code == "FLOW_WHY"
    assert view in str(refused.value)
