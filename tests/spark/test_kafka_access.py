"""Kafka behind TLS and a password: both clients get in with either client's settings, and who may not enter hears so at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from servers.certificate import write_certificate
from servers.kafka import Broker

SCHEMA = "id BIGINT"


def java(broker: Broker, password: str) -> dict[str, Any]:
    return {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{broker.user}" password="{password}";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(broker.authority),
    }


def librdkafka(broker: Broker, password: str) -> dict[str, Any]:
    return {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": broker.user,
        "kafka.sasl.password": password,
        "kafka.ssl.ca.location": str(broker.authority),
    }


DIALECTS = pytest.mark.parametrize("dialect", [java, librdkafka])


@DIALECTS
def test_everyone_gets_in_with_either_clients_settings(
    session: ps.Session, kafka: Broker, dialect: Any
) -> None:
    topic, settings = kafka.new_topic(), dialect(kafka, kafka.password)
    for at, transactional in enumerate((None, f"app-{topic}")):
        writer = (
            session.stream(session.sql(f"SELECT {at}L AS id"))
            .write_stream.trigger(ps.Trigger.once())
            .format("kafka")
            .options(topic=topic, bootstrap_servers=kafka.secure_servers, **settings)
        )
        if transactional is not None:
            writer = writer.with_kafka_transactional(transactional)
        writer.start().await_termination()
    query = (
        session.read_stream.kafka(
            topic=topic,
            bootstrap_servers=kafka.secure_servers,
            schema=SCHEMA,
            starting_offsets="earliest",
            **settings,
        )
        .write_stream.trigger(ps.Trigger.available_now())
        .format("memory")
        .start()
    )
    query.await_termination()
    assert sorted(row["id"] for batch in query.memory_batches() for row in batch.to_pylist()) == [0, 1]


@pytest.mark.parametrize("wrong", ["password", "authority"])
@pytest.mark.parametrize("transactional", [False, True])
def test_who_may_not_enter_hears_so_at_once(
    session: ps.Session, kafka: Broker, wrong: str, transactional: bool, tmp_path: Path
) -> None:
    topic = kafka.new_topic()
    settings = librdkafka(kafka, "wrong" if wrong == "password" else kafka.password)
    if wrong == "authority":
        write_certificate(tmp_path / "other.pem", authority=tmp_path / "authority.pem")
        settings["kafka.ssl.ca.location"] = str(tmp_path / "authority.pem")
    writer = (
        session.stream(session.sql("SELECT 1L AS id"))
        .write_stream.trigger(ps.Trigger.once())
        .format("kafka")
        .options(topic=topic, bootstrap_servers=kafka.secure_servers, **settings)
    )
    if transactional:
        writer = writer.with_kafka_transactional(f"app-{topic}")
    with pytest.raises(ps.ConnectorError) as caught:
        writer.start().await_termination()
    said = "uthentication" if wrong == "password" else "certificate verify failed"
    assert said in str(caught.value)
    # One that is away is waited for, and then reported as such.
    assert caught.value.code == "SINK_REFUSED"
    assert "gave up after" not in str(caught.value)


def test_a_source_with_a_wrong_password_fails_at_once(session: ps.Session, kafka: Broker) -> None:
    stream = session.read_stream.kafka(
        topic=kafka.new_topic(),
        bootstrap_servers=kafka.secure_servers,
        schema=SCHEMA,
        starting_offsets="earliest",
        **librdkafka(kafka, "wrong"),
    )
    with pytest.raises(ps.ConnectorError) as caught:
        stream.write_stream.trigger(ps.Trigger.available_now()).format("memory").start().await_termination()
    assert "gave up after" not in str(caught.value)
    assert "uthentication" in str(caught.value)
    assert "\n\tat " not in str(caught.value)
