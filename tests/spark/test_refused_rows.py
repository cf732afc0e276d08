"""Rows that the systems of sinks refuse: they are named, all others are stored, once, and what was refused stays so when the epoch comes again."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock as ps
from open_sink import open_sink
from penstock.plugin import TransientValues
from penstock.sinks.base import Epoch, Sink
from penstock.sinks.clickhouse.sink import ClickHouseSink
from penstock.sinks.kafka.sink import KafkaSink
from penstock.sinks.postgres.aggregate import PostgresAggregateSink
from penstock.sinks.postgres.sink import PostgresSink
from penstock.sinks.refused import RefusedRows
from penstock.sinks.webhook import WebhookSink
from seed import SEED
from servers.clickhouse import ClickHouse
from servers.http_service import HttpService
from servers.kafka import Broker
from servers.postgres import Postgres


class Killed(Exception):
    """In the place of a crash."""


class Writer:
    """A sink as a group has it: what it refuses is asked for behind each epoch, and noted from one start to the next."""

    def __init__(
        self,
        make: Callable[[], Sink],
        frame: DataFrame,
        *,
        mode: str = "append",
        keys: tuple[str, ...] = (),
        operation: str | None = None,
    ) -> None:
        self._make = make
        self._frame = frame
        self._how: dict[str, Any] = {"mode": mode, "keys": keys, "operation": operation}
        self._values = TransientValues()
        self.start()

    def start(self) -> None:
        """Open the sink, as after a crash."""
        self.refused = RefusedRows(self._frame.sparkSession, self._values)
        self.sink = open_sink(self._make(), self._frame, refused=self.refused, **self._how)

    def write(self, number: int, frame: DataFrame) -> int | None:
        self.refused.begin(number)
        return self.sink.write(Epoch(number, frame))

    def left_out(self) -> list[tuple[str, dict[str, Any]]]:
        """The rows that were refused in the last epoch, with the reasons."""
        failed = self.refused.failed()
        rows = [] if failed is None else failed.collect()
        assert len(rows) == self.refused.count()
        return sorted(((row[0], json.loads(row[1])) for row in rows), key=str)

    def ids(self) -> list[int]:
        return sorted(row["id"] for _, row in self.left_out())


@pytest.fixture
def opened() -> Iterator[Callable[..., Writer]]:
    writers: list[Writer] = []

    def make(*arguments: Any, **more: Any) -> Writer:
        writers.append(Writer(*arguments, **more))
        return writers[-1]

    yield make
    for writer in writers:
        writer.sink.close()


# PostgreSQL


def test_postgres_names_rows_that_break_a_constraint(
    spark: SparkSession, postgres: Postgres, opened: Callable[..., Writer]
) -> None:
    url = postgres.new_database()
    postgres.execute(
        "CREATE TABLE out (id BIGINT PRIMARY KEY, name VARCHAR(3) NOT NULL, n INT CHECK (n < 5) UNIQUE DEFERRABLE INITIALLY DEFERRED)",
        url,
    )
    rows = [
        (1, "a", 1),
        (2, None, 2),
        (3, "two\nlines", 3),
        (4, "d", 9),
        (5, "e", 1),
        (1, "f", 4),
        (7, "x\ny", 3),
    ]
    frame = spark.createDataFrame(rows, "id BIGINT, name STRING, n INT").coalesce(1)
    writer = opened(lambda: PostgresSink({"url": url, "table": "out"}), frame)
    assert writer.write(0, frame) == 2
    assert postgres.execute("SELECT id, name, n FROM out ORDER BY id", url) == [(1, "a", 1), (7, "x\ny", 3)]
    reasons = {(row["id"], row["name"]): reason for reason, row in writer.left_out()}
    assert reasons.keys() == {(2, None), (3, "two\nlines"), (4, "d"), (5, "e"), (1, "f")}
    assert 'null value in column "name"' in reasons[2, None]
    assert "too long" in reasons[3, "two\nlines"]
    assert "check constraint" in reasons[4, "d"]
    assert "Key (n)=(1) already exists" in reasons[5, "e"]
    assert "Key (id)=(1) already exists" in reasons[1, "f"]
    # A later epoch without such rows is written as a whole.
    more = spark.createDataFrame([(8, "h", 0)], frame.schema)
    assert writer.write(1, more) == 1
    assert writer.left_out() == []


@pytest.mark.parametrize("update_where", [None, "target.n < excluded.n"])
def test_postgres_names_rows_of_upserts(
    spark: SparkSession, postgres: Postgres, opened: Callable[..., Writer], update_where: str | None
) -> None:
    url = postgres.new_database()
    postgres.execute("CREATE TABLE parents (id BIGINT PRIMARY KEY)", url)
    postgres.execute("INSERT INTO parents VALUES (1), (2)", url)
    postgres.execute(
        "CREATE TABLE out (id BIGINT PRIMARY KEY, parent BIGINT REFERENCES parents, n INT CHECK (n > 0))", url
    )
    postgres.execute("INSERT INTO out VALUES (1, 1, 1), (2, 2, 1), (3, 1, 1)", url)
    options = {"url": url, "table": "out", **({"update_where": update_where} if update_where else {})}
    rows = [
        ("u", 1, 1, 5),
        ("u", 2, 7, 6),  # no such parent
        ("d", 3, None, None),
        ("i", 4, 2, -1),  # breaks the check
        ("i", 5, 2, 3),
        ("u", 5, 1, 4),
        ("u", 1, 9, 9),  # no such parent, and the last of its key
    ]
    frame = spark.createDataFrame(rows, "_op STRING, id BIGINT, parent BIGINT, n INT").coalesce(1)
    writer = opened(
        lambda: PostgresSink(options), frame, mode="update", keys=("id",), operation="_op"
    )  # fmt: skip
    writer.write(0, frame)
    stored = postgres.execute("SELECT id, parent, n FROM out ORDER BY id", url)
    # Of a key only the last row counts, and when it is refused the key stays as it was; with a condition every row counts.
    assert stored == [(1, 1, 5 if update_where else 1), (2, 2, 1), (5, 1, 4)]
    left = sorted((row["id"], row["_op"], row["n"]) for _, row in writer.left_out())
    assert left == [(1, "u", 9), (2, "u", 6), (4, "i", -1)]


@pytest.mark.parametrize("where", ["before the commit", "behind the commit"])
def test_postgres_stores_rows_once_with_the_mark(
    spark: SparkSession,
    postgres: Postgres,
    opened: Callable[..., Writer],
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    url = postgres.new_database()
    postgres.execute("CREATE TABLE out (id BIGINT UNIQUE, n INT CHECK (n > 0))", url)
    frame = spark.createDataFrame([(1, 1), (1, 2), (2, -1), (3, 3)], "id BIGINT, n INT").coalesce(1)
    writer = opened(lambda: PostgresSink({"url": url, "table": "out"}), frame)
    keep = RefusedRows.keep
    with monkeypatch.context() as patch:

        def killed(self: RefusedRows) -> None:
            keep(self)
            raise Killed

        if where == "before the commit":
            patch.setattr(RefusedRows, "keep", killed)
            with pytest.raises(Killed):
                writer.write(0, frame)
            assert postgres.execute("SELECT * FROM out", url) == []
            # What is refused now is what counts.
            postgres.execute("ALTER TABLE out DROP CONSTRAINT out_n_check", url)
        else:
            writer.write(0, frame)
    writer.sink.close()
    writer.start()
    assert writer.write(0, frame) == (3 if where == "before the commit" else 0)
    expected = [(1, 1), (2, -1), (3, 3)] if where == "before the commit" else [(1, 1), (3, 3)]
    assert postgres.execute("SELECT id, n FROM out ORDER BY id", url) == expected
    left = [(row["id"], row["n"]) for _, row in writer.left_out()]
    assert sorted(left) == ([(1, 2)] if where == "before the commit" else [(1, 2), (2, -1)])


def test_postgres_of_many_rows_names_exactly_those_that_are_refused_alone(
    spark: SparkSession, postgres: Postgres, opened: Callable[..., Writer]
) -> None:
    """Random rows, of which some break something by themselves: they are left out, and the others are there in their order."""
    pick = random.Random(SEED)
    url = postgres.new_database()
    postgres.execute("CREATE TABLE out (at SERIAL, id BIGINT, s VARCHAR(4), n SMALLINT CHECK (n <> 3))", url)
    rows = [
        (at, pick.choice(["a", "b\nc", None, 'q"x', "too long"] if at % 50 == 0 else ["ok", "\n"]), pick.choice([1, 2, 3 if at % 40 == 0 else 4]))
        for at in range(3_000)
    ]  # fmt: skip
    frame = spark.createDataFrame(rows, "id BIGINT, s STRING, n SMALLINT").coalesce(1)
    writer = opened(lambda: PostgresSink({"url": url, "table": "out"}), frame)
    bad = [at for at, s, n in rows if s == "too long" or n == 3]
    assert bad
    assert writer.write(0, frame) == len(rows) - len(bad)
    assert writer.ids() == bad
    assert [row[0] for row in postgres.execute("SELECT id FROM out ORDER BY at", url)] == [
        at for at, *_ in rows if at not in set(bad)
    ]


def test_postgres_aggregates_leave_refused_rows_out(
    spark: SparkSession, postgres: Postgres, opened: Callable[..., Writer]
) -> None:
    url = postgres.new_database()
    postgres.execute("CREATE TABLE landing (id BIGINT PRIMARY KEY, k TEXT, n BIGINT CHECK (n < 100))", url)
    options = {
        "url": url,
        "landing_table": "landing",
        "agg_table": "sums",
        "group_by": {"k": {"type": "text"}},
        "aggregate": {"total": {"from": "n", "fn": "sum"}},
    }
    frame = spark.createDataFrame([(1, "a", 1), (2, "a", 500), (3, "a", 3), (4, "b", 4)], "id BIGINT, k STRING, n BIGINT").coalesce(1)  # fmt: skip
    writer = opened(lambda: PostgresAggregateSink(options), frame, mode="update", keys=("id",))
    writer.write(0, frame)
    assert writer.ids() == [2]
    assert postgres.execute("SELECT k, total FROM sums ORDER BY k", url) == [("a", 4), ("b", 4)]


def test_errors_of_the_whole_server_are_none_of_a_row(
    spark: SparkSession, postgres: Postgres, opened: Callable[..., Writer]
) -> None:
    url = postgres.new_database()
    frame = spark.range(3)
    writer = opened(lambda: PostgresSink({"url": url, "table": "out"}), frame)
    postgres.execute("DROP TABLE out", url)
    with pytest.raises(ps.ConnectorError, match="does not exist"):
        writer.write(0, frame)
    assert writer.left_out() == []


# ClickHouse


def test_clickhouse_names_rows_that_its_table_refuses(
    spark: SparkSession, clickhouse: ClickHouse, opened: Callable[..., Writer]
) -> None:
    url = clickhouse.new_database()
    clickhouse.execute(
        "CREATE TABLE out (id Int64, s String, CONSTRAINT small CHECK id < 50) ENGINE = MergeTree ORDER BY id "
        "SETTINGS non_replicated_deduplication_window = 100",
        url,
    )
    made = [(at, None if at == 3 else f"s{at}") for at in range(60)]
    frame = spark.createDataFrame(made, "id BIGINT, s STRING")
    for rows_of_chunk in (1_000, 7):
        clickhouse.execute("TRUNCATE TABLE out", url)
        writer = opened(
            lambda size=rows_of_chunk: ClickHouseSink({"url": url, "table": "out", "batch_rows": size}), frame
        )
        assert writer.write(0, frame) == 49
        assert writer.ids() == [3, *range(50, 60)]
        reasons = {row["id"]: reason for reason, row in writer.left_out()}
        assert "small" in reasons[55]
        assert "NULL" in reasons[3]
        # The same epoch after a crash: the same rows are refused, and what is there already is dropped.
        writer.sink.close()
        writer.start()
        clickhouse.execute("ALTER TABLE out DROP CONSTRAINT small", url)
        writer.write(0, frame)
        assert writer.ids() == [3, *range(50, 60)]
        [count] = clickhouse.execute("SELECT count() AS n, max(id) AS m FROM out", url)
        assert (int(count["n"]), int(count["m"])) == (49, 49)
        clickhouse.execute("ALTER TABLE out ADD CONSTRAINT small CHECK id < 50", url)
    assert clickhouse.execute("SHOW TABLES", url) == [{"name": "out"}]


def test_clickhouse_keeps_what_a_refused_update_would_have_replaced(
    spark: SparkSession, clickhouse: ClickHouse, opened: Callable[..., Writer]
) -> None:
    url = clickhouse.new_database()
    first = spark.createDataFrame(
        [("i", 1, "a"), ("i", 2, "b"), ("i", 3, "c")], "_op STRING, id BIGINT, s STRING"
    )
    writer = opened(
        lambda: ClickHouseSink({"url": url, "table": "out"}),
        first,
        mode="update",
        keys=("id",),
        operation="_op",
    )
    writer.write(0, first)
    clickhouse.execute("ALTER TABLE out ADD CONSTRAINT short CHECK ifNull(length(s), 0) < 3", url)
    rows = [("u", 1, "x"), ("u", 1, "long"), ("d", 2, None), ("u", 3, "d"), ("i", 4, "longer")]
    frame = spark.createDataFrame(rows, first.schema).coalesce(1)
    writer.write(1, frame)
    assert sorted((row["id"], row["s"]) for _, row in writer.left_out()) == [(1, "long"), (4, "longer")]
    found = clickhouse.execute("SELECT id, s FROM out FINAL ORDER BY id", url)
    assert [(int(row["id"]), row["s"]) for row in found] == [(1, "a"), (3, "d")]


# Kafka


def messages(kafka: Broker, topic: str) -> list[bytes | None]:
    """The values of all records that a reader of committed ones sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: list[bytes | None] = []
    with closing(consumer):
        consumer.assign([TopicPartition(topic, 0, 0)])
        while (message := consumer.poll(60)) is not None:
            if message.error() is not None:
                return found
            found.append(message.value())
    raise AssertionError("the broker does not answer")


@pytest.mark.parametrize("limit", ["of the topic", "of the client"])
def test_kafka_names_records_that_are_too_large(
    spark: SparkSession, kafka: Broker, opened: Callable[..., Writer], limit: str
) -> None:
    topic = kafka.new_topic(**({"max.message.bytes": "1000"} if limit == "of the topic" else {}))  # type: ignore[arg-type]
    options: dict[str, Any] = {"bootstrap_servers": kafka.bootstrap_servers, "topic": topic}
    options |= {"kafka.message.max.bytes": "3000"} if limit == "of the client" else {}
    frame = spark.range(40).withColumn(
        "text", F.repeat(F.lit("x"), F.when(F.col("id").isin(3, 4, 39), 5000).otherwise(3).cast("int"))
    ).coalesce(1)  # fmt: skip
    writer = opened(lambda: KafkaSink({**options, "transactional_id": f"id-{topic}"}), frame)
    assert writer.write(0, frame) == 37
    assert writer.ids() == [3, 4, 39]
    assert all("too large" in reason.lower() for reason, _ in writer.left_out())
    stored = [json.loads(value or b"")["id"] for value in messages(kafka, topic)]
    assert stored == [at for at in range(40) if at not in (3, 4, 39)]
    # The epoch again, after a crash behind the commit: nothing is sent, and the same rows are letters.
    writer.sink.close()
    writer.start()
    assert writer.write(0, frame) == 0
    assert writer.ids() == [3, 4, 39]
    assert writer.write(1, frame.where("id < 3")) == 3
    assert writer.left_out() == []
    assert len(messages(kafka, topic)) == 40


def test_kafka_names_records_without_a_key_for_a_topic_that_is_compacted(
    spark: SparkSession, kafka: Broker, opened: Callable[..., Writer]
) -> None:
    topic = kafka.new_topic(**{"cleanup.policy": "compact"})  # type: ignore[arg-type]
    frame = spark.range(6).withColumn("k", F.when(F.col("id") % 3 != 0, F.col("id")))
    writer = opened(
        lambda: KafkaSink(
            {"bootstrap_servers": kafka.bootstrap_servers, "topic": topic, "transactional_id": f"id-{topic}"}
        ),
        frame,
        keys=("k",),
    )
    assert writer.write(0, frame) == 4
    assert writer.ids() == [0, 3]
    assert sorted(json.loads(value or b"")["id"] for value in messages(kafka, topic)) == [1, 2, 4, 5]


# Webhooks


@pytest.mark.parametrize("single", [True, False])
def test_a_webhook_refuses_single_rows(
    spark: SparkSession, opened: Callable[..., Writer], single: bool
) -> None:
    taken: list[int] = []

    def respond(body: Any) -> Any:
        rows = [body] if single else body
        if any(row["id"] in (2, 7) for row in rows):
            return 422, b"a bad row"
        taken.extend(row["id"] for row in rows)
        return b""

    with HttpService() as service:
        service.respond = respond
        frame = spark.range(10).coalesce(1)
        options = {"url": service.url, "one_row_per_request": single, "batch_rows": 6}
        writer = opened(lambda: WebhookSink(options), frame)
        assert writer.write(0, frame) == 8
        assert sorted(taken) == [0, 1, 3, 4, 5, 6, 8, 9]
        assert writer.left_out() == [
            ("the webhook refuses a row: 422 Unprocessable Entity: a bad row", {"id": at}) for at in (2, 7)
        ]
        keys = [headers["Idempotency-Key"] for headers in service.headers]
        assert len(set(keys)) == len(keys)
        # When the epoch comes again, the same requests succeed, and nobody is asked for what was refused.
        successes = list(taken)
        taken.clear()
        service.headers.clear()
        writer.start()
        writer.write(0, frame)
        assert sorted(taken) == sorted(successes)
        assert {headers["Idempotency-Key"] for headers in service.headers} < set(keys)
        assert writer.ids() == [2, 7]
        for status in (401, 404):
            service.refusals = [status]
            with pytest.raises(ps.ConnectorError, match=str(status)):
                writer.write(1, frame)
