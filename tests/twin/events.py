"""Random events of a source with a lateness, and views over them by hand: grouped by times, windows and what follows from them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import penstock as ps
from penstock.engine.registration import Prepared
from penstock.engine.source import SourceSpec
from penstock.plan import node as plan
from penstock.plan.expression import Call, Column, Expression, Literal
from penstock.plan.node import AggregateCall, Field, SortKey
from twin.durable import opened
from twin.flows import no_fragment

ROW = (Field("k", "bigint"), Field("ts", "timestamp"), Field("v", "bigint"), Field("x", "double"))
EVENTS = plan.Scan(ROW, "events", (0, 1, 2, 3))
TS = Column(1, "timestamp")
ANSI = (("evalMode", "ANSI"),)
WINDOW = "struct<start:timestamp,end:timestamp>"
MINUTE = 60_000_000
BEGIN = datetime(2024, 3, 1, 12, tzinfo=UTC)


def _number(value: int) -> Literal:
    return Literal(value, "bigint")


def _math(name: str, *args: Expression) -> Call:
    return Call(name, args, "bigint", True, ANSI)


def window(width: int, back: int = 0) -> Call:
    """What Catalyst makes of window(ts, width), or of one of the windows of a sliding one."""
    micros = Call(
        "PreciseTimestampConversion", (TS,), "bigint", True, (("fromType", "timestamp"), ("toType", "bigint"))
    )
    rest = _math("Remainder", _math("Subtract", micros, _number(0)), _number(width))
    less = Call("LessThan", (rest, _number(0)), "boolean")
    within = Call("CaseWhen", (less, _math("Add", rest, _number(width)), rest), "bigint")
    start = _math("Subtract", _math("Subtract", micros, within), _number(back))
    ends = [
        Call(
            "PreciseTimestampConversion",
            (one,),
            "timestamp",
            True,
            (("fromType", "bigint"), ("toType", "timestamp")),
        )
        for one in (start, _math("Add", start, _number(width)))
    ]
    return Call(
        "CreateNamedStruct",
        (Literal("start", "string"), ends[0], Literal("end", "string"), ends[1]),
        WINDOW,
        False,
    )


CALLS = (
    AggregateCall("Count", (), "bigint"),
    AggregateCall("Sum", (2,), "bigint", options=ANSI),
    AggregateCall("Min", (2,), "bigint"),
    AggregateCall("Average", (3,), "double"),
    AggregateCall("Count", (0,), "bigint", distinct=True),
)
RESULTS = tuple(
    Field(name, kind) for name, kind in zip("cslad", ("bigint",) * 3 + ("double", "bigint"), strict=True)
)
DAY = Call("Cast", (TS,), "date", True, (("timeZoneId", "UTC"),))
HOUR = Call("TruncTimestamp", (Literal("HOUR", "string"), TS), "timestamp", True, (("timeZoneId", "UTC"),))


def grouped(
    *keys: tuple[Expression, str], below: plan.Node = EVENTS, by_user: bool = False
) -> plan.Aggregate:
    """Groups by expressions over the events."""
    extra = tuple(Field(f"t{at}", kind) for at, (_, kind) in enumerate(keys))
    fields = (*ROW, *extra)
    columns = tuple(Column(at, field.type) for at, field in enumerate(ROW))
    project = plan.Project(fields, below, (*columns, *(expression for expression, _ in keys)))
    chosen = (*((0,) if by_user else ()), *range(len(ROW), len(fields)))
    return plan.Aggregate((*(fields[at] for at in chosen), *RESULTS), project, chosen, CALLS)


def _sliding() -> plan.Node:
    fields = (Field("v", "bigint"), Field("window", WINDOW))
    value = Column(2, "bigint")
    expand = plan.Expand(fields, EVENTS, ((value, window(MINUTE)), (value, window(MINUTE, MINUTE // 2))))
    return plan.Aggregate(
        (fields[1], Field("s", "bigint")), expand, (1,), (AggregateCall("Sum", (0,), "bigint", options=ANSI),)
    )


PER_WINDOW = grouped((window(MINUTE), WINDOW), by_user=True)
VIEWS: dict[str, plan.Node] = {
    "per_window": PER_WINDOW,
    "sliding": _sliding(),
    "per_time": plan.Aggregate((ROW[1], *RESULTS), EVENTS, (1,), CALLS),
    "per_hour": grouped((HOUR, "timestamp")),
    "per_day": grouped((DAY, "date"), by_user=True),
    "times": plan.Aggregate((ROW[1],), EVENTS, (1,), ()),
    "users": plan.Aggregate((ROW[0], *RESULTS), EVENTS, (0,), CALLS),
    "all": plan.Aggregate(RESULTS, EVENTS, (), CALLS),
    "of_windows": plan.Aggregate(
        (Field("t0", WINDOW), Field("n", "bigint")),
        plan.Scan(PER_WINDOW.fields, "per_window", tuple(range(len(PER_WINDOW.fields)))),
        (1,),
        (AggregateCall("Sum", (2,), "bigint", options=ANSI),),
    ),
}
_PLAIN = plan.Project(ROW[:2], EVENTS, (Column(0, "bigint"), TS))
# Views that need rows of closed times as long as there are any.
OF_ALL_ROWS: dict[str, plan.Node] = {
    "same": EVENTS,
    "plain": _PLAIN,
    "of_plain": plan.Aggregate(ROW[:1], plan.Scan(ROW[:2], "plain", (0, 1)), (0,), ()),
    "positive": plan.Filter(
        ROW, EVENTS, Call("GreaterThan", (Column(2, "bigint"), _number(0)), "boolean", True)
    ),
    "doubled": plan.Union(ROW[:2], (_PLAIN, plan.Scan(ROW[:2], "events", (0, 1)))),
    "pairs": plan.Join((*ROW, *ROW), EVENTS, EVENTS, "inner", (0,), (0,), (False,)),
    "smallest": plan.TopK(ROW, EVENTS, (0,), (SortKey(2), SortKey(1), SortKey(3)), 2),
}
CLOSING = {"per_window", "sliding", "per_time", "per_hour", "per_day", "times", "of_windows"}


@contextmanager
def nothing_closes() -> Iterator[None]:
    """Views that are registered here free nothing."""
    with mock.patch.object(SourceSpec, "event_time", None):
        yield


def event_flow(
    budget: Any = None, *, views: Any = VIEWS, path: Path | None = None, kernel: Any = None, **options: Any
) -> ps.IncrementalFlow:
    """A flow over events that may be two minutes late."""
    flow = opened(path, checkpoint_every=5_000, budget=budget, kernel=kernel)
    flow.register_source(
        "events",
        "k BIGINT, ts TIMESTAMP, v BIGINT, x DOUBLE",
        lateness={"column": "ts", "delay": "2 minutes"},
        on_missing_delete="quarantine",
        **options,
    )
    for name in views:
        add_view(flow, name)
    return flow


def add_view(flow: ps.IncrementalFlow, name: str) -> None:
    """Register a view, if it is not there."""
    if name not in flow._graph.views:
        root = {**VIEWS, **OF_ALL_ROWS}[name]
        flow._install(Prepared(plan.View(name, "", root), no_fragment), "reject")


class Events:
    """Ticks of events: time goes on, some rows come late or have no time, some are taken back."""

    def __init__(self, seed: int, *, steps: Sequence[int] = ()) -> None:
        """`steps` are the seconds between ticks; by default days pass."""
        self._chance = random.Random(seed)
        self._steps = steps
        self._now = BEGIN
        self._ticks = 0
        self._present: list[dict[str, Any]] = []

    def tick(self) -> list[dict[str, Any]]:
        chance = self._chance
        self._ticks += 1
        # Days pass, whatever the seed, so that groups of all kinds close.
        seconds = 100_000 if self._ticks % 3 == 0 else chance.choice([0, 20, 60, 200, 4_000, 40_000])
        seconds = chance.choice(self._steps) if self._steps else seconds
        self._now += timedelta(seconds=seconds)
        rows = [
            {
                "k": chance.randrange(3),
                "ts": None
                if chance.random() < 0.05
                else self._now - timedelta(seconds=chance.choice([0, 1, 30, 90, 150, 400])),
                "v": chance.randrange(-5, 6),
                "x": chance.choice([0.1, 0.25, 1e10]),
                "_weight": 1,
            }
            for _ in range(chance.randrange(6))
        ]
        taken = [
            self._present.pop(chance.randrange(len(self._present))) for _ in range(min(2, len(self._present)))
        ]
        self._present.extend(rows)
        return [*rows, *({**row, "_weight": -1} for row in taken)]

    def much_later(self) -> list[dict[str, Any]]:
        """One event behind which all times before are closed."""
        self._now += timedelta(days=30)
        return [{"k": 0, "ts": self._now, "v": 1, "x": 0.1, "_weight": 1}]


def answers(
    flow: ps.IncrementalFlow, names: Any = VIEWS, at_tick: int | None = None
) -> dict[str, Counter[str]]:
    """The rows of all views."""
    return {name: Counter(map(str, flow.snapshot(name, at_tick=at_tick).to_pylist())) for name in names}
