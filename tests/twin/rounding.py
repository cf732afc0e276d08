"""The nearest double by its definition: no neighbour is nearer, and of two that are as near the even one is taken."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from decimal import Context, Decimal, localcontext
from fractions import Fraction

LARGEST = sys.float_info.max
# What infinity stands for when a value is rounded: the power of two behind the largest double.
BEYOND = Fraction(2) ** 1024


def nearest(value: Fraction) -> float:
    """Return the double that is nearest to a fraction."""
    if value < 0:
        return -nearest(-value)
    with _digits():
        guess = float(Decimal(value.numerator) / Decimal(value.denominator))
    return _settled(guess, lambda candidate: candidate <= value, lambda candidate: candidate == value)


def nearest_root(value: Fraction) -> float:
    """Return the double that is nearest to the square root of a fraction."""
    with _digits():
        guess = float((Decimal(value.numerator) / Decimal(value.denominator)).sqrt())
    return _settled(guess, lambda candidate: candidate**2 <= value, lambda candidate: candidate**2 == value)


def _digits() -> AbstractContextManager[Context]:
    return localcontext(prec=60, Emax=10**6, Emin=-(10**6))


def _settled(guess: float, low: Callable[[Fraction], bool], hit: Callable[[Fraction], bool]) -> float:
    """Walk from a guess to the double between whose midpoints the value lies.

    `low` says whether a number is not above the value, `hit` whether it is the value.
    """
    guess = min(guess, LARGEST)
    while _belongs_above(_middle(guess), guess, low, hit):
        guess = math.nextafter(guess, math.inf)
        if math.isinf(guess):
            return guess
    while guess > 0:
        below = math.nextafter(guess, -math.inf)
        if _belongs_above(_middle(below), below, low, hit):
            break
        guess = below
    return guess


def _belongs_above(
    middle: Fraction, lower: float, low: Callable[[Fraction], bool], hit: Callable[[Fraction], bool]
) -> bool:
    return _odd(lower) if hit(middle) else low(middle)


def _middle(lower: float) -> Fraction:
    upper = math.nextafter(lower, math.inf)
    return (Fraction(lower) + (BEYOND if math.isinf(upper) else Fraction(upper))) / 2


def _odd(value: float) -> bool:
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return bool(bits & 1)
