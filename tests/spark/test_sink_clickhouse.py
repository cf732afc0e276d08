"""Streaming queries to ClickHouse: inserts that are dropped when they come again, upserts, types, waiting and refusals."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock as ps
from open_sink import open_sink
from penstock.sinks.base import Epoch, Guarantee, QueryStatus
from penstock.sinks.clickhouse.sink import ClickHouseSink
from servers.clickhouse import ClickHouse
from waiting import wait_for


def _sink(
    url: str,
    frame: DataFrame,
    mode: str = "append",
    keys: tuple[str, ...] = (),
    query: str = "q-1",
    status: QueryStatus | None = None,
    operation: str | None = None,
    **options: Any,
) -> ClickHouseSink:
    sink = ClickHouseSink({"url": url, "table": "out", **options})
    return open_sink(sink, frame, mode=mode, keys=keys, query=query, operation=operation, status=status)


@contextmanager
def _settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    before = {name: str(spark.conf.get(name)) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def _ids(server: ClickHouse, url: str) -> list[int]:
    return [row["id"] for row in server.execute("SELECT id FROM out ORDER BY id", url)]


def _inserts(server: ClickHouse, url: str) -> int:
    """How many parts the table was ever given: one per insert."""
    rows = server.execute(
        "SELECT max(max_block_number) AS n FROM system.parts WHERE database = currentDatabase() AND table = 'out'",
        url,
    )
    return int(rows[0]["n"])


@pytest.mark.smoke
def test_an_epoch_that_comes_again_is_stored_once(spark: SparkSession, clickhouse: ClickHouse) -> None:
    url, frame = clickhouse.new_database(), spark.range(10, numPartitions=3)
    first = _sink(url, frame)
    assert first.guarantee is Guarantee.EXACTLY_ONCE
    assert first.write(Epoch(0, frame)) == 10
    first.write(Epoch(0, frame))
    first.close()
    again = _sink(url, frame)
    again.write(Epoch(0, frame.repartition(2)))
    assert again.write(Epoch(1, spark.range(10, 12))) == 2
    assert again.write(Epoch(2, spark.range(0))) == 0
    again.close()
    assert _ids(clickhouse, url) == list(range(12))
    other = _sink(url, frame, query="q-2")
    other.write(Epoch(0, spark.range(100, 101)))
    other.close()
    assert _ids(clickhouse, url) == [*range(12), 100]


def test_chunks_have_the_same_rows_however_they_are_dealt_out(
    spark: SparkSession, clickhouse: ClickHouse
) -> None:
    url = clickhouse.new_database()
    rows = spark.range(5000, numPartitions=4).select("id", (F.col("id") / 3).alias("x"))
    sink = _sink(url, rows, batch_rows=1000)
    assert sink.write(Epoch(0, rows)) == 5000
    assert _ids(clickhouse, url) == list(range(5000))
    assert _inserts(clickhouse, url) == 5
    sink.write(Epoch(0, rows.orderBy(F.rand()).repartition(3)))
    sink.close()
    assert _ids(clickhouse, url) == list(range(5000))


def test_an_epoch_that_was_cut_short_is_completed(spark: SparkSession, clickhouse: ClickHouse) -> None:
    url = clickhouse.new_database()
    rows = spark.range(3000, numPartitions=4)
    sink = _sink(url, rows, batch_rows=1000)
    clickhouse.fault("before", 62)  # one of the three chunks is refused for good
    with pytest.raises(ps.ConnectorError, match="a fault that the test asked for"):
        sink.write(Epoch(0, rows))
    sink.close()
    stored = _ids(clickhouse, url)
    assert 0 < len(stored) < 3000
    again = _sink(url, rows, batch_rows=1000)
    again.write(Epoch(0, rows.orderBy(F.rand()).repartition(7)))
    again.close()
    assert _ids(clickhouse, url) == list(range(3000))


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_an_epoch_that_comes_again_with_other_values_loses_no_row(
    spark: SparkSession, clickhouse: ClickHouse, keys: tuple[str, ...]
) -> None:
    url = clickhouse.new_database()
    rows = spark.range(3000, numPartitions=4).withColumn("at", F.lit(1))
    sink = _sink(url, rows, keys=keys, batch_rows=1000)
    clickhouse.fault("before", 62)
    with pytest.raises(ps.ConnectorError, match="a fault that the test asked for"):
        sink.write(Epoch(0, rows))
    sink.close()
    again = _sink(url, rows, keys=keys, batch_rows=1000)
    again.write(Epoch(0, rows.withColumn("at", F.lit(2))))
    again.close()
    stored = _ids(clickhouse, url)
    assert set(stored) == set(range(3000))
    assert len(stored) == 3000 or not keys  # a key tells which rows are there already


@pytest.mark.parametrize("batch_rows", [100, 10_000])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_answer_and_a_busy_server_are_tried_again(
    spark: SparkSession, clickhouse: ClickHouse, when: str, batch_rows: int
) -> None:
    url, rows = clickhouse.new_database(), spark.range(500)
    status = QueryStatus()
    sink = _sink(url, rows, status=status, batch_rows=batch_rows)
    clickhouse.fault(when, 252)
    assert sink.write(Epoch(0, rows)) == 500
    sink.close()
    assert status.retries == 1
    assert status.message is None
    assert _ids(clickhouse, url) == list(range(500))


def test_updates_replace_by_key_and_the_last_of_a_key_wins(
    spark: SparkSession, clickhouse: ClickHouse
) -> None:
    url = clickhouse.new_database()
    schema = "k STRING, n BIGINT"
    frame = spark.createDataFrame([("a", 1), ("b", 1), ("a", 2), (None, 7)], schema).coalesce(1)
    sink = _sink(url, frame, "update", ("k",))
    assert sink.guarantee is Guarantee.EXACTLY_ONCE
    assert sink.write(Epoch(0, frame)) == 3
    sink.write(Epoch(0, frame))
    sink.write(Epoch(1, spark.createDataFrame([("a", 3), ("c", None), (None, 8)], schema)))
    sink.close()
    current = "SELECT k, n FROM out FINAL ORDER BY k NULLS FIRST"
    expected = [
        {"k": None, "n": 8},
        {"k": "a", "n": 3},
        {"k": "b", "n": 1},
        {"k": "c", "n": None},
    ]
    assert clickhouse.execute(current, url) == expected
    # A new checkpoint begins with epoch 0 again, and its rows are newer all the same.
    other = _sink(url, frame, "update", ("k",), query="q-2", batch_rows=1)
    other.write(Epoch(0, spark.createDataFrame([("a", 100), ("d", 4)], schema)))
    other.close()
    found = {row["k"]: row["n"] for row in clickhouse.execute(current, url)}
    assert found == {None: 8, "a": 100, "b": 1, "c": None, "d": 4}


def test_the_query_can_say_which_version_is_newest(spark: SparkSession, clickhouse: ClickHouse) -> None:
    url = clickhouse.new_database()
    frame = spark.createDataFrame(
        [(1, "new", 5), (1, "old", 3), (2, "x", 1)], "id BIGINT, v STRING, at BIGINT"
    )
    sink = _sink(url, frame, "update", ("id",), version="at")
    sink.write(Epoch(0, frame))
    sink.write(Epoch(1, spark.createDataFrame([(1, "older", 1), (2, "y", 2)], frame.schema)))
    sink.close()
    assert clickhouse.execute("SELECT id, v FROM out FINAL ORDER BY id", url) == [
        {"id": 1, "v": "new"},
        {"id": 2, "v": "y"},
    ]
    with pytest.raises(ps.ConfigError, match="no column 'att'") as refused:
        _sink(url, frame, "update", ("id",), version="att")
    assert "did you mean 'at'" in str(refused.value.hint)
    with pytest.raises(ps.ConfigError, match="from 'at', not from 'v'"):
        _sink(url, frame, "update", ("id",), version="v")
    with pytest.raises(ps.ConfigError, match="belongs to output mode update"):
        _sink(url, frame, version="at")


def test_complete_replaces_all_rows(spark: SparkSession, clickhouse: ClickHouse) -> None:
    url = clickhouse.new_database()
    sink = _sink(url, spark.range(1), "complete", batch_rows=3)
    for number, rows in enumerate((5, 3, 0, 2)):
        assert sink.write(Epoch(number, spark.range(rows))) == rows
        assert _ids(clickhouse, url) == list(range(rows))
    sink.close()
    assert [row["name"] for row in clickhouse.execute("SHOW TABLES", url)] == ["out"]
    clickhouse.execute("CREATE TABLE parts (id Int64) ENGINE = MergeTree PARTITION BY id ORDER BY id", url)
    with pytest.raises(ps.ConfigError, match="it is partitioned"):
        _sink(url, spark.range(1), "complete", table="parts")


TYPES = {
    "b": ("BOOLEAN", "true", "Nullable(Bool)", True),
    "i8": ("TINYINT", "-3Y", "Nullable(Int8)", -3),
    "i16": ("SMALLINT", "300S", "Nullable(Int16)", 300),
    "i32": ("INT", "70000", "Nullable(Int32)", 70000),
    "i64": ("BIGINT", "9007199254740991L", "Nullable(Int64)", 9007199254740991),
    "f": ("FLOAT", "1.5F", "Nullable(Float32)", 1.5),
    "d": ("DOUBLE", "0.25D", "Nullable(Float64)", 0.25),
    "m": (
        "DECIMAL(38,10)",
        "1234567890123456789012345678.0123456789",
        "Nullable(Decimal(38, 10))",
        "1234567890123456789012345678.0123456789",
    ),
    "s": ("STRING", "'Zoë'", "Nullable(String)", "Zoë"),
    "x": ("BINARY", "X'00ff'", "Nullable(String)", "00FF"),
    "dt": ("DATE", "DATE'2024-02-29'", "Nullable(Date32)", "2024-02-29"),
    "ts": (
        "TIMESTAMP",
        "TIMESTAMP'2024-01-01 12:00:00.123456+02:00'",
        "Nullable(DateTime64(6, 'UTC'))",
        "2024-01-01 10:00:00.123456",
    ),
    "ntz": (
        "TIMESTAMP_NTZ",
        "TIMESTAMP_NTZ'1950-01-01 01:02:03'",
        "Nullable(DateTime64(6, 'UTC'))",
        "1950-01-01 01:02:03.000000",
    ),
    "a": ("ARRAY<INT>", "array(1, NULL)", "Array(Nullable(Int32))", [1, None]),
    "aa": ("ARRAY<ARRAY<STRING>>", "array(array('x'), NULL)", "Array(Array(Nullable(String)))", [["x"], []]),
    "mp": (
        "MAP<STRING, DOUBLE>",
        "map('k', 1D, 'l', NULL)",
        "Map(String, Nullable(Float64))",
        {"k": 1, "l": None},
    ),
    "st": (
        "STRUCT<x: INT, y: ARRAY<STRUCT<z: STRING>>>",
        "named_struct('x', 1, 'y', array(named_struct('z', 'q')))",
        "Tuple(x Nullable(Int32), y Array(Tuple(z Nullable(String))))",
        {"x": 1, "y": [{"z": "q"}]},
    ),
    "t": ("TIME(6)", "TIME'01:02:03.5'", "Nullable(String)", "01:02:03.5"),
    "v": ("STRING", "NULL", "Nullable(String)", None),
}
EMPTY = {"a": [], "aa": [], "mp": {}, "st": {"x": None, "y": []}}


def test_every_type_arrives(spark: SparkSession, clickhouse: ClickHouse) -> None:
    url = clickhouse.new_database()
    values = ", ".join(f"CAST({value} AS {kind}) AS `{name}`" for name, (kind, value, *_) in TYPES.items())
    nulls = ", ".join(f"CAST(NULL AS {kind})" for kind, *_ in TYPES.values())
    with _settings(spark, {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.timeType.enabled": "true"}):
        frame = spark.sql(f"SELECT 1 AS id, {values} UNION ALL SELECT 2, {nulls}")
        for table, batch_rows in (("out", 1000), ("apart", 1)):
            sink = _sink(url, frame, table=table, batch_rows=batch_rows)
            assert sink.write(Epoch(0, frame)) == 2
            sink.close()
    described = clickhouse.execute(
        "SELECT name, type FROM system.columns WHERE table = 'out' AND database = currentDatabase()", url
    )
    kinds = {row["name"]: row["type"] for row in described}
    assert kinds == {"id": "Nullable(Int32)", **{name: case[2] for name, case in TYPES.items()}}
    for table in ("out", "apart"):
        one, two = clickhouse.execute(
            f"SELECT * REPLACE (hex(x) AS x, toString(m) AS m) FROM {table} ORDER BY id", url
        )
        assert one == {"id": 1, **{name: case[3] for name, case in TYPES.items()}}
        assert two == {"id": 2, **{name: EMPTY.get(name) for name in TYPES}}


def test_added_columns_and_changed_ones(spark: SparkSession, clickhouse: ClickHouse) -> None:
    url, frame = clickhouse.new_database(), spark.range(2)
    sink = _sink(url, frame, keys=("id",))
    sink.write(Epoch(0, frame))
    sink.close()
    wider = spark.range(2, 3).withColumn("name", F.lit("x"))
    with pytest.raises(ps.DataError, match="no column 'name'") as refused:
        _sink(url, wider, create=False)
    assert refused.value.code == "STREAM_SCHEMA_CHANGED"
    sink = _sink(url, wider)
    sink.write(Epoch(1, wider))
    sink.close()
    sink = _sink(url, frame)
    sink.write(Epoch(2, spark.range(3, 4)))
    sink.close()
    assert clickhouse.execute("SELECT * FROM out ORDER BY id", url) == [
        {"id": 0, "name": None},
        {"id": 1, "name": None},
        {"id": 2, "name": "x"},
        {"id": 3, "name": None},
    ]
    with pytest.raises(ps.DataError, match=r"'id' is string in the query and Int64 in the table"):
        _sink(url, spark.createDataFrame([("a",)], "id STRING"))
    clickhouse.execute("ALTER TABLE out ADD COLUMN twice Int64 MATERIALIZED id * 2", url)
    with pytest.raises(ps.DataError, match=r"'twice' is computed by the table \(MATERIALIZED\)"):
        _sink(url, wider.withColumn("twice", F.col("id")))
    assert len(_ids(clickhouse, url)) == 4


@pytest.mark.parametrize(
    ("declared", "query", "value", "stored"),
    [
        ("Int64", "INT", "7", 7),
        ("Int32", "BIGINT", "7", None),
        ("UInt64", "BIGINT", "7", 7),
        ("Int8", "BOOLEAN", "true", 1),
        ("Float64", "FLOAT", "0.5", 0.5),
        ("Decimal(12, 3)", "DECIMAL(10,2)", "1.25", 1.25),
        ("Decimal(10, 3)", "DECIMAL(10,2)", "1.25", None),
        ("LowCardinality(Nullable(String))", "STRING", "'a'", "a"),
        ("Enum8('a' = 1, 'b' = 2)", "STRING", "'a'", "a"),
        ("UUID", "STRING", "'61f0c404-5cb3-11e7-907b-a6006ad3dba0'", "61f0c404-5cb3-11e7-907b-a6006ad3dba0"),
        ("FixedString(3)", "STRING", "'abc'", "abc"),
        ("Date", "DATE", "DATE'2024-02-29'", "2024-02-29"),
        ("DateTime('UTC')", "TIMESTAMP", "TIMESTAMP'2024-01-01 00:00:01.9Z'", "2024-01-01 00:00:01"),
        ("DateTime64(3, 'UTC')", "TIMESTAMP_NTZ", "TIMESTAMP_NTZ'2024-01-01 00:00:01.9'", "2024-01-01 00:00:01.900"),
        ("DateTime64(9, 'Asia/Tokyo')", "TIMESTAMP", "TIMESTAMP'2024-01-01 00:00:00Z'", "2024-01-01 09:00:00.000000000"),
        ("DateTime64(6, 'Asia/Tokyo')", "TIMESTAMP_NTZ", "NULL", None),
        ("String", "INT", "7", None),
        ("Array(Int64)", "ARRAY<INT>", "array(1)", [1]),
        ("Array(String)", "ARRAY<INT>", "array(1)", None),
        ("Map(LowCardinality(String), Int64)", "MAP<STRING, BIGINT>", "map('a', 1)", {"a": 1}),
        ("Tuple(`a` Int64, `b c` String)", "STRUCT<`b c`: STRING, a: INT>", "named_struct('b c', 'x', 'a', 1)", {"a": 1, "b c": "x"}),
        ("Tuple(a Int64)", "STRUCT<b: INT>", "named_struct('b', 1)", None),
    ],
)  # fmt: skip
def test_which_types_fit_a_table_that_is_there(
    spark: SparkSession, clickhouse: ClickHouse, declared: str, query: str, value: str, stored: Any
) -> None:
    url = clickhouse.new_database()
    clickhouse.execute(f"CREATE TABLE out (c {declared}) ENGINE = Memory", url)
    frame = spark.sql(f"SELECT CAST({value} AS {query}) AS c")
    if stored is None:
        with pytest.raises(ps.DataError, match="do not fit"):
            _sink(url, frame)
    else:
        sink = _sink(url, frame)
        sink.write(Epoch(0, frame))
        sink.close()
        assert clickhouse.execute("SELECT c FROM out", url) == [{"c": stored}]


def test_what_a_table_promises(spark: SparkSession, clickhouse: ClickHouse) -> None:
    url, frame = clickhouse.new_database(), spark.range(2)
    for engine, guarantee, why in (
        ("Memory", Guarantee.AT_LEAST_ONCE, "the engine Memory does not drop"),
        ("MergeTree ORDER BY id", Guarantee.AT_LEAST_ONCE, "the engine MergeTree does not drop"),
        (
            "MergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 7",
            Guarantee.EXACTLY_ONCE,
            "remembers its last 7 inserts",
        ),
    ):
        clickhouse.execute(f"CREATE OR REPLACE TABLE out (id Int64) ENGINE = {engine}", url)
        sink = _sink(url, frame)
        sink.close()
        assert sink.guarantee is guarantee
        assert why in str(sink.guarantee_reason)


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        ("MergeTree ORDER BY id", "its? engine .* is MergeTree|engine of the table out is MergeTree"),
        ("Memory", "engine of the table out is Memory"),
        ("ReplacingMergeTree ORDER BY (id, k)", r"replaces rows by \(id, k\)"),
        ("ReplacingMergeTree ORDER BY tuple()", r"replaces rows by \(nothing\)"),
        ("ReplacingMergeTree(at) ORDER BY id", r"column 'at' \(DateTime\), which the query does not have"),
    ],
)
def test_tables_that_cannot_replace_rows_are_refused(
    spark: SparkSession, clickhouse: ClickHouse, engine: str, why: str
) -> None:
    url = clickhouse.new_database()
    clickhouse.execute(f"CREATE TABLE out (id Int64, k Int64, at DateTime) ENGINE = {engine}", url)
    frame = spark.range(2).withColumn("k", F.col("id"))
    with pytest.raises(ps.ConfigError, match=why) as refused:
        _sink(url, frame, "update", ("id",))
    assert refused.value.code == "STREAM_KEY"


@pytest.mark.parametrize(
    "engine",
    [
        "ReplacingMergeTree ORDER BY id",
        "ReplacingMergeTree(n) ORDER BY (id)",
        "ReplacingMergeTree(n, gone) ORDER BY id",
        "ReplacingMergeTree(at) ORDER BY id",
    ],
)
def test_tables_of_others_that_replace_rows(spark: SparkSession, clickhouse: ClickHouse, engine: str) -> None:
    url = clickhouse.new_database()
    clickhouse.execute(
        f"CREATE TABLE out (id Int64, k Int64, n UInt64, gone UInt8, at DateTime64(6) DEFAULT now64(6)) ENGINE = {engine}",
        url,
    )
    frame = spark.range(2).withColumn("k", F.col("id"))
    sink = _sink(url, frame, "update", ("id",))
    sink.write(Epoch(0, frame))
    sink.write(Epoch(1, frame.withColumn("k", F.col("id") + 10)))
    sink.close()
    rows = clickhouse.execute("SELECT id, k FROM out FINAL ORDER BY id", url)
    assert rows == [{"id": 0, "k": 10}, {"id": 1, "k": 11}]


@pytest.mark.parametrize(
    ("options", "partitions"),
    [
        ({"partition_by": "id % 2", "order_by": "day, id"}, ["id % 2"]),
        ({"partition_by": ["id % 2", "day"], "order_by": ["day", "id"]}, ["id % 2", "day"]),
    ],
)
def test_a_table_is_created_as_the_options_say(
    spark: SparkSession, clickhouse: ClickHouse, options: dict[str, Any], partitions: list[str]
) -> None:
    url, frame = clickhouse.new_database(), spark.range(4).withColumn("day", F.lit(7))
    sink = _sink(url, frame, **options)
    sink.write(Epoch(0, frame))
    sink.close()
    [table] = clickhouse.execute(
        "SELECT partition_key, sorting_key FROM system.tables WHERE database = currentDatabase() AND name = 'out'",
        url,
    )
    assert [part.strip() for part in table["partition_key"].strip("()").split(",")] == partitions
    assert [part.strip() for part in table["sorting_key"].strip("()").split(",")] == ["day", "id"]
    assert clickhouse.execute("SELECT count() AS n FROM out", url) == [{"n": 4}]


def test_what_cannot_work_is_refused_at_once(spark: SparkSession, clickhouse: ClickHouse) -> None:
    url, frame = clickhouse.new_database(), spark.range(2)
    with pytest.raises(ps.ConfigError, match="needs a key"):
        _sink(url, frame, "update")
    with pytest.raises(ps.ConfigError, match="no option 'tabel'"):
        _sink(url, frame, tabel="x")
    with pytest.raises(ps.ConfigError, match="starts with http"):
        ClickHouseSink({"url": "clickhouse://x", "table": "out"})
    with pytest.raises(ps.ConfigError, match="needs the option 'url'"):
        ClickHouseSink({"table": "out"})
    with pytest.raises(ps.ConfigError, match="settings must be a dictionary"):
        ClickHouseSink({"url": url, "table": "out", "settings": "a=1"})
    with pytest.raises(ps.DataError, match="no table out"):
        _sink(url, frame, create=False)
    with pytest.raises(ps.DataError, match="'i' is interval day"):
        _sink(url, spark.sql("SELECT INTERVAL '1' DAY AS i"))
    with pytest.raises(ps.ConnectorError, match="Authentication failed") as refused:
        _sink(url.replace("secret", "wrong"), frame)
    assert not refused.value.retryable
    assert "wrong" not in str(refused.value)
    with pytest.raises(ps.ConnectorError, match="UNKNOWN_DATABASE"):
        _sink(f"{url}x", frame)
    with pytest.raises(ps.ConnectorError, match=r"UNKNOWN_SETTING|Unknown setting"):
        _sink(url, frame, settings={"no_such_setting": 1})


def test_a_row_that_the_table_refuses_stores_nothing_of_its_epoch(
    spark: SparkSession, clickhouse: ClickHouse
) -> None:
    url = clickhouse.new_database()
    clickhouse.execute(
        "CREATE TABLE out (id Int64, CONSTRAINT small CHECK id < 5) ENGINE = MergeTree ORDER BY id", url
    )
    sink = _sink(url, spark.range(10))
    with pytest.raises(ps.DataError, match="small") as refused:
        sink.write(Epoch(0, spark.range(10)))
    assert refused.value.code == "SINK_ROW_REFUSED"
    with pytest.raises(ps.DataError, match="NULL"):
        sink.write(Epoch(0, spark.range(3).select(F.nullif("id", F.lit(1)).alias("id"))))
    sink.close()
    assert _ids(clickhouse, url) == []


def test_names_with_odd_characters(spark: SparkSession, clickhouse: ClickHouse) -> None:
    url = clickhouse.new_database()
    database = url.rpartition("/")[2]
    frame = spark.range(3).select(F.col("id").alias("a`b c"), F.lit("q").alias("É'x"))
    sink = _sink(clickhouse.url(), frame, "update", ("a`b c",), table=f"{database}.my-table")
    sink.write(Epoch(0, frame))
    sink.write(Epoch(1, frame))
    sink.close()
    rows = clickhouse.execute("SELECT `a\\`b c` AS id, `É'x` AS x FROM `my-table` FINAL ORDER BY id", url)
    assert rows == [{"id": number, "x": "q"} for number in range(3)]


def test_a_server_that_does_not_answer_is_reported_in_time(spark: SparkSession) -> None:
    with pytest.raises(ps.ConnectorError, match="gave up after") as refused:
        _sink("http://me:x@127.0.0.1:1/db", spark.range(1), retry_for="1 second")
    assert refused.value.retryable
    assert "Connection refused" in refused.value.message


def test_a_query_waits_for_a_server_that_is_killed_and_stops_without_one(
    session: ps.Session, tmp_path: Path
) -> None:
    with ClickHouse() as server:
        url = server.new_database()
        query = (
            session.read_stream.rate(rows_per_second=200)
            .select(F.col("value").alias("id"))
            .write_stream.format("clickhouse")
            .option("url", url)
            .option("table", "out")
            .option("checkpoint.location", tmp_path / "ckpt")
            .start("waits-for-clickhouse")
        )
        with query:
            wait_for(lambda: _ids(server, url))
            server.kill()
            wait_for(lambda: query.status.message.startswith("waiting for clickhouse table out"))
            server.start()
            before = len(_ids(server, url))
            wait_for(lambda: len(_ids(server, url)) > before)
            found = _ids(server, url)
            assert found == list(range(len(found)))
            server.kill()
            wait_for(lambda: query.status.message.startswith("waiting for clickhouse table out"))
            stopper = threading.Thread(target=query.stop)
            stopper.start()
            stopper.join(20)
            assert not stopper.is_alive()
        assert query.exception() is None


def test_a_query_with_aggregates(
    session: ps.Session,
    spark: SparkSession,
    clickhouse: ClickHouse,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = clickhouse.new_database()
    monkeypatch.setenv("PENSTOCK_CLICKHOUSE_URL", url)
    source = tmp_path / "in"

    def run(configured: ps.Session, rows: list[tuple[str, int]]) -> ps.StreamingQuery:
        spark.createDataFrame(rows, "k STRING, v INT").write.mode("append").parquet(str(source))
        query = (
            configured.read_stream.parquet(source, schema="k STRING, v INT")
            .key_by("k")
            .agg(total=F.sum("v"))
            .write_stream.output_mode("update")
            .key("k")
            .trigger(ps.Trigger.available_now())
            .format("clickhouse")
            .option("table", "counts")
            .option("checkpoint.location", tmp_path / "ckpt")
            .start("clickhouse-counts")
        )
        query.await_termination()
        return query

    with ps.Session.embedded() as configured:
        run(configured, [("a", 1), ("b", 2), ("a", 3)])
        query = run(configured, [("a", 10), ("c", 1)])
    rows = clickhouse.execute("SELECT k, total FROM counts FINAL ORDER BY k", url)
    assert rows == [{"k": "a", "total": 14}, {"k": "b", "total": 2}, {"k": "c", "total": 1}]
    assert "exactly once (a repeated row replaces itself: read with FINAL)" in query.explain()
    assert query.last_progress is not None
    assert query.last_progress.output_rows == 2


CHANGES = "k INT, part STRING, v STRING, _op STRING"


@pytest.mark.parametrize("append_only", [True, False])
def test_changes_are_newer_versions_and_deletes(
    spark: SparkSession, clickhouse: ClickHouse, append_only: bool
) -> None:
    url = clickhouse.new_database()

    def changes(*rows: tuple[Any, ...]) -> DataFrame:
        return spark.createDataFrame(list(rows), CHANGES).coalesce(1)

    def stored() -> list[Any]:
        rows = clickhouse.execute("SELECT k, part, v FROM out FINAL ORDER BY k, part", url)
        return [tuple(row.values()) for row in rows]

    def opened() -> ClickHouseSink:
        return _sink(url, first, "update", ("k", "part"), operation="_op", append_only_mode=append_only)

    first = changes((1, "x", "a", "i"), (2, "x", "b", "i"), (1, "x", "c", "u"), (3, "y", "d", "i"))
    sink = opened()
    sink.write(Epoch(0, first))
    assert stored() == [(1, "x", "c"), (2, "x", "b"), (3, "y", "d")]
    second = changes(
        (1, "x", None, "d"),
        (1, "x", "e", "i"),
        (2, "x", "b", "u"),
        (2, "x", None, "d"),
        (3, "y", None, "u"),
        (9, "z", None, "d"),
        (4, "z", "f", None),
    )
    sink.write(Epoch(1, second))
    expected = [(1, "x", "e"), (3, "y", None), (4, "z", "f")]
    assert stored() == expected
    sink.write(Epoch(1, second))
    sink.close()
    again = opened()
    again.write(Epoch(1, second))
    assert stored() == expected
    again.write(Epoch(2, changes((1, "x", "e", "d"), (1, "y", "e", "i"), (2, "x", "g", "i"))))
    again.close()
    assert stored() == [(1, "y", "e"), (2, "x", "g"), (3, "y", None), (4, "z", "f")]
    [made] = clickhouse.execute(
        "SELECT engine_full FROM system.tables WHERE name = 'out' AND database = currentDatabase()", url
    )
    assert ("_deleted" in made["engine_full"]) is append_only


def test_deletes_in_a_table_whose_columns_take_no_null(spark: SparkSession, clickhouse: ClickHouse) -> None:
    url, schema = (
        clickhouse.new_database(),
        "k INT, v STRING, kind STRING, at TIMESTAMP, tags ARRAY<STRING>, _op STRING",
    )
    clickhouse.execute(
        "CREATE TABLE out (k Int32, v String, kind Enum8('a' = 1), at DateTime64(6), tags Array(String), "
        "version UInt64 DEFAULT now64(9)::UInt64, gone UInt8) ENGINE = ReplacingMergeTree(version, gone) ORDER BY k",
        url,
    )
    moment = datetime(2026, 1, 1)
    first = spark.createDataFrame([(1, "x", "a", moment, ["t"], "i"), (2, "y", "a", moment, [], "i")], schema)
    sink = _sink(url, first, "update", ("k",), operation="_op")
    sink.write(Epoch(0, first))
    second = spark.createDataFrame([(1, None, None, None, None, "d"), (3, "z", "a", moment, [], "i")], schema)
    assert sink.write(Epoch(1, second)) == 2
    assert [row["k"] for row in clickhouse.execute("SELECT k FROM out FINAL ORDER BY k", url)] == [2, 3]
    with pytest.raises(ps.PenstockError):
        sink.write(Epoch(2, spark.createDataFrame([(4, None, "a", moment, [], "i")], schema)))
    sink.close()


def test_changes_with_versions_of_their_own(spark: SparkSession, clickhouse: ClickHouse) -> None:
    schema = "k INT, ver BIGINT, v STRING, _op STRING"
    for append_only in (True, False):
        url = clickhouse.new_database()
        frame = spark.createDataFrame([(1, 5, "new", "i"), (1, 3, "old", "u"), (2, 1, "x", "i")], schema)
        sink = _sink(
            url,
            frame,
            "update",
            ("k",),
            operation="_op",
            version_column_name="ver",
            append_only_mode=append_only,
        )
        sink.write(Epoch(0, frame))
        sink.write(Epoch(1, spark.createDataFrame([(1, 4, "late", "u"), (2, 2, "x", "d")], schema)))
        sink.close()
        rows = clickhouse.execute("SELECT k, ver, v FROM out FINAL ORDER BY k", url)
        assert rows == [{"k": 1, "ver": 5, "v": "new"}]


def test_a_table_that_only_grows_refuses_changes_as_a_whole(
    spark: SparkSession, clickhouse: ClickHouse
) -> None:
    url = clickhouse.new_database()
    frame = spark.createDataFrame([(1, "i"), (2, "i")], "id INT, _op STRING")
    sink = _sink(url, frame, operation="_op")
    assert sink.write(Epoch(0, frame)) == 2
    with pytest.raises(ps.DataError, match="has the operation 'd'"):
        sink.write(Epoch(1, spark.createDataFrame([(3, "i"), (1, "d")], frame.schema)))
    sink.close()
    assert _ids(clickhouse, url) == [1, 2]
