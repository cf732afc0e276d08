"""Rows that people write, in the types of columns."""

from __future__ import annotations

from decimal import Decimal

from pyspark.sql import SparkSession

from penstock.pipeline.yaml_tree import resolved
from penstock.spark.json_rows import frame_of


def test_a_number_keeps_its_text_and_its_digits(spark: SparkSession) -> None:
    schema = spark.createDataFrame([], "zip STRING, price DECIMAL(30, 10), n BIGINT, f DOUBLE").schema
    rows = [
        {"zip": resolved("007"), "price": resolved("12345678901234567890.1234567891"), "n": resolved("0x10")},
        {"zip": resolved("1.10"), "price": resolved("1e3"), "f": resolved("1.10")},
        {"zip": 5, "price": 7},
    ]
    assert [tuple(row) for row in frame_of(spark, rows, schema).collect()] == [
        ("007", Decimal("12345678901234567890.1234567891"), 16, None),
        ("1.10", Decimal("1000.0000000000"), None, 1.1),
        ("5", Decimal("7.0000000000"), None, None),
    ]
