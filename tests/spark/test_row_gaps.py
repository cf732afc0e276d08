"""Calendar intervals that come with each row: added to moments, and as the gaps of sessions, which deleted rows split again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from golden.spark_answer import settings
from seed import SEED
from twin.judge import Judge, Table, grid
from twin.ticked import differences

PLAIN = [
    None,
    "5 minutes",
    "1 day",
    "-1 day",
    "2 weeks 3 hours",
    "interval 90 seconds",
    "  1 HOUR  -30 Minutes ",
    "0.5 seconds",
    "1.123456789 second",
    "+ 2 days",
    "250 milliseconds 7 microseconds",
    "0 minutes",
]
# What Spark must be asked for: months, texts that are no intervals, and forms that nobody writes.
ODD = [
    "1 month",
    "2 years 1 day",
    "soon",
    "",
    "5minutes",
    ".5 seconds",
    "1 day\t2 hours",
    "99999999999 days",
    "1.5 days",
]
MOMENTS = [
    None,
    datetime(2024, 3, 30, 1, 30, tzinfo=UTC),
    datetime(2024, 10, 26, 0, 30, tzinfo=UTC),
    datetime(2024, 2, 28, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(1, 1, 2, tzinfo=UTC),
    datetime(1969, 12, 31, 12, tzinfo=UTC),
]
MOVED = ["t + CAST(g AS INTERVAL)", "CAST(t AS TIMESTAMP_NTZ) + CAST(g AS INTERVAL)"]
START = datetime(2024, 3, 30, 22, tzinfo=UTC)
SESSIONS = [
    "SELECT session_window.start AS s, session_window.end AS e, count(*) AS c, sum(id) AS i FROM t GROUP BY session_window(t, g)",
    "SELECT k, session_window, count(DISTINCT id) AS c FROM t GROUP BY k, session_window(t, g)",
    "SELECT k, session_window.end AS e, max(id) AS m FROM t WHERE k IS NOT NULL GROUP BY session_window(t, g), k HAVING count(*) > 1",
    "SELECT session_window.start AS s, count(*) AS c FROM t GROUP BY session_window(t, CASE WHEN k = 1 THEN '10 minutes' ELSE g END)",
]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris", "America/Sao_Paulo"])
def test_intervals_of_rows_are_added(spark: SparkSession, zone: str) -> None:
    with settings(spark, {"spark.sql.session.timeZone": zone}):
        judge = Judge(spark, grid(t=("timestamp", MOMENTS), g=("string", PLAIN)), MOVED)
        assert [judge.differences(index) for index in range(len(MOVED))] == [[], []]


@pytest.mark.parametrize("query", SESSIONS)
def test_sessions_by_the_gap_of_each_row(session: ps.Session, query: str) -> None:
    print(f"seed {SEED}")
    chance = Random(SEED)
    count = 70
    table: Table = {
        "t": ("timestamp", [_moment(chance) for _ in range(count)]),
        "g": ("string", [chance.choice([*PLAIN, *PLAIN, *ODD]) for _ in range(count)]),
        "k": ("int", [chance.choice([1, 2, None]) for _ in range(count)]),
    }
    assert differences(session, query, table, chance, ticks=5) == []
    flow = ps.IncrementalFlow(session)
    flow.register_source("t", "id INT, t TIMESTAMP, g STRING, k INT")
    assert flow.register_view("v", query).tier == "kernel", str(flow.explain("v"))


def _moment(chance: Random) -> datetime | None:
    return None if chance.random() < 0.05 else START + timedelta(minutes=chance.randrange(0, 400))
