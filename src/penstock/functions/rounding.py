"""Exact rational numbers to the nearest double, ties to even, rounded once."""

from __future__ import annotations

import math


def ratio(numerator: int, denominator: int) -> float:
    """Return numerator / denominator as the nearest double; beyond the largest one it is infinite.

    >>> ratio(1, 3)
    0.3333333333333333
    """
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if (numerator < 0) == (denominator < 0) else -math.inf


def root(numerator: int, denominator: int) -> float:
    """Return the square root of a non-negative fraction as the nearest double.

    >>> root(2, 1) == math.sqrt(2.0), root(9, 4)
    (True, 1.5)
    """
    if numerator == 0:
        return 0.0
    # Enough bits that the integer root has at least 64 of them; what the root drops becomes a sticky last bit.
    scale = max(0, 64 + (denominator.bit_length() - numerator.bit_length() + 1) // 2)
    quotient, rest = divmod(numerator << (2 * scale), denominator)
    floor = math.isqrt(quotient)
    sticky = rest != 0 or floor * floor != quotient
    return ratio(2 * floor + sticky, 1 << (scale + 1))


def half_up(numerator: int, denominator: int) -> int:
    """Return numerator / denominator (which is positive) rounded to an integer, halves away from zero."""
    quotient, rest = divmod(abs(numerator), denominator)
    quotient += 2 * rest >= denominator
    return -quotient if numerator < 0 else quotient
