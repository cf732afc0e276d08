"""SUM: exact, whatever the order of rows; NULL when there is no value.

Integers give BIGINT and day-time intervals give intervals, both refused beyond 64 bits, year-month intervals give intervals
of at most 32 bits; decimals give decimal(p + 10, s); floats give the double nearest to the exact sum. TRY_SUM is NULL
where SUM is an error.

Invertible. State: 16 bytes per group (integers, small decimals), 32 (decimals) or 56 (floats), and a count. Cost: delta.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.data.arrays import Bools, Ints, Positions
from penstock.data.types import is_year_month
from penstock.errors import DataError
from penstock.functions.aggregates.base import Function, Parts, overflow_mode, selection
from penstock.functions.aggregates.parts import (
    DecimalSumPart,
    IntegerSumPart,
    count_of,
    float_sum_of,
)
from penstock.functions.aggregates.result import Numbers, decimals
from penstock.plan.node import AggregateCall


def overflow(what: str, function: str) -> DataError:
    """The error of a sum that its type cannot hold."""
    return DataError(
        f"{what} overflows",
        code="DATA_OVERFLOW",
        condition="ARITHMETIC_OVERFLOW",
        hint=f"cast to a wider type, or use {function} to get NULL instead",
    )


def tolerate(wide: Bools, valid: Bools, call: AggregateCall, what: str, *, interval: bool = False) -> Bools:
    """Return where a result is valid, given where it overflows: an error, or NULL for the TRY functions.

    Without ANSI an overflow is NULL, too, but for intervals, which have no such mode.
    """
    if (wide & valid).any():
        mode = overflow_mode(call)
        if mode == "ANSI" or (interval and mode == "LEGACY"):
            raise overflow(what, "try_avg" if call.function == "Average" else "try_sum")
        return valid & ~wide
    return valid


def in_months(values: Ints, wide: Bools) -> tuple[npt.NDArray[np.int32], Bools]:
    """Sums as numbers of months, and where they do not fit into one."""
    months = values.astype(np.int32)
    return months, wide | (months != values)


class _IntegerSum:
    def __init__(self, call: AggregateCall, parts: Parts) -> None:
        chosen = selection(call)
        kind = parts.types[call.args[0]]
        self._is_interval = pa.types.is_duration(kind) or is_year_month(call.type)
        self._kind = kind if self._is_interval else pa.int64()
        self._call = call
        self._count = count_of(parts, chosen)
        self._sum = parts.share(chosen, IntegerSumPart, "integer sum")

    def result(self, slots: Positions) -> Numbers:
        values, wide = self._sum.words(slots)
        valid = self._count.at(slots) > 0
        interval = self._is_interval
        if self._kind == pa.int32():
            months, wide = in_months(values, wide)
            return Numbers(months, tolerate(wide, valid, self._call, "SUM", interval=True), self._kind)
        # Without ANSI a BIGINT wraps around, which is what its words do.
        if interval or overflow_mode(self._call) != "LEGACY":
            valid = tolerate(wide, valid, self._call, "SUM", interval=interval)
        return Numbers(values, valid, self._kind)


class _DecimalSum:
    def __init__(self, call: AggregateCall, parts: Parts) -> None:
        chosen = selection(call)
        kind = parts.types[call.args[0]]
        self._kind = pa.decimal128(min(38, kind.precision + 10), kind.scale)
        self._call = call
        self._count = count_of(parts, chosen)
        self._sum = parts.share(chosen, lambda: DecimalSumPart(kind.precision), "decimal sum")

    def result(self, slots: Positions) -> Numbers:
        words, wide = self._sum.words(slots, self._kind.precision)
        valid = tolerate(wide, self._count.at(slots) > 0, self._call, "SUM of decimals")
        return decimals(words, valid, self._kind)


class _FloatSum:
    def __init__(self, call: AggregateCall, parts: Parts) -> None:
        chosen = selection(call)
        self._count = count_of(parts, chosen)
        self._sum = float_sum_of(parts, chosen, 0)
        self._sum.ask_sums()

    def result(self, slots: Positions) -> Numbers:
        return Numbers(self._sum.doubles(slots), self._count.at(slots) > 0, pa.float64())


def make_sum(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `sum` and `try_sum`, by the type of the argument."""
    kind = parts.types[call.args[0]]
    if pa.types.is_floating(kind):
        return _FloatSum(call, parts)
    return _DecimalSum(call, parts) if pa.types.is_decimal(kind) else _IntegerSum(call, parts)
