"""AVG: the exact sum over the count, rounded once; NULL when there is no value.

Integers and floats give the nearest double, decimals decimal(p + 4, s + 4) rounded half up, intervals whole
microseconds or months. A sum of decimals or intervals that its type cannot hold is refused; TRY_AVG is NULL then.

Invertible. State: that of SUM, shared with it. Cost: delta.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Positions
from penstock.data.types import is_year_month
from penstock.functions.aggregates.base import Function, Parts, selection
from penstock.functions.aggregates.parts import (
    DecimalSumPart,
    IntegerSumPart,
    count_of,
    float_sum_of,
)
from penstock.functions.aggregates.result import Numbers, decimals
from penstock.functions.aggregates.sum import in_months, tolerate
from penstock.functions.exact import integer_words
from penstock.functions.rounding import half_up
from penstock.plan.node import AggregateCall

_DIVISION_SCALE = 39  # Spark divides decimals to this many digits before it rounds to the type of the result


class _FloatAverage:
    def __init__(self, call: AggregateCall, parts: Parts) -> None:
        chosen = selection(call)
        self._count = count_of(parts, chosen)
        self._sum = float_sum_of(parts, chosen, 0)
        self._sum.ask_means(self._count)

    def result(self, slots: Positions) -> Numbers:
        counts = self._count.at(slots)
        return Numbers(self._sum.means(slots), counts > 0, pa.float64())


class _IntegerAverage:
    def __init__(self, call: AggregateCall, parts: Parts) -> None:
        chosen = selection(call)
        self._kind = parts.types[call.args[0]]
        self._call = call
        self._count = count_of(parts, chosen)
        self._sum = parts.share(chosen, IntegerSumPart, "integer sum")

    def result(self, slots: Positions) -> Numbers:
        counts = self._count.at(slots)
        if pa.types.is_duration(self._kind) or is_year_month(self._call.type):
            # The sum must be an interval, though the mean of intervals always is one.
            sums, wide = self._sum.words(slots)
            wide = in_months(sums, wide)[1] if self._kind == pa.int32() else wide
            valid = tolerate(wide, counts > 0, self._call, "AVG of intervals", interval=True)
            pairs = zip(self._sum.integers(slots), np.maximum(counts, 1).tolist(), strict=True)
            means = np.array([half_up(total, count) for total, count in pairs], np.int64)
            return Numbers(
                means.astype(np.int32 if self._kind == pa.int32() else np.int64), valid, self._kind
            )
        return Numbers(self._sum.doubles(slots, np.maximum(counts, 1)), counts > 0, pa.float64())


class _DecimalAverage:
    def __init__(self, call: AggregateCall, parts: Parts) -> None:
        chosen = selection(call)
        kind = parts.types[call.args[0]]
        self._call = call
        self._sum_precision = min(38, kind.precision + 10)
        self._scale = kind.scale
        self._kind = pa.decimal128(min(38, kind.precision + 4), min(38, kind.scale + 4))
        self._count = count_of(parts, chosen)
        self._sum = parts.share(chosen, lambda: DecimalSumPart(kind.precision), "decimal sum")

    def result(self, slots: Positions) -> Numbers:
        counts = self._count.at(slots)
        divisors = np.maximum(counts, 1)
        sums, wide = self._sum.words(slots, self._sum_precision)
        valid = tolerate(wide, counts > 0, self._call, "AVG of decimals")
        factor = 10 ** (self._kind.scale - self._scale)
        low = sums[:, 0]
        small = (
            (sums[:, 1] == low >> np.int64(63)) & (np.abs(low) < (1 << 62) // factor) & (low != -(1 << 63))
        )
        scaled = np.abs(np.where(small, low, 0)) * factor
        quotient = scaled // divisors
        quotient += 2 * (scaled - quotient * divisors) >= divisors
        words = np.empty_like(sums)
        words[:, 0] = np.where(low < 0, -quotient, quotient)
        words[:, 1] = words[:, 0] >> np.int64(63)
        too_wide = np.zeros(len(slots), np.bool_)
        slow = np.flatnonzero(~small & valid)
        if len(slow):
            exact = [
                self._divide(total, int(divisors[at]))
                for at, total in zip(slow.tolist(), self._sum.integers(slots[slow]), strict=True)
            ]
            too_wide[slow] = [abs(value) >= 10**self._kind.precision for value in exact]
            words[slow] = integer_words([0 if abs(value) >= 1 << 126 else value for value in exact])
        quick = small & valid
        if self._kind.precision <= 18:
            too_wide |= quick & (quotient >= 10**self._kind.precision)
        return decimals(words, tolerate(too_wide, valid, self._call, "AVG of decimals"), self._kind)

    def _divide(self, total: int, count: int) -> int:
        digits = max(0, _DIVISION_SCALE - self._scale)
        exact = half_up(total * 10**digits, count)
        return half_up(exact, 10 ** (self._scale + digits - self._kind.scale))


def make_average(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `avg`, `mean` and `try_avg`, by the type of the argument."""
    kind = parts.types[call.args[0]]
    if pa.types.is_floating(kind):
        return _FloatAverage(call, parts)
    return _DecimalAverage(call, parts) if pa.types.is_decimal(kind) else _IntegerAverage(call, parts)
