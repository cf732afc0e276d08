"""Bounds behind which no row changes any more."""

from __future__ import annotations

import pytest

from penstock.plan import node as plan
from penstock.plan.event_time import WatermarkBound, event_times, of_source
from penstock.plan.expiry import closing_key
from penstock.plan.expression import Call, Literal
from penstock.plan.node import Field
from twin.events import DAY, EVENTS, HOUR, MINUTE, ROW, TS, VIEWS, grouped, window

TIMES = {"events": of_source("events", len(ROW), 1)}
HOURS = 3_600_000_000
NOW = Call("CurrentTimestamp", (), "timestamp")


def bound(view: plan.Node) -> int | None:
    """The bound of the groups of a view when the watermark is 0."""
    assert isinstance(view, plan.Aggregate)
    closing = closing_key(view, TIMES)
    return None if closing is None else closing[1].bound({"events": 0})


def test_a_bound_is_the_watermark_less_what_the_key_may_take_from_it() -> None:
    assert bound(VIEWS["per_time"]) == 0
    assert bound(grouped((window(MINUTE), "struct<start:timestamp,end:timestamp>"))) == -2 * MINUTE
    assert bound(VIEWS["sliding"]) == -2.5 * MINUTE
    assert bound(grouped((HOUR, "timestamp"))) == -25 * HOURS
    assert bound(grouped((DAY, "date"))) == -48 * HOURS


def test_a_key_that_does_not_follow_the_event_time_closes_nothing() -> None:
    assert bound(VIEWS["users"]) is None
    assert bound(VIEWS["all"]) is None
    year = Call("Year", (TS,), "int")
    assert bound(grouped((year, "int"))) is None
    negative = Call("Subtract", (Literal(0, "bigint"), TS), "bigint")
    assert bound(grouped((negative, "bigint"))) is None


def test_rows_that_the_clock_moves_have_no_event_time() -> None:
    recent = plan.Filter(ROW, EVENTS, Call("GreaterThan", (TS, NOW), "boolean"))
    assert event_times(recent, TIMES) == (None,) * len(ROW)
    assert (
        event_times(plan.Filter(ROW, EVENTS, Call("IsNotNull", (TS,), "boolean")), TIMES) == TIMES["events"]
    )


def test_joins_have_those_that_they_bound_and_of_several_sources_the_last_one_counts() -> None:
    by_user = plan.Join((*ROW, *ROW), EVENTS, EVENTS, "inner", (0,), (0,), (False,))
    assert event_times(by_user, TIMES) == (None,) * 8
    by_time = plan.Join((*ROW, *ROW), EVENTS, EVENTS, "inner", (1,), (1,), (False,))
    assert event_times(by_time, TIMES) == TIMES["events"] * 2
    other = plan.Scan((Field("ts", "timestamp"),), "others", (0,))
    one = plan.Project((ROW[1],), EVENTS, (TS,))
    both = {**TIMES, "others": of_source("others", 1, 0)}
    (time,) = event_times(plan.Union((ROW[1],), (one, other)), both)
    assert time == WatermarkBound((("events", 0), ("others", 0)))
    assert time.bound({"events": 7, "others": 5}) == 5
    assert time.bound({"events": 7}) is None


@pytest.mark.parametrize("unit", ["FORTNIGHT", None])
def test_an_unknown_unit_closes_nothing(unit: str | None) -> None:
    truncated = Call("TruncTimestamp", (Literal(unit, "string"), TS), "timestamp")
    assert bound(grouped((truncated, "timestamp"))) is None
