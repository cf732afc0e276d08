"""Streaming queries to Kafka: records of every form, at least once, and exactly once in transactions."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock as ps
from open_sink import open_sink
from penstock import config
from penstock.sinks.base import Epoch, Guarantee, Target
from penstock.sinks.epoch_rows import EpochRows
from penstock.sinks.kafka.sink import KafkaSink
from servers.kafka import Broker
from servers.schema_registry import Registry
from waiting import wait_for


def _sink(
    kafka: Broker,
    topic: str,
    frame: DataFrame,
    *,
    keys: Sequence[str] = (),
    query: str = "q-1",
    operation: str | None = None,
    **options: Any,
) -> KafkaSink:
    sink = KafkaSink({"bootstrap_servers": kafka.bootstrap_servers, "topic": topic, **options})
    return open_sink(sink, frame, keys=tuple(keys), query=query, operation=operation)


def _messages(kafka: Broker, topic: str, *, partitions: int = 1) -> list[Any]:
    """All records that a reader of committed ones sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: list[Any] = []
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        ended: set[int] = set()
        deadline = time.monotonic() + 60
        while len(ended) < partitions:
            assert time.monotonic() < deadline
            for message in consumer.consume(1_000, timeout=0.1):
                if message.error() is None:
                    found.append(message)
                else:
                    ended.add(message.partition() or 0)
        return found
    finally:
        consumer.close()


def _ids(kafka: Broker, topic: str) -> list[int]:
    return sorted(json.loads(message.value())["id"] for message in _messages(kafka, topic))


@pytest.mark.smoke
@pytest.mark.parametrize("transactional", [False, True])
def test_records_of_every_form(spark: SparkSession, kafka: Broker, transactional: bool) -> None:
    options = {"transactional_id": "forms"} if transactional else {}
    frame = spark.createDataFrame([(1, "Zoë", None), (2, None, 0.5)], "id BIGINT, name STRING, x DOUBLE")
    topic = kafka.new_topic()
    sink = _sink(kafka, topic, frame, keys=("id",), headers={"origin": "test"}, **options)
    assert sink.guarantee is (Guarantee.EXACTLY_ONCE if transactional else Guarantee.AT_LEAST_ONCE)
    assert sink.write(Epoch(0, frame)) == 2
    sink.close()
    found = {message.key(): message for message in _messages(kafka, topic)}
    assert json.loads(found[b"1"].value()) == {"id": 1, "name": "Zoë", "x": None}
    assert json.loads(found[b"2"].value()) == {"id": 2, "name": None, "x": 0.5}
    assert all(message.headers() == [("origin", b"test")] for message in found.values())

    topic = kafka.new_topic()
    sink = _sink(kafka, topic, frame, keys=("id", "name"), value_format="avro", **options)
    sink.write(Epoch(0, frame))
    sink.close()
    messages = _messages(kafka, topic)
    assert sorted(json.loads(message.key())["id"] for message in messages) == [1, 2]
    from pyspark.sql.avro.functions import from_avro

    schema = {
        "type": "record",
        "name": "topLevelRecord",
        "fields": [
            {"name": "id", "type": ["long", "null"]},
            {"name": "name", "type": ["string", "null"]},
            {"name": "x", "type": ["double", "null"]},
        ],
    }
    raw = spark.createDataFrame([(bytearray(message.value()),) for message in messages], "v BINARY")
    back = raw.select(from_avro("v", json.dumps(schema)).alias("r")).select("r.*")
    assert sorted(back.collect()) == sorted(frame.collect())

    topic = kafka.new_topic()
    ready = spark.createDataFrame(
        [(b"k", "text", [("h", bytearray(b"v"))]), (None, None, None)],
        "key BINARY, value STRING, headers ARRAY<STRUCT<key: STRING, value: BINARY>>",
    )
    sink = _sink(kafka, topic, ready, **options)
    sink.write(Epoch(0, ready))
    sink.close()
    records = {(message.key(), message.value()): message.headers() for message in _messages(kafka, topic)}
    assert records == {(b"k", b"text"): [("h", b"v")], (None, None): None}


def test_an_epoch_that_comes_again_is_sent_once(spark: SparkSession, kafka: Broker) -> None:
    topic, frame = kafka.new_topic(), spark.range(1000, numPartitions=3)
    first = _sink(kafka, topic, frame, transactional_id="again")
    assert first.write(Epoch(0, frame)) == 1000
    assert first.write(Epoch(0, frame)) == 0
    # Killed after the commit and before Spark had noted the epoch: the old producer is still there.
    second = _sink(kafka, topic, frame, transactional_id="again")
    assert second.write(Epoch(0, frame)) == 0
    assert second.write(Epoch(1, spark.range(1000, 1010))) == 10
    with pytest.raises(ps.ConnectorError, match="another producer has taken over") as fenced:
        first.write(Epoch(2, frame))
    assert fenced.value.code == "SINK_FENCED"
    second.close()
    assert _ids(kafka, topic) == list(range(1010))
    other = _sink(kafka, topic, frame, transactional_id="again", query="q-2")
    assert other.write(Epoch(0, spark.range(5000, 5001))) == 1  # a new checkpoint begins with epoch 0 again
    other.close()
    assert _ids(kafka, topic)[-1] == 5000


@pytest.mark.parametrize("after", ["some rows", "all rows", "the mark"])
def test_a_producer_that_was_abandoned_before_its_commit_leaves_nothing(
    spark: SparkSession, kafka: Broker, after: str
) -> None:
    topic, frame = kafka.new_topic(), spark.range(2000, numPartitions=4)
    name = f"abandoned-{after}"
    abandoned = _sink(kafka, topic, frame, transactional_id=name)
    transactions = abandoned._producing()
    transactions._producer.begin_transaction()
    with EpochRows(abandoned._records(frame)) as rows:
        for number, batch in enumerate(rows.batches()):
            if number < 2 or after != "some rows":
                transactions._send(batch)
    if after == "the mark":
        assert transactions._consumer is not None
        transactions._producer.send_offsets_to_transaction(
            [TopicPartition(topic, 0, 1)], transactions._consumer.consumer_group_metadata(), 30
        )
    transactions._producer.flush(30)
    sink = _sink(kafka, topic, frame, transactional_id=name)
    assert sink.write(Epoch(0, frame)) == 2000
    sink.close()
    assert _ids(kafka, topic) == list(range(2000))
    abandoned.close()


def test_many_rows_in_one_transaction(spark: SparkSession, kafka: Broker) -> None:
    topic, frame = kafka.new_topic(partitions=2), spark.range(200_000, numPartitions=4)
    sink = _sink(kafka, topic, frame, keys=("id",), transactional_id="many")
    assert sink.write(Epoch(0, frame)) == 200_000
    sink.close()
    messages = _messages(kafka, topic, partitions=2)
    assert sorted(int(message.key()) for message in messages) == list(range(200_000))


def test_what_cannot_work_is_refused_at_once(session: ps.Session, spark: SparkSession, kafka: Broker) -> None:
    frame = spark.range(1)
    for options in ({}, {"transactional_id": "missing"}):
        with pytest.raises(ps.ConnectorError, match="the topic does not exist") as missing:
            _sink(kafka, "no-such-topic", frame, **options)
        assert missing.value.code == "SINK_TOPIC_MISSING"
    topic = kafka.new_topic()
    with pytest.raises(ps.ConfigError, match="no option 'topik'"):
        _sink(kafka, topic, frame, topik="x")
    with pytest.raises(ps.ConfigError, match="unknown value_format 'jsn'"):
        _sink(kafka, topic, frame, value_format="jsn")
    with pytest.raises(ps.ConfigError, match="sends the column 'value'"):
        _sink(kafka, topic, frame, value_format="binary")
    with pytest.raises(ps.ConfigError, match="refuses its settings"):
        _sink(kafka, topic, frame, transactional_id="x", **{"kafka.no.such": "1"})
    with pytest.raises(ps.ConfigError, match="only the kafka sink has transactions"):
        session.read_stream.rate().write_stream.format("memory").with_kafka_transactional("x")


def test_a_record_that_is_too_large_fails_the_epoch_as_a_whole(spark: SparkSession, kafka: Broker) -> None:
    topic = kafka.new_topic(**{"max.message.bytes": "1000"})  # type: ignore[arg-type]
    frame = spark.range(3).withColumn("text", F.repeat(F.lit("x"), F.lit(5000)))
    sink = _sink(kafka, topic, frame, transactional_id="large")
    with pytest.raises(ps.DataError, match="refuses a record") as refused:
        sink.write(Epoch(0, frame))
    sink.close()
    assert refused.value.code == "SINK_ROW_REFUSED"
    assert _messages(kafka, topic) == []


def test_a_broker_that_does_not_answer_is_reported_in_time(spark: SparkSession) -> None:
    frame = spark.range(1)

    def opened(options: dict[str, str]) -> ps.ConnectorError:
        sink = KafkaSink(
            {"bootstrap_servers": "127.0.0.1:1", "topic": "t", "retry_for": "1 second", **options}
        )
        with pytest.raises(ps.ConnectorError, match="gave up after") as refused:
            sink.open(Target(spark, "q", "q", "append", frame.schema, settings=config.load()))
        return refused.value

    with ThreadPoolExecutor() as pool:
        refusals = list(pool.map(opened, ({}, {"transactional_id": "away"})))
    assert all(error.retryable for error in refusals)


def test_queries_wait_for_a_broker_that_restarts(session: ps.Session, tmp_path: Path) -> None:
    """One with transactions and one without, side by side."""
    impatient = {"max.block.ms": 1000, "request.timeout.ms": 500, "delivery.timeout.ms": 1000}
    with Broker() as broker, ExitStack() as stack:
        topics = {"exactly": broker.new_topic(), "at-least": broker.new_topic()}
        queries: dict[str, ps.StreamingQuery] = {}
        for name, topic in topics.items():
            writer = (
                session.read_stream.rate(rows_per_second=100)
                .select(F.col("value").alias("id"))
                .write_stream.format("kafka")
                .option("topic", topic)
                .option("bootstrap_servers", broker.bootstrap_servers)
                .option("checkpoint.location", tmp_path / name)
            )
            if name == "exactly":
                writer = writer.with_kafka_transactional("restart")
            else:
                writer = writer.options(**{f"kafka.{option}": value for option, value in impatient.items()})
            queries[name] = stack.enter_context(writer.start(f"waits-for-kafka-{name}"))

        def all_have_more(before: Mapping[str, int]) -> bool:
            return all(len(_messages(broker, topics[name])) > count for name, count in before.items())

        wait_for(lambda: all_have_more(dict.fromkeys(topics, 0)))
        broker.kill()
        waiting = "waiting for kafka topic"
        wait_for(lambda: all(q.status.message.startswith(waiting) for q in queries.values()), seconds=120)
        broker.start()
        counts = {name: len(_messages(broker, topic)) for name, topic in topics.items()}
        wait_for(lambda: all_have_more(counts))
        for query in queries.values():
            query.stop()
            assert query.exception() is None
        exactly, at_least = (_ids(broker, topic) for topic in topics.values())
        assert exactly == list(range(len(exactly)))
        assert set(at_least) == set(range(max(at_least) + 1))


@pytest.mark.parametrize("exactly_once", [True, False])
def test_the_operation_of_a_row_is_a_header(spark: SparkSession, kafka: Broker, exactly_once: bool) -> None:
    rows = [(1, "a", "i"), (1, "b", "u"), (2, "c", None), (1, None, "d")]
    frame = spark.createDataFrame(rows, "id INT, v STRING, _op STRING").coalesce(1)
    topic = kafka.new_topic()
    sink = _sink(
        kafka,
        topic,
        frame,
        keys=("id",),
        operation="_op",
        exactly_once=exactly_once,
        headers={"origin": "x"},
        compression="lz4",
    )
    sink.write(Epoch(0, frame))
    sink.close()
    assert [
        (message.key(), json.loads(message.value()), message.headers()) for message in _messages(kafka, topic)
    ] == [
        (b"1", {"id": 1, "v": "a"}, [("origin", b"x"), ("dbz.op", b"c")]),
        (b"1", {"id": 1, "v": "b"}, [("origin", b"x"), ("dbz.op", b"u")]),
        (b"2", {"id": 2, "v": "c"}, [("origin", b"x"), ("dbz.op", b"c")]),
        (b"1", {"id": 1, "v": None}, [("origin", b"x"), ("dbz.op", b"d")]),
    ]


def test_deleted_rows_as_tombstones_once(spark: SparkSession, kafka: Broker) -> None:
    frame = spark.createDataFrame([(1, "a", "i"), (1, "a", "d")], "id INT, v STRING, _op STRING").coalesce(1)
    topic = kafka.new_topic()
    for _ in range(2):  # the epoch comes again after a crash
        sink = _sink(kafka, topic, frame, keys=("id",), operation="_op", exactly_once=True, tombstones=True)
        sink.write(Epoch(0, frame))
        sink.close()
    assert [(message.value(), message.headers()) for message in _messages(kafka, topic)] == [
        (b'{"id":1,"v":"a"}', [("dbz.op", b"c")]),
        (None, [("dbz.op", b"d")]),
    ]


def test_avro_by_a_schema_registry(session: ps.Session, spark: SparkSession, kafka: Broker) -> None:
    frame = spark.createDataFrame([(1, "a", "i"), (2, None, "u")], "id INT, v STRING, _op STRING").coalesce(1)
    with Registry(login="me:secret") as registry:
        options = {
            "value_format": "avro",
            "schema_registry": registry.url,
            "schema_registry_auth": "me:secret",
        }
        topic = kafka.new_topic()
        for query in ("q-1", "q-2"):
            sink = _sink(kafka, topic, frame, keys=("id",), operation="_op", query=query, **options)
            sink.write(Epoch(0, frame))
            sink.close()
        assert registry.subjects == {f"{topic}-value": [1]}
        assert {message.value()[:5] for message in _messages(kafka, topic)} == {b"\0\0\0\0\1"}
        back = session.read_stream.kafka(
            topic,
            bootstrap_servers=kafka.bootstrap_servers,
            format="avro",
            schema_registry=registry.url,
            schema_registry_auth="me:secret",
            starting_offsets="earliest",
        ).select("id", "v")
        reader = back.write_stream.trigger(ps.Trigger.once()).format("memory").start()
        reader.await_termination()
        stored = [tuple(row.values()) for batch in reader.memory_batches() for row in batch.to_pylist()]
        assert sorted(stored, key=str) == [(1, "a"), (1, "a"), (2, None), (2, None)]
        other = spark.createDataFrame([("x",)], "id STRING")
        with pytest.raises(ps.ConnectorError, match="the schema registry answers 409"):
            _sink(kafka, topic, other, **options)
