"""Intervals put together from numbers, without Spark."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.functions.scalars.intervals import micros_of, months_of

INTS = st.integers(-(2**31), 2**31 - 1)


@given(INTS, INTS)
def test_months_are_those_of_exact_sums(years: int, months: int) -> None:
    total = years * 12 + months
    fits = abs(years * 12) < 2**31 and -(2**31) <= total < 2**31
    # A product of exactly -2**31 cannot come of a multiple of twelve.
    assert months_of(years, months) == (total if fits else None)


@pytest.mark.parametrize(
    ("seconds", "parts", "micros"),
    [
        ("0", (), 0),
        ("-1.5", (), -1_500_000),
        ("0.000001", (60_000_000,), 60_000_001),
        ("1", (2**63 - 1,), None),
        ("-1", (2**63 - 1,), 2**63 - 1_000_001),
        ("0", (2**63, -1), None),  # a term that is no long, although the sum is one
        ("0", (2**62, 2**62, -1), None),
    ],
)
def test_micros_are_those_of_exact_steps(seconds: str, parts: tuple[int, ...], micros: int | None) -> None:
    assert micros_of(Decimal(seconds), *parts) == micros
