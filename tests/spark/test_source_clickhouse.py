"""ClickHouse as a source: types, ranges that are fixed at the first start, filters, and what is refused."""

from __future__ import annotations

import datetime as dt
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

import penstock as ps
from drained import drained, drained_rows
from penstock.config import load
from penstock.pipeline.sources.clickhouse import ClickHouseNode
from penstock.sources.base import SourceContext
from penstock.sources.clickhouse.source import ClickHouseSource
from servers.clickhouse import ClickHouse
from waiting import wait_for

UTC = dt.UTC
DAY = dt.date(2020, 1, 2)


def node(url: str, table: str = "t", **fields: Any) -> ClickHouseNode:
    return ClickHouseNode.model_validate({"type": "clickhouse", "table": table, "url": url, **fields})


def frame(
    session: ps.Session, url: str, table: str = "t", *, folder: Path | None = None, **fields: Any
) -> DataFrame:
    settings = load()
    context = SourceContext(session.spark, settings, folder=None if folder is None else str(folder))
    return node(url, table, **fields).source(settings).read(context).frame


# Type, value in SQL, Spark's type, value that is read.
TYPES: list[tuple[str, str, str, Any]] = [
    ("Bool", "true", "boolean", True),
    ("Int8", "-128", "tinyint", -128),
    ("Int16", "-32768", "smallint", -32768),
    ("Int32", "-2147483648", "int", -(2**31)),
    ("Int64", "-9223372036854775808", "bigint", -(2**63)),
    ("Int128", "toInt128('-170141183460469231731687303715884105728')", "string", str(-(2**127))),
    ("Int256", f"toInt256('{-(2**255)}')", "string", str(-(2**255))),
    ("UInt8", "255", "smallint", 255),
    ("UInt16", "65535", "int", 65535),
    ("UInt32", "4294967295", "bigint", 2**32 - 1),
    ("UInt64", "18446744073709551615", "decimal(20,0)", Decimal(2**64 - 1)),
    ("UInt128", f"toUInt128('{2**128 - 1}')", "string", str(2**128 - 1)),
    ("UInt256", f"toUInt256('{2**256 - 1}')", "string", str(2**256 - 1)),
    ("Float32", "1.5", "float", 1.5),
    ("Float64", "2.25", "double", 2.25),
    ("Decimal(10, 2)", "'-12345678.91'", "decimal(10,2)", Decimal("-12345678.91")),
    ("Decimal(38, 3)", f"toDecimal128('{'9' * 35}.123', 3)", "decimal(38,3)", Decimal("9" * 35 + ".123")),
    ("Decimal(50, 5)", "toDecimal256('1.5', 5)", "string", "1.5"),
    ("String", "'héllo'", "string", "héllo"),
    ("FixedString(4)", "'ab'", "binary", b"ab\0\0"),
    ("FixedString(2)", "unhex('ff00')", "binary", b"\xff\0"),
    ("Nullable(FixedString(2))", "NULL", "binary", None),
    ("Date", "'2020-01-02'", "date", DAY),
    ("Date32", "'1900-01-02'", "date", dt.date(1900, 1, 2)),
    ("DateTime('UTC')", "'2020-01-02 03:04:05'", "timestamp", dt.datetime(2020, 1, 2, 3, 4, 5)),
    ("DateTime('Asia/Tokyo')", "'2020-01-02 09:00:00'", "timestamp", dt.datetime(2020, 1, 2)),
    (
        "DateTime64(3, 'UTC')",
        "'2020-01-02 00:00:00.678'",
        "timestamp",
        dt.datetime(2020, 1, 2, 0, 0, 0, 678000),
    ),
    (
        "DateTime64(9, 'UTC')",
        "'2020-01-02 00:00:00.123456789'",
        "timestamp",
        dt.datetime(2020, 1, 2, 0, 0, 0, 123456),
    ),
    ("Enum8('a' = 1, 'b c' = 2)", "'b c'", "string", "b c"),
    ("Enum16('x' = 300)", "'x'", "string", "x"),
    ("IPv4", "'1.2.3.4'", "string", "1.2.3.4"),
    ("IPv6", "'::1'", "string", "::1"),
    ("UUID", "'61f0c404-5cb3-11e7-907b-a6006ad3dba0'", "string", "61f0c404-5cb3-11e7-907b-a6006ad3dba0"),
    ("LowCardinality(String)", "'lc'", "string", "lc"),
    ("LowCardinality(Nullable(String))", "NULL", "string", None),
    ("Nullable(Int32)", "NULL", "int", None),
    ("Nullable(UInt64)", "7", "decimal(20,0)", Decimal(7)),
    ("Nullable(DateTime('UTC'))", "NULL", "timestamp", None),
    ("Array(UInt8)", "[1, 255]", "array<smallint>", [1, 255]),
    ("Array(Nullable(String))", "['x', NULL]", "array<string>", ["x", None]),
    ("Array(Array(Date))", "[['2020-01-02'], []]", "array<array<date>>", [[DAY], []]),
    ("Array(FixedString(2))", "['zz']", "array<binary>", [b"zz"]),
    ("Map(String, UInt16)", "map('k', 65535)", "map<string,int>", {"k": 65535}),
    (
        "Map(LowCardinality(String), Array(Date))",
        "map('k', [toDate('2020-01-02')])",
        "map<string,array<date>>",
        {"k": [DAY]},
    ),
    (
        "Tuple(a UInt8, `b c` Nullable(String))",
        "(200, NULL)",
        "struct<a:smallint,b c:string>",
        {"a": 200, "b c": None},
    ),
    ("Tuple(Int32, Enum8('q' = 1))", "(5, 'q')", "struct<_1:int,_2:string>", {"_1": 5, "_2": "q"}),
    (
        "Array(Tuple(k UInt8, v FixedString(2)))",
        "[(1, 'zz')]",
        "array<struct<k:smallint,v:binary>>",
        [{"k": 1, "v": b"zz"}],
    ),
    ("JSON", '\'{"a":{"b":1}}\'', "string", '{"a":{"b":1}}'),
    ("Point", "(1.5, 2.5)", "struct<_1:double,_2:double>", {"_1": 1.5, "_2": 2.5}),
    ("Ring", "[(1.5, 2.5)]", "array<struct<_1:double,_2:double>>", [{"_1": 1.5, "_2": 2.5}]),
    ("SimpleAggregateFunction(sum, UInt64)", "9", "decimal(20,0)", Decimal(9)),
]


@pytest.mark.smoke
def test_every_type(session: ps.Session, clickhouse: ClickHouse, tmp_path: Path) -> None:
    url = clickhouse.new_database()
    columns = ", ".join(f"c{at} {kind}" for at, (kind, *_) in enumerate(TYPES))
    clickhouse.execute(
        f"CREATE TABLE t ({columns}, n Nested(x UInt8, y String)) ENGINE = MergeTree ORDER BY tuple()", url
    )
    values = ", ".join(value for _, value, *_ in TYPES)
    clickhouse.execute(f"INSERT INTO t SELECT {values}, [1], ['a']", url)
    read = frame(session, url)
    [row] = drained_rows(read, tmp_path / "c")
    assert [field.dataType.simpleString() for field in read.schema.fields[:-2]] == [
        kind for *_, kind, _ in TYPES
    ]
    assert read.columns[-2:] == ["n.x", "n.y"]
    assert list(row.values()) == [*[value for *_, value in TYPES], [1], ["a"]]


def test_what_spark_has_no_type_for_is_refused_and_may_be_left_out(
    session: ps.Session, clickhouse: ClickHouse, tmp_path: Path
) -> None:
    url = clickhouse.new_database()
    clickhouse.execute(
        "CREATE TABLE t (id UInt8, s AggregateFunction(sum, UInt64), twice UInt16 ALIAS id * 2) ENGINE = MergeTree ORDER BY id",
        url,
    )
    clickhouse.execute("INSERT INTO t SELECT 7, sumState(toUInt64(1))", url)
    with pytest.raises(ps.DataError) as caught:
        frame(session, url)
    assert caught.value.code == "SOURCE_TYPE"
    assert "'s' is AggregateFunction(sum, UInt64)" in caught.value.message
    rows = drained_rows(frame(session, url, columns="id, twice"), tmp_path / "c")
    assert rows == [{"id": 7, "twice": 14}]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("UInt64", "number * 1000003 % 10007"),
        ("String", "toString(cityHash64(number))"),
        ("DateTime('America/New_York')", "toDateTime(1604210000 + number)"),
        ("DateTime64(3)", "toDateTime64(number / 7, 3)"),
        ("UUID", "reinterpretAsUUID(sipHash128(number))"),
        ("LowCardinality(String)", "concat('it''s \\\\', toString(number % 50))"),
        ("Decimal(20, 4)", "toDecimal128(number / 3, 4)"),
        ("Float64", "number % 3 = 0 ? nan : number / 3"),
        ("Nullable(Int32)", "number % 3 = 0 ? NULL : number"),
    ],
)
def test_ranges_have_every_row_once(
    session: ps.Session, clickhouse: ClickHouse, tmp_path: Path, kind: str, value: str
) -> None:
    url = clickhouse.new_database()
    clickhouse.execute(
        f"CREATE TABLE t (k {kind}, id UInt32) ENGINE = MergeTree ORDER BY k SETTINGS allow_nullable_key = 1",
        url,
    )
    clickhouse.execute(f"INSERT INTO t SELECT {value}, number FROM numbers(10000)", url)
    epochs = drained(frame(session, url, columns="id", batch_size=2_000, parallelism=2), tmp_path / "c")
    ids = [row["id"] for epoch in epochs for row in epoch]
    assert sorted(ids) == list(range(10_000))
    if kind.startswith(("Float", "Nullable")):
        assert len(epochs) == 1
    else:
        assert 4 <= len(epochs) <= 6


def test_an_epoch_that_comes_again_has_the_same_rows(
    session: ps.Session, clickhouse: ClickHouse, tmp_path: Path
) -> None:
    url, checkpoint = clickhouse.new_database(), tmp_path / "c"
    clickhouse.execute("CREATE TABLE t (id UInt32) ENGINE = MergeTree ORDER BY id", url)
    clickhouse.execute("INSERT INTO t SELECT number FROM numbers(1000)", url)
    fields: dict[str, Any] = {"folder": tmp_path / "f", "cursor": "id", "batch_size": 200, "parallelism": 2}
    epochs: dict[int, list[list[int]]] = {}

    def keep(rows: DataFrame, epoch: int) -> None:
        ids = sorted(row.id for row in rows.collect())
        epochs.setdefault(epoch, []).append(ids)
        if epoch == 2 and len(epochs[2]) == 1:
            raise RuntimeError("stop")

    def run() -> None:
        writer = frame(session, url, **fields).writeStream.foreachBatch(keep)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()

    with pytest.raises(Exception, match="stop"):
        run()
    # Rows that come meanwhile are beyond the greatest cursor, and others change nothing about the ranges.
    clickhouse.execute("INSERT INTO t SELECT number FROM numbers(1000, 500)", url)
    run()
    assert epochs[2][0] == epochs[2][1] != []
    read = sorted(number for epoch in epochs.values() for number in epoch[-1])
    assert read == list(range(1000))
    assert all(len(ids) == 1 for epoch, ids in epochs.items() if epoch != 2)


def test_rows_that_are_written_while_the_table_is_read(
    session: ps.Session, clickhouse: ClickHouse, tmp_path: Path
) -> None:
    url = clickhouse.new_database()
    clickhouse.execute("CREATE TABLE t (id UInt32, k UInt32) ENGINE = MergeTree ORDER BY k", url)
    clickhouse.execute("INSERT INTO t SELECT number, cityHash64(number) FROM numbers(5000)", url)
    over = threading.Event()

    def write() -> None:
        first = 5_000
        while not over.is_set():
            clickhouse.execute(
                f"INSERT INTO t SELECT number, cityHash64(number) FROM numbers({first}, 100)", url
            )
            first += 100

    writer = threading.Thread(target=write)
    writer.start()
    try:
        read = frame(session, url, cursor="id", batch_size=1_000, parallelism=2)
        ids = sorted(row["id"] for row in drained_rows(read, tmp_path / "c"))
    finally:
        over.set()
        writer.join()
    assert len(ids) >= 5_000
    assert ids == list(range(len(ids)))
    [counted] = clickhouse.execute("SELECT count() AS rows FROM t", url)
    assert int(counted["rows"]) > len(ids)


def test_filters_and_the_least_value(session: ps.Session, clickhouse: ClickHouse, tmp_path: Path) -> None:
    url = clickhouse.new_database()
    clickhouse.execute("CREATE TABLE t (id UInt32, at DateTime('UTC')) ENGINE = MergeTree ORDER BY at", url)
    clickhouse.execute(
        "INSERT INTO t SELECT number, toDateTime('2020-01-01 00:00:00', 'UTC') + number FROM numbers(100)",
        url,
    )
    start = "2020-01-01 00:00:50"
    by_key = frame(session, url, start_at=start, filter="id % 2 = 0 -- even ones")
    assert sorted(row["id"] for row in drained_rows(by_key, tmp_path / "a")) == list(range(50, 100, 2))
    plan = tmp_path / "ranges" / "plan.json"
    again = [
        frame(
            session,
            url,
            start_at=50,
            filter="id % 2 = 0 -- even ones",
            cursor="id",
            until=60,
            folder=plan.parent,
        )
        for _ in range(2)
    ]
    # The first start has made the ranges; what the options say may be secret, and is read from them each time.
    assert "even ones" not in plan.read_text()
    assert "50" not in plan.read_text()
    assert sorted(row["id"] for row in drained_rows(again[1], tmp_path / "c")) == list(range(50, 61, 2))
    by_cursor = frame(session, url, cursor="id", start_at=90)
    assert sorted(row["id"] for row in drained_rows(by_cursor, tmp_path / "b")) == list(range(90, 100))


def test_rows_that_replace_each_other(session: ps.Session, clickhouse: ClickHouse, tmp_path: Path) -> None:
    url = clickhouse.new_database()
    clickhouse.execute("CREATE TABLE t (id UInt32, v UInt8) ENGINE = ReplacingMergeTree(v) ORDER BY id", url)
    for version in (1, 2):
        clickhouse.execute(f"INSERT INTO t SELECT number, {version} FROM numbers(10)", url)
    assert {row["v"] for row in drained_rows(frame(session, url), tmp_path / "a")} == {2}
    assert len(drained_rows(frame(session, url, final=False), tmp_path / "b")) == 20


def test_a_table_without_rows_a_view_and_other_engines(
    session: ps.Session, clickhouse: ClickHouse, tmp_path: Path
) -> None:
    url = clickhouse.new_database()
    clickhouse.execute("CREATE TABLE t (id UInt32) ENGINE = MergeTree ORDER BY id", url)
    assert drained(frame(session, url, cursor="id"), tmp_path / "a") == []
    clickhouse.execute("CREATE VIEW v AS SELECT number AS id FROM numbers(1000)", url)
    epochs = drained(
        frame(session, url, "v", primary_key="id", batch_size=250, parallelism=1), tmp_path / "b"
    )
    assert sorted(int(row["id"]) for epoch in epochs for row in epoch) == list(range(1000))
    assert len(epochs) == 4


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"table": "T"}, "SOURCE_TABLE_MISSING", "there is no table T"),
        ({"table": "elsewhere.t"}, "SOURCE_TABLE_MISSING", "elsewhere.t"),
        ({"columns": ["idd"]}, "SOURCE_COLUMN", "no column 'idd'"),
        ({"cursor": "at"}, "SOURCE_COLUMN", "no column 'at'"),
        ({"filter": "id ="}, "SOURCE_REFUSED", "Syntax error"),
    ],
)
def test_what_is_not_there(
    session: ps.Session, clickhouse: ClickHouse, fields: dict[str, Any], code: str, words: str
) -> None:
    url = clickhouse.new_database()
    clickhouse.execute("CREATE TABLE t (id UInt32) ENGINE = MergeTree ORDER BY id", url)
    with pytest.raises(ps.PenstockError) as caught:
        frame(session, url, **fields)
    assert caught.value.code == code
    assert words in caught.value.message
    assert "secret" not in str(caught.value)


def test_a_server_that_does_not_answer(session: ps.Session) -> None:
    with pytest.raises(ps.ConnectorError) as caught:
        frame(session, "http://me:secret@127.0.0.1:9/shop")
    assert (caught.value.code, caught.value.retryable) == ("SOURCE_UNREACHABLE", True)
    assert "secret" not in str(caught.value)


def test_a_query_waits_for_the_server_and_goes_on(session: ps.Session, tmp_path: Path) -> None:
    with ClickHouse() as server:
        url = server.new_database()
        server.execute("CREATE TABLE t (id UInt32) ENGINE = MergeTree ORDER BY id", url)
        server.execute("INSERT INTO t SELECT number FROM numbers(2000)", url)
        reader = session.read_stream.format("clickhouse").options(url=url, batch_size=200, parallelism=1)
        seen: list[int] = []

        def keep(rows: DataFrame, epoch: int) -> None:
            seen.extend(row.id for row in rows.collect())
            if epoch == 1:
                server.kill()

        writer = reader.load("t").write_stream.foreach_batch(keep)
        writer = writer.option("checkpoint.location", tmp_path / "c").trigger(ps.Trigger.processing_time(0))
        with writer.start("waits_for_clickhouse") as query:
            wait_for(lambda: "ClickHouse does not answer" in query.status.message, seconds=120)
            server.start()
            wait_for(lambda: len(seen) == 2_000, seconds=120)
        assert query.exception() is None
        assert sorted(seen) == list(range(2_000))


def test_a_stream_of_the_session(session: ps.Session, clickhouse: ClickHouse) -> None:
    url = clickhouse.new_database()
    clickhouse.execute("CREATE TABLE t (id UInt32) ENGINE = MergeTree ORDER BY id", url)
    clickhouse.execute("INSERT INTO t SELECT number FROM numbers(10)", url)
    stream = session.read_stream.format("clickhouse").option("url", url).load("t")
    query = stream.write_stream.trigger(ps.Trigger.available_now()).format("memory").start()
    query.await_termination()
    rows = [row for batch in query.memory_batches() for row in batch.to_pylist()]
    assert sorted(row["id"] for row in rows) == list(range(10))
    with pytest.raises(ps.ConfigError, match="until needs cursor"):
        ClickHouseSource({"table": "t", "url": url, "until": "5"})
