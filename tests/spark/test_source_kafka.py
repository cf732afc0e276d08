"""Kafka as the source of streaming queries: decoding, lag, a broker that is away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import penstock as ps
from servers.kafka import Broker
from waiting import wait_for

SCHEMA = "id BIGINT, name STRING"


def produce(broker: Broker, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(first, first + count):
        producer.produce(
            topic, json.dumps({"id": number, "name": f"n{number}"}).encode(), key=str(number).encode()
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


def test_a_topic_that_is_not_there(session: ps.Session, kafka: Broker) -> None:
    stream = session.read_stream.kafka(topic="no-such-topic", bootstrap_servers=kafka.bootstrap_servers)
    query = stream.write_stream.format("memory").start()
    with pytest.raises(ps.ConnectorError) as caught:
        query.await_termination_timeout(60)
    assert caught.value.code == "KAFKA_TOPIC_MISSING"


def test_servers_must_be_known(session: ps.Session) -> None:
    with pytest.raises(ps.ConfigError) as caught:
        session.read_stream.kafka(topic="orders")
    assert caught.value.code == "KAFKA_SERVERS"
