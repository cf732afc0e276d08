"""Views over two sources with a lateness that forget rows: joins, top-k, window functions, and what reads them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, get_args

import penstock as ps
from penstock.engine.registration import Prepared
from penstock.plan import node as plan
from penstock.plan.expression import Call, Column, Expression
from penstock.plan.expression import Literal as Constant
from penstock.plan.node import AggregateCall, Field, Frame, JoinKind, SortKey, WindowCall
from twin.durable import opened
from twin.events import ANSI, EVENTS, HOUR, MINUTE, ROW, TS, WINDOW, window
from twin.flows import no_fragment

OTHERS = plan.Scan(ROW, "others", (0, 1, 2, 3))
OTHER_TS = Column(len(ROW) + 1, "timestamp")
COLUMNS = tuple(Column(at, field.type) for at, field in enumerate(ROW))


def later(time: Expression, micros: int) -> Call:
    """A time plus an interval."""
    interval = Constant(micros, "interval day to second")
    return Call("TimestampAddInterval", (time, interval), "timestamp", True, (("timeZoneId", "UTC"),))


def _both(one: Expression, other: Expression) -> Call:
    return Call("And", (one, other), "boolean")


def _not_before(one: Expression, other: Expression) -> Call:
    return Call("GreaterThanOrEqual", (one, other), "boolean")


def between(low: int, high: int) -> Call:
    """The other row is from `low` to `high` behind the event."""
    return _both(_not_before(OTHER_TS, later(TS, low)), _not_before(later(TS, high), OTHER_TS))


def apart(most: int) -> Call:
    """The other row is less than so much behind the event, and not before it, as a difference."""
    difference = Call(
        "SubtractTimestamps", (OTHER_TS, TS), "interval day to second", True, (("timeZoneId", "UTC"),)
    )
    less = Call("LessThan", (difference, Constant(most, "interval day to second")), "boolean")
    return _both(less, Call("LessThanOrEqual", (TS, OTHER_TS), "boolean"))


def joined(
    kind: JoinKind,
    residual: Expression | None,
    *,
    left: plan.Node = EVENTS,
    right: plan.Node = OTHERS,
    keys: tuple[int, ...] = (0,),
) -> plan.Join:
    """A join by user, or by these columns of both."""
    others = tuple(replace(field, name=f"other_{field.name}") for field in right.fields)
    fields = left.fields if kind in ("semi", "anti") else (*left.fields, *others)
    return plan.Join(fields, left, right, kind, keys, keys, (False,) * len(keys), residual)


def timed(below: plan.Node, expression: Expression, kind: str) -> plan.Project:
    """The rows and a time that is made of theirs."""
    return plan.Project((*ROW, Field("t", kind)), below, (*COLUMNS, expression))


PER_MINUTE = timed(EVENTS, window(MINUTE), WINDOW)
OTHERS_PER_MINUTE = timed(OTHERS, window(MINUTE), WINDOW)
KINDS: tuple[JoinKind, ...] = get_args(JoinKind)
NEAR = between(-MINUTE, 2 * MINUTE)
COUNT = AggregateCall("Count", (), "bigint")
_INNER = joined("inner", NEAR)
_WINDOWS = plan.Window(
    (*PER_MINUTE.fields, Field("r", "int"), Field("s", "bigint")),
    PER_MINUTE,
    (0, 4),
    (SortKey(1), SortKey(2), SortKey(3)),
    (
        WindowCall("RowNumber", (), "int", Frame("rows", None, 0)),
        WindowCall("Sum", (2,), "bigint", Frame("rows", -1, 0), options=ANSI),
    ),
)


def _top(limit: int | None, offset: int = 0, *, rank: bool = False) -> plan.TopK:
    fields = (*PER_MINUTE.fields, *((Field("n", "int"),) if rank else ()))
    return plan.TopK(fields, PER_MINUTE, (0, 4), (SortKey(2, True), SortKey(1)), limit, offset, rank)


def _sessions(*keys: int, gap: int, below: plan.Node = EVENTS) -> plan.SessionWindow:
    """The events of each user, or of these columns, with the start of the session."""
    lasting = plan.Project((*ROW, Field("end", "timestamp")), below, (*COLUMNS, later(TS, gap)))
    return plan.SessionWindow((*lasting.fields, Field("start", "timestamp")), lasting, keys, 1, 4)


def _per_session(below: plan.SessionWindow) -> plan.Aggregate:
    keys = (*below.keys, len(below.fields) - 1)
    calls = (
        COUNT,
        AggregateCall("Max", (4,), "timestamp"),
        AggregateCall("Sum", (2,), "bigint", options=ANSI),
    )
    results = (Field("n", "bigint"), Field("last", "timestamp"), Field("s", "bigint"))
    return plan.Aggregate((*(below.fields[key] for key in keys), *results), below, keys, calls)


def _asof(
    direction: Literal["backward", "forward", "nearest"] = "backward",
    *,
    outer: bool = True,
    tolerance: int | None = None,
    keys: tuple[int, ...] = (0,),
) -> plan.Asof:
    others = tuple(replace(field, name=f"other_{field.name}") for field in ROW)
    return plan.Asof((*ROW, *others), EVENTS, OTHERS, keys, keys, 1, 1, direction, tolerance, outer)


def _per_hour(below: plan.Node) -> plan.Aggregate:
    return plan.Aggregate(
        (Field("h", "timestamp"), Field("n", "bigint")),
        plan.Project((Field("h", "timestamp"),), below, (HOUR,)),
        (0,),
        (COUNT,),
    )


_POSITIVE = plan.Filter(
    ROW, EVENTS, Call("GreaterThan", (Column(2, "bigint"), Constant(0, "bigint")), "boolean")
)
SESSIONS: dict[str, plan.Node] = {
    "sessions": _per_session(_sessions(0, gap=MINUTE)),
    "long sessions": _per_session(_sessions(0, 2, gap=10 * MINUTE)),
    "sessions of all": _per_session(_sessions(gap=MINUTE // 2, below=_POSITIVE)),
    "rows of sessions": _sessions(0, gap=MINUTE // 2),
}
ASOF: dict[str, plan.Node] = {
    "asof": _asof(),
    "asof inner": _asof(outer=False),
    "asof near": _asof(tolerance=2 * MINUTE),
    "asof of all": _asof(keys=()),
    "of asof": _per_hour(_asof()),
    "asof forward": _asof("forward"),
    "asof forward inner": _asof("forward", outer=False, keys=()),
    "asof forward near": _asof("forward", tolerance=2 * MINUTE),
    "of asof forward": _per_hour(_asof("forward", outer=False, tolerance=MINUTE)),
    "asof nearest": _asof("nearest", keys=()),
    "asof nearest inner": _asof("nearest", outer=False),
    "asof nearest near": _asof("nearest", outer=False, tolerance=2 * MINUTE),
    "of asof nearest": _per_hour(_asof("nearest", tolerance=MINUTE)),
}
FREEING: dict[str, plan.Node] = {
    **SESSIONS,
    **ASOF,
    **{f"near {kind}": joined(kind, NEAR) for kind in KINDS},
    **{
        f"minute {kind}": joined(kind, None, left=PER_MINUTE, right=OTHERS_PER_MINUTE, keys=(0, 4))
        for kind in KINDS
    },
    **{f"minute near {kind}": joined(kind, NEAR, keys=(0, 1)) for kind in KINDS},
    "apart": joined("inner", apart(3 * MINUTE)),
    "apart anti": joined("anti", apart(3 * MINUTE)),
    "without keys": joined("inner", between(0, MINUTE), keys=()),
    "same": joined("inner", between(0, MINUTE), right=EVENTS),
    "top": _top(2),
    "ranked": _top(1, 1, rank=True),
    "all ranked": _top(None, rank=True),
    "windows": _WINDOWS,
    # Groups over a join close behind both watermarks.
    "of join": _per_hour(_INNER),
    "of windows": plan.Aggregate(
        (Field("t", WINDOW), Field("n", "bigint"), Field("m", "int")),
        plan.Scan(_WINDOWS.fields, "windows", tuple(range(len(_WINDOWS.fields)))),
        (4,),
        (COUNT, AggregateCall("Max", (5,), "int")),
    ),
}
# Joins that nothing bounds, or only from one side.
KEEPING: dict[str, plan.Node] = {
    "pairs": joined("inner", None),
    "before": joined("inner", _not_before(OTHER_TS, TS)),
    "before left": joined("left", _not_before(OTHER_TS, TS)),
    "behind": joined("semi", _not_before(TS, OTHER_TS)),
}
JOINS: dict[str, plan.Node] = {**FREEING, **KEEPING}
Retain = Literal["all", "used", "open"]


def joins_flow(
    budget: Any = None, *, views: Any = JOINS, retain: Retain = "all", path: Any = None, kernel: Any = None
) -> ps.IncrementalFlow:
    """A flow over events, which may be two minutes late, and others, which may be five."""
    flow = opened(path, checkpoint_every=5_000, budget=budget, kernel=kernel)
    for name, delay in (("events", "2 minutes"), ("others", "5 minutes")):
        flow.register_source(
            name,
            "k BIGINT, ts TIMESTAMP, v BIGINT, x DOUBLE",
            lateness={"column": "ts", "delay": delay},
            on_missing_delete="quarantine",
            retain=retain,
        )
    for name in views:
        add_join(flow, name)
    return flow


def add_join(flow: ps.IncrementalFlow, name: str) -> None:
    """Register a view, if it is not there."""
    if name not in flow._graph.views:
        flow._install(Prepared(plan.View(name, "", JOINS[name]), no_fragment), "reject")
