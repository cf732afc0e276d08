"""Kafka in batch: written and read by Spark, checked by another client."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from servers.kafka import Broker


def _read(spark: SparkSession, kafka: Broker, topic: str, **options: str) -> Any:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    return reader.option("subscribe", topic).options(**options).load()


def _consume(kafka: Broker, topic: str, count: int) -> list[Any]:
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        messages: list[Any] = []
        while len(messages) < count:
            found = consumer.consume(count - len(messages), timeout=30)
            assert found, f"{len(messages)} of {count} messages"
            messages.extend(found)
        assert all(message.error() is None for message in messages)
        return messages
    finally:
        consumer.close()


@pytest.mark.smoke
def test_a_round_trip_with_keys_headers_and_json(spark: SparkSession, kafka: Broker) -> None:
    topic = kafka.new_topic(partitions=2)
    orders = spark.createDataFrame(
        [(1, "Zoë", 10.5), (2, None, None), (3, "x" * 1000, -0.25)], "id BIGINT, name STRING, amount DOUBLE"
    )
    (
        orders.select(
            F.col("id").cast("string").alias("key"),
            F.to_json(F.struct("id", "name", "amount")).alias("value"),
            F.array(F.struct(F.lit("from").alias("key"), F.lit(b"spark").alias("value"))).alias("headers"),
        )
        .write.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("topic", topic)
        .save()
    )
    parsed = F.from_json(F.col("value").cast("string"), "id BIGINT, name STRING, amount DOUBLE").alias(
        "order"
    )
    back = _read(spark, kafka, topic, includeHeaders="true")
    assert sorted(back.select(parsed).select("order.*").collect()) == sorted(orders.collect())
    assert {bytes(row.key) for row in back.select("key").collect()} == {b"1", b"2", b"3"}
    headers = [header for row in back.select("headers").collect() for header in row.headers]
    assert [(header.key, bytes(header.value)) for header in headers] == [("from", b"spark")] * 3
    messages = _consume(kafka, topic, 3)
    assert sorted(message.key() for message in messages) == [b"1", b"2", b"3"]
    assert all(message.headers() == [("from", b"spark")] for message in messages)


def test_another_clients_messages_and_a_range_of_offsets(spark: SparkSession, kafka: Broker) -> None:
    topic = kafka.new_topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(10):
        producer.produce(topic, value=f"m{number}".encode(), key=None)
    producer.produce(topic, value=None, key=b"tombstone")
    assert producer.flush(30) == 0
    rows = _read(spark, kafka, topic).orderBy("offset").collect()
    assert [row.value and bytes(row.value) for row in rows] == [f"m{n}".encode() for n in range(10)] + [None]
    assert rows[0].key is None
    some = _read(
        spark,
        kafka,
        topic,
        startingOffsets=f'{{"{topic}": {{"0": 3}}}}',
        endingOffsets=f'{{"{topic}": {{"0": 6}}}}',
    )
    assert sorted(bytes(row.value) for row in some.collect()) == [b"m3", b"m4", b"m5"]
