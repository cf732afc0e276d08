"""Streaming queries to PostgreSQL: once and only once, whatever comes again."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock as ps
from open_sink import open_sink
from penstock.sinks.base import Epoch, QueryStatus
from penstock.sinks.epoch_rows import EpochRows
from penstock.sinks.plugin import PluginSink
from penstock.sinks.postgres.sink import PostgresSink
from servers.postgres import Postgres
from waiting import wait_for


def _sink(
    url: str,
    frame: DataFrame,
    mode: str = "append",
    keys: tuple[str, ...] = (),
    *,
    status: QueryStatus | None = None,
    **options: Any,
) -> PostgresSink:
    sink = PostgresSink({"url": url, "table": "out", **options})
    return open_sink(sink, frame, mode=mode, keys=keys, status=status)


def _rows(postgres: Postgres, url: str, columns: str = "*") -> list[Any]:
    return postgres.execute(f"SELECT {columns} FROM out ORDER BY 1", url)


@pytest.mark.smoke
def test_an_epoch_that_comes_again_is_stored_once(spark: SparkSession, postgres: Postgres) -> None:
    url, frame = postgres.new_database(), spark.range(10, numPartitions=3)
    first = _sink(url, frame)
    assert first.write(Epoch(0, frame)) == 10
    assert first.write(Epoch(0, frame)) == 0
    first.close()
    again = _sink(url, frame)  # the process was killed before Spark had noted the epoch
    assert again.write(Epoch(0, frame)) == 0
    assert again.write(Epoch(1, spark.range(10, 12))) == 2
    again.close()
    assert [row[0] for row in _rows(postgres, url)] == list(range(12))
    assert postgres.execute("SELECT query, name, epoch FROM penstock_epochs", url) == [("q-1", "q", 1)]


class Sorted(ps.SinkPlugin):
    """Gives all of its rows to two side outputs."""

    def initialize(self, context: Any) -> None:
        self.context = context

    def process_batch(self, batch: Any) -> None:
        for name in ("small", "large"):
            self.context.side_output(name).write(batch)


def test_two_side_outputs_of_a_plugin_into_one_database(spark: SparkSession, postgres: Postgres) -> None:
    url, frame = postgres.new_database(), spark.range(10)
    for _ in range(2):  # the second time the process was killed before Spark had noted the epoch
        sides = {name: PostgresSink({"url": url, "table": name}) for name in ("small", "large")}
        sink = open_sink(PluginSink(Sorted, Sorted.Options(), name="sorted", side_sinks=sides), frame)
        sink.write(Epoch(0, frame))
        sink.close()
    for table in ("small", "large"):
        rows = postgres.execute(f"SELECT id FROM {table} ORDER BY id", url)
        assert [row[0] for row in rows] == list(range(10)), table


def test_a_transaction_that_was_cut_short_leaves_no_trace(spark: SparkSession, postgres: Postgres) -> None:
    url, frame = postgres.new_database(), spark.range(10)
    sink = _sink(url, frame)

    def cut(batches: Any) -> Any:
        yield from list(batches)
        raise KeyboardInterrupt

    class Cut(EpochRows):
        def batches(self) -> Any:
            return cut(super().batches())

    with Cut(frame) as rows, pytest.raises(KeyboardInterrupt):
        sink._store(0, rows)
    sink.close()
    assert _rows(postgres, url) == []
    after = _sink(url, frame)
    assert after.write(Epoch(0, frame)) == 10
    after.close()
    assert len(_rows(postgres, url)) == 10


def test_updates_are_upserts_and_the_last_of_a_key_wins(spark: SparkSession, postgres: Postgres) -> None:
    url = postgres.new_database()
    schema = "k STRING, part INT, n BIGINT"
    frame = spark.createDataFrame([("a", 1, 1), ("b", 1, 1), ("a", 1, 2)], schema).coalesce(1)
    sink = _sink(url, frame, "update", ("k", "part"))
    assert sink.write(Epoch(0, frame)) == 2
    more = spark.createDataFrame([("a", 1, 3), ("a", 2, 1), ("'\"\\", 0, None)], schema)
    assert sink.write(Epoch(1, more)) == 3
    sink.close()
    assert _rows(postgres, url) == [("'\"\\", 0, None), ("a", 1, 3), ("a", 2, 1), ("b", 1, 1)]


def test_a_table_of_keys_alone_is_a_set(spark: SparkSession, postgres: Postgres) -> None:
    url, frame = postgres.new_database(), spark.range(3)
    sink = _sink(url, frame, "update", ("id",))
    sink.write(Epoch(0, frame))
    sink.write(Epoch(1, spark.range(5)))
    sink.close()
    assert [row[0] for row in _rows(postgres, url)] == [0, 1, 2, 3, 4]


def test_complete_replaces_all_rows(spark: SparkSession, postgres: Postgres) -> None:
    url = postgres.new_database()
    sink = _sink(url, spark.range(1), "complete")
    for number, rows in enumerate((5, 3, 0)):
        sink.write(Epoch(number, spark.range(rows)))
        assert len(_rows(postgres, url)) == rows
    sink.close()


def test_values_of_all_types(spark: SparkSession, postgres: Postgres) -> None:
    url = postgres.new_database()
    schema = """id BIGINT, ok BOOLEAN, tiny TINYINT, small SMALLINT, i INT, f FLOAT, d DOUBLE, amount DECIMAL(20,4), s STRING,
        raw BINARY, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, tags ARRAY<STRING>, m MAP<STRING, INT>, `a.b` STRUCT<x: INT, y: STRING>"""
    at = datetime(2024, 2, 29, 12, 30, 59, 123456)
    rows = [
        (1, True, 1, -2, 3, 0.5, 0.1, Decimal("1234567890123456.7891"), 'Zoë "x", \\.\n', b"\x00\xff", date(1969, 12, 31),
         at, at, ["a", None], {"k": 1}, (1, None)),
        (2, *[None] * 15),
        (3, False, 0, 0, 0, float("inf"), float("nan"), Decimal("-0.0001"), "", b"", date(9999, 12, 31), at, at, [], {}, (None, "")),
    ]  # fmt: skip
    frame = spark.createDataFrame(rows, schema)
    zoned = frame.withColumn("at", F.to_timestamp(F.lit("2024-02-29T12:30:59.123456Z")))
    sink = _sink(url, zoned)
    assert sink.write(Epoch(0, zoned)) == 3
    sink.close()
    stored = _rows(postgres, url)
    utc = at.replace(tzinfo=UTC)
    first = (
        1,
        True,
        1,
        -2,
        3,
        0.5,
        0.1,
        Decimal("1234567890123456.7891"),
        'Zoë "x", \\.\n',
        b"\x00\xff",
        date(1969, 12, 31),
    )
    assert stored[0] == (*first, utc, at, ["a", None], {"k": 1}, {"x": 1, "y": None})
    assert stored[1] == (2, *[None] * 10, utc, *[None] * 4)
    assert stored[2][8:10] == ("", b"")
    assert str(stored[2][5:7]) == "(inf, nan)"
    assert stored[2][13:] == ([], {}, {"x": None, "y": ""})


def test_added_columns_and_changed_ones(spark: SparkSession, postgres: Postgres) -> None:
    url, frame = postgres.new_database(), spark.range(2)
    sink = _sink(url, frame)
    sink.write(Epoch(0, frame))
    sink.close()
    wider = spark.range(2, 3).withColumn("name", F.lit("x"))
    with pytest.raises(ps.DataError, match="no column 'name'") as refused:
        _sink(url, wider, create=False)
    assert refused.value.code == "STREAM_SCHEMA_CHANGED"
    sink = _sink(url, wider)
    sink.write(Epoch(1, wider))
    sink.close()
    assert _rows(postgres, url) == [(0, None), (1, None), (2, "x")]
    with pytest.raises(ps.DataError, match="'id' is string in the query and bigint in the table"):
        _sink(url, spark.createDataFrame([("a",)], "id STRING"))
    postgres.execute("ALTER TABLE out ADD COLUMN must INT NOT NULL DEFAULT 1", url)
    postgres.execute("ALTER TABLE out ALTER COLUMN must DROP DEFAULT", url)
    with pytest.raises(ps.DataError, match="wants a value for 'must'"):
        _sink(url, wider)


@pytest.mark.parametrize(
    ("declared", "query", "fits"),
    [
        ("NUMERIC", "BIGINT", True),
        ("BIGINT", "INT", True),
        ("INT", "BIGINT", False),
        ("NUMERIC(10,2)", "DECIMAL(10,2)", True),
        ("NUMERIC(12,3)", "DECIMAL(10,2)", True),
        ("NUMERIC(10,3)", "DECIMAL(10,2)", False),
        ("NUMERIC(10,2)", "INT", False),
        ("VARCHAR(10)", "STRING", True),
        ("UUID", "STRING", True),
        ("TEXT", "INT", False),
        ("TIMESTAMP", "TIMESTAMP", False),
        ("TEXT[]", "ARRAY<STRING>", False),
        ("JSON", "ARRAY<STRING>", True),
    ],
)
def test_which_types_fit_a_table_that_is_there(
    spark: SparkSession, postgres: Postgres, declared: str, query: str, fits: bool
) -> None:
    url = postgres.new_database()
    postgres.execute(f"CREATE TABLE out (c {declared})", url)
    frame = spark.createDataFrame([(None,)], f"c {query}")
    if fits:
        _sink(url, frame).close()
    else:
        with pytest.raises(ps.DataError, match="do not fit"):
            _sink(url, frame)


def test_what_cannot_work_is_refused_at_once(spark: SparkSession, postgres: Postgres) -> None:
    url, frame = postgres.new_database(), spark.range(2)
    with pytest.raises(ps.ConfigError, match="needs a key"):
        _sink(url, frame, "update")
    with pytest.raises(ps.ConfigError, match="no option 'tabel'"):
        _sink(url, frame, tabel="x")
    with pytest.raises(ps.DataError, match="no table out"):
        _sink(url, frame, create=False)
    status = QueryStatus()
    with pytest.raises(ps.ConnectorError, match="password authentication failed") as refused:
        _sink(url.replace("secret", "wrong"), frame, status=status)
    assert not refused.value.retryable
    assert "wrong" not in str(refused.value)
    with pytest.raises(ps.ConnectorError, match="does not exist"):
        _sink(f"{url}x", frame, status=status)
    assert status.retries == 0
    postgres.execute("CREATE TABLE out (id BIGINT)", url)
    with pytest.raises(ps.ConfigError, match="no unique index") as refused_key:
        _sink(url, frame, "update", ("id",))
    assert refused_key.value.hint == "ALTER TABLE out ADD UNIQUE (id)"


def test_a_row_that_the_table_refuses_stores_nothing_of_its_epoch(
    spark: SparkSession, postgres: Postgres
) -> None:
    url = postgres.new_database()
    postgres.execute("CREATE TABLE out (id BIGINT CHECK (id < 5))", url)
    frame = spark.range(10)
    sink = _sink(url, frame)
    with pytest.raises(ps.DataError, match="violates check constraint") as refused:
        sink.write(Epoch(0, frame))
    sink.close()
    assert refused.value.code == "SINK_ROW_REFUSED"
    assert _rows(postgres, url) == []


def test_a_server_that_does_not_answer_is_reported_in_time(spark: SparkSession) -> None:
    with pytest.raises(ps.ConnectorError, match="gave up after") as refused:
        _sink("postgresql://me:x@127.0.0.1:1/db", spark.range(1), retry_for="1 second")
    assert refused.value.retryable
    assert "Connection refused" in refused.value.message


def test_a_query_waits_for_a_server_that_restarts(session: ps.Session, tmp_path: Path) -> None:
    with Postgres() as server:
        url = server.new_database()
        query = (
            session.read_stream.rate(rows_per_second=200)
            .select("value")
            .write_stream.format("postgres")
            .option("url", url)
            .option("table", "out")
            .option("checkpoint.location", tmp_path / "ckpt")
            .start("waits")
        )
        with query:
            wait_for(lambda: len(_rows(server, url)) > 0)
            server.stop()  # in order: the tests' server does not wait for its disk, and a kill would lose what it has committed
            wait_for(lambda: query.status.message.startswith("waiting for postgres table out"))
            server.start()
            before = _rows(server, url)
            wait_for(lambda: len(_rows(server, url)) > len(before))
        assert query.exception() is None
        values = [row[0] for row in _rows(server, url)]
        assert values == list(range(len(values)))


def test_a_stop_does_not_wait_for_a_server_that_is_away(session: ps.Session, tmp_path: Path) -> None:
    with Postgres() as server:
        url = server.new_database()
        query = (
            session.read_stream.rate(rows_per_second=200)
            .select("value")
            .write_stream.format("postgres")
            .option("url", url)
            .option("table", "out")
            .option("checkpoint.location", tmp_path / "ckpt")
            .start("stops")
        )
        wait_for(lambda: len(_rows(server, url)) > 0)
        server.kill()
        wait_for(lambda: query.status.message.startswith("waiting for postgres table out"))
        stopper = threading.Thread(target=query.stop)
        stopper.start()
        stopper.join(20)
        assert not stopper.is_alive()
        assert query.exception() is None
