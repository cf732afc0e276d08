"""Exponentials, logarithms and powers to the last bit, and other functions of one formula, against Spark."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pyspark.sql import SparkSession

import seed
from twin.judge import Judge, Table, grid

EDGES = [
    *(0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 2.5, -2.5, 10.0, 1e20, -1e20, 4e9, -4e9, 1e300),
    *(math.inf, -math.inf, math.nan, 1e308, 5e-324, 1e-310, 2.0**53, -(2.0**53), 1.0000000001, 0.9999999999),
    *(709.78, 709.79, -745.1, -745.2, 1e-9, 1e-20, 0.34, 0.35, 1.03, 1.04, 1e19, 1.0000001, 0.9999999),
]


def _random(count: int) -> Table:
    chosen = np.random.default_rng(seed.SEED)
    parts = [
        (np.exp(chosen.uniform(-50, 50, count)), chosen.uniform(-20, 20, count)),
        (chosen.uniform(0.9, 1.1, count), chosen.uniform(-7000, 7000, count)),
        (chosen.uniform(-30, 30, count), chosen.integers(-20, 20, count).astype(float)),
        (chosen.integers(0, 2**63 - 1, count).view(np.float64), chosen.uniform(-3, 3, count)),
        (chosen.uniform(-750, 720, count), chosen.normal(0, 1, count)),
    ]
    x, y = (np.concatenate([part[side] for part in parts]).tolist() for side in (0, 1))
    return {"x": ("double", x), "y": ("double", y)}


REAL = [
    "exp(x)",
    "exp(y)",
    "ln(x)",
    "ln(abs(x))",
    "log10(x)",
    "log10(abs(y))",
    "log2(x)",
    "log(x, y)",
    "log(abs(x), abs(y))",
    "log(x)",
    "pow(x, y)",
    "power(abs(x), y)",
    "pow(x, 2)",
    "pow(x, 0.5D)",
    "degrees(x)",
    "radians(y)",
]
FAMILIES: dict[str, tuple[Table, list[str]]] = {
    "edges": (grid(x=("double", [None, *EDGES]), y=("double", [None, *EDGES])), REAL),
    "random": (_random(4000), REAL),
    "ints": (
        grid(a=("int", [None, 0, 1, -1, 20, 21, 2**31 - 1, -(2**31)]), b=("int", [None, 0, 7, 31, 32, -1])),
        ["factorial(a)", "bit_count(a)", "bit_get(a, b)", "getbit(a, 3)", "pow(a, 2)", "exp(a)"],
    ),
    "other widths": (
        grid(
            a=("tinyint", [None, 0, 1, -1, 127]),
            b=("bigint", [None, 0, -1, 2**63 - 1]),
            c=("boolean", [None, True, False]),
            d=("smallint", [None, -2, 300]),
            p=("int", [None, 0, 7, 8, 63, 64]),
        ),
        [
            "bit_count(a)",
            "bit_count(b)",
            "bit_count(c)",
            "bit_count(d)",
            "bit_get(a, p)",
            "bit_get(b, p)",
            "bin(b)",
            "bin(a)",
        ],
    ),
    "buckets": (
        grid(
            v=("double", [None, -1.0, 0.0, 2.5, 5.0, 10.0, math.nan, math.inf, 1e10]),
            low=("double", [None, 0.0, 10.0, math.nan, -math.inf, 1.7e308, -1.7e308]),
            high=("double", [0.0, 10.0, 5.0, math.inf, 1.6e308]),
            n=("bigint", [None, 0, 1, 4, -1, 2**63 - 1, 2**62]),
        ),
        ["width_bucket(v, low, high, n)", "width_bucket(v, 0, 10, 5)"],
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_results_are_those_of_spark_to_the_last_bit(spark: SparkSession, family: str) -> None:
    table, expressions = FAMILIES[family]
    judge = Judge(spark, table, expressions)
    wrong = {text: found for index, text in enumerate(expressions) if (found := judge.differences(index))}
    assert wrong == {}, f"seed {seed.SEED}"
