"""The models of sources in pipelines: what users write, what is refused, and the options of the source that is made."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from penstock.config import Settings
from penstock.errors import ConfigError
from penstock.pipeline.columns import ddl_of
from penstock.pipeline.sources.clickhouse import ClickHouseNode
from penstock.pipeline.sources.file import FileNode
from penstock.pipeline.sources.hybrid import HybridNode
from penstock.pipeline.sources.iceberg import IcebergNode
from penstock.pipeline.sources.kafka import KafkaNode
from penstock.pipeline.sources.rate import RateNode
from penstock.sources.clickhouse.source import ClickHouseSource
from penstock.sources.csv import CsvSource
from penstock.sources.file import AvroSource, ParquetSource
from penstock.sources.json import JsonSource
from penstock.sources.kafka import KafkaSource

SETTINGS = Settings(
    home=Path("home"), kafka_bootstrap_servers="host:9092", clickhouse_url="http://me:hush@db/shop"
)


def file(**fields: Any) -> FileNode:
    return FileNode.model_validate({"type": "file", **fields})


def kafka(**fields: Any) -> KafkaNode:
    return KafkaNode.model_validate(
        {"type": "kafka", "topic": "t", "bootstrap_servers": "host:9092", **fields}
    )


@pytest.mark.parametrize("model", [FileNode, KafkaNode, RateNode, IcebergNode, ClickHouseNode, HybridNode])
def test_every_field_describes_itself(model: Any) -> None:
    properties = model.model_json_schema()["properties"]
    assert [name for name, field in properties.items() if not field.get("description")] == []


def test_models_load_nothing_slow() -> None:
    code = (
        "import sys; from penstock.pipeline.sources.kafka import KafkaNode; from penstock.pipeline.sources.file import FileNode;"
        "KafkaNode(type='kafka', topic='t', bootstrap_servers='h:1', schema={'id': 'int64', 'price': 'decimal(10,2)'});"
        "FileNode(type='file', path='a.csv');"
        "assert not {'pyarrow', 'pyspark'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("columns", "ddl"),
    [
        ({"id": "int64", "Amount": "decimal(10, 2)"}, "`id` int64, `Amount` decimal(10, 2)"),
        ({"a`b": "list<utf8>"}, "`a``b` list<utf8>"),
        ({"who": {"name": "string", "born": "date"}}, "`who` struct<`name`: string, `born`: date>"),
    ],
)
def test_columns(columns: dict[str, Any], ddl: str) -> None:
    assert ddl_of(columns) == ddl


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"id": "int46"}, "unknown type 'int46'"),
        ({"id": 5}, "must be a name"),
        ({"id": "decimal(50,2)"}, "out of range"),
        ({"id": "list<int46>"}, "unknown type 'int46'"),
    ],
)
def test_columns_that_there_are_not(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        ddl_of(columns)
    with pytest.raises(ValidationError, match="is wrong"):
        kafka(schema=columns)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("data/*.csv", CsvSource),
        ("data/x.tsv.gz", CsvSource),
        ("s3://bucket/day.ndjson", JsonSource),
        ("x.parquet", ParquetSource),
        ("x.avro", AvroSource),
    ],
)
def test_the_format_is_known_by_the_name(path: str, kind: type) -> None:
    node = file(path=path)
    assert isinstance(node.source(SETTINGS), kind)
    assert node.is_bounded
    assert node.poll_interval_ms is None


def test_files_and_what_they_are_read_with() -> None:
    node = file(
        path="data/",
        format="CSV",
        schema={"id": "int64"},
        header=False,
        max_files=3,
        recursive=True,
        on_bad_record="drop",
        options={"sep": ";"},
        mode={"type": "continuous", "poll_interval": "2s"},
    )
    assert not node.is_bounded
    assert node.poll_interval_ms == 2_000
    source = node.source(SETTINGS)
    assert isinstance(source, CsvSource)
    assert source.options.columns == "`id` int64"
    assert not source.options.header
    assert source.options.rule.action == "drop"
    assert source.options.spark == {"sep": ";", "maxFilesPerTrigger": "3", "recursiveFileLookup": "true"}
    assert file(path="x.csv", mode="continuous").poll_interval_ms == 5_000


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"path": "data/"}, "is not clear from its name"),
        ({"path": "x.orc"}, "is not clear"),
        ({"path": "x.json", "header": True}, "header is for CSV"),
        ({"path": "x.parquet", "on_bad_record": "drop"}, "are for CSV and JSON"),
        ({"path": "x.csv", "max_record_bytes": 5}, "is for JSON"),
        ({"path": "x.csv", "quarantine": "bad/"}, "belong together"),
        ({"path": "x.csv", "mode": {"type": "bounded", "poll_interval": 5}}, "for continuous sources"),
        ({"path": "x.csv", "mode": "later"}, "bounded"),
        ({"path": "x.csv", "columns": {}}, "Extra inputs"),
    ],
)
def test_files_that_cannot_be_read(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        file(**fields)


def test_a_topic_and_what_it_is_read_with() -> None:
    node = kafka(
        schema={"id": "int64"},
        primary_key="id",
        starting_offsets={"t": {0: 5}},
        batch_size=1_000,
        batch_flush_interval="2s",
        parallelism=4,
        filter="id > 5",
        **{"kafka.security.protocol": "SSL", "kafka.sasl.password": "hush"},
    )
    assert not node.is_bounded
    assert "hush" not in repr(node)
    source = node.source(SETTINGS)
    assert isinstance(source, KafkaSource)
    options = source.options
    assert options.bootstrap_servers == "host:9092"
    assert options.format == "json"
    assert options.starting_offsets == '{"t": {"0": 5}}'
    assert (options.operations, options.primary_key, options.metadata) == ("header", ("id",), False)
    assert options.spark == {
        "kafka.security.protocol": "SSL",
        "kafka.sasl.password": "hush",
        "minPartitions": "4",
        "maxOffsetsPerTrigger": "1000",
        "minOffsetsPerTrigger": "1000",
        "maxTriggerDelay": "2000ms",
    }


def test_formats_of_a_topic() -> None:
    assert kafka().format == "avro"
    assert kafka(schema={"id": "int64"}).format == "json"
    assert kafka(data_format="binary").format == "binary"
    avro = kafka(avro_schema="orders.avsc", schema_registry=False).source(SETTINGS)
    assert isinstance(avro, KafkaSource)
    assert (avro.options.columns, avro.options.schema_registry) == ("orders.avsc", False)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"data_format": "json"}, "needs a schema"),
        ({"data_format": "avro", "schema": {"id": "int64"}}, "schema is for JSON"),
        ({"schema": {"id": "int64"}, "subject": "s"}, "subject is for data_format avro"),
        ({"data_format": "binary", "operations": "debezium"}, "json or avro"),
        ({"quarantine": "bad/"}, "belong together"),
        ({"topics": "t"}, "pattern"),
        ({"batch_size": 0}, "above 0"),
    ],
)
def test_topics_that_cannot_be_read(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        kafka(**fields)


def test_upserts_have_a_key() -> None:
    fields = {"schema": {"id": "int64"}, "operations": "upsert"}
    source = kafka(**fields, primary_key="id").source(SETTINGS)
    assert isinstance(source, KafkaSource)
    assert source.options.primary_key == ("id",)
    with pytest.raises(ConfigError, match="needs the key of the rows"):
        kafka(**fields).source(SETTINGS)


@pytest.mark.parametrize(
    ("fields", "leaves_out"),
    [({}, True), ({"primary_key": "id"}, False), ({"operations": "none"}, False)],
)
def test_records_without_a_value_need_a_key(fields: dict[str, Any], leaves_out: bool) -> None:
    assert kafka(schema={"id": "int64"}, **fields).leaves_out_deletes is leaves_out


def test_rows_that_are_made_up() -> None:
    source = RateNode.model_validate({"type": "rate", "rows_per_second": 7}).source(SETTINGS)
    assert source.options.model_dump()["rows_per_second"] == 7


def test_a_table_of_clickhouse() -> None:
    node = ClickHouseNode.model_validate(
        {
            "type": "clickhouse",
            "table_name": "db.t",
            "url": "http://me:hush@db/shop",
            "start_at": date(2020, 1, 2),
        }
    )
    assert node.is_bounded
    assert "hush" not in repr(node)
    source = node.source(SETTINGS)
    assert isinstance(source, ClickHouseSource)
    assert (source.options.table, source.options.start_at) == ("db.t", "2020-01-02")
    assert source.options.address().location == "db:8123/shop"
    with pytest.raises(ValidationError, match="until needs cursor"):
        ClickHouseNode.model_validate({"table": "t", "url": "http://db", "until": 5})


HISTORY = {"type": "clickhouse", "table": "t"}
LIVE = {"type": "kafka", "topic": "t", "schema": {"id": "int64"}}


def test_a_history_and_then_what_is_live() -> None:
    node = HybridNode.model_validate({"type": "hybrid", "history": HISTORY, "live": LIVE, "cursor": "id"})
    assert not node.is_bounded
    assert node.source(SETTINGS).external_resource is None
    secret = {**HISTORY, "url": "http://me:hush@db/shop"}
    keyed = HybridNode.model_validate({"history": secret, "live": LIVE, "primary_key": "id"})
    assert "hush" not in repr(keyed)
    without = HybridNode.model_validate({"history": HISTORY, "live": LIVE, "primary_key": "id"})
    with pytest.raises(ConfigError) as caught:
        without.history_source(Settings(home=Path("home")), {"cursor": None, "offsets": "{}"})
    assert "PENSTOCK_" in str(caught.value.hint)


def test_what_a_live_table_leaves_behind_has_the_names_of_pipeline_and_node() -> None:
    live = {"type": "postgres_cdc", "table": "t", "url": "postgresql://db/shop"}
    node = HybridNode.model_validate({"history": HISTORY, "live": live, "cursor": "id"})
    boundary = {"cursor": "5", "offsets": None}
    for source in (
        node.source(SETTINGS),
        node.history_source(SETTINGS, boundary),
        node.live_source(SETTINGS, boundary),
    ):
        made = source.named("shop", "orders").external_resource
        assert made is not None
        assert str(made) == "replication slot penstock_shop_orders at db:5432/shop"
        assert made.names == {"slot": "penstock_shop_orders", "publication": "penstock_shop_orders"}


@pytest.mark.parametrize(
    ("fields", "place", "words"),
    [
        ({}, (), "needs a cursor or a primary_key"),
        ({"cursor": "id", "history": LIVE}, (), "history is a kafka source that does not end"),
        ({"cursor": "id", "live": HISTORY}, (), "live is a clickhouse source that ends"),
        ({"primary_key": "id", "live": {"type": "rate"}}, (), "must be kafka"),
        ({"cursor": "id", "live": {"topic": "t"}}, ("live",), "has no type"),
        ({"cursor": "id", "live": {"type": "kafak"}}, ("live",), "unknown source 'kafak'"),
        ({"cursor": "id", "live": {"type": "hybrid"}}, ("live",), "is a hybrid source itself"),
        (
            {"cursor": "id", "history": {"type": "clickhouse", "tabel": "t"}},
            ("history", "tabel"),
            "Extra inputs",
        ),
        (
            {"cursor": "id", "live": {"type": "kafka", "topic": "t", "schema": {"id": "int46"}}},
            ("live", "schema"),
            "int46",
        ),
    ],
)
def test_what_is_no_history_or_not_live(fields: dict[str, Any], place: tuple[str, ...], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        HybridNode.model_validate({"type": "hybrid", "history": HISTORY, "live": LIVE, **fields})
    found = {error["loc"]: error["msg"] for error in caught.value.errors()}
    assert words in found[place]
