"""CORR, COVAR and the linear regressions: rational arithmetic over exact sums of both columns, rounded once.

Rows where either column is NULL are ignored; NaN when a value is NaN or infinite, unless the other column decides.
CORR of a column without any spread divides by zero, which is an error in ANSI mode, as in Spark; the regressions are
NULL when the independent variable has no spread.

Invertible. State: sums of x, y, x*x, y*y, x*y, as far as a function needs them. Cost: delta, and some microseconds
per touched group.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from penstock.data.arrays import Positions
from penstock.errors import DataError
from penstock.functions.aggregates.base import Function, Parts, overflow_mode, selection
from penstock.functions.aggregates.parts import count_of, float_sum_of
from penstock.functions.rounding import ratio, root
from penstock.plan.node import AggregateCall


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums over the pairs of one group; spreads are n * (sum of products of differences), over 2**(2 * shift)."""

    n: int
    a: int
    b: int
    aa: int
    bb: int
    ab: int
    shift: int
    ansi: bool


class _Pair:
    """Both arguments of a call: a is the first one, b the second."""

    def __init__(self, call: AggregateCall, parts: Parts, finish: Callable[[_Sums], float | None]) -> None:
        chosen = selection(call)
        self._finish = finish
        self._ansi = overflow_mode(call) == "ANSI"
        self._count = count_of(parts, chosen)
        self._single = [float_sum_of(parts, chosen, column) for column in (0, 1)]
        self._double = [float_sum_of(parts, chosen, *pair) for pair in ((0, 0), (1, 1), (0, 1))]

    def result(self, slots: Positions) -> pa.Array:
        parts = [*self._single, *self._double]
        fine = any(part.sums.crowded for part in parts)
        shift = 1074 if fine else -self._single[0].sums.base
        odd = [part.odd(slots).tolist() for part in self._single]
        columns = [part.sums.integers(slots, fine=fine) for part in parts]
        values: list[float | None] = []
        rows = zip(self._count.at(slots).tolist(), *odd, *columns, strict=True)
        for n, odd_a, odd_b, a, b, aa, bb, ab in rows:
            spreads = (n * aa - a * a, n * bb - b * b, n * ab - a * b)
            if n <= 0:
                values.append(None)
            elif odd_a or odd_b:
                flat = (not odd_a and spreads[0] == 0, not odd_b and spreads[1] == 0)
                values.append(self._of_odd(n, *flat))
            else:
                values.append(self._finish(_Sums(n, a, b, *spreads, shift, self._ansi)))
        return pa.array(values, pa.float64())

    def _of_odd(self, n: int, flat_a: bool, flat_b: bool) -> float | None:
        """The answer for a group with NaN or an infinity, given which of the columns has one number in all rows."""
        if n == 1 and self._finish in (_correlation, _covar_samp):
            return None
        if flat_b and self._finish in (_slope, _intercept, _determination):
            return None
        return 1.0 if flat_a and self._finish is _determination else math.nan


def _covar_pop(sums: _Sums) -> float | None:
    return ratio(sums.ab, (sums.n * sums.n) << (2 * sums.shift))


def _covar_samp(sums: _Sums) -> float | None:
    return None if sums.n == 1 else ratio(sums.ab, (sums.n * (sums.n - 1)) << (2 * sums.shift))


def _products(sums: _Sums) -> float | None:
    return ratio(sums.ab, sums.n << (2 * sums.shift))


def _correlation(sums: _Sums) -> float | None:
    if sums.n == 1:
        return None
    spread = sums.aa * sums.bb
    if spread == 0:
        if sums.ansi:
            raise DataError(
                "CORR divides by zero: one of its columns has the same value in all rows of a group",
                code="DATA_DIVIDE_BY_ZERO",
                condition="DIVIDE_BY_ZERO",
                hint="leave out groups without any spread, for example with a HAVING clause in a view below",
            )
        return None
    size = root(sums.ab * sums.ab, spread)
    return -size if sums.ab < 0 else size


def _slope(sums: _Sums) -> float | None:
    return ratio(sums.ab, sums.bb) if sums.bb else None


def _intercept(sums: _Sums) -> float | None:
    # mean(a) - slope * mean(b)
    return ratio(sums.a * sums.bb - sums.ab * sums.b, (sums.bb * sums.n) << sums.shift) if sums.bb else None


def _determination(sums: _Sums) -> float | None:
    if sums.bb == 0:
        return None
    return 1.0 if sums.aa == 0 else ratio(sums.ab * sums.ab, sums.aa * sums.bb)


def make_covar_pop(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `covar_pop`."""
    return _Pair(call, parts, _covar_pop)


def make_covar_samp(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `covar_samp`."""
    return _Pair(call, parts, _covar_samp)


def make_corr(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `corr`."""
    return _Pair(call, parts, _correlation)


def make_slope(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `regr_slope(y, x)`."""
    return _Pair(call, parts, _slope)


def make_intercept(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `regr_intercept(y, x)`."""
    return _Pair(call, parts, _intercept)


def make_determination(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `regr_r2(y, x)`."""
    return _Pair(call, parts, _determination)


def make_products(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `regr_sxy(y, x)`."""
    return _Pair(call, parts, _products)
