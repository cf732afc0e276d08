"""APPROX_COUNT_DISTINCT: Spark's own estimate (HyperLogLog++) of how many different values a group has.

A value sets one register of the group, by the first bits of its hash, to the place of the first one among the others,
unless it is greater already. So that values can go again, the state counts the values of each register and place:
some thousands per group, however many values it has. The estimate reads the registers alone, and is the same in
whatever order the values came. The tables that correct it come with the plan, from Spark.

Needs ordered state (the counted places of the group). Cost: the registers of touched groups.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Ints, Positions
from penstock.functions.aggregates.base import Function, Parts, Rows, integers, selection
from penstock.functions.aggregates.parts import MultisetPart
from penstock.functions.scalars.hashes import XXHASH, hashed
from penstock.plan.node import AggregateCall, SortKey
from penstock.state.multiset import Multiset, multiset

_SEED = 42
_WORD = 64
_PLACES = 64  # more than there are places: a register and a place are one number
_NEIGHBOURS = 6
_TABLES_END = 19  # the precision from which on Spark corrects nothing
_EXACT_BITS = 53
_SMALL_ALPHAS = {4: 0.673, 5: 0.697, 6: 0.709}


def marks(column: pa.Array, precision: int) -> Ints:
    """The register and the place that each value asks for, as one number."""
    words = hashed(XXHASH, [column], _SEED, len(column)).view(np.uint64)
    registers = words >> np.uint64(_WORD - precision)
    rest = (words << np.uint64(precision)) | np.uint64(1 << (precision - 1))
    packed: Ints = registers.astype(np.int64) * _PLACES + _leading_zeros(rest) + 1
    return packed


def _leading_zeros(words: np.ndarray[tuple[int, ...], np.dtype[np.uint64]]) -> Ints:
    """How many zeros words begin with; none of them is zero."""
    zeros = np.zeros(len(words), np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        none = words < np.uint64(1 << (_WORD - step))
        zeros[none] += step
        words = np.where(none, words << np.uint64(step), words)
    return zeros


class Estimator:
    """The estimate from registers of one precision."""

    def __init__(
        self, precision: int, estimates: Sequence[float], biases: Sequence[float], threshold: float
    ) -> None:
        self.precision = precision
        self._count = count = 1 << precision
        alpha = _SMALL_ALPHAS.get(precision, 0.7213 / (1.0 + 1.079 / count))
        self._scale = alpha * count * count
        self._estimates, self._biases, self._threshold = estimates, biases, threshold

    def estimate(self, inverse: float, empty: int) -> int:
        """From the sum of 2**-place over all registers, and how many of them are empty."""
        raw = self._scale / inverse
        if empty:
            linear = self._count * math.log(self._count / empty)
            if (self.precision < _TABLES_END and linear <= self._threshold) or raw <= 2.5 * self._count:
                return math.floor(linear + 0.5)
        if self.precision < _TABLES_END and raw < 5.0 * self._count:
            raw -= self._bias(raw)
        return math.floor(raw + 0.5)

    def _bias(self, raw: float) -> float:
        """The mean bias of the nearest known estimates."""
        estimates = self._estimates
        low = max(bisect_left(estimates, raw) - _NEIGHBOURS + 1, 0)
        high = min(low + _NEIGHBOURS, len(estimates))
        while high < len(estimates) and (raw - estimates[high]) ** 2 < (raw - estimates[low]) ** 2:
            low, high = low + 1, high + 1
        total = 0.0
        for bias in self._biases[low:high]:
            total += bias
        return total / (high - low)


class RegisterPart(MultisetPart):
    """The counted places of every register of each group."""

    __slots__ = ("_precision",)

    def __init__(self, values: Multiset, precision: int) -> None:
        super().__init__(values)
        self._precision = precision

    def update(self, rows: Rows) -> None:
        places = pa.array(marks(rows.columns[0], self._precision))
        super().update(Rows(rows.touched, rows.groups, rows.weights, (places,)))


class _ApproxCountDistinct:
    def __init__(self, call: AggregateCall, parts: Parts) -> None:
        precision = int(call.option("precision"))
        estimates, biases = (
            [float(number) for number in str(call.option(name, "")).split()]
            for name in ("estimates", "biases")
        )
        self._estimator = Estimator(precision, estimates, biases, float(call.option("threshold", "0")))
        key = (SortKey(0),)
        self._values: RegisterPart = parts.share(
            selection(call),
            lambda: RegisterPart(multiset([pa.int64()], key), precision),
            "registers",
            precision,
        )

    def result(self, slots: Positions) -> pa.Array:
        read = self._values.read(slots)
        precision = self._estimator.precision
        registers, places = np.divmod(integers(read.columns[0]), _PLACES)
        # In order, so that the last of a register is its greatest place.
        own = read.groups * (1 << precision) + registers
        last = np.flatnonzero(np.append(own[1:] != own[:-1], True)) if len(own) else np.zeros(0, np.int64)
        groups, registers, places = read.groups[last], registers[last], places[last]
        empty = (1 << precision) - np.bincount(groups, minlength=len(slots))
        inverse = empty + np.bincount(groups, np.ldexp(1.0, -places), len(slots))
        if len(places) and int(places.max()) + precision >= _EXACT_BITS:
            # Then the sum depends on its order.
            for group in np.unique(groups[places + precision >= _EXACT_BITS]):
                filled = groups == group
                inverse[group] = _summed(registers[filled], places[filled], precision)
        estimates = map(self._estimator.estimate, inverse.tolist(), empty.tolist())
        return pa.array(list(estimates), pa.int64())


def _summed(registers: Ints, places: Ints, precision: int) -> float:
    """The sum of 2**-place in the order of the registers."""
    all_places = np.zeros(1 << precision, np.int64)
    all_places[registers] = places
    # A cumulative sum is made from left to right.
    return float(np.cumsum(np.ldexp(1.0, -all_places))[-1])


def make_approx_count_distinct(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `approx_count_distinct`; options `precision`, and the tables `estimates`, `biases` and `threshold` of it."""
    return _ApproxCountDistinct(call, parts)
