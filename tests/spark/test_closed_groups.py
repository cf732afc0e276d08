"""Groups by event time that are freed behind the watermark show what Spark computes from all accepted rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

import penstock as ps

QUERIES = {
    "tumbling": "SELECT window(ts, '1 minute') AS w, k, SUM(v) AS s, COUNT(DISTINCT v) AS d FROM events GROUP BY 1, 2",
    "sliding": "SELECT window.start AS start, AVG(v) AS m FROM events GROUP BY window(ts, '10 minutes', '5 minutes')",
    "hourly": "SELECT date_trunc('HOUR', ts) AS h, MAX(v) AS m FROM events WHERE v > 2 GROUP BY 1",
    "daily": "SELECT to_date(ts) AS d, COUNT(*) AS n, collect_list(v) AS l FROM events GROUP BY 1",
    "times": "SELECT DISTINCT ts FROM events",
    "sessions": "SELECT session_window(ts, '3 minutes') AS w, COUNT(*) AS n FROM events GROUP BY 1",
    "user_sessions": "SELECT k, session_window(ts, '20 minutes').start AS s, COUNT(*) AS n FROM events GROUP BY k, session_window(ts, '20 minutes')",
    "near": "SELECT a.ts, b.ts AS later, b.v FROM events a JOIN events b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 15 MINUTES AND b.v > a.v",
    "unanswered": "SELECT a.ts, b.v FROM events a LEFT JOIN events b ON a.k = b.k AND b.ts > a.ts AND b.ts <= a.ts + INTERVAL 10 MINUTES",
    "in_seconds": "SELECT a.ts FROM events a WHERE NOT EXISTS (SELECT 1 FROM events b WHERE a.k = b.k AND b.v > a.v AND unix_timestamp(b.ts) - unix_timestamp(a.ts) BETWEEN -60 AND 3600)",
    "by_day": "SELECT a.v, b.v AS w FROM events a JOIN events b ON to_date(a.ts) = to_date(b.ts) AND a.k = b.k AND a.v + 1 = b.v",
    "day_later": "SELECT a.ts, b.v FROM events a JOIN events b ON a.k = b.k AND a.v = b.v AND b.ts BETWEEN a.ts + INTERVAL 1 DAY AND a.ts + INTERVAL '1 2' DAY TO HOUR",
    "first_of_hour": "SELECT * FROM (SELECT k, ts, v, row_number() OVER (PARTITION BY k, date_trunc('HOUR', ts) ORDER BY v DESC, ts) AS r FROM events) WHERE r <= 2",
    "running": "SELECT k, ts, SUM(v) OVER (PARTITION BY k, to_date(ts) ORDER BY ts) AS s FROM events",
    "answers_per_hour": "SELECT date_trunc('HOUR', a.ts) AS h, COUNT(*) AS n FROM events a JOIN events b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 15 MINUTES GROUP BY 1",
}
KEEPING = {
    "by_key": "SELECT k, SUM(v) AS s FROM events GROUP BY k",
    "earlier": "SELECT a.ts, COUNT(*) AS n FROM events a JOIN events b ON a.k = b.k AND b.v = a.v + 1 WHERE a.v > 5 GROUP BY a.ts",
}


def events(hour: int) -> list[dict[str, Any]]:
    """The events of an hour of March, across the night in which clocks go forward, and one that comes a day late."""
    begin = datetime(2024, 3, 30, tzinfo=UTC) + timedelta(hours=hour)
    rows = [{"k": at % 2, "ts": begin + timedelta(minutes=7 * at), "v": at} for at in range(8)]
    return [*rows, {"k": 0, "ts": begin - timedelta(days=1), "v": 100}]


def comparable(table: pa.Table) -> list[str]:
    rows = [
        {name: sorted(value) if isinstance(value, list) else value for name, value in row.items()}
        for row in table.to_pylist()
    ]
    return sorted(map(str, rows))


def test_freed_groups_are_those_of_spark(session: ps.Session) -> None:
    zone = session.spark.conf.get("spark.sql.session.timeZone")
    session.spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        flow = ps.IncrementalFlow(session)
        flow.register_source(
            "events",
            "k BIGINT, ts TIMESTAMP, v BIGINT",
            lateness={"column": "ts", "delay": "30 minutes"},
            retain="used",  # joins have rows of their own then, and do not read those of the source
        )
        for name, query in {**QUERIES, **KEEPING}.items():
            explanation = flow.register_view(name, query)
            states = [line.state for line in explanation.operators if line.state]
            frees = all(state.startswith("frees ") and "keeps" not in state for state in states)
            assert frees == (name in QUERIES), str(explanation)
        late = sum(flow.tick("events", events(hour)).late for hour in range(120))
        assert late == 119
        accepted = flow.snapshot("events")
        session.spark.createDataFrame(accepted).createOrReplaceTempView("events")
        for name, query in {**QUERIES, **KEEPING}.items():
            assert comparable(flow.snapshot(name)) == comparable(session.spark.sql(query).toArrow()), name
    finally:
        session.spark.catalog.dropTempView("events")
        session.spark.conf.set("spark.sql.session.timeZone", zone)
