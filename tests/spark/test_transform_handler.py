"""A handler in Spark tasks, and failed rows as they can be read again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # as PySpark's users have it

import penstock as ps
from penstock import config
from penstock.transforms.base import TransformContext
from penstock.transforms.handler.transform import HandlerTransform
from servers.http_service import HttpService

ROWS = """
SELECT id, decimal(id) / 3 AS price, float('NaN') AS ratio, timestamp_micros(id) AS at, timestamp_ntz '2026-01-01 10:00:00' AS local,
       date '2026-01-02' AS day, binary('hi') AS bytes, map('a', id) AS counts, array(named_struct('n', id, 'none', CAST(NULL AS INT))) AS items, 'd' AS _op
FROM range(6)
"""
FORMATS = {
    "mode": "FAILFAST",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


@pytest.fixture
def service() -> Iterator[HttpService]:
    with HttpService() as running:
        yield running


def _context(spark: SparkSession, **more: Any) -> TransformContext:
    return TransformContext(spark=spark, query="q-1", name="handled", settings=config.load(), **more)


def test_rows_go_through_a_service(
    spark: SparkSession, service: HttpService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_TEST_SECRET", "Bearer t0ps3cret")
    transform = HandlerTransform({"url": service.url, "batch_size": 2, "secret_name": "PENSTOCK_TEST_SECRET"})
    context = _context(spark)
    transform.check(context)
    rows = spark.sql(ROWS)
    result = transform.apply(rows, context)
    assert result.schema.simpleString() == rows.schema.simpleString()
    # As text, because no NaN is equal to another.
    assert str(result.orderBy("id").collect()) == str(rows.orderBy("id").collect())
    assert {headers["Authorization"] for headers in service.headers} == {"Bearer t0ps3cret"}
    assert max(len(body) for body in service.bodies) == 2


def test_errors_of_tasks_arrive_as_what_they_are(spark: SparkSession, service: HttpService) -> None:
    service.refusals = [403] * 8
    transform = HandlerTransform({"url": service.url})
    frame = transform.apply(spark.range(2), _context(spark))
    with pytest.raises(Exception, match="403") as failed:
        frame.collect()
    error = transform.failure(failed.value)
    assert isinstance(error, ps.ConnectorError)
    assert (error.code, error.retryable) == ("HANDLER_REFUSED", False)
    assert "t0ps3cret" not in str(error)


def test_a_failed_row_can_be_read_again(spark: SparkSession, service: HttpService) -> None:
    service.respond = lambda rows: (422, b"no")
    rows = spark.sql(ROWS).coalesce(1)
    frame = HandlerTransform({"url": service.url, "schema": "x INT"}).apply(
        rows, _context(spark, on_error="drop")
    )
    assert frame.columns == ["x", "_op", "_error", "_input"]
    again = frame.select(F.from_json("_input", rows.schema, FORMATS).alias("row"), "_error").cache()
    assert {row._error for row in again.select("_error").collect()} == {
        "the service answers 422 Unprocessable Entity: no"
    }
    assert [str(row) for row in again.select("row.*").orderBy("id").collect()] == [
        str(row) for row in rows.orderBy("id").collect()
    ]
