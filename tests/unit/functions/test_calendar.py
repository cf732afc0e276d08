"""Calendar intervals of text: what is plainly one, what is left to Spark, and moments that they are added to."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from penstock.data.types import kernel_type
from penstock.functions import evaluate
from penstock.functions.scalars.base import BeyondKernel, ByRow
from penstock.functions.scalars.interval_text import calendar
from penstock.plan.expression import Call, Column, Literal

MOMENT = Column(0, "timestamp")
GAP = Call("Cast", (Column(1, "string"),), "interval", True, (("evalMode", "ANSI"),))
ADD = Call("TimestampAddInterval", (MOMENT, GAP), "timestamp", True, (("timeZoneId", "UTC"),))
START = datetime(2024, 1, 1, tzinfo=UTC)


class _Tick:
    micros = 0


def run(*gaps: str | None) -> list[Any]:
    columns = [
        pa.array([START] * len(gaps), kernel_type("timestamp")),
        pa.array(gaps, kernel_type("string")),
    ]
    values: list[Any] = evaluate.compile(ADD)(columns, len(gaps), _Tick()).to_pylist()
    return values


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("1 day", (0, 1, 0)),
        ("interval 2 weeks -3 hours", (0, 14, -10_800_000_000)),
        ("- 1.5 SECONDS", (0, 0, -1_500_000)),
        ("1 year 1 month", (13, 0, 0)),
        ("1 microsecond 1 millisecond", (0, 0, 1001)),
    ],
)
def test_what_is_plainly_an_interval(text: str, parts: tuple[int, int, int]) -> None:
    assert calendar(text) == parts


@pytest.mark.parametrize(
    "text",
    ["", "soon", "1", "day", "1day", "1 day,", "1.5 days", "999999999 years", "1 day2 hours", "\t1 day"],
)
def test_all_else_is_left_to_spark(text: str) -> None:
    assert calendar(text) is None
    with pytest.raises(BeyondKernel):
        run("1 day", text)


def test_intervals_are_added() -> None:
    assert isinstance(evaluate.unsupported(ADD), ByRow)
    assert run("1 day", "-1 hour", None) == [
        datetime(2024, 1, 2, tzinfo=UTC),
        datetime(2023, 12, 31, 23, tzinfo=UTC),
        None,
    ]
    with pytest.raises(BeyondKernel):
        run("1 day", "1 month")


def test_constant_months_are_decided_when_it_is_planned() -> None:
    constant = Call("TimestampAddInterval", (MOMENT, Literal((1, 0, 0), "interval")), "timestamp")
    assert not evaluate.only_by_row(constant)
