"""Streaming queries to Iceberg: a snapshot per epoch that says whose it is."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock as ps
from open_sink import open_sink
from penstock import config
from penstock.sinks.base import Epoch, Target
from penstock.sinks.iceberg import IcebergSink
from penstock.spark import catalogs
from servers.iceberg_rest import RestCatalog


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> str:
    """The name of a table that is not there yet, in a catalog of its own."""
    lake = f"lake_{uuid.uuid4().hex[:12]}"
    for key, value in catalogs.conf_of(lake, {"type": "hadoop", "warehouse": str(tmp_path / "lake")}).items():
        spark.conf.set(key, value)
    return f"{lake}.shop.orders"


def _sink(
    table: str,
    frame: DataFrame,
    mode: str = "append",
    keys: tuple[str, ...] = (),
    query: str = "q-1",
    operation: str | None = None,
    **options: Any,
) -> IcebergSink:
    sink = IcebergSink({"table": table, **options})
    return open_sink(sink, frame, mode=mode, keys=keys, query=query, operation=operation)


def _rows(spark: SparkSession, table: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(f"SELECT * FROM {table} ORDER BY 1").collect()]


def _marks(spark: SparkSession, table: str) -> list[tuple[Any, ...]]:
    query = f"SELECT summary['penstock.query'], summary['penstock.epoch'] FROM {table}.snapshots ORDER BY committed_at"
    return [tuple(row) for row in spark.sql(query).collect()]


@pytest.mark.smoke
def test_an_epoch_that_comes_again_is_stored_once(spark: SparkSession, table: str) -> None:
    frame = spark.range(10, numPartitions=2)
    first = _sink(table, frame)
    assert first.write(Epoch(0, frame)) == 10
    assert first.write(Epoch(0, frame)) == 0
    spark.sql(f"INSERT INTO {table} VALUES (100)")  # somebody else's snapshot
    again = _sink(table, frame)
    assert again.write(Epoch(0, frame)) == 0
    assert again.write(Epoch(1, spark.range(10, 12))) == 2
    assert [row[0] for row in _rows(spark, table)] == [*range(12), 100]
    assert _marks(spark, table) == [("q-1", "0"), (None, None), ("q-1", "1")]
    other = _sink(table, frame, query="q-2")
    assert other.write(Epoch(0, spark.range(200, 201))) == 1


def test_a_table_that_was_rolled_back_takes_the_epochs_again(spark: SparkSession, table: str) -> None:
    frame = spark.range(3)
    sink = _sink(table, frame)
    for number in range(3):
        sink.write(Epoch(number, spark.range(number * 10, number * 10 + 2)))
    lake, _, name = table.partition(".")
    first = spark.sql(f"SELECT snapshot_id FROM {table}.snapshots ORDER BY committed_at").first()
    assert first is not None
    spark.sql(f"CALL {lake}.system.rollback_to_snapshot('{name}', {first[0]})")
    again = _sink(table, frame)
    assert again.write(Epoch(0, frame)) == 0
    assert again.write(Epoch(1, spark.range(10, 12))) == 2
    assert [row[0] for row in _rows(spark, table)] == [0, 1, 10, 11]


def test_a_commit_whose_answer_was_lost_is_not_done_again(spark: SparkSession, table: str) -> None:
    frame = spark.range(5)
    sink = _sink(table, frame)
    late = _sink(table, frame)
    assert late.write(Epoch(0, frame)) == 5
    sink._unsure = True
    assert sink.write(Epoch(0, frame)) == 0
    assert len(_rows(spark, table)) == 5


def test_updates_are_merges_and_the_last_of_a_key_wins(spark: SparkSession, table: str) -> None:
    schema = "k STRING, n BIGINT"
    frame = spark.createDataFrame([("a", 1), ("b", 1), ("a", 2), (None, 7)], schema).coalesce(1)
    sink = _sink(table, frame, "update", ("k",))
    assert sink.write(Epoch(0, frame)) == 3
    again = _sink(table, frame, "update", ("k",))
    assert again.write(Epoch(0, frame)) == 0
    more = spark.createDataFrame([("a", 3), ("c", None), (None, 8)], schema)
    assert again.write(Epoch(1, more)) == 3
    assert _rows(spark, table) == [(None, 8), ("a", 3), ("b", 1), ("c", None)]
    assert _marks(spark, table) == [("q-1", "0"), ("q-1", "1")]
    spark.sql(f"INSERT INTO {table} VALUES ('z', 0)")
    assert _marks(spark, table)[-1] == (None, None)


@pytest.mark.parametrize("operation", [None, "_op"])
def test_columns_that_somebody_else_keeps_stay_as_they_are(
    spark: SparkSession, table: str, operation: str | None
) -> None:
    more = "" if operation is None else ", _op STRING"

    def frame(*rows: tuple[Any, ...]) -> DataFrame:
        return spark.createDataFrame(
            [(*row, "u") if operation else row for row in rows], f"k STRING, n BIGINT{more}"
        )

    sink = _sink(table, frame(("a", 1)), "update", ("k",), operation=operation)
    sink.write(Epoch(0, frame(("a", 1), ("b", 1))))
    spark.sql(f"ALTER TABLE {table} ADD COLUMN note STRING FIRST")
    spark.sql(f"UPDATE {table} SET note = 'mine'")
    again = _sink(table, frame(("a", 1)), "update", ("k",), operation=operation)
    assert again.write(Epoch(1, frame(("a", 2), ("c", 3)))) == 2
    rows = spark.sql(f"SELECT k, n, note FROM {table} ORDER BY k").collect()
    assert [tuple(row) for row in rows] == [("a", 2, "mine"), ("b", 1, "mine"), ("c", 3, None)]


def test_an_epoch_without_rows_makes_no_snapshot(spark: SparkSession, table: str) -> None:
    frame = spark.createDataFrame([("a", 1)], "k STRING, n BIGINT")
    upserts = _sink(table, frame, "update", ("k",))
    assert [upserts.write(Epoch(number, frame.limit(rows))) for number, rows in enumerate((0, 1, 0))] == [
        0,
        1,
        0,
    ]
    assert _marks(spark, table) == [("q-1", "1")]
    appends = IcebergSink({"table": table})
    appends.open(Target(spark, "q-2", "q", "append", frame.schema, stateful=True, settings=config.load()))
    assert [appends.write(Epoch(number, frame.limit(rows))) for number, rows in enumerate((0, 1, 0))] == [
        0,
        1,
        0,
    ]
    assert _marks(spark, table) == [("q-1", "1"), ("q-2", "1")]
    again = IcebergSink({"table": table})
    again.open(Target(spark, "q-2", "q", "append", frame.schema, stateful=True, settings=config.load()))
    assert again.write(Epoch(1, frame)) == 0
    assert again.write(Epoch(2, frame.limit(0))) == 0
    assert again.write(Epoch(3, frame)) == 1
    assert len(_rows(spark, table)) == 3


def test_complete_replaces_all_rows(spark: SparkSession, table: str) -> None:
    sink = _sink(table, spark.range(1), "complete")
    for number, rows in enumerate((5, 3, 0)):
        assert sink.write(Epoch(number, spark.range(rows))) == rows
        assert len(_rows(spark, table)) == rows
    assert [mark[1] for mark in _marks(spark, table)] == ["0", "1", "2"]


def test_added_columns_and_changed_ones(spark: SparkSession, table: str) -> None:
    frame = spark.range(2)
    _sink(table, frame, partition_by="bucket(2, id)").write(Epoch(0, frame))
    wider = spark.range(2, 3).select("id", F.lit("x").alias("name"), F.struct(F.lit(1).alias("a")).alias("s"))
    _sink(table, wider).write(Epoch(1, wider))
    _sink(table, frame).write(Epoch(2, spark.range(3, 4)))
    rows = [(row.id, row.name, row.s and row.s.a) for row in spark.table(table).orderBy("id").collect()]
    assert rows == [(0, None, None), (1, None, None), (2, "x", 1), (3, None, None)]
    narrow = spark.range(4, 5).select(F.col("id").cast("int").alias("ID"))
    _sink(table, narrow).write(Epoch(3, narrow))
    assert spark.table(table).count() == 5
    with pytest.raises(ps.DataError, match="'id' was bigint and is string now"):
        _sink(table, spark.createDataFrame([("a",)], "id STRING"))
    assert spark.table(table).count() == 5


def test_what_cannot_work_is_refused(spark: SparkSession, table: str) -> None:
    with pytest.raises(ps.ConfigError, match="needs a key"):
        _sink(table, spark.range(1), "update")
    with pytest.raises(ps.ConfigError, match="needs the option 'table'"):
        IcebergSink({})


def test_a_query_with_aggregates_and_a_rest_catalog(
    session: ps.Session, spark: SparkSession, rest_catalog: RestCatalog, tmp_path: Path
) -> None:
    lake = f"lake_{uuid.uuid4().hex[:12]}"
    for key, value in catalogs.conf_of(lake, {"type": "rest", "uri": rest_catalog.uri}).items():
        spark.conf.set(key, value)
    table = f"{lake}.{lake}.counts"
    source = tmp_path / "in"

    def run(rows: list[tuple[str, int]]) -> ps.StreamingQuery:
        spark.createDataFrame(rows, "k STRING, v INT").write.mode("append").parquet(str(source))
        query = (
            session.read_stream.parquet(source, schema="k STRING, v INT")
            .key_by("k")
            .agg(total=F.sum("v"))
            .write_stream.output_mode("update")
            .key("k")
            .trigger(ps.Trigger.available_now())
            .format("iceberg")
            .option("table", table)
            .option("checkpoint.location", tmp_path / "ckpt")
            .start("counts")
        )
        query.await_termination()
        return query

    run([("a", 1), ("b", 2), ("a", 3)])
    query = run([("a", 10), ("c", 1)])
    assert _rows(spark, table) == [("a", 14), ("b", 2), ("c", 1)]
    assert _marks(spark, table)[-1] == (query.id, "1")
    assert "exactly once" in query.explain()
    spark.sql(f"INSERT INTO {table} VALUES ('z', 0)")
    assert _marks(spark, table)[-1] == (None, None)  # the session of the user has kept nothing of it


def test_a_query_waits_for_a_catalog_that_restarts(
    session: ps.Session, spark: SparkSession, rest_catalog: RestCatalog, tmp_path: Path
) -> None:
    import time

    lake = f"lake_{uuid.uuid4().hex[:12]}"
    for key, value in catalogs.conf_of(lake, {"type": "rest", "uri": rest_catalog.uri}).items():
        spark.conf.set(key, value)
    table = f"{lake}.{lake}.numbers"
    query = (
        session.read_stream.rate(rows_per_second=100)
        .select("value")
        .write_stream.format("iceberg")
        .option("table", table)
        .option("checkpoint.location", tmp_path / "ckpt")
        .start("waits-for-catalog")
    )
    with query:
        deadline = time.monotonic() + 120
        while query.last_progress is None or not query.last_progress.output_rows:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        rest_catalog.kill()
        try:
            while not query.status.message.startswith("waiting for iceberg table"):
                assert time.monotonic() < deadline, query.exception()
                time.sleep(0.05)
        finally:
            rest_catalog.start()
        seen = query.last_progress.batch_id
        while query.last_progress.batch_id <= seen + 1:
            assert time.monotonic() < deadline, query.exception()
            time.sleep(0.05)
    assert query.exception() is None
    values = [row[0] for row in _rows(spark, table)]
    assert values == list(range(len(values)))


def test_changes_are_merged_with_their_deletes(spark: SparkSession, table: str) -> None:
    name = "q-1-it's.\\a`sink"  # nodes of pipelines have names of all kinds

    def changes(*rows: tuple[Any, ...]) -> DataFrame:
        return spark.createDataFrame(list(rows), "k STRING, n BIGINT, _op STRING").coalesce(1)

    frame = changes(("a", 1, "i"), ("b", 1, "i"), ("a", 2, "u"), ("c", 1, "i"), ("c", 1, "d"))
    sink = _sink(table, frame, "update", ("k",), query=name, operation="_op")
    assert sink.write(Epoch(0, frame)) == 3
    second = changes(("a", None, "d"), ("a", 3, "i"), ("b", None, "d"), ("x", None, "d"), ("d", None, "i"))
    assert sink.write(Epoch(1, second)) == 4
    again = _sink(table, frame, "update", ("k",), query=name, operation="_op")
    assert again.write(Epoch(1, second)) == 0
    again.write(Epoch(2, changes(("a", 3, "d"), ("e", 3, "i"))))  # a key that changes
    assert _rows(spark, table) == [("d", None), ("e", 3)]
    assert spark.table(table).columns == ["k", "n"]
    again.write(Epoch(3, changes(("nobody", None, "d"))))
    assert _rows(spark, table) == [("d", None), ("e", 3)]


def test_a_table_that_only_grows_refuses_changes_as_a_whole(spark: SparkSession, table: str) -> None:
    frame = spark.createDataFrame([(1, "i"), (2, "i")], "id INT, _op STRING")
    sink = _sink(table, frame, operation="_op")
    assert sink.write(Epoch(0, frame)) == 2
    with pytest.raises(ps.DataError, match="has the operation 'd'") as refused:
        sink.write(Epoch(1, spark.createDataFrame([(3, "i"), (1, "d")], frame.schema)))
    assert refused.value.code == "SINK_OPERATION"
    assert _rows(spark, table) == [(1,), (2,)]
