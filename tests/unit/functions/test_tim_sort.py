"""The sort that Java has: stable, with as few comparisons as runs allow, and asked pair by pair."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest

from penstock.functions.tim_sort import Contradiction, sorted_positions


def _sorted(values: list[int], compare: Callable[[int, int], int]) -> tuple[list[int], int]:
    """The order of values, and how many comparisons it took."""
    sort = sorted_positions(len(values))
    asked = 0
    try:
        pair = next(sort)
        while True:
            asked += 1
            pair = sort.send(compare(values[pair[0]], values[pair[1]]))
    except StopIteration as done:
        return done.value, asked


def _salted(salt: int, one: int, two: int) -> int:
    return (one * 7 + two * 3 + salt) % 5 - 2


def _sign(one: int, two: int) -> int:
    return (one > two) - (one < two)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 31, 32, 33, 64, 100, 1000, 3000])
@pytest.mark.parametrize("span", [3, 50, 10**9])
def test_values_are_sorted_and_equal_ones_stay(count: int, span: int) -> None:
    chosen = random.Random(count * span)
    values = [chosen.randrange(span) for _ in range(count)]
    halves = sorted(values[: count // 2]) + sorted(values[count // 2 :])
    for case in (values, sorted(values), sorted(values, reverse=True), halves):
        order, _ = _sorted(case, _sign)
        assert order == sorted(range(count), key=case.__getitem__)


@pytest.mark.parametrize("count", [2, 31, 500])
def test_runs_are_found_with_one_comparison_for_each_neighbour(count: int) -> None:
    assert _sorted(list(range(count)), _sign)[1] == count - 1
    assert _sorted(list(range(count, 0, -1)), _sign)[1] == count - 1


def test_a_comparison_may_contradict_others() -> None:
    chosen = random.Random(5)
    values = [chosen.randrange(1000) for _ in range(600)]
    found = 0
    for salt in range(200):
        try:
            _sorted(values, partial(_salted, salt))
        except Contradiction:
            found += 1
    assert found
