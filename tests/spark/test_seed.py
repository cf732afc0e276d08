"""A pipeline of Streamling runs as it is written, with records in Avro whose schema is in a registry."""

from __future__ import annotations

import io
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer

import penstock as ps
from penstock.pipeline.run import PipelineRun, plan_pipeline
from pipeline_text import load
from servers.kafka import Broker
from servers.postgres import Postgres
from servers.schema_registry import Registry
from waiting import wait_for

SEED = Path(__file__).parents[1] / "unit" / "pipeline" / "seed"
SCHEMA = {
    "type": "record",
    "name": "Transaction",
    "fields": [{"name": "id", "type": "string"}, {"name": "amount", "type": "double"}],
}


@pytest.mark.parametrize("name", ["dots", "underscores"])
def test_a_pipeline_with_the_names_of_streamling(
    name: str,
    session: ps.Session,
    kafka: Broker,
    postgres: Postgres,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, url = f"raw.event.{uuid.uuid4().hex[:12]}", postgres.new_database()
    text = (SEED / f"{name}.yaml").read_text(encoding="utf-8")
    assert "topic: raw.event.transaction\n" in text
    file = tmp_path / f"{name}-{uuid.uuid4().hex[:8]}.yaml"
    own = text.replace("raw.event.transaction", topic)
    file.write_text(f"checkpoint: {tmp_path / 'checkpoint'}\n{own}", encoding="utf-8")
    sent: list[dict[str, Any]] = [{"id": f"t{number}", "amount": number * 100.0} for number in range(30)]

    kafka.create_topic(topic)
    with Registry() as registry:
        monkeypatch.setenv("PENSTOCK_KAFKA_BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
        # A session reads it when it starts, and this one is that of all tests.
        monkeypatch.setattr(session, "settings", replace(session.settings, schema_registry_url=registry.url))
        monkeypatch.setenv("PENSTOCK_POSTGRES_URL", url)
        number = registry.register(f"{topic}-value", SCHEMA)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for row in sent:
            value = io.BytesIO(b"\0" + number.to_bytes(4, "big"))
            value.seek(0, io.SEEK_END)
            fastavro.schemaless_writer(value, fastavro.parse_schema({**SCHEMA}), row)
            producer.produce(topic, value.getvalue())
        assert producer.flush(30) == 0

        def stored() -> list[tuple[Any, ...]]:
            there = postgres.execute("SELECT to_regclass('public.large_transactions') IS NOT NULL", url)
            if there != [(True,)]:
                return []
            return postgres.execute("SELECT id, amount FROM public.large_transactions ORDER BY amount", url)

        large = [(row["id"], row["amount"]) for row in sent if row["amount"] > 1000]
        run = PipelineRun(session, plan_pipeline(session, load(file), runs=True))
        run.start()
        try:
            wait_for(lambda: stored() == large, "the large transactions")
        finally:
            run.stop()
        assert run.wait() is None
