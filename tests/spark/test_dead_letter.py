"""Dead letters through real sinks, and read again with exactly the values that failed."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock import config
from penstock.pipeline.dead_letter import LetterStore
from penstock.pipeline.node import DeadLetter
from penstock.spark import catalogs
from penstock.transforms.dead_letter import Replayed, Sender, pending, rows
from penstock.transforms.failure import Split, input_of
from servers.kafka import Broker
from servers.postgres import Postgres
from transform_context import Values

SCHEMA = """id BIGINT, ok BOOLEAN, f FLOAT, d DOUBLE, amount DECIMAL(38,10), s STRING, raw BINARY, day DATE, at TIMESTAMP,
    local TIMESTAMP_NTZ, tags ARRAY<STRING>, m MAP<STRING, DECIMAL(20,3)>, `a.b` STRUCT<x: BIGINT, y: TIMESTAMP>"""


@pytest.fixture(scope="module")
def wide(spark: SparkSession) -> DataFrame:
    return (
        spark.sql(
            """SELECT 9223372036854775807L, true, float('NaN'), 0.1D, 1234567890123456789012345678.0123456789BD, 'Zoë "x"\\n', X'00FF',
        DATE'1582-10-04', TIMESTAMP'1890-01-01 00:00:00.123456Z', TIMESTAMP_NTZ'2024-02-29 12:30:59.000001', array('a', NULL, ''),
        map('k', 1.5BD), named_struct('x', 1L, 'y', TIMESTAMP'2024-02-29 12:30:59.999999Z')
        UNION ALL SELECT 2, NULL, NULL, double('-Infinity'), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL"""
        )
        .toDF(*spark.createDataFrame([], SCHEMA).columns)
        .to(spark.createDataFrame([], SCHEMA).schema)
    )


def _values(frame: DataFrame) -> list[str]:
    return sorted(map(repr, frame.collect()))


def _failed(frame: DataFrame, reason: str = "no") -> DataFrame:
    from pyspark.sql import functions as F

    return frame.select(F.lit(reason).alias("_error"), input_of(frame.columns).alias("_input"))


def _sender(spark: SparkSession, node: str = "n", **fields: Any) -> Sender:
    return Sender(spark, "q-1", "p", node, config.load(), **fields)


@pytest.fixture
def store(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> LetterStore:
    """A store of letters, of the kind that the test asks for."""
    model: dict[str, Any] = {"type": request.param}
    if request.param == "postgres":
        postgres: Postgres = request.getfixturevalue("postgres")
        model |= {"table": "letters", "url": postgres.new_database()}
    if request.param == "iceberg":
        lake = f"lake_{uuid.uuid4().hex[:12]}"
        conf = catalogs.conf_of(lake, {"type": "hadoop", "warehouse": str(tmp_path / "lake")})
        for key, value in conf.items():
            spark.conf.set(key, value)
        model |= {"table": f"{lake}.ops.letters"}
    return LetterStore(DeadLetter.model_validate(model), str(tmp_path / "letters"), config.load())


def test_an_input_is_read_again_with_exactly_its_values(spark: SparkSession, wide: DataFrame) -> None:
    stored = _failed(wide).withColumnRenamed("_input", "row")
    again = rows(stored, wide.schema)
    assert again.schema.simpleString() == wide.schema.simpleString()
    assert _values(again) == _values(wide)


@pytest.mark.parametrize("store", ["file", "postgres", "iceberg"], indirect=True)
@pytest.mark.smoke
def test_letters_are_stored_once_and_replayed_once(
    spark: SparkSession, wide: DataFrame, store: LetterStore
) -> None:
    values = Values()
    assert store.read(spark).isEmpty()
    letters, others = store.letters(), store.letters()
    letters.check(_sender(spark, state=values))
    letters.open(_sender(spark, state=values))
    others.open(_sender(spark, "m"))
    twice = _failed(wide.unionAll(wide))
    assert letters.write(3, twice) == 4
    assert letters.write(3, twice) == 0
    assert others.write(3, _failed(spark.range(1), "other")) == 1
    letters.close()
    others.close()
    again = store.letters()  # the process was killed before the epoch was noted
    again.open(_sender(spark, state=values))
    assert again.write(3, twice) == 0
    assert again.write(5, _failed(wide.limit(1), "later")) == 1
    again.close()

    stored = store.read(spark)
    assert sorted((row.node, row.reason, row.epoch) for row in stored.collect()) == [
        ("m", "other", 3),
        *[("n", "later", 5)],
        *[("n", "no", 3)] * 4,
    ]
    marks = Replayed(values)
    first = pending(stored, pipeline="p", nodes=["n"], replayed=marks)
    assert [row.epoch for row in first.collect()] == [3, 3, 3, 3, 5]
    assert _values(rows(first.where("epoch = 3"), wide.schema)) == _values(wide.unionAll(wide))
    marks.add(row.id for row in first.where("epoch = 3").collect())
    second = pending(store.read(spark), pipeline="p", nodes=["n"], replayed=Replayed(values))
    assert [row.reason for row in second.collect()] == ["later"]
    assert pending(stored, pipeline="another").isEmpty()


def test_letters_in_a_topic_are_read_by_their_ids(spark: SparkSession, kafka: Broker) -> None:
    model = DeadLetter.model_validate(
        {"type": "kafka", "topic": kafka.new_topic(), "bootstrap_servers": kafka.bootstrap_servers}
    )
    store = LetterStore(model, "", config.load())
    for _ in range(2):  # at least once: a killed epoch comes again
        letters = store.letters()
        letters.open(_sender(spark))
        letters.write(0, _failed(spark.range(2)))
        letters.close()
    stored = store.read(spark)
    assert stored.count() == 4
    assert sorted(row.row for row in pending(stored, pipeline="p").collect()) == ['{"id":0}', '{"id":1}']


@pytest.mark.parametrize("repeatable", [True, False])
def test_the_failed_rows_of_a_frame_are_computed_only_when_there_are_some(
    spark: SparkSession,
    repeatable: bool,
    count_rows: Callable[[DataFrame], tuple[DataFrame, Callable[[], int]]],
) -> None:
    watched, evaluated = count_rows(spark.range(10))
    clean = watched.selectExpr("id", "CAST(NULL AS STRING) AS _error", "CAST(NULL AS STRING) AS _input")
    split = Split(clean, repeatable=repeatable)
    assert split.good.columns == ["id"]
    split.good.write.format("noop").mode("overwrite").save()
    assert (split.count(), split.failed(), evaluated()) == (0, None, 10)
    split.release()

    watched, evaluated = count_rows(spark.range(10))
    some = watched.selectExpr("id", "IF(id > 7, 'no', NULL) AS _error", "IF(id > 7, '{}', NULL) AS _input")
    split = Split(some, repeatable=repeatable)
    assert sorted(row.id for row in split.good.collect()) == list(range(8))
    failed = split.failed()
    assert failed is not None
    assert [tuple(row) for row in failed.collect()] == [("no", "{}")] * 2
    assert evaluated() == (20 if repeatable else 10)
    split.release()


@pytest.fixture
def count_rows() -> Callable[[DataFrame], tuple[DataFrame, Callable[[], int]]]:
    """A frame that counts how often a row of it is computed, and the count."""

    def watch(frame: DataFrame) -> tuple[DataFrame, Callable[[], int]]:
        accumulator = frame.sparkSession.sparkContext.accumulator(0)

        def pass_on(batches: Any) -> Any:
            for batch in batches:
                accumulator.add(batch.num_rows)
                yield batch

        return frame.mapInArrow(pass_on, frame.schema), lambda: int(accumulator.value)

    return watch
