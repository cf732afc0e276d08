"""Operations of records in Kafka: headers, Debezium's envelopes, records without a value, and what a pipeline reads of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

import penstock as ps
from drained import drained, drained_rows
from penstock.config import load
from penstock.pipeline.sources.kafka import KafkaNode
from penstock.sources.base import SourceContext
from servers.kafka import Broker

COLUMNS = {"id": "int64", "name": "string"}
Record = tuple[Any, Any, str | None]
"""Key, value, and the header `dbz.op`."""


def send(broker: Broker, topic: str, records: Sequence[Record]) -> None:
    """Send records; a value that is no text or bytes becomes JSON."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for key, value, operation in records:
        content = value if value is None or isinstance(value, bytes | str) else json.dumps(value)
        headers: dict[str, str | bytes | None] = {} if operation is None else {"dbz.op": operation}
        producer.produce(topic, content, key=key, headers=headers)
    assert producer.flush(30) == 0


def frame(session: ps.Session, broker: Broker, topic: str, **fields: Any) -> DataFrame:
    node = KafkaNode.model_validate(
        {"type": "kafka", "topic": topic, "bootstrap_servers": broker.bootstrap_servers, **fields}
    )
    settings = load()
    return node.source(settings).read(SourceContext(session.spark, settings)).frame


def operations(rows: Sequence[dict[str, Any]]) -> list[tuple[str, int | None, str | None]]:
    return [(row["_op"], row["id"], row["name"]) for row in rows]


def test_headers_say_what_records_do(session: ps.Session, kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.new_topic()
    row = {"id": 1, "name": "a"}
    send(kafka, topic, [("1", row, None), *[("1", row, word) for word in ("c", "r", "u", "d", "i")]])
    read = frame(session, kafka, topic, schema=COLUMNS)
    assert read.columns == ["id", "name", "_op"]
    rows = drained_rows(read, tmp_path / "c")
    assert "".join(row["_op"] for row in rows) == "iiiudi"
    plain = frame(session, kafka, topic, schema=COLUMNS, operations="none")
    assert plain.columns == ["id", "name"]


def test_records_without_a_header_may_be_upserts(session: ps.Session, kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [("1", {"id": 1, "name": "a"}, None), ("1", {"id": 1, "name": "z"}, None)])
    send(kafka, topic, [("1", None, None), ("2", {"id": 2, "name": "b"}, "c")])
    fields = {"schema": COLUMNS, "primary_key": "id", "operations": "upsert"}
    rows = drained_rows(frame(session, kafka, topic, **fields), tmp_path / "c")
    assert [(row["_op"], row["id"]) for row in rows] == [("u", 1), ("u", 1), ("d", 1), ("i", 2)]


@pytest.mark.parametrize("key", ["7", '{"id": 7}', '{"schema": {}, "payload": {"id": 7}}'])
def test_a_record_without_a_value_deletes_its_key(
    session: ps.Session, kafka: Broker, tmp_path: Path, key: str
) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [(key, {"id": 7, "name": "x"}, None), (key, None, None)])
    keyed = frame(session, kafka, topic, schema=COLUMNS, primary_key="id")
    assert operations(drained_rows(keyed, tmp_path / "c")) == [("i", 7, "x"), ("d", 7, None)]
    without_key = frame(session, kafka, topic, schema=COLUMNS)
    assert operations(drained_rows(without_key, tmp_path / "d")) == [("i", 7, "x")]


@pytest.mark.parametrize(("key", "name"), [("north", "north"), ('"no\\"rth"', 'no"rth')])
def test_a_text_as_the_key(session: ps.Session, kafka: Broker, tmp_path: Path, key: str, name: str) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [(key, None, None)])
    rows = drained_rows(frame(session, kafka, topic, schema=COLUMNS, primary_key="name"), tmp_path / "c")
    assert operations(rows) == [("d", None, name)]


def test_a_key_of_several_columns(session: ps.Session, kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [('{"id": 7, "name": "x"}', None, None)])
    rows = drained_rows(frame(session, kafka, topic, schema=COLUMNS, primary_key="id,name"), tmp_path / "c")
    assert operations(rows) == [("d", 7, "x")]


def test_what_says_nothing_is_a_bad_record(session: ps.Session, kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.new_topic()
    row = {"id": 1, "name": "a"}
    send(
        kafka,
        topic,
        [("1", row, "x"), ("one", None, None), (None, None, None), ("1", "{", "c"), ("1", row, "u")],
    )
    fields = {"schema": COLUMNS, "primary_key": "id"}
    read = frame(session, kafka, topic, on_bad_record="drop", **fields)
    assert operations(drained_rows(read, tmp_path / "c")) == [("u", 1, "a")]


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([("1", {"id": 1}, "x")], "the header dbz.op is unknown, or the value does not fit"),
        ([("one", None, None)], "it has no value, and its key is not the primary key"),
    ],
)
def test_the_reason_is_said(session: ps.Session, kafka: Broker, records: list[Record], reason: str) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, records)
    stream = session.read_stream.kafka(
        topic,
        bootstrap_servers=kafka.bootstrap_servers,
        schema="id BIGINT",
        starting_offsets="earliest",
        operations="header",
        primary_key="id",
    )
    query = stream.write_stream.trigger(ps.Trigger.available_now()).format("memory").start()
    with pytest.raises(ps.DataError) as caught:
        query.await_termination()
    assert reason in caught.value.message


EVENTS = [
    ({"op": "r", "before": None, "after": {"id": 1, "name": "a"}}, ("i", 1, "a")),
    ({"op": "c", "before": None, "after": {"id": 2, "name": None}}, ("i", 2, None)),
    ({"op": "u", "before": {"id": 1, "name": "a"}, "after": {"id": 1, "name": "b"}}, ("u", 1, "b")),
    ({"op": "d", "before": {"id": 2, "name": None}, "after": None}, ("d", 2, None)),
]


@pytest.mark.parametrize("wrap", [lambda event: event, lambda event: {"schema": {"x": 1}, "payload": event}])
def test_envelopes_of_debezium_in_json(session: ps.Session, kafka: Broker, tmp_path: Path, wrap: Any) -> None:
    topic = kafka.new_topic()
    bad: list[Any] = [
        {"op": "t", "before": None, "after": None},
        {"id": 1, "name": "a"},
        {"op": "c", "after": None},
    ]
    records = [("k", wrap(event), None) for event, _ in EVENTS]
    send(kafka, topic, [*records, ("k", None, None), *[("k", wrap(event), None) for event in bad]])
    read = frame(
        session, kafka, topic, schema=COLUMNS, operations="debezium", on_bad_record="drop", primary_key="id"
    )
    assert read.columns == ["id", "name", "_op"]
    assert operations(drained_rows(read, tmp_path / "c")) == [row for _, row in EVENTS]


ENVELOPE = """{"type": "record", "name": "Envelope", "fields": [
    {"name": "before", "type": ["null", {"type": "record", "name": "Row", "fields": [
        {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}]}], "default": null},
    {"name": "after", "type": ["null", "Row"], "default": null},
    {"name": "op", "type": "string"}]}"""


def test_envelopes_of_debezium_in_avro(session: ps.Session, kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.new_topic()
    lines = [json.dumps(event) for event, _ in EVENTS]
    kind = "struct<before: struct<id: bigint, name: string>, after: struct<id: bigint, name: string>, op: string>"
    events = session.spark.createDataFrame([(line,) for line in lines], "line string").select(
        F.from_json("line", kind).alias("event")
    )
    values = [bytes(row[0]) for row in events.select(to_avro("event", ENVELOPE)).collect()]
    send(kafka, topic, [("k", value, None) for value in values])
    fields = {"data_format": "avro", "avro_schema": ENVELOPE, "schema_registry": False}
    read = frame(session, kafka, topic, operations="debezium", **fields)
    assert operations(drained_rows(read, tmp_path / "c")) == [row for _, row in EVENTS]
    row = json.dumps({"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}]})
    with pytest.raises(ps.ConfigError) as caught:
        frame(session, kafka, topic, operations="debezium", **{**fields, "avro_schema": row})
    assert caught.value.code == "AVRO_SCHEMA"


def test_metadata_filters_and_batches(session: ps.Session, kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [(str(number), {"id": number, "name": "x"}, None) for number in range(10)])
    read = frame(
        session,
        kafka,
        topic,
        schema=COLUMNS,
        operations="none",
        include_metadata=True,
        filter="id >= 2 AND _offset < 9",
        batch_size=4,
        parallelism=3,
    )
    assert read.columns == ["id", "name", "_key", "_topic", "_partition", "_offset", "_timestamp"]
    epochs = drained(read, tmp_path / "c")
    assert [[row["id"] for row in epoch] for epoch in epochs] == [[2, 3], [4, 5, 6, 7], [8]]


def test_a_filter_lets_deletes_pass_and_deletes_what_leaves_it(
    session: ps.Session, kafka: Broker, tmp_path: Path
) -> None:
    topic = kafka.new_topic()
    rows = [({"id": 1, "name": "a"}, "c"), ({"id": 1, "name": "z"}, "u"), ({"id": 2, "name": "z"}, "c")]
    send(kafka, topic, [(str(row["id"]), row, word) for row, word in rows])
    send(kafka, topic, [("3", None, None), ("4", {"id": 4, "name": None}, "u")])
    read = frame(session, kafka, topic, schema=COLUMNS, primary_key="id", filter="name < 'c'")
    assert read.columns == ["id", "name", "_op"]
    changes = [(row["_op"], row["id"]) for row in drained_rows(read, tmp_path / "c")]
    assert sorted(changes, key=lambda change: change[1]) == [("i", 1), ("d", 1), ("d", 3), ("d", 4)]


def test_values_as_they_are(session: ps.Session, kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [("k", "text", None), ("k", None, None)])
    read = frame(session, kafka, topic, data_format="binary")
    assert read.columns == ["key", "value", "_op"]
    rows = [(row["value"], row["_op"]) for row in drained_rows(read, tmp_path / "c")]
    assert rows == [(b"text", "i"), (None, "d")]
