"""Formats of numbers, without Spark: what is written and read back is the same number, and what does not fit is none."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.functions.scalars.number_format import read, tokens_of, written


@pytest.mark.parametrize(
    ("number", "pattern", "text"),
    [
        ("454", "999", "454"),
        ("454", "000D00", "454.00"),
        ("12454", "99G999", "12,454"),
        ("78.12", "$99.99", "$78.12"),
        ("-12454.8", "99G999D9S", "12,454.8-"),
        ("-1", "99pr", " <1>"),
        ("1000", "999", "###"),
        ("5", "S0,000", "+0,005"),
    ],
)
def test_numbers_are_written(number: str, pattern: str, text: str) -> None:
    assert written(Decimal(number), tokens_of(pattern)) == text


@pytest.mark.parametrize(
    ("text", "pattern", "scale", "number"),
    [
        ("454", "999", 0, "454"),
        ("12,454.8-", "99,999.9S", 1, "-12454.8"),
        ("$78.1", "$99.99", 2, "78.10"),
        ("<12>", "999PR", 0, "-12"),
        ("1 2", "99", 0, "12"),
        ("45", "000", 0, None),
        ("1,2", "99", 0, None),
        ("12", "$99", 0, None),
        ("12>", "99PR", 0, None),
    ],
)
def test_texts_are_read(text: str, pattern: str, scale: int, number: str | None) -> None:
    assert read(text, tokens_of(pattern), scale) == (None if number is None else Decimal(number))


@settings(deadline=None)
@given(
    st.integers(-(10**7) + 1, 10**7 - 1),
    st.sampled_from(["S99,999.99", "99,999.99MI", "$00000.00S", "99999.99PR"]),
)
def test_what_is_written_is_read_again(unscaled: int, pattern: str) -> None:
    number = Decimal(unscaled).scaleb(-2)
    tokens = tokens_of(pattern)
    # Spaces in front of a sign or a bracket are no part of what is read.
    assert read(written(number, tokens).strip(), tokens, 2) == number
