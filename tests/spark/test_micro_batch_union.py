"""Rows of several sources in one query: a batch is taken apart into what each source gave."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from penstock.spark.micro_batch import union


def test_sources_come_back_with_their_columns_and_types(spark: SparkSession) -> None:
    left = spark.sql(
        "SELECT 1 AS id, 'a' AS `a.b`, named_struct('x', 1) AS s, CAST(NULL AS DECIMAL(10,2)) AS d"
    )
    right = spark.sql("SELECT DATE'2026-01-01' AS id, array(1, 2) AS more")
    both = union.union([left, right])
    parts = union.split(both, [left.columns, right.columns])
    assert [part.columns for part in parts] == [left.columns, right.columns]
    assert [part.dtypes for part in parts] == [left.dtypes, right.dtypes]
    assert [part.collect() for part in parts] == [left.collect(), right.collect()]


def test_a_row_of_nulls_is_of_its_source(spark: SparkSession) -> None:
    nulls = spark.sql("SELECT CAST(NULL AS INT) AS id")
    parts = union.split(union.union([nulls, nulls, nulls]), [["id"]] * 3)
    assert [part.count() for part in parts] == [1, 1, 1]


def test_one_source_stays_as_it_is(spark: SparkSession) -> None:
    frame = spark.range(2)
    assert union.union([frame]) is frame
    assert union.split(frame, [frame.columns]) == [frame]


@pytest.mark.parametrize("name", ["_source", "_row_0", "Id", "`"])
def test_any_name_of_a_column_will_do(spark: SparkSession, name: str) -> None:
    frame = spark.range(1).toDF(name)
    parts = union.split(union.union([frame, frame]), [frame.columns, frame.columns])
    assert [part.columns for part in parts] == [[name], [name]]
