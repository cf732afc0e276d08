"""Options of sinks: what users and YAML write, what is refused, and that all mistakes are in one error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contract.options import refusal
from penstock.config import Settings
from penstock.errors import ConfigError
from penstock.sinks import SINKS
from penstock.sinks.base import Sink
from penstock.sinks.clickhouse import client as clickhouse_client
from penstock.sinks.clickhouse import column as clickhouse_column
from penstock.sinks.clickhouse import table as clickhouse_table
from penstock.sinks.clickhouse.sink import ClickHouseSink
from penstock.sinks.console import ConsoleSink
from penstock.sinks.file import CsvSink, ParquetSink
from penstock.sinks.iceberg import IcebergSink
from penstock.sinks.kafka.sink import KafkaSink
from penstock.sinks.memory import MemorySink
from penstock.sinks.plugin import sink_of
from penstock.sinks.postgres import client as postgres_client
from penstock.sinks.postgres import column as postgres_column
from penstock.sinks.postgres import table as postgres_table
from penstock.sinks.postgres.sink import PostgresSink
from penstock.sinks.webhook import WebhookSink

POSTGRES = "postgresql://ann:secret@db:5433/shop"


@pytest.mark.parametrize("name", SINKS.builtin)
def test_every_sink_has_options_that_describe_themselves(name: str) -> None:
    schema = SINKS.load(name).Options.model_json_schema()
    assert all(option.get("description") for option in schema["properties"].values())


@pytest.mark.parametrize(
    ("kind", "options", "code", "words"),
    [
        (
            MemorySink,
            {"max_rows": 0},
            "STREAM_OPTION_VALUE",
            "max_rows must be a whole number above 0, got 0",
        ),
        (MemorySink, {"max_row": 1}, "STREAM_OPTION_UNKNOWN", "the memory sink has no option 'max_row'"),
        (ConsoleSink, {"truncate": "perhaps"}, "STREAM_OPTION_VALUE", "truncate must be true or false"),
        (ParquetSink, {}, "STREAM_OPTION_MISSING", "the parquet sink needs the option 'path'"),
        (CsvSink, {"path": "x", "header": 7}, "STREAM_OPTION_VALUE", "header must be true or false, got 7"),
        (IcebergSink, {}, "STREAM_OPTION_MISSING", "the iceberg sink needs the option 'table'"),
        (
            IcebergSink,
            {"table": "t", "retry_for": "soon"},
            "STREAM_OPTION_VALUE",
            "retry_for is not a duration",
        ),
        (PostgresSink, {"table": "t"}, "STREAM_OPTION_MISSING", "the postgres sink needs the option 'url'"),
        (
            PostgresSink,
            {"table": "t", "url": "http://x"},
            "STREAM_OPTION_VALUE",
            "not an address of PostgreSQL",
        ),
        (ClickHouseSink, {"table": "t", "url": "tcp://x"}, "STREAM_OPTION_VALUE", "starts with http"),
        (KafkaSink, {"topic": "t"}, "KAFKA_SERVERS", "the kafka sink needs the option 'bootstrap_servers'"),
        (
            WebhookSink,
            {"url": "ftp://x"},
            "STREAM_OPTION_VALUE",
            "url of a webhook starts with http:// or https://",
        ),
        (
            WebhookSink,
            {"url": "http://x", "headers": "a"},
            "STREAM_OPTION_VALUE",
            "headers must be a dictionary",
        ),
    ],
)
def test_what_cannot_work_is_refused(
    kind: type[Sink], options: dict[str, Any], code: str, words: str
) -> None:
    error = refusal(kind, options)
    assert error.code == code
    assert words in error.message


def test_all_mistakes_are_in_one_error() -> None:
    error = refusal(KafkaSink, {"topik": "t", "value_format": "jsn", "retry_for": -5, "headers": []})
    assert error.code == "STREAM_OPTIONS"
    assert error.message == (
        "the kafka sink: no option 'topik'; the option 'topic' is missing; the option 'bootstrap_servers' is missing; "
        "retry_for cannot be negative, got -5; headers must be a dictionary, got list; unknown value_format 'jsn'"
    )
    assert "did you mean 'topic'?" in str(error.hint)
    assert "others begin with 'kafka.'" in str(error.hint)


def test_no_error_shows_a_password() -> None:
    for kind, options in (
        (PostgresSink, {"table": "t", "url": "postgresql://ann:secret@db/x?nothing=1"}),
        (ClickHouseSink, {"table": "t", "url": "tcp://ann:secret@db"}),
        (ClickHouseSink, {"table": "t", "url": "http://db", "password": {"a": "secret"}}),
        (WebhookSink, {"url": "ftp://ann:secret@x", "headers": "secret"}),
    ):
        assert "secret" not in str(refusal(kind, options))


def test_settings_complete_the_options_and_no_environment_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_POSTGRES_URL", POSTGRES)
    with pytest.raises(ConfigError, match="needs the option 'url'"):
        PostgresSink({"table": "t"}, Settings(home=tmp_path))
    here = Settings(
        home=tmp_path, postgres_url=POSTGRES, kafka_bootstrap_servers="a:1", clickhouse_url="http://c"
    )
    there = Settings(home=tmp_path, postgres_url="postgresql://other/x")
    assert PostgresSink({"table": "t"}, here).describe() == "postgres table t in db:5433/shop"
    assert PostgresSink({"table": "t"}, there).describe() == "postgres table t in other:5432/x"
    assert KafkaSink({"topic": "t"}, here).describe() == "kafka topic t at a:1"
    assert sink_of(ClickHouseSink, {"table": "t"}, name="clickhouse", settings=here).describe() == (
        "clickhouse table t in c:8123/default"
    )


def test_what_goes_to_spark_and_to_the_producer() -> None:
    csv = CsvSink({"path": "out", "partition_by": "day, hour", "compression": "gzip", "header": "false"})
    assert csv.partition_by == ("day", "hour")
    assert csv._writer_options() == {"header": False, "compression": "gzip"}
    kafka = KafkaSink({"topic": "t", "kafka.bootstrap.servers": "a:1", "kafka.linger.ms": 5})
    assert kafka._client == {"bootstrap.servers": "a:1", "linger.ms": 5}


@pytest.mark.parametrize(
    ("ours", "theirs", "functions"),
    [
        (postgres_client, clickhouse_client, {"transient", "translate"}),
        (postgres_column, clickhouse_column, {"check_columns", "column_type", "encode"}),
        (postgres_table, clickhouse_table, {"add_columns", "check_upsert", "create_table", "find_table"}),
    ],
)
def test_the_sinks_of_databases_have_the_same_functions(ours: Any, theirs: Any, functions: set[str]) -> None:
    for module in (ours, theirs):
        assert functions <= {
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", "") == module.__name__
        }
