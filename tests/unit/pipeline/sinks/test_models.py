"""The sinks of pipelines as models: what users write becomes the sink of the Python API."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from penstock.config import Settings
from penstock.pipeline.node import SinkNode
from penstock.pipeline.nodes import SINK_NODES
from penstock.sinks.base import Guarantee

SETTINGS = Settings(
    home=Path("home"),
    kafka_bootstrap_servers="broker:9092",
    postgres_url="postgresql://ann:secret@db/shop",
    clickhouse_url="http://ann:secret@db:8123/shop",
)
POSTGRES, CLICKHOUSE = {"url": SETTINGS.postgres_url}, {"url": SETTINGS.clickhouse_url}
KAFKA = {"bootstrap_servers": "broker:9092"}


def _node(kind: str, **fields: Any) -> SinkNode:
    model: type[SinkNode] = SINK_NODES.load(kind)
    return model.model_validate({"type": kind, "from": "rows", **fields})


@pytest.mark.parametrize(
    ("kind", "fields", "description", "guarantee", "mode"),
    [
        ("print", {}, "console", Guarantee.NOT_KEPT, "append"),
        ("blackhole", {}, "blackhole", Guarantee.NOT_KEPT, "append"),
        ("memory", {"max_rows": 7}, "memory", Guarantee.NOT_KEPT, "append"),
        (
            "file",
            {"path": "s3://b/x", "format": "csv", "header": False},
            "csv files in s3://b/x",
            Guarantee.EXACTLY_ONCE,
            "append",
        ),
        (
            "webhook",
            {"url": "https://h/x", "headers": {"Authorization": "Bearer secret"}},
            "webhook https://h/x",
            Guarantee.AT_LEAST_ONCE,
            "append",
        ),
        (
            "postgres",
            {**POSTGRES, "schema": "sales", "table": "totals", "primary_key": "id"},
            "postgres table sales.totals in db:5432/shop",
            Guarantee.EXACTLY_ONCE,
            "update",
        ),
        (
            "postgres_aggregate",
            {
                **POSTGRES,
                "schema": "sales",
                "landing_table": "raw.orders",
                "agg_table": "totals",
                "group_by": {"customer": None},
                "aggregate": {"total": {"from": "amount", "fn": "sum"}},
            },
            "postgres tables raw.orders and sales.totals in db:5432/shop",
            Guarantee.EXACTLY_ONCE,
            "update",
        ),
        (
            "kafka",
            {**KAFKA, "topic": "out", "kafka.compression.type": "zstd"},
            "kafka topic out at broker:9092",
            Guarantee.EXACTLY_ONCE,
            "append",
        ),
        (
            "kafka",
            {**KAFKA, "topic": "out", "exactly_once": False},
            "kafka topic out at broker:9092",
            Guarantee.AT_LEAST_ONCE,
            "append",
        ),
        (
            "clickhouse",
            {**CLICKHOUSE, "table": "t", "primary_key": "a, b"},
            "clickhouse table t in db:8123/shop",
            Guarantee.AT_LEAST_ONCE,
            "update",
        ),
        (
            "iceberg",
            {"table": "lake.db.t", "output_mode": "append"},
            "iceberg table lake.db.t",
            Guarantee.EXACTLY_ONCE,
            "append",
        ),
    ],
)
def test_a_node_makes_its_sink(
    kind: str, fields: dict[str, Any], description: str, guarantee: Guarantee, mode: str
) -> None:
    node = _node(kind, **fields)
    sink = node.sink(SETTINGS)
    assert sink.describe() == description
    assert sink.guarantee == guarantee
    assert node.mode == mode
    assert "secret" not in repr(node)


def test_a_schema_does_not_change_a_name_that_has_one() -> None:
    node = _node("postgres", **POSTGRES, schema="sales", table="other.totals")
    assert "other.totals" in node.sink(SETTINGS).describe()


@pytest.mark.parametrize("kind", SINK_NODES.builtin)
def test_every_field_describes_itself(kind: str) -> None:
    schema = SINK_NODES.load(kind).model_json_schema()
    assert [name for name, field in schema["properties"].items() if not field.get("description")] == []
    assert {"type", "from", "primary_key", "telemetry"} <= schema["properties"].keys()


@pytest.mark.parametrize("kind", SINK_NODES.builtin)
def test_unknown_fields_are_refused(kind: str) -> None:
    with pytest.raises(ValidationError) as caught:
        _node(kind, colour="red")
    assert ("colour",) in {error["loc"] for error in caught.value.errors()}


def test_models_import_nothing_that_is_slow() -> None:
    modules = [path.partition(":")[0] for path in SINK_NODES.builtin.values()]
    code = (
        f"import sys, {', '.join(modules)}; print([m for m in ('pyspark', 'pyarrow', 'numpy', 'psycopg', 'confluent_kafka') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
