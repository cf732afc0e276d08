"""Recursions that a LIMIT, a number of levels or a number of rows ends: views give what Spark gives, tick by tick."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps

LEVELS, ROWS = "spark.sql.cteRecursionLevelLimit", "spark.sql.cteRecursionRowLimit"
WALK = "WITH RECURSIVE r(x, level) AS (SELECT src, 0 FROM {e} WHERE src = 0 UNION ALL SELECT e.dst, level + 1 FROM r JOIN {e} e ON e.src = r.x) "
COUNT = "WITH RECURSIVE r(n, level) AS (SELECT 10, 0 UNION ALL SELECT n - 1, level + 1 FROM r) "
PAIRS = "WITH RECURSIVE r(n, level) AS (SELECT min(src), 0 FROM {e} UNION ALL SELECT n + d, level + 1 FROM r CROSS JOIN (VALUES (1), (2)) AS t(d)) "
OTHERS = "WITH RECURSIVE r(n, level) AS (SELECT src, 0 FROM {e} WHERE src = 0 UNION ALL (SELECT n + 1, level + 1 FROM r UNION ALL SELECT dst, -1 FROM {e} WHERE dst = 1)) "

# One row per level, or whole levels: the rows that Spark gives do not depend on an order within a level.
EXACT = [
    COUNT + "SELECT n, level FROM r LIMIT 5",
    COUNT + "SELECT * FROM r LIMIT 5 OFFSET 3",
    COUNT + "SELECT n * 2 AS twice, level FROM r LIMIT 7",
    COUNT + "SELECT n, level FROM r LIMIT 0",
    COUNT + "SELECT n, level FROM r LIMIT 100",
    COUNT + "SELECT * FROM (SELECT n, level FROM r LIMIT 8) WHERE n < 7",
    COUNT + "SELECT * FROM (SELECT * FROM (SELECT n, level FROM r LIMIT 9) LIMIT 4)",
    COUNT + "SELECT sum(n) AS total FROM (SELECT n FROM r LIMIT 6)",
    COUNT
    + "SELECT (SELECT sum(n) FROM (SELECT n FROM r LIMIT 5)) AS five, (SELECT sum(n) FROM (SELECT n FROM r LIMIT 3)) AS three",
    COUNT + "SELECT {e}.src, {e}.dst FROM {e} WHERE EXISTS (SELECT n FROM r)",
    COUNT
    + "SELECT count(*) AS c FROM (SELECT t.n, u.n AS m FROM (SELECT n FROM r LIMIT 4) t JOIN (SELECT n FROM r LIMIT 6) u ON t.n = u.n)",
    COUNT + "SELECT count(*) AS c FROM ((SELECT n FROM r) UNION ALL (SELECT n FROM r) LIMIT 20)",
    COUNT + "SELECT l.n, {e}.dst FROM (SELECT n FROM r LIMIT 11) l JOIN {e} ON {e}.src = l.n",
    COUNT + "SELECT n FROM (SELECT * FROM r LIMIT 9) WHERE level < 5 LIMIT ALL",
    PAIRS + "SELECT n, level FROM r LIMIT 7",
    OTHERS + "SELECT count(*) AS c FROM (SELECT n FROM r LIMIT 9)",
    PAIRS + "SELECT n, level FROM r LIMIT 15",
    "WITH RECURSIVE r(n) MAX RECURSION LEVEL 120 AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 110) SELECT max(n) AS m, count(*) AS c FROM r",
    "WITH RECURSIVE r(n) AS (SELECT src FROM {e} UNION ALL SELECT n + 1 FROM r WHERE n < 8) SELECT n FROM r LIMIT ALL",
    "WITH RECURSIVE r AS (SELECT 0 AS a, 1 AS b UNION ALL SELECT b, a + b FROM r) SELECT a FROM r LIMIT 12",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r), s(m) AS (SELECT (SELECT sum(n) FROM (SELECT n FROM r LIMIT 10))"
    " UNION ALL SELECT m + (SELECT sum(n) FROM (SELECT n FROM r LIMIT 3)) FROM s) SELECT m FROM s LIMIT 6",
]
# Which rows of the last level come is Spark's choice: the levels are compared.
BY_LEVEL = [
    WALK + "SELECT x, level FROM r LIMIT 6",
    WALK + "SELECT level, x FROM r LIMIT 25",
    WALK + "SELECT x, level FROM r LIMIT 3 OFFSET 2",
]
LIMITED = [
    (COUNT + "SELECT n FROM r", {}, "LEVEL"),
    (COUNT + "SELECT n FROM r LIMIT 101", {}, "LEVEL"),
    (COUNT + "SELECT n FROM r ORDER BY n LIMIT 5", {}, "LEVEL"),
    (COUNT + "SELECT n FROM r WHERE n > 0 LIMIT 5", {}, "LEVEL"),
    (COUNT + "SELECT DISTINCT n FROM r LIMIT 5", {}, "LEVEL"),
    (COUNT + "SELECT n FROM r LIMIT ALL", {}, "LEVEL"),
    (COUNT + "SELECT n FROM r LIMIT 8", {LEVELS: "7"}, "LEVEL"),
    (
        "WITH RECURSIVE r(n) MAX RECURSION LEVEL 4 AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r LIMIT 5",
        {},
        "LEVEL",
    ),
    (
        "WITH RECURSIVE r(n) MAX RECURSION LEVEL 0 AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r LIMIT 1",
        {},
        "LEVEL",
    ),
    (PAIRS + "SELECT n FROM r", {ROWS: "15"}, "ROW"),
    (
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 9) SELECT n FROM r",
        {ROWS: "9"},
        "ROW",
    ),
]
PASSING = [
    (COUNT + "SELECT n FROM r LIMIT 7", {LEVELS: "7"}),
    (PAIRS + "SELECT n FROM r LIMIT 31", {ROWS: "4"}),
    (
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 9) SELECT n FROM r",
        {ROWS: "10"},
    ),
    (
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 9) SELECT n FROM r LIMIT ALL",
        {ROWS: "9"},
    ),
    (
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 120) SELECT n FROM r",
        {LEVELS: "-1", ROWS: "-1"},
    ),
]
EDGES = pa.schema([("src", pa.int32()), ("dst", pa.int32())])


@pytest.fixture
def settings(session: ps.Session) -> Iterator[Any]:
    """Settings of the session, for one test."""
    yield session.spark.conf
    for name in (LEVELS, ROWS):
        session.spark.conf.unset(name)


def batch(session: ps.Session, query: str, edges: Counter[tuple[int, int]]) -> list[tuple[Any, ...]]:
    """Spark's own answer over the edges, in one partition."""
    rows = [{"src": src, "dst": dst} for src, dst in edges.elements()]
    frame = session.spark.createDataFrame(pa.Table.from_pylist(rows, EDGES)).coalesce(1)
    frame.createOrReplaceTempView("batch_edges")
    return [tuple(row) for row in session.sql(query.replace("{e}", "batch_edges")).collect()]


def shown(flow: ps.IncrementalFlow, view: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in flow.snapshot(view).to_pylist()]


def ticks(seed: int) -> Iterator[tuple[list[dict[str, int]], list[dict[str, int]], Counter[tuple[int, int]]]]:
    """Inserted rows, deleted rows, and what is there then."""
    chance = random.Random(seed)
    edges: Counter[tuple[int, int]] = Counter()
    for _ in range(3):
        new = [(chance.randrange(4), chance.randrange(4)) for _ in range(3)]
        old = chance.sample(sorted(edges.elements()), min(2, edges.total()))
        edges.update(new)
        edges.subtract(old)
        edges += Counter()
        yield _records(new), _records(old), edges
    yield [], _records(list(edges.elements())), Counter()
    yield [{"src": 0, "dst": 1}], [], Counter({(0, 1): 1})


def _records(edges: list[tuple[int, int]]) -> list[dict[str, int]]:
    return [{"src": src, "dst": dst} for src, dst in edges]


def test_a_limit_ends_a_recursion_as_in_spark(session: ps.Session) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("edges", "src INT, dst INT")
    views = {f"limited_{at}": query for at, query in enumerate([*EXACT, *BY_LEVEL])}
    for name, query in views.items():
        flow.register_view(name, query.replace("{e}", "edges"))
        assert flow.explain(name).tier == "kernel", flow.explain(name)
    for new, old, edges in ticks(7):
        for batch_of, rows in ((ps.DeltaBatch.inserts, new), (ps.DeltaBatch.deletes, old)):
            if rows:
                flow.feed("edges", batch_of(rows))
        flow.step()
        for name, query in views.items():
            expected, answer = batch(session, query, edges), shown(flow, name)
            if query in EXACT:
                assert sorted(answer, key=repr) == sorted(expected, key=repr), (query, edges)
            else:
                at = 0 if "SELECT level" in query else 1
                assert Counter(row[at] for row in answer) == Counter(row[at] for row in expected), (
                    query,
                    edges,
                )


@pytest.mark.parametrize(("query", "conf", "limit"), LIMITED, ids=[case[0] for case in LIMITED])
def test_the_limits_of_spark_hold_for_views(
    session: ps.Session, settings: Any, query: str, conf: dict[str, str], limit: str
) -> None:
    for name, value in conf.items():
        settings.set(name, value)
    flow = ps.IncrementalFlow(session)
    flow.register_source("edges", "src INT, dst INT")
    flow.tick("edges", [{"src": 1, "dst": 2}])
    condition = f"RECURSION_{limit}_LIMIT_EXCEEDED"
    with pytest.raises(ps.SqlError) as caught:
        flow.register_view("endless", query.replace("{e}", "edges"))
    assert (caught.value.code, caught.value.condition) == ("SQL_RECURSION_LIMIT", condition)
    session.register_table("batch_edges", [{"src": 1, "dst": 2}])
    with pytest.raises(ps.SqlError) as caught:
        session.sql_with_timeout(query.replace("{e}", "batch_edges"), "2 minutes")
    assert (caught.value.code, caught.value.condition) == ("SQL_RECURSION_LIMIT", condition)


@pytest.mark.parametrize(("query", "conf"), PASSING, ids=[case[0] for case in PASSING])
def test_what_is_within_the_limits_passes(
    session: ps.Session, settings: Any, query: str, conf: dict[str, str]
) -> None:
    for name, value in conf.items():
        settings.set(name, value)
    flow = ps.IncrementalFlow(session)
    flow.register_source("edges", "src INT, dst INT")
    flow.tick("edges", [{"src": 1, "dst": 2}])
    flow.register_view("ends", query.replace("{e}", "edges"))
    expected = batch(session, query, Counter({(1, 2): 1}))
    assert sorted(shown(flow, "ends")) == sorted(expected)


def test_limits_are_those_of_the_registration(session: ps.Session, settings: Any) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("edges", "src INT, dst INT")
    settings.set(LEVELS, "3")
    flow.register_view("walk", (WALK + "SELECT x, level FROM r").replace("{e}", "edges"))
    settings.unset(LEVELS)
    flow.tick("edges", [{"src": 0, "dst": 1}, {"src": 1, "dst": 2}])
    with pytest.raises(ps.SqlError) as caught:
        flow.tick("edges", [{"src": 2, "dst": 3}])
    assert caught.value.condition == "RECURSION_LEVEL_LIMIT_EXCEEDED"
    again = ps.IncrementalFlow.from_definition(flow.definition(), session)
    with pytest.raises(ps.SqlError, match="3 levels"):
        again.tick("edges", [{"src": at, "dst": at + 1} for at in range(3)])


def test_a_scalar_subquery_over_the_recursion(session: ps.Session) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("edges", "src INT, dst INT")
    query = "WITH RECURSIVE x(id) AS (VALUES (1) UNION ALL SELECT (SELECT id FROM x) + 1 FROM x WHERE id < 5) SELECT id FROM x"
    flow.register_view("counted", query)
    assert sorted(shown(flow, "counted")) == sorted(batch(session, query, Counter()))
