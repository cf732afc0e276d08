"""PIVOT and UNPIVOT against Spark: kinds of pivot columns, values and aggregates, under random ticks with deletes."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from random import Random
from typing import Any

import pytest

import penstock as ps
from golden import ticking

TABLES = {
    "t": "k INT, c STRING, q INT, d DOUBLE, n DECIMAL(30,2), b BOOLEAN, e DATE, x BIGINT, f FLOAT, y BINARY"
}
PIVOTS = [
    "SELECT * FROM (SELECT k, c, q FROM t) PIVOT (sum(q) FOR c IN ('a', 'b'))",
    "SELECT * FROM (SELECT k, c, q FROM t) PIVOT (sum(q) FOR c IN ('a' AS first, NULL AS nothing, 'zz'))",
    "SELECT * FROM (SELECT k, c, q, n FROM t) PIVOT (sum(q) AS s, max(n) AS m, count(*) AS r FOR c IN ('a', 'b'))",
    "SELECT * FROM (SELECT k, q, x FROM t) PIVOT (avg(x), min(x) FOR q IN (0, 1, 2, NULL))",
    "SELECT * FROM (SELECT c, q FROM t) PIVOT (count(q) FOR q IN (1, 2))",
    "SELECT * FROM (SELECT q, c FROM t) PIVOT (count(c) FOR c IN ('a', 'b', 'c'))",
    "SELECT * FROM (SELECT c, q FROM t WHERE k > 0) PIVOT (sum(1), max(c) FOR q IN (1, 2))",
    "SELECT * FROM (SELECT k, c, q, d FROM t) PIVOT (max(d) FOR (c, q) IN (('a', 1), ('b', 2), ('a', NULL)))",
    "SELECT * FROM (SELECT k, c, q, e FROM t) PIVOT (max(e), first(c) FOR (c, q) IN (('a', 1), ('b', 2), (NULL, 0)))",
    "SELECT * FROM (SELECT k, c, e FROM t) PIVOT (max(e) FOR c IN ('a', 'b', NULL))",
    "SELECT * FROM (SELECT k, c, q FROM t) PIVOT (max(c) FOR q IN (0, 1))",
    "SELECT * FROM (SELECT k, d, q FROM t) PIVOT (sum(q) FOR d IN (0.0D, 1.5D, double('NaN')))",
    "SELECT * FROM (SELECT k, d, q FROM t) PIVOT (sum(q) FOR d IN (-0.0D, 1.5D, NULL))",
    "SELECT * FROM (SELECT k, n, x FROM t) PIVOT (bool_or(x > 1), bit_xor(x) FOR n IN (1.50, 2.00))",
    "SELECT * FROM (SELECT k, b, f FROM t) PIVOT (max(f), min(f) FOR b IN (true, false, NULL))",
    "SELECT * FROM (SELECT k, e, n FROM t) PIVOT (sum(n) FOR e IN (DATE'2024-01-01', DATE'2024-02-29'))",
    "SELECT * FROM (SELECT k, y, q FROM t) PIVOT (sum(q) FOR y IN (X'61', X''))",
    "SELECT * FROM (SELECT k, c, q FROM t) PIVOT (count(DISTINCT q) FOR c IN ('a', 'b'))",
    "SELECT * FROM (SELECT k, c, q FROM t) PIVOT (sum(q) FILTER (WHERE q > 0) FOR c IN ('a', 'b'))",
    "SELECT * FROM (SELECT k, c, q FROM t) PIVOT (collect_set(q) FOR c IN ('a', 'b'))",
    "SELECT * FROM (SELECT upper(c) AS u, k % 2 AS h, q FROM t) PIVOT (sum(q) + 1 FOR u IN ('A', 'B'))",
    "SELECT a, b FROM (SELECT c, q FROM t) PIVOT (sum(q) FOR c IN ('a' AS a, 'b' AS b)) WHERE a > 1",
    "SELECT h, coalesce(a, 0) + coalesce(b, 0) AS s FROM (SELECT k AS h, c, q FROM t) PIVOT (sum(q) FOR c IN ('a' AS a, 'b' AS b))",
    "SELECT p.*, r.n AS m FROM (SELECT * FROM (SELECT k, c, q FROM t) PIVOT (sum(q) FOR c IN ('a', 'b'))) p "
    "JOIN t r ON r.k = p.k",
    "SELECT * FROM (SELECT k, c, q, x FROM t) PIVOT (sum(x) FOR (c, q) IN (('a', 1) AS one, ('b', 2) AS two))",
    "SELECT * FROM (SELECT k, named_struct('c', c, 'd', d) AS s, x FROM t) "
    "PIVOT (sum(x) FOR s IN (named_struct('c', 'a', 'd', 0.0D), named_struct('c', 'b', 'd', double('NaN'))))",
]
UNPIVOTS = [
    "SELECT * FROM (SELECT k, q, x FROM t) UNPIVOT (v FOR name IN (q, x))",
    "SELECT * FROM (SELECT k, q, x FROM t) UNPIVOT INCLUDE NULLS (v FOR name IN (q AS first, x))",
    "SELECT * FROM (SELECT k, q, x, d, f FROM t) UNPIVOT ((v, w) FOR name IN ((q, d) AS one, (x, f) AS two))",
    "SELECT name, sum(v) AS s FROM (SELECT k, q, x FROM t) UNPIVOT (v FOR name IN (q, x)) GROUP BY name",
]


def _row(chance: Random) -> tuple[Any, ...]:
    return (
        chance.choice((0, 1, 1, 2, None)),
        chance.choice(("a", "a", "b", "c", None)),
        chance.choice((0, 1, 2, None)),
        chance.choice((0.0, -0.0, 1.5, float("nan"), None)),
        chance.choice((Decimal("1.50"), Decimal("2.00"), Decimal("-9999999999999999999999999999.99"), None)),
        chance.choice((True, False, None)),
        chance.choice((date(2024, 1, 1), date(2024, 2, 29), None)),
        chance.choice((-5, 0, 1, 2**60, None)),
        chance.choice((0.5, float("inf"), -0.0, None)),
        chance.choice((b"a", b"", None)),
    )


@pytest.mark.parametrize("queries", [PIVOTS, UNPIVOTS], ids=["pivot", "unpivot"])
def test_views_are_right_after_every_tick(session: ps.Session, queries: list[str]) -> None:
    ticking.check(session, TABLES, queries, _row, ticks=3)


def test_pivot_of_a_dataframe(session: ps.Session) -> None:
    """`groupBy().pivot()` gives the plan that PIVOT gives, and a restored flow ticks on without Spark."""
    flow = ps.IncrementalFlow(session)
    flow.register_source("t", "k INT, c STRING, q INT")
    pivoted = flow.table("t").groupBy("k").pivot("c", ["a", "b"]).sum("q")
    explained = flow.register_view("v", pivoted)
    assert all(line.tier == "kernel" for line in explained.operators)
    restored = ps.IncrementalFlow.from_definition(flow.definition())
    for one in (flow, restored):
        one.feed("t", [{"k": 1, "c": "a", "q": 1}, {"k": 1, "c": "b", "q": 2}, {"k": 2, "c": "a", "q": 3}])
        one.step()
        rows = sorted(one.snapshot("v").to_pylist(), key=lambda row: row["k"])
        assert rows == [{"k": 1, "a": 1, "b": 2}, {"k": 2, "a": 3, "b": None}]
