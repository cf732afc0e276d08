"""Records that cannot be read: the query fails with their place, or they are dropped, or kept."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer
from prometheus_client import CollectorRegistry, generate_latest
from pyspark.sql import functions as F

import penstock as ps
from penstock.spark import catalogs
from servers.kafka import Broker
from waiting import wait_for

SCHEMA = "id BIGINT, name STRING, amount DECIMAL(10,2), tags ARRAY<INT>"
GOOD: list[bytes | None] = [
    b'{"id": 1, "name": "a", "amount": 1.25, "tags": [1, 2]}',
    b'{"id": 2}',
    b' {"id": 3, "amount": 59.970000000000006, "more": {}} \r\n',
    b'{"id": 4, "amount": "7.5", "name": null}',
    None,
]
BAD: dict[bytes, str] = {
    b'{"id": 10, "name": "a"': "it is not JSON",
    b"": "it is empty",
    b"  ": "it is empty",
    b"\x00\x01\xff": "it is not UTF-8",
    b'{"id": 11, "name": "\xff"}': "it is not UTF-8 (byte 20)",
    b'[{"id": 12}]': "it is an array, not a JSON object",
    b'"text"': "it is a string, not a JSON object",
    b'{"id": 13} {"id": 14}x': "it is not JSON: extra data",
    b'{"id": "x"}': 'id is "x", which is not BIGINT',
    b'{"id": 1.5}': "id is 1.5, which is not BIGINT",
    b'{"id": 9223372036854775808}': "id is 9223372036854775808, which is not BIGINT",
    b'{"id": 15, "amount": 1.239}': "amount is 1.239, which is not DECIMAL(10,2)",
    b'{"id": 16, "amount": 123456789.5}': "amount is 123456789.5, which is not DECIMAL(10,2)",
    b'{"id": 17, "tags": [1, "b"]}': 'tags[1] is "b", which is not INT',
    b'{"id": 18, "name": "' + b"x" * 2000 + b'"}': "it is larger than max_record_bytes=1000",
}


def send(broker: Broker, topic: str, values: list[bytes | None]) -> None:
    """Send records in this order to the first partition, so that the place in the list is the offset."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number, value in enumerate(values):
        producer.produce(topic, value, key=f"k{number}".encode(), partition=0)
    assert producer.flush(30) == 0


def mixed() -> list[bytes | None]:
    """Good and bad records in turn, as long as there are good ones."""
    bad: list[bytes | None] = list(BAD)
    return [each for pair in zip(GOOD, bad[: len(GOOD)], strict=True) for each in pair] + bad[len(GOOD) :]


def rows(query: ps.StreamingQuery) -> list[dict[str, Any]]:
    return [row for batch in query.memory_batches() for row in batch.to_pylist()]


def read(session: ps.Session, broker: Broker, topic: str, **options: Any) -> ps.Stream:
    return session.read_stream.kafka(
        topic=topic,
        bootstrap_servers=broker.bootstrap_servers,
        starting_offsets="earliest",
        **{"schema": SCHEMA, "max_record_bytes": 1000, **options},
    )


def finished(writer: Any, name: str | None = None) -> ps.StreamingQuery:
    query: ps.StreamingQuery = writer.start(name)
    query.await_termination()
    return query


@pytest.mark.parametrize("trigger", [ps.Trigger.once(), ps.Trigger.available_now()], ids=str)
def test_bad_records_are_dropped_and_counted(session: ps.Session, kafka: Broker, trigger: ps.Trigger) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, mixed())
    stream = read(session, kafka, topic, on_bad_record="drop")
    query = finished(stream.write_stream.trigger(trigger).format("memory"))
    found = sorted(rows(query), key=lambda row: (row["id"] is None, row["id"]))
    assert [row["id"] for row in found] == [1, 2, 3, 4, None]
    assert [str(row["amount"]) for row in found] == ["1.25", "None", "59.97", "7.50", "None"]
    assert found[0]["tags"] == [1, 2]
    assert found[-1]["_key"] == b"k8"
    assert query.last_progress is not None
    assert query.last_progress.dropped_records == len(BAD)
    assert query.last_progress.quarantined_records == 0


@pytest.mark.parametrize("trigger", [ps.Trigger.once(), ps.Trigger.available_now()], ids=str)
def test_bad_records_are_kept_in_files_while_windows_go_on(
    session: ps.Session, kafka: Broker, tmp_path: Path, trigger: ps.Trigger
) -> None:
    """The rows are taken out before what is kept: bytes, place and reason are in the quarantine, and the count is right."""
    topic = kafka.new_topic()
    send(kafka, topic, mixed())
    place = tmp_path / "bad"
    stream = read(session, kafka, topic, on_bad_record="quarantine", quarantine=place)
    writer = stream.key_by("_topic").agg(n=F.count("*")).write_stream.output_mode("update")
    query = finished(writer.trigger(trigger).format("memory"), f"quarantines-{trigger}")
    assert [row["n"] for row in rows(query)] == [len(GOOD)]
    kept = {row["raw"]: row for row in pq.read_table(place).to_pylist()}
    assert kept.keys() == BAD.keys()
    sent = mixed()
    for raw, reason in BAD.items():
        assert kept[raw]["reason"].startswith(reason)
        assert (kept[raw]["topic"], kept[raw]["partition"]) == (topic, 0)
        assert sent[kept[raw]["offset"]] == raw
        assert kept[raw]["key"] == f"k{kept[raw]['offset']}".encode()
        assert (kept[raw]["query"], kept[raw]["epoch"]) == (query.name, 0)
    assert query.last_progress is not None
    assert query.last_progress.quarantined_records == len(BAD)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(session.queries.metrics)
    metric = f'penstock_query_quarantined_records_total{{query="{query.name}"}} {float(len(BAD))}'
    assert metric in generate_latest(registry).decode()


def test_a_function_that_reads_nothing_hides_no_bad_record(
    session: ps.Session, kafka: Broker, tmp_path: Path
) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, mixed())
    stream = read(session, kafka, topic, on_bad_record="quarantine", quarantine=str(tmp_path / "bad"))
    writer = stream.write_stream.trigger(ps.Trigger.available_now())
    finished(writer.foreach_batch(lambda batch, epoch: batch.limit(1).count()))
    assert {row["raw"] for row in pq.read_table(tmp_path / "bad").to_pylist()} == BAD.keys()


def test_a_topic_as_quarantine(session: ps.Session, kafka: Broker) -> None:
    topic, other = kafka.new_topic(), kafka.new_topic()
    send(kafka, topic, mixed())
    stream = read(session, kafka, topic, on_bad_record="quarantine", quarantine=f"topic:{other}")
    finished(stream.write_stream.trigger(ps.Trigger.available_now()).format("memory"))
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "reads", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([other])
    found: dict[Any, dict[str, str]] = {}
    while len(found) < len(BAD):
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        headers: Any = message.headers()
        found[message.value()] = {name: value.decode() for name, value in headers}
    consumer.close()
    sent = mixed()
    for raw, reason in BAD.items():
        assert found[raw]["penstock.reason"].startswith(reason)
        assert sent[int(found[raw]["penstock.offset"])] == raw
    with pytest.raises(ps.ConfigError) as caught:
        read(
            session, kafka, topic, on_bad_record="quarantine", quarantine=f"topic:{topic}"
        ).write_stream.format("memory").start()
    assert caught.value.code == "STREAM_ASIDE_PLACE"


def test_an_epoch_that_comes_again_brings_its_bad_records_again(
    session: ps.Session, kafka: Broker, tmp_path: Path
) -> None:
    """Killed between the sink's commit and Spark's: the sink has the epoch, and the quarantine gets what it lacks."""
    topic = kafka.new_topic()
    send(kafka, topic, mixed())
    place = tmp_path / "bad"

    def run() -> list[bytes]:
        stream = read(session, kafka, topic, on_bad_record="quarantine", quarantine=place)
        writer = stream.write_stream.trigger(ps.Trigger.available_now()).format("parquet")
        query = finished(
            writer.option("path", tmp_path / "out").option("checkpoint.location", tmp_path / "ckpt")
        )
        assert query.exception() is None
        assert pq.read_table(tmp_path / "out").num_rows == len(GOOD)
        return sorted(row["raw"] for row in pq.read_table(place).to_pylist())

    assert run() == sorted(BAD)
    commit = tmp_path / "ckpt" / "commits"
    for lost in (False, True):
        for file in [*commit.glob("0"), *commit.glob(".0.crc")]:
            file.unlink()
        if lost:
            shutil.rmtree(place)
        assert run() == sorted(BAD)


def test_failing_names_the_place_and_the_reason(session: ps.Session, kafka: Broker) -> None:
    for raw, reason in BAD.items():
        topic = kafka.new_topic()
        send(kafka, topic, [GOOD[0], raw])
        query = (
            read(session, kafka, topic)
            .write_stream.trigger(ps.Trigger.available_now())
            .format("memory")
            .start()
        )
        with pytest.raises(ps.DataError) as caught:
            query.await_termination()
        assert caught.value.code == "DATA_BAD_RECORD"
        assert caught.value.message.startswith(f"a record cannot be read: {reason}")
        assert caught.value.where == f"topic {topic}, partition 0, offset 1"
        assert "quarantine" in (caught.value.hint or "")


@pytest.mark.parametrize("trigger", [ps.Trigger.once(), ps.Trigger.available_now()], ids=str)
def test_a_filter_hides_no_bad_record(
    session: ps.Session, kafka: Broker, tmp_path: Path, trigger: ps.Trigger
) -> None:
    """The condition is one that no bad record passes, and that sources could apply themselves."""
    topic = kafka.new_topic()
    send(kafka, topic, [b'{"id": 1}', b'{"id": "no"}', b'{"id": 2}'])
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id": 1}\n{"id": "no"}\n{"id": 2}\n')
    (tmp_path / "in" / "a.csv").write_text("id\n1\nno\n2\n")
    reader = session.read_stream
    for stream in (
        read(session, kafka, topic, schema="id BIGINT"),
        reader.json(tmp_path / "in", schema="id BIGINT", pathGlobFilter="*.json"),
        reader.csv(tmp_path / "in", schema="id BIGINT", pathGlobFilter="*.csv"),
    ):
        writer = stream.where("id IS NOT NULL AND id > 1").select("id").write_stream.trigger(trigger)
        with pytest.raises(ps.DataError) as caught:
            finished(writer.format("memory"))
        assert caught.value.code == "DATA_BAD_RECORD"


@pytest.mark.parametrize("trigger", [ps.Trigger.once(), ps.Trigger.available_now()], ids=str)
def test_records_of_which_nothing_can_be_read(
    session: ps.Session, tmp_path: Path, trigger: ps.Trigger
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id\n1\nno\n2\n")
    for action, more in (("drop", {}), ("quarantine", {"quarantine": tmp_path / "bad"})):
        stream = session.read_stream.csv(tmp_path / "in", schema="id BIGINT", on_bad_record=action, **more)
        query = finished(stream.write_stream.trigger(trigger).format("memory"))
        assert sorted(row["id"] for row in rows(query)) == [1, 2]
    assert pq.read_table(tmp_path / "bad")["raw"].to_pylist() == [b"no"]


def test_a_query_that_does_not_use_the_values_fails_too(session: ps.Session, kafka: Broker) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [b"{"])
    stream = read(session, kafka, topic).select("_key")
    with pytest.raises(ps.DataError):
        finished(stream.write_stream.trigger(ps.Trigger.once()).format("memory"))


@pytest.mark.smoke
@pytest.mark.parametrize("form", ["json", "csv"])
def test_files(session: ps.Session, tmp_path: Path, form: str) -> None:
    folder = tmp_path / "in"
    for day in (1, 2):
        (folder / f"day={day}").mkdir(parents=True)
    lines = {
        "json": ['{"id": 1, "amount": 1.5}', "", '{"id": "x"}', '{"id": 2, "amount": 0.125}', '{"id": 3'],
        "csv": ["id,amount", "1,1.5", "x,2", "2,0.125", "3"],
    }[form]
    (folder / "day=1" / f"one.{form}").write_text("\n".join(lines))
    (folder / "day=2" / f"two.{form}").write_text(
        lines[0] + "\n" + (lines[1] if form == "csv" else "") + "\n"
    )
    reasons = {
        "json": [
            "amount is 0.125, which is not DECIMAL(8,2)",
            'id is "x", which is not BIGINT',
            "it is not JSON: expecting ',' delimiter at character 9",
        ],
        "csv": [
            "amount is '0.125000000000', which is not DECIMAL(8,2)",
            "id is 'x', which is not BIGINT",
            "it has 1 columns, not 2",
        ],
    }[form]
    schema = "id BIGINT, amount DECIMAL(8,2), day INT"

    def run(trigger: ps.Trigger, **options: Any) -> ps.StreamingQuery:
        stream = getattr(session.read_stream, form)(folder, schema=schema, **options).select("day")
        return finished(stream.write_stream.trigger(trigger).format("memory"))

    for trigger in (ps.Trigger.once(), ps.Trigger.available_now()):
        with pytest.raises(ps.DataError) as caught:
            run(trigger)
        assert caught.value.code == "DATA_BAD_RECORD"
        assert str(caught.value.where).endswith(f"day=1/one.{form}")
        query = run(trigger, on_bad_record="drop")
        assert sorted(row["day"] for row in rows(query)) == [1, 2]
        assert query.last_progress is not None
        assert query.last_progress.dropped_records == 3
        place = tmp_path / f"bad-{trigger}"
        query = run(trigger, on_bad_record="quarantine", quarantine=place)
        kept = pq.read_table(place).to_pylist()
        assert sorted(row["reason"] for row in kept) == reasons
        assert all(row["file"].endswith(f"one.{form}") for row in kept)
        assert query.last_progress is not None
        assert query.last_progress.quarantined_records == 3
        if form == "json":
            assert sorted(row["raw"].decode() for row in kept) == sorted(lines[2:])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on_bad_record": "drp"}, "did you mean 'drop'"),
        ({"on_bad_record": "quarantine"}, "needs a place"),
        ({"quarantine": "bad/"}, 'belongs to on_bad_record="quarantine"'),
        ({"max_record_bytes": 0}, "must be a whole number above 0"),
        ({"on_bad_record": "drop", "mode": "PERMISSIVE"}, "leave one of them out"),
        ({"on_bad_record": "drop", "multiLine": True}, "a record per line"),
    ],
)
def test_mistakes(session: ps.Session, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ps.ConfigError) as caught:
        session.read_stream.json("anywhere", schema="id BIGINT", **options)
    assert words in str(caught.value)


def test_a_table_as_quarantine(session: ps.Session, kafka: Broker, tmp_path: Path) -> None:
    lake = f"lake_{uuid.uuid4().hex[:8]}"
    for key, value in catalogs.conf_of(lake, {"type": "hadoop", "warehouse": str(tmp_path / "lake")}).items():
        session.spark.conf.set(key, value)
    session.spark.sql(f"CREATE NAMESPACE {lake}.db")
    topic = kafka.new_topic()
    send(kafka, topic, mixed())
    stream = read(session, kafka, topic, on_bad_record="quarantine", quarantine=f"{lake}.db.bad")
    finished(
        stream.write_stream.trigger(ps.Trigger.available_now())
        .format("parquet")
        .options(**{"path": tmp_path / "out", "checkpoint.location": tmp_path / "ckpt"})
    )
    assert {bytes(row.raw) for row in session.spark.table(f"{lake}.db.bad").collect()} == BAD.keys()


def test_good_records_must_be_known(session: ps.Session) -> None:
    with pytest.raises(ps.ConfigError) as caught:
        session.read_stream.kafka(topic="orders", bootstrap_servers="none:1", on_bad_record="drop")
    assert "needs to know what a good record is" in str(caught.value)


@pytest.mark.parametrize("source", ["kafka", "files"])
@pytest.mark.parametrize("action", ["fail", "drop"])
def test_a_record_is_parsed_once(
    session: ps.Session, kafka: Broker, tmp_path: Path, action: str, source: str
) -> None:
    """Whatever a query asks of a record, and however it is checked; a filter is not moved in front of the parser to parse again."""
    if source == "kafka":
        topic = kafka.new_topic()
        send(kafka, topic, [b'{"id": 1, "name": "a"}', b'{"id": 2, "name": "b"}'])
        stream = read(session, kafka, topic, on_bad_record=action)
    else:
        (tmp_path / "rows.json").write_text('{"id": 1, "name": "a"}\n{"id": 2, "name": "b"}\n')
        stream = session.read_stream.json(str(tmp_path), schema=SCHEMA, on_bad_record=action)
    asked = stream.where("name <> 'b' AND id > 0").select("id", F.upper("name").alias("name"))
    with asked.write_stream.trigger(ps.Trigger.processing_time(0)).format("memory").start() as query:
        wait_for(lambda: rows(query), "the first rows")
        assert rows(query) == [{"id": 1, "name": "A"}]
        [running] = [each for each in session.spark.streams.active if each.name == query.name]
        plan = running._jsq.explainInternal(False)
    assert plan.count("from_json(") == 1, plan
