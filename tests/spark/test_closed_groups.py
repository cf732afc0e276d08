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
}
KEEPING = {
    "by_key": "SELECT k, SUM(v) AS s FROM events GROUP BY k",
    "sessions": "SELECT session_window(ts, '3 minutes') AS w, COUNT(*) AS n FROM events GROUP BY 1",
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
            "events", "k BIGINT, ts TIMESTAMP, v BIGINT", lateness={"column": "ts", "delay": "30 minutes"}
        )
        for name, query in {**QUERIES, **KEEPING}.items():
            explanation = flow.register_view(name, query)
            frees = any(line.state == "frees groups behind the watermark" for line in explanation.operators)
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
