from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock as ps


@pytest.mark.smoke
def test_the_first_query_answers(session: ps.Session) -> None:
    assert session.sql("SELECT 1 AS one").toArrow().to_pylist() == [{"one": 1}]


def test_plain_pyspark_code_gets_our_session(session: ps.Session, spark: SparkSession) -> None:
    assert SparkSession.builder.getOrCreate() is session.spark is spark
    assert spark.range(10).agg(F.sum("id").alias("total")).collect()[0].total == 45


def test_python_functions_run_in_this_interpreter(spark: SparkSession) -> None:
    import sys

    executable = F.udf(lambda _: __import__("sys").executable, "string")
    assert spark.range(1).select(executable("id")).collect()[0][0] == sys.executable


def test_numpy_values_go_into_queries(spark: SparkSession) -> None:
    row = spark.range(1).select(
        F.lit(np.int32(7)).alias("n"),
        F.lit(np.float64(0.5)).alias("x"),
        F.lit(np.array([1, 2])).alias("many"),
    )
    assert row.collect()[0].asDict() == {"n": 7, "x": 0.5, "many": [1, 2]}
