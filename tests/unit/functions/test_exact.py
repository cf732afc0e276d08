"""Exact accumulators against Python's own rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from penstock.errors import DataError
from penstock.functions import exact
from penstock.functions.exact import DecimalSums, FloatSums, IntegerSums, integer_words
from penstock.functions.rounding import half_up, ratio, root
from twin.tick import end_tick

GROUPS = 7


@pytest.fixture(autouse=True, params=["few", "many"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to round: one by one, and all at once."""
    if request.param == "many":
        monkeypatch.setattr(exact, "_FEW", 0)


def _doubles(rng: np.random.Generator, count: int, kind: str) -> np.ndarray:
    if kind == "plain":
        return rng.normal(0, 1000, count).round(2)
    if kind == "wide":
        return rng.normal(0, 1, count) * 2.0 ** rng.integers(-1070, 1000, count)
    if kind == "window":
        return rng.normal(0, 1, count) * 2.0 ** rng.integers(-70, 110, count)
    bits = rng.integers(0, 1 << 20, count).astype(np.uint64)  # denormals and zeros of both signs
    return np.where(rng.random(count) < 0.5, bits.view(np.float64), -0.0)


def _nearest(value: Fraction) -> float:
    return ratio(value.numerator, value.denominator)


@pytest.mark.parametrize("kind", ["plain", "wide", "window", "tiny"])
def test_float_sums_are_rounded_once_and_give_bits_back(kind: str) -> None:
    rng = np.random.default_rng(3)
    sums, truth = FloatSums(), [Fraction(0)] * GROUPS
    everyone = np.arange(GROUPS)
    kept = []
    for _ in range(20):
        slots = rng.integers(0, GROUPS, 50)
        values, weights = _doubles(rng, 50, kind), rng.integers(-3, 4, 50)
        before = sums.doubles(everyone)
        sums.add(*np.unique(slots, return_inverse=True), [values], weights)
        sums.rollback()
        assert sums.doubles(everyone).tobytes() == before.tobytes()
        sums.add(*np.unique(slots, return_inverse=True), [values], weights)
        end_tick(sums)
        kept.append((slots, values, weights))
        for slot, value, weight in zip(slots, values, weights, strict=True):
            truth[slot] += Fraction(float(value)) * int(weight)
        expected = [_nearest(total) for total in truth]
        assert sums.doubles(everyone).tolist() == expected
        divisors = rng.integers(1, 1 << 31, GROUPS) if rng.random() < 0.8 else np.full(GROUPS, 1 << 40)
        means = [_nearest(total / int(count)) for total, count in zip(truth, divisors, strict=True)]
        assert sums.means(everyone, divisors).tolist() == means
        assert sums.both(everyone, divisors).tolist() == [expected, means]
    for slots, values, weights in reversed(kept):
        sums.add(*np.unique(slots, return_inverse=True), [values], -weights)
    assert not sums.sums.rows.data.any()
    assert sums.integers(everyone) == [0] * GROUPS


def test_exact_ties_go_to_even() -> None:
    sums = FloatSums()
    here = np.zeros(2, np.int64)
    sums.add(here[:1], np.zeros(len(here), np.int64), [np.array([1.0, 2.0**-53])], np.array([1, 1]))
    assert sums.doubles(here[:1])[0] == 1.0
    sums.add(here[:1], np.zeros(1, np.int64), [np.array([2.0**-60])], np.array([1]))
    assert sums.doubles(here[:1])[0] == math.nextafter(1.0, 2.0)
    assert math.copysign(1, FloatSums().doubles(here[:1])[0]) == 1


@pytest.mark.parametrize("kind", ["plain", "wide", "window", "tiny"])
def test_products_are_exact(kind: str) -> None:
    rng = np.random.default_rng(4)
    sums, truth = FloatSums(products=True), [Fraction(0)] * GROUPS
    for _ in range(10):
        slots = rng.integers(0, GROUPS, 40)
        left, right, weights = _doubles(rng, 40, kind), _doubles(rng, 40, kind), rng.integers(-2, 3, 40)
        sums.add(*np.unique(slots, return_inverse=True), [left, right], weights)
        for slot, a, b, weight in zip(slots, left, right, weights, strict=True):
            truth[slot] += Fraction(float(a)) * Fraction(float(b)) * int(weight)
        unit = Fraction(1, 1 << sums.unit)
        assert [total * unit for total in sums.integers(np.arange(GROUPS))] == truth


def test_sums_of_many_rows_with_large_weights() -> None:
    sums, integers, decimals = FloatSums(), IntegerSums(), DecimalSums(38)
    slots, touched = np.zeros(4, np.int64), np.zeros(1, np.int64)
    weights = np.array([1 << 40, 5, -(1 << 30), 3])
    values = np.array([0.1, 1e10, -7.25, 1e-300])
    sums.add(touched, np.searchsorted(touched, slots), [values], weights)
    exact = sum(Fraction(float(v)) * int(w) for v, w in zip(values, weights, strict=True))
    assert sums.doubles(touched)[0] == _nearest(Fraction(exact))
    whole = np.array([-5, 1 << 62, 12345678901, 3])
    integers.add(touched, np.searchsorted(touched, slots), whole, weights)
    total = sum(int(v) * int(w) for v, w in zip(whole, weights, strict=True))
    assert integers.integers(touched) == [total]
    decimals.add(touched, np.searchsorted(touched, slots), integer_words(whole.tolist()), weights)
    assert decimals.integers(touched) == [total]


def test_integer_sums_and_means() -> None:
    rng = np.random.default_rng(5)
    sums, truth = IntegerSums(), [0] * GROUPS
    everyone = np.arange(GROUPS)
    for _ in range(30):
        slots = rng.integers(0, GROUPS, 30)
        values, weights = rng.integers(-(1 << 63), (1 << 63) - 1, 30), rng.integers(-3, 4, 30)
        sums.add(*np.unique(slots, return_inverse=True), values, weights)
        for slot, value, weight in zip(slots, values, weights, strict=True):
            truth[slot] += int(value) * int(weight)
        words, wide = sums.words(everyone)
        assert wide.tolist() == [not -(1 << 63) <= total < 1 << 63 for total in truth]
        assert [w for w, bad in zip(words.tolist(), wide, strict=True) if not bad] == [
            t for t, bad in zip(truth, wide, strict=True) if not bad
        ]
        divisors = rng.integers(1, 1 << 60, GROUPS)
        assert sums.doubles(everyone, divisors).tolist() == [
            ratio(total, int(count)) for total, count in zip(truth, divisors, strict=True)
        ]


@pytest.mark.parametrize("precision", [5, 18, 19, 38])
def test_decimal_sums(precision: int) -> None:
    rng = np.random.default_rng(6)
    sums, truth = DecimalSums(precision), [0] * GROUPS
    everyone, limit = np.arange(GROUPS), min(38, precision + 10)
    for _ in range(30):
        slots = rng.integers(0, GROUPS, 30)
        raw = [int(rng.integers(0, 1 << 62)) * int(rng.integers(0, 1 << 62)) * 10 for _ in slots]
        values = [value % 10**precision * int(rng.choice([-1, 1])) for value in raw]
        weights = rng.integers(-3, 4, 30)
        sums.add(*np.unique(slots, return_inverse=True), integer_words(values), weights)
        for slot, value, weight in zip(slots, values, weights, strict=True):
            truth[slot] += value * int(weight)
        assert sums.integers(everyone) == truth
        words, wide = sums.words(everyone, limit)
        assert wide.tolist() == [abs(total) >= 10**limit for total in truth]
        fits = ~wide
        assert (
            words[fits].tolist()
            == integer_words([t for t, ok in zip(truth, fits, strict=True) if ok]).tolist()
        )


def test_a_sum_beyond_all_limbs_is_an_overflow() -> None:
    sums = IntegerSums()
    here = np.zeros(1, np.int64)
    with pytest.raises(DataError) as error:
        sums.add(here, np.zeros(len(here), np.int64), np.array([1 << 62]), np.array([1 << 62]))
    assert error.value.code == "DATA_OVERFLOW"
    sums.rollback()
    assert sums.integers(here) == [0]


def test_rounding_of_fractions() -> None:
    assert ratio(1 << 2000, 1) == math.inf
    assert ratio(-(1 << 2000), 1) == -math.inf
    rng = np.random.default_rng(7)
    for value in [2.0, 0.1, 1e300, 5e-324, 1e-310, *np.abs(_doubles(rng, 300, "wide")).tolist()]:
        square = Fraction(value)
        assert root(square.numerator, square.denominator) == math.sqrt(value)
    assert [half_up(n, 2) for n in (-3, -1, 1, 3, 4)] == [-2, -1, 1, 2, 2]
