"""GROUP BY: what Spark 4.1 answers in the cases that are easy to get wrong."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.errors import DataError
from penstock.functions.aggregates import AGGREGATES, cost, unsupported
from penstock.operators.aggregate import Aggregate
from penstock.plan.node import AggregateCall as Call
from twin.tick import end_tick

TICK = Tick(1, 0)
LONG, DOUBLE = pa.int64(), pa.float64()


def delta(kinds: list[pa.DataType], rows: list[tuple[Any, ...]], weights: list[int] | None = None) -> Delta:
    columns = tuple(pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds))
    return Delta(columns, np.array(weights or [1] * len(rows), np.int64))


def one(kind: pa.DataType, values: list[Any], *calls: Call) -> list[Any]:
    """The row of a global aggregate over one column."""
    operator = Aggregate([kind], [], calls)
    operator.step([delta([kind], [(value,) for value in values])], TICK)
    end_tick(operator)
    return [column[0].as_py() for column in operator.contents().columns]


def rows_of(change: Delta) -> list[tuple[Any, ...]]:
    return sorted(
        zip(change.weights.tolist(), *(c.to_pylist() for c in change.columns), strict=True), key=repr
    )


def test_a_global_aggregate_has_one_row_from_the_start_to_the_end() -> None:
    operator = Aggregate([LONG], [], [Call("Count", (), "bigint"), Call("Sum", (0,), "bigint")])
    first = operator.initial(TICK)
    assert first is not None
    assert rows_of(first) == [(1, 0, None)]
    assert rows_of(operator.step([delta([LONG], [(None,), (5,)])], TICK)) == [(-1, 0, None), (1, 2, 5)]
    end_tick(operator)
    gone = operator.step([delta([LONG], [(None,), (5,)], [-1, -1])], TICK)
    assert rows_of(gone) == [(-1, 2, 5), (1, 0, None)]


def test_a_change_that_cancels_gives_nothing() -> None:
    operator = Aggregate([LONG, LONG], [0], [Call("Max", (1,), "bigint")])
    kinds = [LONG, LONG]
    operator.step([delta(kinds, [(1, 5), (1, 7)])], TICK)
    end_tick(operator)
    assert len(operator.step([delta(kinds, [(1, 6), (2, 1), (2, 1)], [1, 1, -1])], TICK)) == 0
    end_tick(operator)
    assert len(operator.step([delta(kinds, [])], TICK)) == 0


def test_keys_group_as_spark_groups_them() -> None:
    operator = Aggregate([DOUBLE], [0], [Call("Count", (), "bigint")])
    values = [0.0, -0.0, float("nan"), float("nan"), None, None]
    out = operator.step([delta([DOUBLE], [(value,) for value in values])], TICK)
    assert rows_of(out) == [(1, 0.0, 2), (1, None, 2), (1, pytest.approx(float("nan"), nan_ok=True), 2)]
    assert "-0.0" not in repr(rows_of(out))


def test_a_sum_beyond_bigint_rejects_the_tick_and_changes_nothing() -> None:
    operator = Aggregate([LONG], [], [Call("Sum", (0,), "bigint")])
    operator.step([delta([LONG], [(2**63 - 1,)])], TICK)
    end_tick(operator)
    with pytest.raises(DataError) as error:
        operator.step([delta([LONG], [(1,)])], TICK)
    assert error.value.code == "DATA_OVERFLOW"
    operator.rollback()
    assert operator.contents().columns[0].to_pylist() == [2**63 - 1]
    # The total decides, not the order: +1 and -1 in one tick are fine.
    assert len(operator.step([delta([LONG], [(1,), (-1,)])], TICK)) == 0


def test_try_sum_is_null_and_legacy_wraps() -> None:
    values = [2**63 - 1, 1]
    attempt = Call("Sum", (0,), "bigint", options=(("evalMode", "TRY"),))
    legacy = Call("Sum", (0,), "bigint", options=(("evalMode", "LEGACY"),))
    assert one(LONG, values, attempt) == [None]
    assert one(LONG, values, legacy) == [-(2**63)]
    assert one(LONG, values, Call("Average", (0,), "double")) == [2.0**62]


def test_decimals_have_sparks_types_rounding_and_overflow() -> None:
    kind = pa.decimal128(10, 3)
    values = [Decimal("1.005"), Decimal("1.006"), Decimal("2.000")]
    assert one(kind, values, Call("Sum", (0,), ""), Call("Average", (0,), "")) == [
        Decimal("4.011"),
        Decimal("1.3370000"),
    ]
    operator = Aggregate([kind], [], [Call("Sum", (0,), ""), Call("Average", (0,), "")])
    assert operator.types == (pa.decimal128(20, 3), pa.decimal128(14, 7))
    assert one(pa.decimal128(5, 2), [Decimal(1), Decimal(2), Decimal(2)], Call("Average", (0,), "")) == [
        Decimal("1.666667")
    ]
    widest = [Decimal("9" * 38), Decimal(1)]
    for name in ("Sum", "Average"):
        with pytest.raises(DataError, match="overflows"):
            one(pa.decimal128(38, 0), widest, Call(name, (0,), ""))
        assert one(pa.decimal128(38, 0), widest, Call(name, (0,), "", options=(("evalMode", "TRY"),))) == [
            None
        ]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", ["Sum", "Average"])
def test_a_sum_of_intervals_beyond_their_type_is_refused_or_null_until_it_is_back(
    name: str, sign: int
) -> None:
    """The mean of intervals would always be one, but Spark adds them first."""
    kind = pa.duration("us")
    value = sign * (2**62 + 1)
    for mode in ("ANSI", "LEGACY"):
        with pytest.raises(DataError, match="overflows") as error:
            one(kind, [value, value], Call(name, (0,), "", options=(("evalMode", mode),)))
        assert error.value.code == "DATA_OVERFLOW"
        assert ("try_avg" if name == "Average" else "try_sum") in str(error.value)
    attempt = Aggregate([kind], [], [Call(name, (0,), "", options=(("evalMode", "TRY"),))])
    attempt.step([delta([kind], [(value,), (value,)])], TICK)
    end_tick(attempt)
    assert attempt.contents().columns[0].null_count == 1
    attempt.step([delta([kind], [(value,)], [-1])], TICK)
    end_tick(attempt)
    assert attempt.contents().columns[0].cast(LONG).to_pylist() == [value]


def test_intervals_sum_and_average() -> None:
    values = [dt.timedelta(days=1), dt.timedelta(hours=2)]
    assert one(
        pa.duration("us"), values, Call("Sum", (0,), ""), Call("Average", (0,), ""), Call("Median", (0,), "")
    ) == [
        dt.timedelta(days=1, hours=2),
        dt.timedelta(hours=13),
        dt.timedelta(hours=13),
    ]


def test_corr_without_spread_is_an_error_and_of_one_row_null() -> None:
    operator = Aggregate([DOUBLE, DOUBLE], [], [Call("Corr", (0, 1), "double")])
    operator.step([delta([DOUBLE, DOUBLE], [(2.0, 1.0)])], TICK)
    end_tick(operator)
    assert operator.contents().columns[0].to_pylist() == [None]
    with pytest.raises(DataError) as error:
        operator.step([delta([DOUBLE, DOUBLE], [(2.0, 5.0)])], TICK)
    assert error.value.code == "DATA_DIVIDE_BY_ZERO"


def test_regressions_of_sparks_own_example() -> None:
    kinds = [DOUBLE, DOUBLE]
    calls = [
        Call(name, (0, 1), "double") for name in ("RegrSlope", "RegrR2", "RegrIntercept", "RegrSXY", "Corr")
    ]
    operator = Aggregate(kinds, [], calls)
    rows = [(1.0, 2.0), (3.0, 5.0), (7.0, 6.0), (None, 9.0), (4.0, None)]
    operator.step([delta(kinds, rows)], TICK)
    found = [column[0].as_py() for column in operator.contents().columns]
    assert found == pytest.approx([17 / 13, 0.7939560439560445, -2.0, 34 / 3, 0.8910421112136309], rel=1e-15)
    squares = one(DOUBLE, [2.0, 5.0, 6.0], Call("RegrReplacement", (0,), "double"))
    assert squares == [8.666666666666666]


def test_percentiles_of_sparks_own_examples() -> None:
    many = Call("Percentile", (0,), "array<double>", options=(("percentage", [0.25, 0.5]),))
    assert one(LONG, [1, 2, 4, None, 10], many, Call("Median", (0,), "double")) == [[1.75, 3.0], 3.0]
    disc = Call("PercentileDisc", (0,), "double", options=(("percentage", 0.3),))
    cont = Call("PercentileCont", (0,), "double", options=(("percentage", 0.3),))
    assert one(pa.decimal128(2, 1), [Decimal("1.5"), Decimal("2.5"), Decimal("4.0")], disc, cont) == [
        1.5,
        2.1,
    ]
    operator = Aggregate(
        [LONG, LONG], [], [Call("Percentile", (0, 1), "double", options=(("percentage", 0.5),))]
    )
    operator.step([delta([LONG, LONG], [(1, 2), (2, 0), (3, 5)])], TICK)
    assert operator.contents().columns[0].to_pylist() == [3.0]
    with pytest.raises(DataError, match="negative frequency"):
        operator.step([delta([LONG, LONG], [(1, -2)])], TICK)


def test_nested_values_have_extremes() -> None:
    kind = pa.large_list(LONG)
    values = [[1, 2], [1, None], [1], None]
    assert one(
        kind, values, Call("Max", (0,), ""), Call("Min", (0,), ""), Call("Count", (0,), "", distinct=True)
    ) == [
        [1, 2],
        [1],
        3,
    ]


def test_a_group_below_zero_is_an_error() -> None:
    operator = Aggregate([LONG], [0], [])
    with pytest.raises(DataError) as error:
        operator.step([delta([LONG], [(1,)], [-1])], TICK)
    assert error.value.code == "DATA_NEGATIVE_COUNT"
    operator.rollback()
    assert len(operator.contents()) == 0


def test_groups_that_die_free_their_state() -> None:
    operator = Aggregate([LONG, pa.large_string()], [0], [Call("Sum", (0,), ""), Call("Max", (1,), "")])
    kinds, sizes = [LONG, pa.large_string()], []
    before: list[tuple[Any, ...]] = []
    for tick in range(60):
        rows = [(tick * 1000 + n, f"text {tick} {n}") for n in range(200)]
        change = delta(kinds, before + rows, [-1] * len(before) + [1] * len(rows))
        assert len(operator.step([change], TICK)) == len(change)
        end_tick(operator)
        before = rows
        sizes.append(operator.memory())
    assert max(sizes[30:]) <= 1.2 * max(sizes[:30])


def test_the_table_says_what_it_knows() -> None:
    assert unsupported(Call("Sum", (0,), "bigint")) is None
    assert unsupported(Call("ApproximatePercentile", (0,), "bigint")) is not None
    assert unsupported(Call("Median", (0,), "interval year to month")) is not None
    assert unsupported(Call("MaxBy", (0, 1, 2), "array<int>")) is not None
    assert cost(Call("Sum", (0,), "bigint")) == "delta"
    assert cost(Call("Mode", (0,), "bigint")) == "touched groups"
    for name in AGGREGATES.builtin:
        assert AGGREGATES.load(name).__doc__
