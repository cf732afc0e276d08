"""Avro values of Kafka: plain, and with a registry whose schemas change while the query runs."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

import penstock as ps
from servers.kafka import Broker
from servers.schema_registry import Registry
from waiting import wait_for

V1 = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}],
}
V2 = {**V1, "fields": [*V1["fields"], {"name": "amount", "type": "double", "default": 0.5}]}
V3 = {**V2, "fields": [*V2["fields"], {"name": "more", "type": "string", "default": "x"}]}
INT = {**V1, "fields": [{"name": "id", "type": "int"}]}
WRONG = {**V1, "fields": [{"name": "id", "type": "string"}]}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as running:
        yield running


def plain(schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema({**schema}), row)
    return out.getvalue()


def wire(number: int, schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + plain(schema, row)


def send(broker: Broker, topic: str, *values: bytes | None) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def read(session: ps.Session, broker: Broker, topic: str, **options: Any) -> ps.Stream:
    return session.read_stream.kafka(
        topic=topic,
        bootstrap_servers=broker.bootstrap_servers,
        starting_offsets="earliest",
        format="avro",
        **options,
    )


def rows(query: ps.StreamingQuery) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if not name.startswith("_")}
        for batch in query.memory_batches()
        for row in batch.to_pylist()
    ]


def finished(stream: ps.Stream, trigger: ps.Trigger) -> ps.StreamingQuery:
    query = stream.write_stream.trigger(trigger).format("memory").start()
    query.await_termination()
    return query


@pytest.mark.parametrize("form", ["text", "dictionary", "file"])
def test_plain_avro(session: ps.Session, kafka: Broker, tmp_path: Path, form: str) -> None:
    topic = kafka.new_topic()
    huge = b"\x02\x02\xf8\xff\xff\xff\x0f" + b"x"  # a string of 2 GB, says its length
    bad = [plain(V2, {"id": 9, "name": "nine", "amount": 1.0})[:-3], b"", b"\xff" * 12, huge]
    send(kafka, topic, plain(V2, {"id": 1, "name": "a", "amount": 2.5}), *bad, None)
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(V2))
    schema = {"text": json.dumps(V2), "dictionary": V2, "file": file}[form]
    place = tmp_path / "bad"
    stream = read(session, kafka, topic, schema=schema, on_bad_record="quarantine", quarantine=place)
    assert stream.df.columns[:3] == ["id", "name", "amount"]
    query = finished(stream, ps.Trigger.available_now())
    assert rows(query) == [
        {"id": 1, "name": "a", "amount": 2.5},
        {"id": None, "name": None, "amount": None},
    ]
    kept = pq.read_table(place).to_pylist()
    assert sorted(row["raw"] for row in kept) == sorted(bad)
    assert all("it is not Avro of this schema" in row["reason"] for row in kept)
    with pytest.raises(ps.DataError) as caught:
        finished(read(session, kafka, topic, schema=schema), ps.Trigger.once())
    # Tasks read parts of the partition side by side: the first that fails is reported, whichever it is.
    places = [f"topic {topic}, partition 0, offset {offset}" for offset in range(1, 1 + len(bad))]
    assert caught.value.where in places


@pytest.mark.parametrize("trigger", [ps.Trigger.once(), ps.Trigger.available_now()], ids=str)
def test_writers_older_and_newer_than_the_reader(
    session: ps.Session, kafka: Broker, registry: Registry, trigger: ps.Trigger
) -> None:
    """Two ids are known at the start, one is learnt from the records."""
    topic = kafka.new_topic()
    one = registry.register(f"{topic}-value", V1)
    three = registry.register(f"{topic}-value", V3)
    int_id = registry.register(None, INT, number=7_000_000)
    send(
        kafka,
        topic,
        wire(one, V1, {"id": 1, "name": "a"}),
        wire(three, V3, {"id": 3, "name": None, "amount": 3.5, "more": "y"}),
        wire(int_id, INT, {"id": 4}),
        wire(one, V1, {"id": 5, "name": "e"}),
    )
    query = finished(read(session, kafka, topic, schema=V2, schema_registry=registry.url), trigger)
    assert sorted(rows(query), key=lambda row: row["id"]) == [
        {"id": 1, "name": "a", "amount": 0.5},
        {"id": 3, "name": None, "amount": 3.5},
        {"id": 4, "name": None, "amount": 0.5},
        {"id": 5, "name": "e", "amount": 0.5},
    ]
    assert registry.asked.count(f"/schemas/ids/{int_id}") == 1


def test_a_schema_that_comes_while_the_query_runs(
    session: ps.Session, kafka: Broker, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns are those of the newest schema at the start; aggregates keep what they have."""
    monkeypatch.setenv("PENSTOCK_SCHEMA_REGISTRY_URL", registry.url)
    with ps.Session.embedded() as configured:
        topic = kafka.new_topic()
        one = registry.register(f"{topic}-value", V1)
        send(kafka, topic, wire(one, V1, {"id": 1, "name": "a"}))
        stream = read(configured, kafka, topic).drop_duplicates("id").select("id", "name")
        writer = stream.write_stream.format("memory").option("checkpoint.location", tmp_path / "ckpt")
        with writer.start("evolves") as query:
            wait_for(lambda: len(rows(query)) == 1)
            two = registry.register(f"{topic}-value", V2)
            send(
                kafka,
                topic,
                wire(two, V2, {"id": 1, "name": "again", "amount": 1.0}),
                wire(two, V2, {"id": 2, "name": "b", "amount": 1.0}),
                wire(one, V1, {"id": 3, "name": "c"}),
            )
            wait_for(lambda: len(rows(query)) >= 3)
            assert query.status.state is ps.QueryState.RUNNING
        assert sorted(row["id"] for row in rows(query)) == [1, 2, 3]
        assert query.exception() is None


@pytest.mark.parametrize(
    ("schema", "key"),
    [
        ("long", 7),
        ({"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}, {"id": 7}),
    ],
)
def test_keys_in_avro_say_which_row_is_deleted(
    session: ps.Session, kafka: Broker, registry: Registry, schema: Any, key: Any
) -> None:
    topic = kafka.new_topic()
    value = registry.register(f"{topic}-value", V1)
    of_key = registry.register(f"{topic}-key", {"type": schema} if isinstance(schema, str) else schema)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), key)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for content in (wire(value, V1, {"id": 7, "name": "a"}), None):
        producer.produce(topic, content, key=b"\0" + of_key.to_bytes(4, "big") + out.getvalue(), partition=0)
    assert producer.flush(30) == 0
    stream = read(session, kafka, topic, schema_registry=registry.url, operations="header", primary_key="id")
    [inserted, deleted] = rows(finished(stream, ps.Trigger.available_now()))
    assert (inserted["id"], inserted["name"]) == (7, "a")
    assert (deleted["id"], deleted["name"]) == (7, None)


def test_bad_records_of_a_registry(
    session: ps.Session, kafka: Broker, registry: Registry, tmp_path: Path
) -> None:
    topic = kafka.new_topic()
    one = registry.register(f"{topic}-value", V1)
    wrong = registry.register(f"{topic}-value", WRONG)
    other = registry.register(None, {}, number=55, schemaType="PROTOBUF")
    good = wire(one, V1, {"id": 1, "name": "a"})
    bad = {
        b"{" + good[1:]: "it begins with the byte 0x7b",
        good[:3]: "it is too short for the id of a schema (3 bytes)",
        good[:-1]: f"it is not Avro of schema id {one}: cut short or damaged",
        good[:5]: f"it is not Avro of schema id {one}",
        wire(wrong, WRONG, {"id": "x"}): f"it was written with schema id {wrong}, which does not fit",
        wire(999, V1, {"id": 1, "name": "a"}): "its schema, id 999, is not in the registry",
        wire(other, V1, {"id": 1, "name": "a"}): "its schema, id 55, is not Avro but PROTOBUF",
        good + b"x" * 2000: "it is larger than max_record_bytes=1000",
    }
    send(kafka, topic, good, *bad)
    place = tmp_path / "bad"
    stream = read(
        session,
        kafka,
        topic,
        schema=V1,
        schema_registry=registry.url,
        on_bad_record="quarantine",
        quarantine=place,
        max_record_bytes=1000,
    )
    query = finished(stream, ps.Trigger.available_now())
    assert rows(query) == [{"id": 1, "name": "a"}]
    kept = {row["raw"]: row["reason"] for row in pq.read_table(place).to_pylist()}
    assert kept.keys() == bad.keys()
    for raw, reason in bad.items():
        assert kept[raw].startswith(reason)


def test_mistakes(session: ps.Session, kafka: Broker, registry: Registry) -> None:
    topic = kafka.new_topic()
    with Registry(login="ann:secret") as closed:
        closed.register(f"{topic}-value", V1)
        with pytest.raises(ps.ConnectorError) as refused:
            read(session, kafka, topic, schema_registry=closed.url)
        assert refused.value.code == "SCHEMA_REGISTRY_REFUSED"
        for given in (
            {"schema_registry": closed.url, "schema_registry_auth": "ann:secret"},
            {"schema_registry": closed.url.replace("http://", "http://ann:secret@")},
        ):
            assert read(session, kafka, topic, **given).df.columns[:2] == ["id", "name"]
    with pytest.raises(ps.ConnectorError) as away:
        read(session, kafka, topic, schema_registry=closed.url)
    assert away.value.code == "SCHEMA_REGISTRY_AWAY"
    for options, code in (
        ({}, "AVRO_SCHEMA"),
        ({"schema": "no/such.avsc"}, "AVRO_SCHEMA"),
        ({"schema": '{"type": "recrd"}'}, "AVRO_SCHEMA"),
        ({"schema": '"string"'}, "AVRO_SCHEMA"),
        ({"schema_registry": "host:8081"}, "SCHEMA_REGISTRY_ADDRESS"),
        ({"schema_registry": registry.url}, "SCHEMA_REGISTRY_SUBJECT"),
    ):
        with pytest.raises(ps.ConfigError) as caught:
            read(session, kafka, topic, **options)
        assert caught.value.code == code
    with pytest.raises(ps.ConfigError) as caught:
        session.read_stream.kafka(topic=topic, bootstrap_servers="none:1", format="arvo")
    assert "did you mean 'avro'" in str(caught.value)
