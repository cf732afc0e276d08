"""Rows that come too late are quarantined and counted."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

import penstock as ps
from penstock import DeltaBatch, IncrementalFlow

SCHEMA = "id BIGINT, ts TIMESTAMP"
TEN = timedelta(minutes=10)


def row(number: int, minute: int | None) -> dict[str, Any]:
    at = None if minute is None else datetime(2024, 3, 1, 12, tzinfo=UTC) + timedelta(minutes=minute)
    return {"id": number, "ts": at}


def flow_of(lateness: Any = ("ts", "10 minutes"), **options: Any) -> IncrementalFlow:
    flow = IncrementalFlow()
    flow.register_source("events", options.pop("schema", SCHEMA), lateness=lateness, **options)
    return flow


def ids(flow: IncrementalFlow) -> list[int]:
    return sorted(flow.snapshot("events").column("id").to_pylist())


def test_the_mark_of_earlier_ticks_decides() -> None:
    flow = flow_of()
    # Within one tick nothing is late: there is no order in it.
    summary = flow.tick("events", [row(1, 60), row(2, 0), row(3, None)])
    assert (summary.rows_in, summary.late) == (3, 0)
    summary = flow.tick("events", [row(4, 50), row(5, 49), row(6, 70), row(7, None)])
    assert (summary.rows_in, summary.late) == (3, 1)
    assert "3 rows in, 1 late, 0 out" in str(summary)
    assert ids(flow) == [1, 2, 3, 4, 6, 7]
    flow.tick("events", [row(8, 59)])
    quarantined = flow.quarantined("events").to_pylist()
    assert [(row["id"], row["_weight"], row["_reason"]) for row in quarantined] == [
        (5, 1, "late: before 2024-03-01 12:50:00.000000"),
        (8, 1, "late: before 2024-03-01 13:00:00.000000"),
    ]
    assert flow.metrics()["penstock_late_rows_total"] == 2
    assert flow.quarantined("events", clear=True).num_rows == 2
    assert flow.quarantined("events").num_rows == 0


def test_retractions_are_judged_too_and_do_not_move_the_mark() -> None:
    flow = flow_of()
    flow.tick("events", [row(1, 0), row(2, 60)])
    summary = flow.tick("events", DeltaBatch.deletes([row(1, 0)]))
    assert (summary.rows_in, summary.late) == (0, 1)
    flow.tick("events", DeltaBatch.deletes([row(2, 60)]))
    assert ids(flow) == [1]
    assert flow.tick("events", [row(3, 49)]).late == 1, "what was accepted once stays the mark"


def test_a_failed_tick_moves_nothing() -> None:
    flow = flow_of()
    flow.tick("events", [row(1, 0)])
    flow.feed("events", [row(2, 60), row(3, -30)])
    with pytest.raises(ps.DataError):
        flow.tick("events", DeltaBatch.deletes([row(9, 55)]))
    assert flow.quarantined("events").num_rows == 0
    assert flow.tick("events", [row(4, 0)]).late == 0


def test_batches_of_one_tick_share_their_mark_and_dates_count_in_days() -> None:
    flow = flow_of(("on", timedelta(days=1)), schema="id BIGINT, on DATE", primary_key="id")
    flow.feed("events", [{"id": 1, "on": date(2024, 3, 5)}])
    flow.feed("events", [{"id": 2, "on": date(2024, 3, 1)}])
    assert flow.step().late == 0
    assert flow.tick("events", [{"id": 3, "on": date(2024, 3, 4)}]).late == 0
    assert flow.tick("events", [{"id": 4, "on": date(2024, 3, 3)}]).late == 1
    assert flow.tick("events", DeltaBatch.deletes([{"id": 2}])).late == 0, "a key alone has no time"
    assert ids(flow) == [1, 3]


@pytest.mark.parametrize(
    "given",
    [{"column": "ts", "delay": "10 minutes"}, ("TS", 600_000), ["ts", TEN], "10 minutes", 600_000, TEN],
)
def test_forms(given: Any) -> None:
    flow = flow_of(given)
    again = IncrementalFlow.from_definition(flow.definition())
    for one in (flow, again):
        one.tick("events", [row(1, 60)])
        assert one.tick("events", [row(2, 49), row(3, 50)]).late == 1


@pytest.mark.parametrize(
    ("given", "schema", "code", "part"),
    [
        ("10 minutes", "id BIGINT, a TIMESTAMP, b DATE", "FLOW_OPTION", "columns of times are a, b"),
        ("10 minutes", "id BIGINT", "FLOW_OPTION", '{"column": "ts"'),
        ({"column": "ts"}, SCHEMA, "FLOW_OPTION", "how late it may be"),
        (("tz", "1 minute"), SCHEMA, "FLOW_UNKNOWN_COLUMN", "ts"),
        (("id", "1 minute"), SCHEMA, "FLOW_OPTION", "column 'id' is bigint"),
        (("ts", "soon"), SCHEMA, "CONFIG_DURATION", "soon"),
    ],
)
def test_mistakes(given: Any, schema: str, code: str, part: str) -> None:
    with pytest.raises(ps.ConfigError) as caught:
        flow_of(given, schema=schema)
    assert caught.value.code == code
    assert part in str(caught.value)
