"""The aggregate operator against its naive twin: plain Python over all rows of every group, after every tick."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.operators.aggregate import Aggregate
from penstock.plan.node import AggregateCall as Call
from twin.collisions import weakened
from twin.rounding import nearest, nearest_root
from twin.tick import end_tick

NAN, INF = math.nan, math.inf
TICK = Tick(1, 0)
# key, key, double, float, bigint, decimal, wide decimal, text, flag, double
TYPES = (
    pa.int64(),
    pa.float64(),
    pa.float64(),
    pa.float32(),
    pa.int64(),
    pa.decimal128(9, 2),
    pa.decimal128(30, 4),
    pa.large_string(),
    pa.bool_(),
    pa.float64(),
)
POOLS: tuple[list[Any], ...] = (
    [None, 1, 2],
    [None, NAN, 0.0, -0.0, 7.5],
    [
        None,
        NAN,
        INF,
        -INF,
        0.0,
        -0.0,
        5e-324,
        -1e-310,
        1e308,
        -1e308,
        1e-30,
        0.1,
        0.2,
        -0.3,
        1e16,
        1.0,
        123.45,
    ],
    [None, 0.10000000149011612, -2.5, 0.0, 1.0000000031710769e-30],
    [None, 0, 1, -1, 2**53 + 1, -(2**53) - 1, 2**61, -(2**61), 17],
    [None, Decimal("0.01"), Decimal("-9999999.99"), Decimal("2.50"), Decimal("0.00")],
    [None, Decimal("0.0001"), Decimal("-12345678901234567890123456.7890"), Decimal("1.0000")],
    [None, "", "a", "abc", "a long text with a common beginning 1", "a long text with a common beginning 2"],
    [None, True, False],
    [None, 1.0, 2.0, -3.5, 0.1, 1e-200, 4e100],
)
CALLS = (
    Call("Count", (), "bigint"),
    Call("Count", (2, 4), "bigint"),
    Call("Count", (7,), "bigint", distinct=True),
    Call("Count", (2, 7), "bigint", distinct=True),
    Call("Count", (4,), "bigint", filter=8),
    Call("CountIf", (8,), "bigint"),
    Call("Sum", (2,), "double"),
    Call("Sum", (3,), "double"),
    Call("Sum", (4,), "bigint", distinct=True),
    Call("Sum", (5,), "decimal(19,2)"),
    Call("Sum", (6,), "decimal(38,4)", filter=8),
    Call("Average", (2,), "double"),
    Call("Average", (4,), "double"),
    Call("Average", (5,), "decimal(13,6)"),
    Call("Average", (6,), "decimal(34,8)"),
    Call("Min", (2,), "double"),
    Call("Max", (2,), "double"),
    Call("Min", (6,), "decimal(30,4)"),
    Call("Max", (7,), "string"),
    Call("Min", (7,), "string", filter=8),
    Call("Min", (8,), "boolean"),
    Call("Max", (5,), "decimal(9,2)", distinct=True),
    Call("MinBy", (7, 4), "string"),
    Call("MaxBy", (2, 7), "double"),
    Call("First", (7,), "string"),
    Call("Last", (4,), "bigint", options=(("ignoreNulls", True),)),
    Call("VariancePop", (9,), "double"),
    Call("VarianceSamp", (2,), "double"),
    Call("StddevPop", (9,), "double"),
    Call("StddevSamp", (9,), "double"),
    Call("Skewness", (9,), "double"),
    Call("Kurtosis", (2,), "double"),
    Call("CovPopulation", (2, 9), "double"),
    Call("CovSample", (9, 9), "double"),
    Call("RegrSlope", (9, 2), "double"),
    Call("Corr", (9, 2), "double", options=(("evalMode", "LEGACY"),)),
    Call("BitAndAgg", (4,), "bigint"),
    Call("BitOrAgg", (4,), "bigint"),
    Call("BitXorAgg", (4,), "bigint"),
    Call("CollectList", (7,), "array<string>"),
    Call("CollectSet", (2,), "array<double>"),
    Call("ListAgg", (7,), "string", options=(("delimiter", ","), ("order", ((0, True, False),)))),
    Call("Percentile", (2,), "double", options=(("percentage", 0.3),)),
    Call("PercentileDisc", (5,), "double", options=(("percentage", [0.25, 0.5]), ("reverse", True))),
    Call("Mode", (7,), "string"),
    Call("Mode", (4,), "bigint", options=(("reverseOpt", False),)),
)


def order(value: Any) -> Any:
    """A key in Spark's order, NULL first, -0.0 before 0.0."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (2,) if value != value else (1, value, math.copysign(1, value))
    return (1, value.encode() if isinstance(value, str) else value)


def same(value: Any) -> Any:
    """What makes two values the same one for DISTINCT and GROUP BY."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return value


def shown(value: Any) -> Any:
    """What makes two results the same: bits, but NaN is NaN."""
    if isinstance(value, list):
        return tuple(shown(item) for item in value)
    return repr(value)


def arguments(call: Call, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    chosen = [row for row in rows if call.filter is None or row[call.filter] is True]
    picked = [tuple(row[index] for index in call.args) for row in chosen]
    if call.function in ("MinBy", "MaxBy"):
        picked = [row for row in picked if row[1] is not None]
    elif call.function != "First":
        picked = [row for row in picked if None not in row]
    if call.distinct:
        picked = list({tuple(same(v) for v in row): tuple(_zero(v) for v in row) for row in picked}.values())
    return picked


def _zero(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value


def exact(values: list[float]) -> float | None:
    """The sum of floats, rounded once."""
    return odd_sum(values) if odd(values) else nearest(total(map(Fraction, values)))


def odd(values: list[float]) -> bool:
    return not all(math.isfinite(v) for v in values)


def odd_sum(values: list[float]) -> float:
    return sum(v for v in values if not math.isfinite(v))


def spread(xs: list[float], ys: list[float]) -> Fraction:
    """The sum of products of differences from the means."""
    n = len(xs)
    products = total(Fraction(x) * Fraction(y) for x, y in zip(xs, ys, strict=True))
    return products - total(map(Fraction, xs)) * total(map(Fraction, ys)) / n


def total(values: Iterable[Fraction]) -> Fraction:
    return sum(values, Fraction(0))


def decimal_average(values: list[Decimal], digits: str) -> Decimal:
    with localcontext() as context:
        context.prec = 100
        return (sum(values, Decimal(0)) / len(values)).quantize(Decimal(digits), ROUND_HALF_UP)


def moments(name: str, xs: list[float]) -> float | None:
    n = len(xs)
    if name.endswith("Samp") and n == 1:
        return None
    if odd(xs):
        return NAN
    second = spread(xs, xs)
    if name in ("VariancePop", "VarianceSamp", "StddevPop", "StddevSamp"):
        value = second / (n - (name.endswith("Samp")))
        return nearest_root(value) if "Stddev" in name else nearest(value)
    if second == 0:
        return None
    mean = total(map(Fraction, xs)) / n
    if name == "Skewness":
        third = total((Fraction(x) - mean) ** 3 for x in xs)
        value = n * third**2 / second**3
        size = nearest_root(value)
        return -size if third < 0 else size
    fourth = total((Fraction(x) - mean) ** 4 for x in xs)
    return nearest(n * fourth / second**2 - 3)


def pairs(name: str, rows: list[tuple[float, float]]) -> float | None:
    n = len(rows)
    a, b = [row[0] for row in rows], [row[1] for row in rows]
    if n == 1 and name in ("CovSample", "Corr"):
        return None
    if odd(a) or odd(b):
        return NAN
    if name in ("CovPopulation", "CovSample"):
        return nearest(spread(a, b) / (n - (name == "CovSample")))
    if name == "RegrSlope":
        return nearest(spread(a, b) / spread(b, b)) if spread(b, b) else None
    both = spread(a, a) * spread(b, b)
    if both == 0:
        return None
    value = spread(a, b) ** 2 / both
    size = nearest_root(value)
    return -size if spread(a, b) < 0 else size


def percentile(values: list[float], share: float) -> float:
    values = sorted(values, key=order)
    position = (len(values) - 1) * share
    lower, higher = math.floor(position), math.ceil(position)
    low, high = values[lower], values[higher]
    return low if lower == higher or low == high else (higher - position) * low + (position - lower) * high


def naive(call: Call, rows: list[tuple[Any, ...]]) -> Any:
    """One aggregate over all rows of a group."""
    name, picked = call.function, arguments(call, rows)
    if name == "Count":
        return len(picked)
    if name == "CountIf":
        return sum(row[0] is True for row in picked)
    first = [row[0] for row in picked]
    if name == "CollectList":
        return sorted(first, key=order)
    if name == "CollectSet":
        found = sorted(first, key=order)
        kept: list[float] = []
        for value in found:
            if not kept or value != kept[-1]:
                kept.append(value)
        return kept
    if not picked:
        return None
    if name == "Sum":
        if isinstance(first[0], Decimal):
            with localcontext() as context:
                context.prec = 100
                return sum(first, Decimal(0))
        return exact(first) if isinstance(first[0], float) else sum(first)
    if name == "Average":
        if isinstance(first[0], Decimal):
            return decimal_average(first, "0.000001" if call.args == (5,) else "0.00000001")
        if isinstance(first[0], float) and odd(first):
            return odd_sum(first)
        return nearest(total(map(Fraction, first)) / len(first))
    if name in ("Min", "First"):
        return min(first, key=order)
    if name in ("Max", "Last"):
        return max(first, key=order)
    if name in ("MinBy", "MaxBy"):
        found = sorted(picked, key=lambda row: (order(row[1])[:2], order(row[0])))
        return found[0 if name == "MinBy" else -1][0]
    if len(call.args) == 2:
        return pairs(name, picked)
    if name.startswith("Bit"):
        result = first[0]
        for value in first[1:]:
            result = {"A": result & value, "O": result | value, "X": result ^ value}[name[3]]
        return result
    if name == "ListAgg":
        return ",".join(sorted(first, key=order, reverse=True))
    if name == "Percentile":
        return percentile(first, 0.3)
    if name == "PercentileDisc":
        ranked = sorted(first, reverse=True)
        return [float(ranked[max(1, math.ceil(len(ranked) * share)) - 1]) for share in (0.25, 0.5)]
    if name == "Mode":
        counts = Counter(first)
        best = [value for value, count in counts.items() if count == max(counts.values())]
        return min(best, key=order) if call.args == (7,) else max(best)
    return moments(name, first)


def twin(rows: list[tuple[Any, ...]], keys: tuple[int, ...], calls: tuple[Call, ...]) -> Counter[Any]:
    """All rows of the view, recomputed."""
    groups: dict[Any, list[tuple[Any, ...]]] = {} if keys else {(): []}
    for row in rows:
        groups.setdefault(tuple(same(row[key]) for key in keys), []).append(row)
    result: Counter[Any] = Counter()
    for members in groups.values():
        key = [_zero(members[0][index]) for index in keys]
        result[tuple(shown(value) for value in (*key, *(naive(call, members) for call in calls)))] += 1
    return result


def delta_of(changes: list[tuple[tuple[Any, ...], int]]) -> Delta:
    columns = tuple(pa.array([row[i] for row, _ in changes], kind) for i, kind in enumerate(TYPES))
    return Delta(columns, np.array([weight for _, weight in changes], np.int64))


def apply(view: Counter[Any], delta: Delta) -> None:
    for weight, *values in zip(
        delta.weights.tolist(), *(column.to_pylist() for column in delta.columns), strict=True
    ):
        key = tuple(shown(value) for value in values)
        view[key] += weight
        if view[key] == 0:
            del view[key]


def check(operator: Aggregate, view: Counter[Any], expected: Counter[Any]) -> None:
    assert view == expected
    contents: Counter[Any] = Counter()
    apply(contents, operator.contents())
    assert contents == expected


def run(rng: random.Random, keys: tuple[int, ...], calls: tuple[Call, ...], ticks: int) -> None:
    operator = Aggregate(TYPES, keys, calls)
    rows: list[tuple[Any, ...]] = []
    view: Counter[Any] = Counter()
    first = operator.initial(TICK)
    if first is not None:
        apply(view, first)
    end_tick(operator)
    check(operator, view, twin(rows, keys, calls))
    for _ in range(ticks):
        changes, after = draw_changes(rng, rows)
        if rng.random() < 0.3:
            operator.step([delta_of(changes)], TICK)
            operator.rollback()
            check(operator, view, twin(rows, keys, calls))
        output = operator.step([delta_of(changes)], TICK)
        end_tick(operator)
        apply(view, output)
        rows = after
        check(operator, view, twin(rows, keys, calls))
    # Taking everything out again leaves nothing but the row of a global aggregate.
    apply(view, operator.step([delta_of([(row, -1) for row in rows])], TICK))
    end_tick(operator)
    check(operator, view, twin([], keys, calls))


def draw_changes(rng: random.Random, rows: list[tuple[Any, ...]]) -> tuple[list[Any], list[tuple[Any, ...]]]:
    after = list(rows)
    changes: list[tuple[tuple[Any, ...], int]] = []
    for _ in range(rng.choice([0, 1, 3, 12])):
        if after and rng.random() < 0.5:
            changes.append((after.pop(rng.randrange(len(after))), -1))
        else:
            row = tuple(rng.choice(pool) for pool in POOLS)
            times = rng.choice([1, 1, 1, 3])
            after += [row] * times
            changes.append((row, times))
        if rng.random() < 0.1:
            ghost = tuple(rng.choice(pool) for pool in POOLS)
            changes += [(ghost, 2), (ghost, -2)]
    rng.shuffle(changes)
    return changes, after


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.function}{call.args}")
def test_every_function_follows_its_twin(call: Call) -> None:
    run(random.Random(str(call)), (0,), (call,), 12)


@pytest.mark.parametrize("keys", [(), (0,), (1,), (0, 7), (2, 8)])
@pytest.mark.parametrize("mask", [1, 0xFFFFFFFFFFFFFFFF])
def test_all_functions_together(keys: tuple[int, ...], mask: int) -> None:
    with weakened(mask):
        run(random.Random(1), keys, CALLS, 8)


@pytest.mark.parametrize("keys", [(0,), (2,), (1, 7)])
def test_distinct_rows(keys: tuple[int, ...]) -> None:
    run(random.Random(2), keys, (), 20)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.randoms(use_true_random=False),
    st.lists(st.sampled_from(CALLS), max_size=4),
    st.sampled_from([(), (0,), (1, 0)]),
)
def test_random_views(rng: random.Random, calls: list[Call], keys: tuple[int, ...]) -> None:
    run(rng, keys, tuple(calls), 5)


def test_the_order_of_rows_does_not_matter() -> None:
    rng = random.Random(4)
    rows = [tuple(rng.choice(pool) for pool in POOLS) for _ in range(40)]
    for size in (7, 40):
        rng.shuffle(rows)
        operator = Aggregate(TYPES, (0,), CALLS)
        view: Counter[Any] = Counter()
        for start in range(0, len(rows), size):
            apply(view, operator.step([delta_of([(row, 1) for row in rows[start : start + size]])], TICK))
            end_tick(operator)
        check(operator, view, twin(rows, (0,), CALLS))
