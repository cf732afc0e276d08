"""SUM, AVG and their TRY forms beyond the range of their type and back, against Spark's own answer after every tick.

All values of a group have one sign, so that Spark's answer does not depend on the order in which it adds them.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

import penstock as ps
from golden.spark_answer import settings
from twin.batch import COMPILED, Pair

# What is aggregated: the type of the column, the expression over it, what is shown of the result, and a value of which two overflow.
ARGUMENTS: dict[str, tuple[str, str, str, Any]] = {
    "int": ("INT", "v", "{}", 2**31 - 1),
    "bigint": ("BIGINT", "v", "{}", 2**62 + 1),
    "decimal(5,1)": ("DECIMAL(5,1)", "v", "{}", Decimal("9999.9")),
    "decimal(38,0)": ("DECIMAL(38,0)", "v", "{}", Decimal(6 * 10**37)),
    "day-time interval": ("BIGINT", "timestamp_micros(v) - timestamp_micros(0)", "{}", 2**62 + 1),
    "year-month interval": ("INT", "make_ym_interval(0, v)", "cast({} AS STRING)", 2**30 + 1),
}
CAN_OVERFLOW = {
    ("bigint", "sum"),
    ("decimal(38,0)", "sum"),
    ("decimal(38,0)", "avg"),
    ("day-time interval", "sum"),
    ("day-time interval", "avg"),
    ("year-month interval", "sum"),
    ("year-month interval", "avg"),
}


@pytest.mark.parametrize("function", ["sum", "avg", "try_sum", "try_avg"])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_overflow_is_what_it_is_in_spark(session: ps.Session, name: str, function: str) -> None:
    kind, argument, shown, large = ARGUMENTS[name]
    call = f"{function}({argument})"
    query = f"SELECT k, {shown.format(call)} AS p, count(v) AS c FROM t GROUP BY k"
    refused = False
    with settings(session.spark, COMPILED):
        for sign in (1, -1):
            pair = Pair(session, query, {"t": f"k INT, v {kind}"})
            value = sign * large
            for inserts, keep in (
                (["large", None], 2),
                (["large"], 3),
                ([], 1),
                (["large", "large"], 3),
                ([], 0),
            ):
                held = [row for row in pair.held["t"] if row == (1, value)]
                gone = tuple((-1, row) for row in held[keep:])
                come = tuple((1, (1, value if item else None)) for item in inserts)
                expected, answer = pair.step({"t": (*gone, *come, (1, (2, None)))})
                assert answer == expected, f"{value} {inserts} {keep}"
                refused = refused or isinstance(answer, str)
    assert refused == ((name, function) in CAN_OVERFLOW)


@pytest.mark.parametrize("function", ["sum", "avg", "try_sum", "try_avg"])
@pytest.mark.parametrize("name", ["bigint", "decimal(38,0)", "day-time interval"])
def test_overflow_in_a_window_is_what_it_is_in_spark(session: ps.Session, name: str, function: str) -> None:
    kind, argument, _, large = ARGUMENTS[name]
    window = "(PARTITION BY k ORDER BY n ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"
    query = f"SELECT k, n, {function}({argument}) OVER {window} AS p FROM t"
    first, second = ((1, number, large) for number in (1, 2))
    with settings(session.spark, COMPILED):
        pair = Pair(session, query, {"t": f"k INT, n INT, v {kind}"})
        for tick in ([(1, first)], [(1, second)], [(-1, first)], [(1, (2, 1, None))]):
            expected, answer = pair.step({"t": tuple(tick)})
            assert answer == expected, f"{tick}"
            if isinstance(answer, str):
                break
