"""How far apart the times of rows can be that match."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.plan import node as plan
from penstock.plan.event_time import WatermarkBound, event_times, of_source
from penstock.plan.expiry import Passed, asof_times, join_expiry, session_key
from penstock.plan.expression import Call, Column, Expression, Literal
from penstock.plan.interval import DAY, SECOND, ZONE, Distance, distances
from penstock.plan.node import Field, JoinKind

FIELDS = (Field("k", "bigint"), Field("ts", "timestamp"), Field("d", "date"), Field("n", "timestamp_ntz"))
LEFT, RIGHT = plan.Scan(FIELDS, "left", (0, 1, 2, 3)), plan.Scan(FIELDS, "right", (0, 1, 2, 3))
TIMES = {name: of_source(name, 4, 1) for name in ("left", "right")}
A, B = Column(1, "timestamp"), Column(5, "timestamp")
MINUTE = 60 * SECOND


def call(name: str, *args: Expression, kind: str = "boolean", zone: str = "UTC") -> Call:
    return Call(name, args, kind, True, (("timeZoneId", zone),))


def later(time: Expression, micros: int, zone: str = "UTC", kind: str = "interval minute") -> Call:
    return call("TimestampAddInterval", time, Literal(micros, kind), kind=time.type, zone=zone)


def seconds(time: Expression) -> Call:
    return call("UnixTimestamp", time, Literal("yyyy", "string"), kind="bigint")


def days(*times: Expression) -> Call:
    return call("DateDiff", *times, kind="int")


def both(*conditions: Expression) -> Expression:
    first, *rest = conditions
    for other in rest:
        first = Call("And", (first, other), "boolean")
    return first


def join(residual: Expression | None, kind: JoinKind = "inner", keys: tuple[int, ...] = (0,)) -> plan.Join:
    return plan.Join((*FIELDS, *FIELDS), LEFT, RIGHT, kind, keys, keys, (False,) * len(keys), residual)


def distance(*conditions: Expression, left: int = 1, right: int = 1) -> Distance | None:
    return distances(join(both(*conditions))).get((left, right))


D, E = Column(2, "date"), Column(6, "date")
N = Column(7, "timestamp_ntz")


@pytest.mark.parametrize(
    ("conditions", "after", "before"),
    [
        ([call("LessThanOrEqual", A, B), call("LessThan", B, later(A, MINUTE))], MINUTE, 0),
        ([call("GreaterThan", A, later(B, -MINUTE)), call("GreaterThanOrEqual", later(B, MINUTE), A)], MINUTE, MINUTE),
        ([call("LessThan", A, B)], None, 0),
        ([call("EqualTo", later(A, 5), B)], 5, -5),
        ([call("LessThan", A, later(B, 2 * DAY, zone="Europe/Berlin"))], None, 2 * DAY + ZONE),
        ([call("LessThan", A, later(B, 3 * SECOND, zone="Europe/Berlin"))], None, 3 * SECOND),
        ([call("LessThanOrEqual", call("SubtractTimestamps", B, A), Literal(MINUTE, "interval day to second"))], MINUTE, None),
        ([call("GreaterThan", Literal(7, "interval second"), call("SubtractTimestamps", A, B))], None, 7),
        ([call("LessThanOrEqual", call("Subtract", seconds(B), seconds(A), kind="bigint"), Literal(60, "bigint"))], 61 * SECOND, None),
        ([call("LessThan", A, B), call("LessThan", later(A, MINUTE), B), call("LessThan", A, later(B, 9))], None, -MINUTE),
    ],
)  # fmt: skip
def test_comparisons_bound_the_distance(
    conditions: list[Expression], after: int | None, before: int | None
) -> None:
    assert distance(*conditions) == Distance(after, before)


def test_dates_and_times_of_zones_have_room_for_them() -> None:
    assert distance(call("EqualTo", D, E), left=2, right=2) == Distance(0, 0)
    assert distance(call("LessThanOrEqual", days(E, D), Literal(2, "int")), left=2, right=2) == Distance(
        2 * DAY, None
    )
    as_date = call("Cast", A, kind="date")
    assert distance(call("EqualTo", as_date, E), right=2) == Distance(ZONE, ZONE + DAY)
    assert distance(call("LessThan", call("Cast", A, kind="timestamp_ntz"), N), right=3) == Distance(
        None, ZONE
    )


def test_other_conditions_say_nothing() -> None:
    months = later(B, 3, kind="interval month")
    for condition in (
        call("LessThan", A, months),
        call("LessThan", A, Column(1, "timestamp")),
        call("Or", call("LessThan", A, B), call("LessThan", B, A)),
        call("EqualNullSafe", A, B),
        call("LessThan", seconds(A), B),
        call("LessThan", A, call("CurrentTimestamp", kind="timestamp")),
        call("LessThan", later(B, 1 << 60), A),
    ):
        assert distance(condition) is None
    both_times = both(call("LessThan", A, B), call("LessThan", A, call("CurrentTimestamp", kind="timestamp")))
    assert distances(join(both_times)) == {}


def test_rows_of_a_join_go_when_no_change_matches_them() -> None:
    near = both(call("LessThanOrEqual", A, B), call("LessThan", B, later(A, MINUTE)))
    left, right = WatermarkBound((("left", 0),)), WatermarkBound((("right", 0),))
    assert join_expiry(join(near), TIMES) == ((Passed(1, MINUTE, right),), (Passed(1, 0, left),))
    # A left row without a match is shown: a right row stays until nothing of what it matches can change.
    assert join_expiry(join(near, "left"), TIMES) == (
        (Passed(1, MINUTE, right),),
        (Passed(1, 0, left), Passed(1, MINUTE, right)),
    )
    assert join_expiry(join(None, "full", keys=(0, 1)), TIMES) == (
        (Passed(1, 0, right), Passed(1, 0, left)),
        (Passed(1, 0, left), Passed(1, 0, right)),
    )
    assert join_expiry(join(call("LessThan", A, B), "left"), TIMES) == (None, None)
    assert join_expiry(join(near), {"left": TIMES["left"], "right": (None,) * 4}) == (
        None,
        (Passed(1, 0, left),),
    )


def test_the_times_of_a_join_follow_both_watermarks() -> None:
    near = both(call("LessThanOrEqual", A, B), call("LessThan", B, later(A, MINUTE)))
    times = event_times(join(near), TIMES)
    assert times[1] == WatermarkBound((("left", 0), ("right", -MINUTE)))
    assert times[5] == WatermarkBound((("left", 0), ("right", 0)))
    assert [at for at, time in enumerate(times) if time is not None] == [1, 5]
    assert event_times(join(None), TIMES) == (None,) * 8


def test_groups_of_sessions_close_where_their_sessions_are() -> None:
    below = plan.Project(
        (*FIELDS, Field("e", "timestamp")),
        LEFT,
        (Column(0, "bigint"), A, D, Column(3, "timestamp_ntz"), later(A, MINUTE)),
    )
    sessions = plan.SessionWindow((*below.fields, Field("s", "timestamp")), below, (0,), 1, 4)

    def grouped(*keys: int) -> plan.Aggregate:
        return plan.Aggregate(tuple(sessions.fields[key] for key in keys), sessions, keys, ())

    assert session_key(grouped(0, 5), TIMES) == 5
    assert session_key(grouped(5, 2, 0), TIMES) == 5
    assert session_key(grouped(5), TIMES) is None  # of sessions of several users
    assert session_key(grouped(0, 1), TIMES) is None
    assert session_key(grouped(0, 5), {"left": (None,) * 4}) is None


def test_asof_joins_forget_by_the_times_of_both_sides() -> None:
    both = (WatermarkBound((("left", 0),)), WatermarkBound((("right", 0),)))
    asof = plan.Asof((*FIELDS, *FIELDS), LEFT, RIGHT, (0,), (0,), 1, 1)
    assert event_times(asof, TIMES)[1] == WatermarkBound((("left", 0), ("right", 0)))
    for direction in ("backward", "forward", "nearest"):
        for tolerance in (None, MINUTE):
            node = replace(asof, direction=direction, tolerance=tolerance)
            assert asof_times(node, TIMES) == both
            assert asof_times(node, {"left": TIMES["left"]}) is None
            assert asof_times(replace(node, left_time=2, right_time=2), TIMES) is None


def test_what_is_above_an_asof_join_closes_when_a_right_row_reaches_only_so_far_back() -> None:
    by_date = {name: of_source(name, 4, 2) for name in ("left", "right")}
    for direction in ("forward", "nearest"):
        asof = plan.Asof((*FIELDS, *FIELDS), LEFT, RIGHT, (0,), (0,), 1, 1, direction)  # type: ignore[arg-type]
        assert event_times(asof, TIMES) == (None,) * 8
        near = replace(asof, tolerance=MINUTE)
        assert event_times(near, TIMES)[1] == WatermarkBound((("left", 0), ("right", -MINUTE)))
        days = replace(asof, tolerance=2, left_time=2, right_time=2)
        assert event_times(days, by_date)[2] == WatermarkBound((("left", 0), ("right", -2 * DAY)))
