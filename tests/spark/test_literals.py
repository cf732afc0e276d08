"""Literals of PySpark, which a session makes lighter: the same types and values as before."""

from __future__ import annotations

import datetime
import enum
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F


class Colour(enum.Enum):
    RED = 1


class Name(str):
    """A string of a kind of its own."""


@pytest.mark.parametrize(
    ("value", "kind", "answer"),
    [
        (1, "int", 1),
        (2**40, "bigint", 2**40),
        ("a", "string", "a"),
        (None, "void", None),
        (True, "boolean", True),
        (2.5, "double", 2.5),
        (b"x", "binary", b"x"),
        ([1, 2], "array<int>", [1, 2]),
        (Decimal("1.5"), "decimal(2,1)", Decimal("1.5")),
        (datetime.date(2020, 1, 1), "date", datetime.date(2020, 1, 1)),
        (Colour.RED, "int", 1),
        (Name("b"), "string", "b"),
        (np.int64(7), "bigint", 7),
        (np.float32(0.5), "float", 0.5),
        (F.expr, "int", 1),
    ],
    ids=repr,
)
def test_literals(spark: SparkSession, value: Any, kind: str, answer: Any) -> None:
    column = F.lit(value("1") if value is F.expr else value)
    frame = spark.range(1).select(column.alias("x"))
    assert frame.schema["x"].dataType.simpleString() == kind
    assert frame.collect() == [(answer,)]


def test_columns_in_a_list_are_refused(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="COLUMN_IN_LIST"):
        F.lit([F.col("id")])
