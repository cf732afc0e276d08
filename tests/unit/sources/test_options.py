"""Options of sources: what users write, what is refused, and that all mistakes are in one error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contract.options import refusal
from penstock.config import Settings
from penstock.errors import ConfigError
from penstock.sources import SOURCES, source_of
from penstock.sources.bad_record import BadRecords
from penstock.sources.base import Source
from penstock.sources.csv import CsvSource
from penstock.sources.file import ParquetSource
from penstock.sources.json import JsonSource
from penstock.sources.kafka import KafkaSource
from penstock.sources.rate import RateSource

SERVERS = {"bootstrap_servers": "host:9092"}


@pytest.mark.parametrize("name", SOURCES.builtin)
def test_every_source_has_options_that_describe_themselves(name: str) -> None:
    kind = SOURCES.load(name)
    assert issubclass(kind, Source)
    schema = kind.Options.model_json_schema()
    assert all(option.get("description") for option in schema["properties"].values())
    assert kind.location is None or kind.location in schema["properties"]


def test_only_spark_has_it() -> None:
    assert source_of("socket") is None
    assert source_of("kafka") is KafkaSource


@pytest.mark.parametrize(
    ("kind", "options", "code", "words"),
    [
        (ParquetSource, {}, "SOURCE_OPTION_MISSING", "the parquet source needs the option 'path'"),
        (ParquetSource, {"path": "x", "on_bad_record": "drop"}, "SOURCE_OPTION_VALUE", "is for Kafka and"),
        (CsvSource, {"path": "x", "max_record_bytes": 1}, "SOURCE_OPTION_VALUE", "maxCharsPerColumn"),
        (CsvSource, {"path": "x", "header": "perhaps"}, "SOURCE_OPTION_VALUE", "header must be true or"),
        (JsonSource, {"path": "x", "on_bad_record": "drp"}, "SOURCE_OPTION_VALUE", "unknown on_bad_record"),
        (JsonSource, {"path": "x", "quarantine": "bad/"}, "SOURCE_OPTION_VALUE", "belongs to on_bad_record"),
        (
            JsonSource,
            {"path": "x", "on_bad_record": "fail", "MODE": "FAILFAST"},
            "SOURCE_OPTION_VALUE",
            "mode",
        ),
        (
            JsonSource,
            {"path": "x", "max_record_bytes": 9, "encoding": "UTF-16"},
            "SOURCE_OPTION_VALUE",
            "line",
        ),
        (RateSource, {"rows_per_second": 0}, "SOURCE_OPTION_VALUE", "rows_per_second must be a whole number"),
        (KafkaSource, {"topic": "t"}, "KAFKA_SERVERS", "needs the option 'bootstrap_servers'"),
        (KafkaSource, SERVERS, "SOURCE_OPTION_MISSING", "needs the option 'topic'"),
        (KafkaSource, {**SERVERS, "topic": "t", "format": "arvo"}, "SOURCE_OPTION_VALUE", "unknown format"),
        (KafkaSource, {**SERVERS, "topic": "t", "subject": "s"}, "SOURCE_OPTION_VALUE", "schema registries"),
        (
            KafkaSource,
            {**SERVERS, "topic": "t", "format": "json"},
            "SOURCE_OPTION_VALUE",
            "needs the columns",
        ),
        (KafkaSource, {"on_bad_record": "quarantine"}, "STREAM_OPTIONS", "needs a place"),
    ],
)
def test_what_cannot_work_is_refused(
    kind: type[Source], options: dict[str, Any], code: str, words: str
) -> None:
    error = refusal(kind, options)
    assert error.code == code
    assert words in error.message


def test_all_mistakes_are_in_one_error() -> None:
    options = {"format": "arvo", "max_record_bytes": 0, "on_bad_record": "drop", "quarantine": "bad/"}
    error = refusal(KafkaSource, options)
    assert error.message == (
        "the kafka source: the option 'topic' is missing; the option 'bootstrap_servers' is missing; "
        "quarantine belongs to on_bad_record=\"quarantine\", and it is 'drop'; unknown format 'arvo'; "
        "max_record_bytes must be a whole number above 0, got 0"
    )
    assert "add topic=..., or" not in str(error.hint)
    assert "add topic=...; " in str(error.hint)
    assert "did you mean 'avro'?" in str(error.hint)


@pytest.mark.parametrize(
    ("options", "spark"),
    [
        ({"topic": "a,b"}, {"subscribe": "a,b"}),
        ({"topic": "/orders-.*/"}, {"subscribePattern": "orders-.*"}),
        ({"subscribe": "a"}, {"subscribe": "a"}),
        ({"subscribePattern": "o.*"}, {"subscribePattern": "o.*"}),
        ({"assign": '{"a":[0]}'}, {}),
    ],
)
def test_topics_in_penstocks_and_in_sparks_words(options: dict[str, Any], spark: dict[str, str]) -> None:
    assert KafkaSource({**SERVERS, **options}).options.topics == spark


def test_servers_in_penstocks_and_in_sparks_words_or_from_the_settings(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, kafka_bootstrap_servers="setting:9092")
    assert KafkaSource({"topic": "t"}, settings).options.bootstrap_servers == "setting:9092"
    own = KafkaSource({"topic": "t", "kafka.bootstrap.servers": "own:9092"}, settings)
    assert own.options.bootstrap_servers == "own:9092"
    assert own.options.spark == {}


def test_bad_records_as_one_value() -> None:
    options = {"path": "x", "on_bad_record": "QUARANTINE", "quarantine": Path("bad"), "max_record_bytes": "9"}
    assert JsonSource(options).options.rule == BadRecords("quarantine", "bad", 9)


PLUGIN = """
from penstock.sources.base import Source, SourceFrame

class NumbersSource(Source):
    location = None

    def read(self, context):
        return SourceFrame(context.spark.readStream.format("rate").options(**self.options.spark).load())
"""


def test_another_package_brings_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_source.py").write_text(PLUGIN)
    info = tmp_path / "my_source-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-source\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[penstock.sources]\nnumbers = my_source:NumbersSource\nodd = json:loads\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    kind = source_of("numbers")
    assert kind is not None
    assert kind({"rowsPerSecond": 5}).kind == "numbers"
    with pytest.raises(ConfigError, match="'odd' is no source") as caught:
        source_of("odd")
    assert caught.value.code == "PLUGIN_KIND"
