"""Changes of views as records of Kafka: the topic adds up to the view, also when a flow was opened again."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

import penstock as ps
from servers.kafka import Broker
from twin.durable import add_view, declare, opened, tick


def _records(kafka: Broker, topic: str) -> list[tuple[str | None, Any, int]]:
    """Key, value and tick of the committed records."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    records: list[tuple[str | None, Any, int]] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for message in consumer.consume(1_000, timeout=0.1):
                if message.error() is not None:
                    return records
                key, value = message.key(), message.value()
                records.append(
                    (
                        None if key is None else key.decode(),
                        None if value is None else json.loads(value),
                        int(dict(message.headers() or [])["tick"] or 0),
                    )
                )
    finally:
        consumer.close()
    raise AssertionError("the end of the topic was not reached")


def _fill(flow: ps.IncrementalFlow) -> None:
    declare(flow)
    add_view(flow, "totals")
    add_view(flow, "twice")
    tick(flow, [(1, 2, 0, False), (2, 1, 0, False)])


def test_a_key_that_is_gone_is_a_tombstone_and_a_restart_goes_on(kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.new_topic()
    with opened(tmp_path / "flow") as flow:
        _fill(flow)
        flow.sink("totals", "kafka", topic=topic, bootstrap_servers=kafka.bootstrap_servers, key=["k"])
        tick(flow, [(1, 5, 0, False), (2, 1, 0, True)])
    with opened(tmp_path / "flow") as flow:
        tick(flow, [(3, 4, 0, False)])
        assert flow.flush_sinks(60)
        assert _records(kafka, topic) == [
            ("1", {"k": 1, "v": 2}, 1),
            ("2", {"k": 2, "v": 1}, 1),
            ("2", None, 2),
            ("1", {"k": 1, "v": 7}, 2),
            ("3", {"k": 3, "v": 4}, 3),
        ]
        with pytest.raises(ps.ConfigError, match="cannot be overwritten"):
            flow.sink(
                "twice", "kafka", topic=topic, bootstrap_servers=kafka.bootstrap_servers, overwrite=True
            )


def test_an_envelope_says_what_a_row_was_and_what_it_is(kafka: Broker) -> None:
    topic = kafka.new_topic()
    with opened() as flow:
        _fill(flow)
        flow.sink(
            "totals",
            "kafka",
            topic=topic,
            bootstrap_servers=kafka.bootstrap_servers,
            key=["v", "k"],
            envelope="debezium",
        )
        tick(flow, [(2, 1, 0, True), (3, 3, 0, False)])
    source = {"view": "view totals", "tick": 2}
    assert _records(kafka, topic)[2:] == [
        (
            '{"v":1,"k":2}',
            {"before": {"k": 2, "v": 1}, "after": None, "op": "d", "source": source},
            2,
        ),
        (
            '{"v":3,"k":3}',
            {"before": None, "after": {"k": 3, "v": 3}, "op": "c", "source": source},
            2,
        ),
    ]


def test_rows_without_a_key_have_weights_that_add_up(kafka: Broker) -> None:
    topic = kafka.new_topic()
    with opened() as flow:
        _fill(flow)
        flow.sink("twice", "kafka", topic=topic, bootstrap_servers=kafka.bootstrap_servers)
        tick(flow, [(1, 2, 0, True), (3, 3, 0, False), (3, 3, 0, False)])
        assert flow.flush_sinks(60)
        expected = Counter((row["k"], row["v"]) for row in flow.snapshot("twice").to_pylist())
    total: Counter[tuple[int, int]] = Counter()
    for key, row, _ in _records(kafka, topic):
        assert key is None
        total[row["k"], row["v"]] += row["_weight"]
    assert +total == expected


def test_a_key_that_is_none_ends_the_sink(kafka: Broker) -> None:
    topic = kafka.new_topic()
    with opened() as flow:
        _fill(flow)
        add_view(flow, "large")
        flow.sink("large", "kafka", topic=topic, bootstrap_servers=kafka.bootstrap_servers, key=["k"])
        tick(flow, [(1, 9, 0, False)])
        with pytest.raises(ps.DataError, match="several rows with the key k=1"):
            flow.flush_sinks(60)
        flow.drop_sink("large_kafka")
    assert [value for _, value, _ in _records(kafka, topic)] == [{"k": 1, "v": 2}]


def test_a_topic_that_is_not_there_is_refused(kafka: Broker) -> None:
    with opened() as flow:
        _fill(flow)
        with pytest.raises(ps.ConnectorError) as refused:
            flow.sink("totals", "kafka", topic="nowhere", bootstrap_servers=kafka.bootstrap_servers, key="k")
        assert refused.value.code == "SINK_TOPIC_MISSING"
        assert flow.explain("totals").sinks == ()
