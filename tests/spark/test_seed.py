"""The pipelines of the talk about Streamling run as they are written, with records in Avro whose schema is in a registry."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import Producer

import penstock as ps
from penstock.pipeline.load import load
from penstock.pipeline.run import PipelineRun, plan_pipeline
from servers.kafka import Broker
from servers.postgres import Postgres
from servers.schema_registry import Registry
from waiting import wait_for

SEED = Path(__file__).parents[1] / "unit" / "pipeline" / "seed"


@dataclass(frozen=True)
class Topic:
    """A topic of a test's own, whose records are in Avro."""

    name: str
    producer: Producer
    registry: Registry

    def send(self, types: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> None:
        """Send rows with a schema of these types."""
        fields = [{"name": name, "type": type_} for name, type_ in types.items()]
        schema = {"type": "record", "name": "Record", "fields": fields}
        number = self.registry.register(f"{self.name}-value", schema)
        for row in rows:
            value = io.BytesIO(b"\0" + number.to_bytes(4, "big"))
            value.seek(0, io.SEEK_END)
            fastavro.schemaless_writer(value, fastavro.parse_schema({**schema}), row)
            self.producer.produce(self.name, value.getvalue())
        assert self.producer.flush(30) == 0


@pytest.fixture
def topic(session: ps.Session, kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Topic]:
    name = f"raw.event.{uuid.uuid4().hex[:12]}"
    kafka.create_topic(name)
    with Registry() as registry:
        monkeypatch.setenv("PENSTOCK_KAFKA_BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
        # A session reads it when it starts, and this one is that of all tests.
        monkeypatch.setattr(session, "settings", replace(session.settings, schema_registry_url=registry.url))
        yield Topic(name, Producer({"bootstrap.servers": kafka.bootstrap_servers}), registry)


@contextmanager
def running(session: ps.Session, folder: Path, name: str, *changes: tuple[str, str]) -> Iterator[PipelineRun]:
    """A pipeline of the talk, with the topic of the test, and its checkpoint in a folder."""
    text = (SEED / f"{name}.yaml").read_text(encoding="utf-8")
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    file = folder / f"{name}-{uuid.uuid4().hex[:8]}.yaml"
    file.write_text(f"checkpoint: {folder / 'checkpoint'}\n{text}", encoding="utf-8")
    run = PipelineRun(session, plan_pipeline(session, load(file), runs=True))
    run.start()
    try:
        yield run
    finally:
        run.stop()
    assert run.wait() is None


def taken(run: PipelineRun) -> list[dict[str, Any]]:
    """The rows that the one sink has, which is in memory; all of them are inserts."""
    [group] = run.groups.values()
    [plan] = group.sinks
    batches = plan.sink.batches()
    rows = pa.Table.from_batches(batches).to_pylist() if batches else []
    assert {row.pop("_op") for row in rows} <= {"i"}
    return rows


@pytest.mark.parametrize("name", ["dots", "underscores"])
def test_a_pipeline_with_the_names_of_streamling(
    name: str,
    session: ps.Session,
    topic: Topic,
    postgres: Postgres,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = postgres.new_database()
    monkeypatch.setenv("PENSTOCK_POSTGRES_URL", url)
    sent: list[dict[str, Any]] = [{"id": f"t{number}", "amount": number * 100.0} for number in range(30)]
    topic.send({"id": "string", "amount": "double"}, sent)

    def stored() -> list[tuple[Any, ...]]:
        there = postgres.execute("SELECT to_regclass('public.large_transactions') IS NOT NULL", url)
        if there != [(True,)]:
            return []
        return postgres.execute("SELECT id, amount FROM public.large_transactions ORDER BY amount", url)

    large = [(row["id"], row["amount"]) for row in sent if row["amount"] > 1000]
    with running(session, tmp_path, name, ("topic: raw.event.transaction\n", f"topic: {topic.name}\n")):
        wait_for(lambda: stored() == large, "the large transactions")


def test_the_script(session: ps.Session, topic: Topic, tmp_path: Path) -> None:
    types = dict.fromkeys(("id", "from_address", "to_address", "value"), "string")
    seconds = 1_767_261_600
    sent = [
        {
            "id": f"0x{number:x}",
            "from_address": f"a{number}",
            "to_address": f"b{number % 7}",
            # In wei: more than a number of JavaScript has exactly.
            "value": str(number * 10**18 + 10**17),
            "block_timestamp": seconds + number,
        }
        for number in range(500)
    ]
    topic.send({**types, "block_timestamp": "long"}, sent)
    expected = [
        {
            "transfer_id": f"0x{number:x}",
            "sender": f"a{number}",
            "receiver": f"b{number % 7}",
            "value_eth": pytest.approx(number + 0.1),
            "timestamp": f"{datetime.fromtimestamp(seconds + number, UTC):%Y-%m-%dT%H:%M:%S}.000Z",
        }
        for number in range(500)
    ]
    changes = ("topic: transfers\n", f"topic: {topic.name}\n"), ("type: blackhole", "type: memory")
    with running(session, tmp_path, "script", *changes) as run:
        wait_for(lambda: len(taken(run)) >= 500, "the transfers", seconds=120)
        rows = sorted(taken(run), key=lambda row: int(row["transfer_id"], 16))
    assert rows == expected


def test_the_time_of_processing(session: ps.Session, topic: Topic, tmp_path: Path) -> None:
    types = {"id": "long", "value": "double"}
    changes = ("topic: events\n", f"topic: {topic.name}\n"), ("type: print", "type: memory")
    topic.send(types, [{"id": number, "value": number * 100.0} for number in (1, 2, 3)])
    with running(session, tmp_path, "processing-time", *changes) as run:
        wait_for(lambda: len(taken(run)) == 3, "the first rows", seconds=120)
        between = datetime.now(UTC)
        topic.send(types, [{"id": 4, "value": 400.0}])
        wait_for(lambda: len(taken(run)) == 4, "the row that came later")
        after = datetime.now(UTC)
        rows = sorted(taken(run), key=lambda row: row["id"])
    assert [(row["id"], row["value"]) for row in rows] == [(1, 100.0), (2, 200.0), (3, 300.0), (4, 400.0)]
    times = [row["ingested_at"] for row in rows]
    # The epoch's own time, and not that at which the pipeline was planned.
    assert all(time < between for time in times[:3])
    assert between < times[3] < after
