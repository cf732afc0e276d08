"""The continuous trigger: rows as they come where Spark can do that, and otherwise the reason why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import functions as F

import penstock as ps
from penstock.streaming.listener import QueryProgressEvent
from penstock.streaming.progress import QueryProgress
from servers.kafka import Broker
from waiting import wait_for

SCHEMA = "id BIGINT, name STRING"


def produce(broker: Broker, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(first, first + count):
        producer.produce(topic, json.dumps({"id": number, "name": f"n{number}"}).encode())
    assert producer.flush(30) == 0


def ids(broker: Broker, topic: str) -> list[int]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "test", "enable.auto.commit": False}
    )
    try:
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1]
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(end, timeout=10) if end else []
        return [json.loads(message.value() or b"")["id"] for message in messages]
    finally:
        consumer.close()


def writer(
    session: ps.Session, broker: Broker, topics: tuple[str, str], at: Path, trigger: ps.Trigger
) -> ps.StreamWriter:
    stream = session.read_stream.kafka(
        topic=topics[0],
        bootstrap_servers=broker.bootstrap_servers,
        schema=SCHEMA,
        starting_offsets="earliest",
    )
    return (
        stream.where("id % 2 = 0")
        .select("id")
        .write_stream.trigger(trigger)
        .format("kafka")
        .option("bootstrap_servers", broker.bootstrap_servers)
        .option("topic", topics[1])
        .option("checkpoint.location", at)
    )


class Counts(ps.StreamingQueryListener):
    """Keeps what a query tells."""

    def __init__(self) -> None:
        self.seen: list[QueryProgress] = []

    def on_query_progress(self, event: QueryProgressEvent) -> None:
        self.seen.append(event.progress)


@pytest.mark.smoke
def test_rows_as_they_come(
    session: ps.Session, kafka: Broker, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    topics = kafka.new_topic(), kafka.new_topic()
    trigger = ps.Trigger.continuous(500)
    counts = Counts()
    manager = ps.StreamingQueryManager(session)
    manager.add_listener(counts)
    request.addfinalizer(lambda: manager.remove_listener(counts))
    produce(kafka, topics[0], 0, 10)
    with writer(session, kafka, topics, tmp_path / "ckpt", trigger).start("as_they_come") as query:
        assert query.status.message.endswith("(rows as they come)")
        assert "continuous(500) (rows as they come)" in query.explain()
        wait_for(lambda: len(ids(kafka, topics[1])) == 5, seconds=60)
        produce(kafka, topics[0], 10, 10)
        wait_for(lambda: len(ids(kafka, topics[1])) == 10, seconds=60)
        wait_for(lambda: sum(one.input_rows for one in counts.seen) == 20, seconds=60)
        assert sum(one.output_rows or 0 for one in counts.seen) == 10
        assert counts.seen[-1].lag == 0
    assert query.exception() is None
    assert query.status.state is ps.QueryState.STOPPED
    assert sorted(set(ids(kafka, topics[1]))) == list(range(0, 20, 2))


def test_a_checkpoint_serves_batches_and_rows_as_they_come(
    session: ps.Session, kafka: Broker, tmp_path: Path
) -> None:
    topics = kafka.new_topic(), kafka.new_topic()
    first = 0
    for trigger in (
        ps.Trigger.processing_time(0),
        ps.Trigger.continuous(500),
        ps.Trigger.continuous(500),
        ps.Trigger.available_now(),
    ):
        produce(kafka, topics[0], first, 10)
        first += 10
        query = writer(session, kafka, topics, tmp_path / "ckpt", trigger).start("takes_turns")
        if trigger.ends:
            query.await_termination()
        else:
            even = set(range(0, first, 2))
            wait_for(lambda even=even: set(ids(kafka, topics[1])) == even, seconds=60)  # type: ignore[misc]  # the default
            query.stop()
        assert query.exception() is None
    found = ids(kafka, topics[1])
    assert sorted(set(found)) == list(range(0, 40, 2))


def test_why_batches_run_back_to_back(session: ps.Session, kafka: Broker, tmp_path: Path) -> None:
    broad, narrow, out = kafka.new_topic(partitions=4), kafka.new_topic(), kafka.new_topic()

    def stream(topic: str, **options: int) -> ps.Stream:
        return session.read_stream.kafka(
            topic=topic, bootstrap_servers=kafka.bootstrap_servers, schema=SCHEMA, **options
        ).select("id")

    def to_kafka(given: ps.Stream) -> ps.StreamWriter:
        made = given.write_stream.format("kafka").option("bootstrap_servers", kafka.bootstrap_servers)
        return made.option("topic", out).option("checkpoint.location", tmp_path / "ckpt")

    double = F.udf(lambda number: number * 2, "long")
    cases = [
        (stream(narrow).write_stream.format("memory"), "memory is written batch by batch"),
        (
            to_kafka(stream(narrow)).with_kafka_transactional("back-to-back"),
            "is written batch by batch",
        ),
        (to_kafka(stream(broad)), "there are 4 for 2 cores"),
        (to_kafka(stream(narrow, maxOffsetsPerTrigger=10)), "maxOffsetsPerTrigger"),
        (to_kafka(stream(narrow).select(double("id").alias("id"))), "a Python function"),
        (
            to_kafka(stream(narrow).key_by("id").agg(n=F.count("*"))).output_mode("update"),
            "more than look at one row after the other (Aggregate)",
        ),
        (to_kafka(session.read_stream.rate().select("value")), "only one source of Kafka"),
    ]
    for number, (given, reason) in enumerate(cases):
        made = given.trigger(ps.Trigger.continuous(100)).option(
            "checkpoint.location", tmp_path / f"ckpt{number}"
        )
        with made.start() as query:
            assert "micro-batches back to back" in query.status.message
            assert reason in query.status.message


def test_a_checkpoint_has_one_user(session: ps.Session, tmp_path: Path) -> None:
    def start(name: str) -> ps.StreamingQuery:
        stream = session.read_stream.rate()
        return (
            stream.write_stream.format("memory").option("checkpoint.location", tmp_path / "ckpt").start(name)
        )

    with start("first_user"):
        with pytest.raises(ps.StateError) as caught:
            start("second_user")
        assert caught.value.code == "STREAM_CHECKPOINT_USED"
    with start("second_user") as query:
        assert query.exception() is None
