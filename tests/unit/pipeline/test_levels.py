"""Which nodes are views, and in which flow they run."""

from __future__ import annotations

from penstock import config
from penstock.pipeline.graph import graph
from penstock.pipeline.levels import levels
from penstock.pipeline.load import check_text


def _levels(transforms: str) -> tuple[dict[str, int], set[str]]:
    text = f"""
sources:
  orders: {{type: rate}}
transforms:
{transforms}
sinks:
  out: {{type: blackhole, from: last}}
"""
    checked = check_text(text, settings=config.load({}), environ={})
    assert checked.mistakes == ()
    nodes = graph(checked.spec)
    order = levels(nodes.groups[0].sources + nodes.groups[0].transforms, nodes.inputs)
    return dict(order.level), set(order.views)


def test_views_over_views_are_one_flow() -> None:
    level, views = _levels("""
  rows: {type: sql, sql: SELECT * FROM orders}
  totals: {type: view, sql: SELECT count(*) AS n FROM rows}
  last: {type: view, sql: SELECT max(n) AS n FROM totals}
""")
    assert level == {"orders": 0, "rows": 0, "totals": 1, "last": 1}
    assert views == {"totals", "last"}


def test_sql_over_nothing_but_views_is_a_view() -> None:
    level, views = _levels("""
  totals: {type: view, sql: "SELECT value % 2 AS k, count(*) AS n FROM orders GROUP BY 1", primary_key: k}
  last: {type: sql, sql: SELECT * FROM totals WHERE n > 5}
""")
    assert (level["last"], views) == (1, {"totals", "last"})


def test_sql_that_leaves_rows_out_is_no_view() -> None:
    level, views = _levels("""
  totals: {type: view, sql: "SELECT value % 2 AS k, count(*) AS n FROM orders GROUP BY 1", primary_key: k}
  last: {type: sql, sql: SELECT k / n AS q FROM totals, on_error: drop}
""")
    assert (level["last"], views) == (1, {"totals"})


def test_a_view_behind_a_transform_of_a_view_is_a_flow_of_its_own() -> None:
    level, views = _levels("""
  totals: {type: view, sql: "SELECT value % 2 AS k, count(*) AS n FROM orders GROUP BY 1", primary_key: k}
  checked: {type: expect, from: totals, expectations: {few: {condition: n < 9, action: warn}}}
  last: {type: view, sql: "SELECT count(*) AS n FROM checked JOIN orders ON checked.k = orders.value"}
""")
    assert level == {"orders": 0, "totals": 1, "checked": 1, "last": 2}
    assert views == {"totals", "last"}


def test_a_log_of_a_view_is_read_by_the_next_flow() -> None:
    level, _ = _levels("""
  totals: {type: view, sql: "SELECT value % 2 AS k, count(*) AS n FROM orders GROUP BY 1", primary_key: k}
  last: {type: cdc, from: totals, primary_key: k, sequence_by: n, scd: 2}
""")
    assert level["last"] in (1, 2)
