"""Window functions: what Spark 4.1 answers in the cases that are easy to get wrong."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.errors import DataError
from penstock.functions.windows import WINDOWS, unsupported
from penstock.operators.window import Window
from penstock.plan.node import Frame, SortKey, WindowCall
from penstock.state.arrangement import Arrangement
from twin.tick import end_tick

TICK = Tick(1, 0)


def over(kind: pa.DataType, values: list[Any], call: WindowCall, *, key: SortKey | None = None) -> list[Any]:
    """The results of a call over one column that is also the order, in that order."""
    order = key or SortKey(0)
    operator = Window([kind], [], [order], [call, WindowCall("RowNumber", (), "int", Frame("rows", None, 0))])
    out = operator.step([Delta((pa.array(values, kind),), np.ones(len(values), np.int64))], TICK)
    found = zip(out.columns[2].to_pylist(), out.columns[1].to_pylist(), strict=True)
    return [result for _, result in sorted(found, key=lambda pair: pair[0])]


def count(lower: Any, upper: Any) -> WindowCall:
    return WindowCall("Count", (), "bigint", Frame("range", lower, upper))


def test_ranges_of_dates_and_timestamps() -> None:
    days = [dt.date(2020, 1, 1), dt.date(2020, 1, 2), dt.date(2020, 1, 5)]
    assert over(pa.date32(), days, count(-1, 0)) == [1, 2, 1]
    start = dt.datetime(2020, 1, 1)
    times = [start, start + dt.timedelta(hours=1), start + dt.timedelta(hours=2, minutes=30)]
    assert over(pa.timestamp("us"), times, count(-3_600_000_000, 0)) == [1, 2, 1]


def test_ranges_of_decimals_and_floats() -> None:
    values = [None, Decimal("1.0"), Decimal("1.5"), Decimal("2.5")]
    for precision in (2, 30):
        found = over(pa.decimal128(precision, 1), values, count(Decimal("-0.5"), Decimal("0.5")))
        assert found == [1, 2, 2, 1]
    floats = [None, 1.0, 1.5, 2.5, float("inf"), float("inf"), float("nan")]
    assert over(pa.float64(), floats, count(-0.5, 0.5)) == [1, 2, 2, 1, 2, 2, 1]
    assert over(pa.float32(), floats, count(-0.5, 0.5)) == [1, 2, 2, 1, 2, 2, 1]


def test_a_range_that_leaves_its_type_is_an_error() -> None:
    with pytest.raises(DataError) as error:
        over(pa.int8(), [127, -128, 3], count(-10, 1))
    assert error.value.code == "DATA_OVERFLOW"
    assert over(pa.int8(), [None, 100, 3], count(-10, 1)) == [1, 1, 1]


def test_a_sum_over_a_frame_overflows_as_a_group_does() -> None:
    call = WindowCall("Sum", (0,), "bigint", Frame("rows", -1, 0))
    with pytest.raises(DataError):
        over(pa.int64(), [2**63 - 1, 1], call)
    assert over(pa.int64(), [2**62, 2**62 - 1, -5], call) == [-5, 2**62 - 6, 2**63 - 1]


def test_decimal_averages_over_frames() -> None:
    call = WindowCall("Average", (0,), "decimal(9,6)", Frame("rows", None, None))
    values = [Decimal(1), Decimal(2), Decimal(2)]
    assert over(pa.decimal128(5, 2), values, call) == [Decimal("1.666667")] * 3


def test_ntile_with_few_rows() -> None:
    call = WindowCall("NTile", (), "int", Frame("rows", None, 0), options=(("buckets", 8),))
    assert over(pa.int64(), [1, 2, 3], call) == [1, 2, 3]


def test_a_shared_arrangement_is_stepped_by_its_owner() -> None:
    kinds = [pa.int64(), pa.int64()]
    shared = Arrangement(kinds, [0])
    call = WindowCall("Rank", (), "int", Frame("rows", None, 0))
    operator = Window(kinds, [0], [SortKey(1)], [call], shared)
    first = Delta((pa.array([1, 1]), pa.array([5, 7])), np.array([1, 1]))
    shared.apply(first)
    assert sorted(operator.step([first], TICK).columns[2].to_pylist()) == [1, 2]
    end_tick(shared)
    end_tick(operator)
    second = Delta((pa.array([1]), pa.array([6])), np.array([1]))
    shared.apply(second)
    out = operator.step([second], TICK)
    rows = sorted(zip(out.weights.tolist(), *(c.to_pylist() for c in out.columns), strict=True))
    assert rows == [(-1, 1, 7, 2), (1, 1, 6, 2), (1, 1, 7, 3)]
    assert operator.memory() == 0


def test_only_changed_rows_are_given() -> None:
    kinds = [pa.int64()]
    operator = Window(kinds, [], [SortKey(0)], [WindowCall("RowNumber", (), "int", Frame("rows", None, 0))])
    operator.step([Delta((pa.array(range(100)),), np.ones(100, np.int64))], TICK)
    end_tick(operator)
    out = operator.step([Delta((pa.array([98]),), np.array([-1]))], TICK)
    assert sorted(
        zip(out.weights.tolist(), out.columns[0].to_pylist(), out.columns[1].to_pylist(), strict=True)
    ) == [
        (-1, 98, 99),
        (-1, 99, 100),
        (1, 99, 99),
    ]
    operator.rollback()
    with pytest.raises(DataError):
        operator.step([Delta((pa.array([500]),), np.array([-1]))], TICK)


def test_the_table_says_what_it_knows() -> None:
    frame = Frame("rows", None, 0)
    assert unsupported(WindowCall("RowNumber", (), "int", frame)) is None
    assert unsupported(WindowCall("Sum", (0,), "bigint", frame)) is None
    assert unsupported(WindowCall("ApproximatePercentile", (0,), "double", frame)) is not None
    assert unsupported(WindowCall("Sum", (0,), "interval month", frame)) is None
    assert unsupported(WindowCall("Count", (), "bigint", Frame("range", (-1, 0, 0), 0))) is not None
    for name in WINDOWS.builtin:
        assert WINDOWS.load(name).__doc__
