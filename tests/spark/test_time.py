"""Views whose conditions move with time, wherever now() may stand: after every step they are Spark's answer for that time."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from golden.spark_answer import settings
from penstock import DeltaBatch, IncrementalFlow, Session, SqlError

START = 1_700_000_000_000_000
MINUTE = 60_000_000
L = "l(id BIGINT, k BIGINT, at TIMESTAMP)"
R = "r(id BIGINT, k BIGINT, at TIMESTAMP, wait BIGINT)"
BOTH = "l.k = r.k AND l.at + make_dt_interval(0, 0, r.wait) > {now}"
ON_LEFT = "l.k = r.k AND l.at > {now} - INTERVAL 5 MINUTES"
QUERIES = {
    "inner": f"SELECT l.id, r.id AS other FROM l JOIN r ON {BOTH}",
    "left": f"SELECT l.id, r.id AS other FROM l LEFT JOIN r ON {BOTH} AND l.id <> r.id",
    "left_own": f"SELECT l.id, r.id AS other FROM l LEFT JOIN r ON {ON_LEFT}",
    "left_other": "SELECT l.id, r.id AS other FROM l LEFT JOIN r ON l.k = r.k AND r.at > {now} - INTERVAL 5 MINUTES",
    "right": f"SELECT l.id, r.id AS other, r.wait FROM l RIGHT JOIN r ON {BOTH}",
    "full": f"SELECT l.id, r.id AS other FROM l FULL JOIN r ON {BOTH}",
    "without_keys": "SELECT l.id, r.id AS other FROM l LEFT JOIN r ON l.at < r.at AND r.at < {now} AND l.at > {now} - INTERVAL 9 MINUTES",
    "semi": f"SELECT id, k FROM l WHERE EXISTS (SELECT 1 FROM r WHERE {BOTH})",
    "anti": f"SELECT id, k FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE {BOTH})",
    "existence": f"SELECT id FROM l WHERE id = 1 OR EXISTS (SELECT 1 FROM r WHERE {BOTH})",
    "key": "SELECT l.id, r.id AS other FROM l LEFT JOIN r ON CAST(l.at AS DATE) = date_add(CAST({now} AS DATE), CAST(r.k AS INT))",
    "exploded": "SELECT id, e FROM l LATERAL VIEW explode(array(at > {now}, at <= {now} - INTERVAL 5 MINUTES)) t AS e",
    "rolled": "SELECT k, at > {now} AS later, COUNT(*) AS n FROM l GROUP BY ROLLUP (k, at > {now})",
    "recursive": """
        WITH RECURSIVE w(id, k) AS (
            SELECT id, k FROM l WHERE id = 0
            UNION ALL SELECT l.id, l.k FROM w JOIN l ON l.id = w.id + 1 AND l.at <= {now})
        SELECT id, k FROM w""",
}


def batch(columns: list[tuple[Any, ...]], names: list[str]) -> pa.Table:
    """Rows as Arrow, times as instants."""
    table = pa.table({name: [row[at] for row in columns] for at, name in enumerate(names)})
    at = table.column_names.index("at")
    return table.set_column(at, "at", table.column(at).cast(pa.int64()).cast(pa.timestamp("us", "UTC")))


def shown(table: pa.Table) -> list[str]:
    return sorted(repr(tuple(row.values())) for row in table.to_pylist())


def test_now_anywhere_is_the_time_of_the_step(session: Session) -> None:
    now = [START]
    flow = IncrementalFlow(session, clock=lambda: now[0])
    flow.register_source("l", L[2:-1])
    flow.register_source("r", R[2:-1])
    for name, query in QUERIES.items():
        flow.register_view(name, query.format(now="now()"))
    draw = random.Random(5)
    present: dict[str, list[tuple[Any, ...]]] = {"l": [], "r": []}
    names = {"l": ["id", "k", "at"], "r": ["id", "k", "at", "wait"]}
    for tick in range(5):
        now[0] += draw.randrange(3) * MINUTE + 1
        for source in () if tick in (2, 3) else ("l", "r"):
            fresh = [
                (
                    draw.randrange(6),
                    draw.choice([None, 0, 1]),
                    None if draw.random() < 0.1 else START + draw.randrange(-8, 12) * MINUTE,
                    *([draw.randrange(9)] if source == "r" else []),
                )
                for _ in range(5)
            ]
            gone = draw.sample(present[source], len(present[source]) // 3)
            if gone:
                flow.feed(source, DeltaBatch.deletes(batch(gone, names[source])))
            flow.feed(source, DeltaBatch.inserts(batch(fresh, names[source])))
            for row in gone:
                present[source].remove(row)
            present[source] += fresh
        flow.step()
        for source, rows in present.items():
            session.register_table(source, batch(rows, names[source]))
        for name, query in QUERIES.items():
            expected = session.sql(query.format(now=f"timestamp_micros({now[0]})")).toArrow()
            assert shown(flow.snapshot(name)) == shown(expected), (name, tick)
    for source in present:
        session.spark.catalog.dropTempView(source)


MOMENTS = {
    "SELECT id FROM l WHERE at >= 'today'": "SELECT id FROM l WHERE at >= date_trunc('DAY', {now})",
    "SELECT id FROM l WHERE at <= ' NOW '": "SELECT id FROM l WHERE at <= {now}",
    "SELECT id FROM l WHERE at < CAST('tomorrow' AS TIMESTAMP) AND CAST(at AS DATE) > 'yesterday'": (
        "SELECT id FROM l WHERE at < date_trunc('DAY', {now}) + INTERVAL 1 DAY"
        " AND CAST(at AS DATE) > date_sub(CAST({now} AS DATE), 1)"
    ),
    "SELECT id, CAST('now' AS DATE) AS d, CAST('today' AS TIMESTAMP_NTZ) AS t FROM l": (
        "SELECT id, CAST({now} AS DATE) AS d, CAST(CAST({now} AS DATE) AS TIMESTAMP_NTZ) AS t FROM l"
    ),
}


def test_words_for_moments_move_with_time(session: Session) -> None:
    now = [START]
    flow = IncrementalFlow(session, clock=lambda: now[0])
    flow.register_source("l", L[2:-1])
    for number, query in enumerate(MOMENTS):
        flow.register_view(f"v{number}", query)
    rows = [(hour, 0, START + (hour - 40) * 60 * MINUTE) for hour in range(0, 80, 5)]
    flow.feed("l", DeltaBatch.inserts(batch(rows, ["id", "k", "at"])))
    session.register_table("l", batch(rows, ["id", "k", "at"]))
    for tick in range(4):
        flow.step()
        for number, query in enumerate(MOMENTS.values()):
            expected = session.sql(query.format(now=f"timestamp_micros({now[0]})")).toArrow()
            assert shown(flow.snapshot(f"v{number}")) == shown(expected), (query, tick)
        now[0] += 9 * 60 * MINUTE
    session.spark.catalog.dropTempView("l")


def test_the_time_of_day_is_refused(session: Session) -> None:
    flow = IncrementalFlow(session)
    flow.register_source("l", L[2:-1])
    with (
        settings(session.spark, {"spark.sql.timeType.enabled": "true"}),
        pytest.raises(SqlError, match="current_time") as failure,
    ):
        flow.register_view("v", "SELECT id FROM l WHERE hour(at) > (SELECT hour(current_time()))")
    assert failure.value.code == "SQL_NONDETERMINISTIC"


@pytest.mark.parametrize("name", ["left_own", "without_keys"])
def test_a_condition_of_time_costs_what_changes_sides(session: Session, name: str) -> None:
    flow = IncrementalFlow(session)
    flow.register_source("l", L[2:-1])
    flow.register_source("r", R[2:-1])
    explanation = flow.register_view(name, QUERIES[name].format(now="now()"))
    assert explanation.tier == "kernel"
    timed = [line for line in explanation.operators if line.reason]
    assert timed
    assert {line.operator for line in timed} == {"Filter"}
