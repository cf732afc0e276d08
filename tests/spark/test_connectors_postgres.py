"""Tables in PostgreSQL over JDBC."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from urllib.parse import urlsplit

import pytest
from pyspark.sql import Row, SparkSession

from servers.postgres import PASSWORD, USER, Postgres

SCHEMA = """id BIGINT, amount DECIMAL(20,4), at TIMESTAMP_NTZ, day DATE, ok BOOLEAN, name STRING, ratio DOUBLE,
            tags ARRAY<STRING>, counts ARRAY<INT>, raw BINARY"""
ROWS = [
    (
        1,
        Decimal("1234567890123456.7891"),
        datetime(2024, 2, 29, 12, 30, 59, 123456),
        date(1969, 12, 31),
        True,
        "Zoë 'x' \\",
        0.1,
        ["a", None, "b"],
        [1, -2],
        b"\x00\xff",
    ),
    (2, None, None, None, None, None, None, None, None, None),
    (3, Decimal("-0.0001"), datetime(1999, 1, 1), date(9999, 12, 31), False, "", float("inf"), [], [], b""),
]


def _options(url: str) -> dict[str, str]:
    parts = urlsplit(url)
    return {
        "url": f"jdbc:postgresql://127.0.0.1:{parts.port}{parts.path}",
        "user": USER,
        "password": PASSWORD,
        "dbtable": "orders",
    }


@pytest.mark.smoke
def test_a_round_trip_of_types_and_nulls(spark: SparkSession, postgres: Postgres) -> None:
    url = postgres.new_database()
    rows = spark.createDataFrame(ROWS, SCHEMA)
    rows.write.format("jdbc").options(**_options(url)).save()
    stored = postgres.execute("SELECT amount, at, day, tags, counts FROM orders ORDER BY id", url)
    assert stored == [(row[1], row[2], row[3], row[7], row[8]) for row in ROWS]
    back = spark.read.format("jdbc").options(**_options(url), preferTimestampNTZ="true").load()
    assert dict(back.dtypes) == dict(rows.dtypes)
    assert back.orderBy("id").collect() == rows.collect()


def test_filters_and_aggregates_run_in_the_database(spark: SparkSession, postgres: Postgres) -> None:
    url = postgres.new_database()
    postgres.execute(
        "CREATE TABLE orders AS SELECT i AS id, i % 3 AS kind FROM generate_series(1, 1000) AS i", url
    )
    table = spark.read.format("jdbc").options(**_options(url)).load()
    small = table.where("id <= 30 AND kind = 1")
    assert small.count() == 10
    assert "PushedFilters: [*IsNotNull(id)" in small._jdf.queryExecution().toString()


def test_append_and_overwrite(spark: SparkSession, postgres: Postgres) -> None:
    url = postgres.new_database()
    for mode in ("append", "append", "overwrite", "append"):
        spark.range(3).write.format("jdbc").options(**_options(url)).mode(mode).save()
    back = spark.read.format("jdbc").options(**_options(url)).load()
    assert back.groupBy("id").count().orderBy("id").collect() == [Row(id=i, count=2) for i in range(3)]
