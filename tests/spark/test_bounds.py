"""Whole numbers at their bounds: casts of floats and doubles, and rounding to tens, against Spark's own answer."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import numpy as np
import pytest
from pyspark.sql import SparkSession

from twin.judge import Judge, grid

_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}


def _values(kind: type[np.floating]) -> list[float | None]:
    """Each bound, the numbers next to it in the type, and a half and a whole beside it."""
    values: list[float | None] = [None, float("nan"), float("inf"), float("-inf"), -0.0]
    for bits in _BITS.values():
        for sign in (1, -1):
            bound = kind(sign * 2.0**bits)
            values += [float(np.nextafter(bound, kind(towards * bound))) for towards in (0, 1, 4)]
            values += [float(bound + kind(step)) for step in (-1, -0.5, 0.5, 1)]
    return values


@pytest.fixture(params=["true", "false"])
def ansi(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """With and without ANSI mode."""
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield
    spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.parametrize("source", ["float", "double"])
@pytest.mark.parametrize("form", ["CAST(x AS {})", "try_cast(x AS {})"])
def test_a_cast_at_the_bounds_is_that_of_spark(spark: SparkSession, source: str, form: str) -> None:
    values = _values(np.float32 if source == "float" else np.float64)
    judge = Judge(spark, grid(x=(source, values)), [form.format(target) for target in _BITS])
    assert not [line for index in range(len(_BITS)) for line in judge.differences(index)]


@pytest.mark.usefixtures("ansi")
@pytest.mark.parametrize("kind", _BITS)
def test_rounding_to_tens_at_the_bounds_is_that_of_spark(spark: SparkSession, kind: str) -> None:
    most = 2 ** _BITS[kind]
    values = [None, 0, 5, -5, 15, -25, most - 1, most - 4, most - 6, -most, -most + 2, -most + 3]
    expressions = [f"{name}(x, {places})" for name in ("round", "bround") for places in (1, 0, -1, -2, -25)]
    judge = Judge(spark, grid(x=(kind, values)), expressions)
    assert not [line for index in range(len(expressions)) for line in judge.differences(index)]


def test_months_later_than_any_date_are_those_of_spark(spark: SparkSession) -> None:
    dates = [None, *(date.fromisoformat(text) for text in ("2024-02-29", "0001-01-01", "9999-12-31"))]
    months = [None, 0, -25, 3_500_000, 2**31 - 1, -(2**31)]
    table = grid(d=("date", dates), n=("int", months), m=("interval year to month", months))
    expressions = [
        "add_months(d, n)",
        "d + m",
        "CAST(d AS timestamp_ntz) + m",
        "CAST(d AS timestamp) + m",
        "make_date(n, 1, 1)",
    ]
    judge = Judge(spark, table, expressions)
    assert not [line for index in range(len(expressions)) for line in judge.differences(index)]
