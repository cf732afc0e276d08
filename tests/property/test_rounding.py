"""Fractions and their roots as doubles, against the definition of the nearest double."""

from __future__ import annotations

import math
import sys
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.functions.rounding import half_up, ratio, root
from twin.rounding import nearest, nearest_root

TINY, LARGEST = Fraction(math.ulp(0.0)), Fraction(sys.float_info.max)
# The middle between two doubles, in the range of normal numbers and of subnormal ones, and at its ends.
MIDDLES = [
    1 + Fraction(1, 2**53),
    1 + Fraction(3, 2**53),
    TINY / 2,
    TINY * 3 / 2,
    LARGEST + Fraction(2) ** 970,
]
NUDGES = [Fraction(0), Fraction(1, 10**2000), -Fraction(1, 10**2000)]

floats = st.floats(allow_nan=False, allow_infinity=False)
fractions = st.one_of(
    st.fractions(),
    st.builds(lambda a, b: Fraction(a) * Fraction(b), floats, floats),
    st.sampled_from(MIDDLES),
)


@given(fractions)
def test_a_fraction_is_the_nearest_double(value: Fraction) -> None:
    assert same(ratio(value.numerator, value.denominator), nearest(value))


@given(fractions)
def test_a_root_is_the_nearest_double(value: Fraction) -> None:
    value = abs(value)
    assert same(root(value.numerator, value.denominator), nearest_root(value))


@pytest.mark.parametrize("nudge", NUDGES, ids=["middle", "above", "below"])
@pytest.mark.parametrize("middle", MIDDLES, ids=["even", "odd", "zero", "subnormal", "infinity"])
def test_ties_go_to_the_even_double(middle: Fraction, nudge: Fraction) -> None:
    value = middle + nudge
    assert same(ratio(value.numerator, value.denominator), nearest(value))
    square = middle**2 + nudge
    if square >= 0:
        assert same(root(square.numerator, square.denominator), nearest_root(square))


def test_the_twin_agrees_with_python_and_ieee() -> None:
    assert nearest(Fraction(1, 3)) == 1 / 3
    assert nearest(Fraction("0.1")) == 0.1
    assert nearest(MIDDLES[0]) == 1.0
    assert nearest(MIDDLES[1]) == 1.0000000000000004
    assert nearest(MIDDLES[2]) == 0.0
    assert nearest(MIDDLES[4]) == math.inf
    assert nearest(Fraction(-7, 2)) == -3.5
    assert nearest_root(Fraction(2)) == math.sqrt(2)
    assert nearest_root(Fraction(9, 4)) == 1.5


@given(st.integers(), st.integers(1))
def test_half_up_is_the_nearest_integer(numerator: int, denominator: int) -> None:
    value = Fraction(numerator, denominator)
    rounded = half_up(numerator, denominator)
    assert abs(value - rounded) <= Fraction(1, 2)
    if abs(value - rounded) == Fraction(1, 2):
        assert abs(rounded) > abs(value)


def same(one: float, other: float) -> bool:
    return one == other and math.copysign(1, one) == math.copysign(1, other)
