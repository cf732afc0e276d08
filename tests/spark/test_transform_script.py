"""Scripts in Spark tasks: types through Spark, operations, errors as users see them, rows that fail beside those that do not."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock import config
from penstock.sinks.base import QueryStatus
from penstock.transforms.base import TransformContext
from penstock.transforms.script.transform import ScriptTransform

SCRIPT = """\
function invoke(row) {
  if (row.id === 3) throw new RangeError(`no ${row.name}`);
  if (row.id === 1) return null;
  return [row, {...row, id: row.id * 10}];
}
"""
ORDERS = "id BIGINT, name STRING, price DECIMAL(10,2), tags ARRAY<STRING>, _op STRING"


def _context(spark: SparkSession, **more: Any) -> TransformContext:
    return TransformContext(
        spark=spark, query="q-1", name="by.customer", settings=config.load(), status=QueryStatus(), **more
    )


def _transform(**options: Any) -> ScriptTransform:
    return ScriptTransform({"script": SCRIPT, **options})


@pytest.fixture
def orders(spark: SparkSession) -> DataFrame:
    rows: list[tuple[Any, ...]] = [
        (1, "a", Decimal("1.00"), ["x"], "i"),
        (2, "b", Decimal("2.50"), [None, "y"], "d"),
        (3, "Zoë", None, None, "u"),
    ]
    return spark.createDataFrame(rows, ORDERS)


@pytest.mark.smoke
def test_rows_go_through_a_script(spark: SparkSession, orders: DataFrame) -> None:
    transform = _transform(language="ts")
    context = _context(spark)
    transform.check(context)
    transform.open(context)
    result = transform.apply(orders.where("id < 3"), context)
    assert result.schema.simpleString() == orders.schema.simpleString()
    assert sorted(tuple(row) for row in result.collect()) == [
        (2, "b", Decimal("2.50"), [None, "y"], "d"),
        (20, "b", Decimal("2.50"), [None, "y"], "d"),
    ]
    assert transform.apply(orders.limit(0), context).collect() == []
    transform.close()


def test_the_schema_may_be_another_one(spark: SparkSession, orders: DataFrame) -> None:
    transform = _transform(
        script="const invoke = (row) => ({at: new Date(0), key: {n: row.id}, counts: {a: 1.5}, bytes: 'aGk='});",
        schema={
            "key": "struct<n: int64>",
            "counts": "map<string, float64>",
            "at": "timestamp",
            "bytes": "binary",
        },
    )
    result = transform.apply(orders.where("id = 2"), _context(spark))
    assert result.schema.simpleString() == (
        "struct<key:struct<n:bigint>,counts:map<string,double>,at:timestamp,bytes:binary,_op:string>"
    )
    [row] = result.selectExpr(
        "key.n", "counts", "unix_millis(at) AS at", "string(bytes) AS bytes", "_op"
    ).collect()
    assert row.asDict() == {"n": 2, "counts": {"a": 1.5}, "at": 0, "bytes": "hi", "_op": "d"}


def test_a_row_that_fails_fails_the_query_with_its_place(spark: SparkSession, orders: DataFrame) -> None:
    transform = _transform()
    frame = transform.apply(orders, _context(spark))
    with pytest.raises(Exception, match="RangeError") as failed:
        frame.collect()
    error = transform.failure(failed.value)
    assert isinstance(error, ps.DataError)
    assert error.code == "SCRIPT_ROW"
    assert error.where == "by.customer.js:2:27"
    assert (
        "the script by.customer failed for a row: RangeError: no Zoë (by.customer.js:2:27); the row is {"
        in error.message
    )


def test_rows_that_fail_come_out_with_the_reason(spark: SparkSession, orders: DataFrame) -> None:
    frame = _transform().apply(orders, _context(spark, on_error="dead_letter"))
    assert frame.columns == [*orders.columns, "_error", "_input"]
    rows = {row.id: row for row in frame.collect()}
    assert rows.keys() == {2, 20, None}
    assert rows[2]._error is None
    failed = rows[None]
    assert failed._error == "RangeError: no Zoë (by.customer.js:2:27)"
    assert json.loads(failed._input) == {"id": 3, "name": "Zoë", "price": None, "tags": None, "_op": "u"}


def test_types_that_scripts_do_not_have_and_imports_are_refused_at_once(spark: SparkSession) -> None:
    with pytest.raises(ps.ConfigError, match="the column 'i' of type"):
        _transform().apply(spark.sql("SELECT INTERVAL '1' DAY AS i"), _context(spark))
    hidden = _transform(
        script="const q = /\"/; import t from '/etc/passwd' with {type: 'text'}; // \"\nfunction invoke() {}"
    )
    with pytest.raises(ps.ConfigError, match="imports '/etc/passwd'"):
        hidden.apply(spark.range(1), _context(spark))
