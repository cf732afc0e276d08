"""Kafka as the source of streaming queries: decoding, lag, a broker that is away."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry, generate_latest
from pyspark.sql import DataFrame

import penstock as ps
from penstock.cli.main import main
from servers.kafka import Broker
from waiting import wait_for

SCHEMA = "id BIGINT, name STRING"


def produce(broker: Broker, topic: str, first: int, count: int, *, partitions: int | None = None) -> None:
    """Send records to partitions by their keys, or in turn."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(first, first + count):
        producer.produce(
            topic,
            json.dumps({"id": number, "name": f"n{number}"}).encode(),
            key=str(number).encode(),
            partition=-1 if partitions is None else number % partitions,
        )
    assert producer.flush(30) == 0


def rows(query: ps.StreamingQuery) -> list[dict[str, Any]]:
    return [row for batch in query.memory_batches() for row in batch.to_pylist()]


def test_json_values_as_columns_and_once_reads_all(session: ps.Session, kafka: Broker) -> None:
    topic = kafka.new_topic(partitions=2)
    produce(kafka, topic, 0, 20)
    stream = session.read_stream.kafka(
        topic=topic, bootstrap_servers=kafka.bootstrap_servers, schema=SCHEMA, starting_offsets="earliest"
    )
    for trigger in (ps.Trigger.once(), ps.Trigger.available_now()):
        query = stream.write_stream.trigger(trigger).format("memory").start()
        query.await_termination()
        found = sorted(rows(query), key=lambda row: row["id"])
        assert [(row["id"], row["name"], row["_key"]) for row in found] == [
            (number, f"n{number}", str(number).encode()) for number in range(20)
        ]
        assert query.last_progress is not None
        assert query.last_progress.input_rows == 20
    assert query.last_progress.sources[0].lag == 0


def metrics(session: ps.Session) -> str:
    """What Prometheus would be answered."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(session.queries.metrics)
    return generate_latest(registry).decode()


@contextmanager
def warnings_of(name: str) -> Iterator[list[str]]:
    """The messages of a logger while the block runs."""
    messages: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    handler, logger = Handler(), logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


def committed(broker: Broker, group: str, topic: str) -> dict[int, int]:
    """What the broker says that a group has read."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = asked[group].result(30).topic_partitions
    return {each.partition: each.offset for each in found if each.topic == topic}


@pytest.mark.parametrize("trigger", [ps.Trigger.once(), ps.Trigger.available_now()], ids=str)
def test_a_consumer_group_is_updated_by_queries_that_end(
    session: ps.Session, kafka: Broker, trigger: ps.Trigger
) -> None:
    topic = kafka.new_topic(partitions=3)
    produce(kafka, topic, 0, 20)
    group = f"group-{topic}"
    query = (
        session.read_stream.kafka(
            topic=topic,
            bootstrap_servers=kafka.bootstrap_servers,
            schema=SCHEMA,
            starting_offsets="earliest",
            group=group,
        )
        .write_stream.trigger(trigger)
        .format("memory")
        .start()
    )
    query.await_termination()
    offsets = committed(kafka, group, topic)
    assert sum(offsets.values()) == 20
    assert len(rows(query)) == 20


def test_lag_in_progress_metrics_and_jobs_and_the_last_batch_is_reported(
    session: ps.Session, kafka: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = kafka.new_topic(partitions=2)
    produce(kafka, topic, 0, 30, partitions=2)
    group = f"group-{topic}"
    hold, go = threading.Event(), threading.Event()

    def function(batch: DataFrame, epoch: int) -> None:
        batch.count()
        if epoch == 1:
            hold.set()
            go.wait(60)

    writer = (
        session.read_stream.kafka(
            topic=topic,
            bootstrap_servers=kafka.bootstrap_servers,
            starting_offsets="earliest",
            group=group,
            maxOffsetsPerTrigger=10,
        )
        .write_stream.trigger(ps.Trigger.processing_time(0))
        .foreach_batch(function)
    )
    query = writer.start("lags")
    try:
        assert hold.wait(60)
        wait_for(lambda: committed(kafka, group, topic) == {0: 5, 1: 5})
        assert query.last_progress is not None
        assert query.last_progress.lag == 20
        lags = query.last_progress.sources[0].lag_by_partition
        assert sorted(lags) == [f"{topic}-0", f"{topic}-1"]
        assert sum(lags.values()) == 20
        text = metrics(session)
        assert 'penstock_query_lag_records{query="lags"} 20.0' in text
        assert f'penstock_query_partition_lag_records{{partition="0",query="lags",topic="{topic}"}}' in text
        assert 'penstock_query_group_failures_total{query="lags"} 0.0' in text
        query._runtime.begin_stop()
    finally:
        go.set()
        query.stop()
    # The second batch ran when the end was asked for: it is committed, and the group knows.
    assert query.last_progress.batch_id == 1
    assert committed(kafka, group, topic) == {0: 10, 1: 10}
    assert main(["jobs", "show", "lags", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["lag"] == 10


def test_a_group_that_cannot_be_updated_does_not_hold_up_the_query(
    session: ps.Session, kafka: Broker
) -> None:
    topic = kafka.new_topic()
    produce(kafka, topic, 0, 5)
    group = f"group-{topic}"
    member = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    member.subscribe([topic])
    wait_for(lambda: member.poll(0.1) is None and member.assignment())
    stream = session.read_stream.kafka(
        topic=topic, bootstrap_servers=kafka.bootstrap_servers, starting_offsets="earliest", group=group
    )
    try:
        with warnings_of("penstock.sources") as messages:
            query = stream.write_stream.format("memory").start("untold")
            wait_for(lambda: len(rows(query)) == 5)
            metric = 'penstock_query_group_failures_total{query="untold"} 0.0'
            wait_for(lambda: metric not in metrics(session))
            query.stop()
    finally:
        member.close()
    assert query.exception() is None
    assert any("consumers of another program are members" in text for text in messages)


@pytest.mark.parametrize("trigger", [ps.Trigger.once(), ps.Trigger.continuous(200)], ids=str)
def test_queries_start_in_threads_of_their_own(
    session: ps.Session, kafka: Broker, tmp_path: Path, trigger: ps.Trigger
) -> None:
    topic, out = kafka.new_topic(), kafka.new_topic()

    def start(number: int) -> ps.StreamingQuery:
        stream = session.read_stream.kafka(
            topic, bootstrap_servers=kafka.bootstrap_servers, starting_offsets="earliest"
        )
        writer = stream.select("value").write_stream.trigger(trigger).format("kafka")
        writer = writer.options(bootstrap_servers=kafka.bootstrap_servers, topic=out)
        return writer.option("checkpoint.location", tmp_path / str(number)).start()

    with ThreadPoolExecutor() as pool:
        for query in pool.map(start, range(2)):
            query.stop()
            assert query.exception() is None


def test_once_from_the_latest_offsets_is_refused(session: ps.Session, kafka: Broker) -> None:
    stream = session.read_stream.kafka(topic=kafka.new_topic(), bootstrap_servers=kafka.bootstrap_servers)
    with pytest.raises(ps.ConfigError) as caught:
        stream.write_stream.trigger(ps.Trigger.once()).format("memory").start()
    assert caught.value.code == "STREAM_ONCE_LATEST"


def test_a_query_waits_for_its_source_and_goes_on(session: ps.Session, tmp_path: Path) -> None:
    quick = {"kafka.request.timeout.ms": 2000, "kafka.default.api.timeout.ms": 3000}
    with Broker() as broker:
        topic = broker.new_topic()
        produce(broker, topic, 0, 5)
        stream = session.read_stream.kafka(
            topic=topic,
            bootstrap_servers=broker.bootstrap_servers,
            schema=SCHEMA,
            starting_offsets="earliest",
            **quick,
        )
        writer = stream.write_stream.format("memory").option("checkpoint.location", tmp_path / "ckpt")
        with writer.start("waits_for_source") as query:
            wait_for(lambda: len(rows(query)) == 5)
            broker.kill()
            wait_for(lambda: "attempt 2" in query.status.message, seconds=120)
            assert query.status.state is ps.QueryState.RUNNING
            broker.start()
            produce(broker, topic, 5, 5)
            wait_for(lambda: len(rows(query)) == 10, seconds=120)
        assert query.exception() is None
        assert sorted(row["id"] for row in rows(query)) == list(range(10))


def test_a_query_that_waits_for_its_source_can_be_stopped(session: ps.Session, tmp_path: Path) -> None:
    quick = {"kafka.request.timeout.ms": 2000, "kafka.default.api.timeout.ms": 3000}
    with Broker() as broker:
        topic = broker.new_topic()
        stream = session.read_stream.kafka(topic=topic, bootstrap_servers=broker.bootstrap_servers, **quick)
        writer = stream.write_stream.format("memory").option("checkpoint.location", tmp_path / "ckpt")
        query = writer.start("stops_while_it_waits")
        wait_for(lambda: query.last_progress)
        broker.kill()
        wait_for(lambda: "next in" in query.status.message, seconds=120)
        query.stop()
        assert query.status.state is ps.QueryState.STOPPED
        assert query.exception() is None


@pytest.mark.parametrize("trigger", [ps.Trigger.processing_time(0), ps.Trigger.continuous(1000)], ids=str)
def test_a_topic_that_is_not_there(
    session: ps.Session, kafka: Broker, tmp_path: Path, trigger: ps.Trigger
) -> None:
    stream = session.read_stream.kafka(topic="no-such-topic", bootstrap_servers=kafka.bootstrap_servers)
    writer = stream.write_stream.trigger(trigger).format("kafka").option("topic", kafka.new_topic())
    writer = writer.option("bootstrap_servers", kafka.bootstrap_servers)
    with pytest.raises(ps.ConnectorError) as caught:
        writer.option("checkpoint.location", tmp_path).start().await_termination_timeout(60)
    assert caught.value.code == "KAFKA_TOPIC_MISSING"
    assert caught.value.message == "no such topic: no-such-topic"


def test_servers_must_be_known(session: ps.Session) -> None:
    with pytest.raises(ps.ConfigError) as caught:
        session.read_stream.kafka(topic="orders")
    assert caught.value.code == "KAFKA_SERVERS"
