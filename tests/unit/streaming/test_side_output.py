"""Side outputs: what their sinks get from the query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import config
from penstock.errors import ConfigError
from penstock.sinks.base import Target
from penstock.streaming.side_output import SideCounts, TapOutput

NOTHING: Any = None


class NoCatalogs:
    """A session without catalogs, as far as a side output asks it."""

    class conf:  # noqa: N801  # Spark's name
        @staticmethod
        def get(key: str, default: str | None) -> str | None:
            return default


def _output(destination: str, **kafka: str) -> TapOutput:
    spark: Any = NoCatalogs()
    return TapOutput(destination, number=1, spark=spark, kafka=kafka)


def test_a_side_output_waits_with_the_status_and_settings_of_its_query(tmp_path: Path) -> None:
    target = Target(
        NOTHING,
        "0a1b2c3d-0000-0000-0000-000000000000",
        "orders",
        "update",
        NOTHING,
        ("id",),
        settings=config.Settings(home=tmp_path),
    )
    own = _output(str(tmp_path / "bad"))._target(target, NOTHING)
    assert own.status is target.status
    assert own.settings is target.settings
    assert (own.name, own.mode, own.keys) == ("orders side output 1", "append", ())
    # What is written has this id: another one would write the epochs that are there a second time.
    assert own.query == "82a32b36-dd81-5b88-8572-cdf42484efe6"


def test_a_topic_that_the_query_reads_is_no_destination() -> None:
    with pytest.raises(ConfigError, match="reads the topic 'orders'") as caught:
        _output("topic:orders", subscribe="orders,returns")
    assert caught.value.code == "STREAM_ASIDE_PLACE"


def test_the_settings_name_the_servers_of_a_topic_when_the_query_reads_none(tmp_path: Path) -> None:
    settings = config.Settings(home=tmp_path, kafka_bootstrap_servers="setting:9092")
    output = TapOutput("topic:late", number=0, spark=NOTHING, kafka={}, settings=settings)
    assert output._sink.describe() == "kafka topic late at setting:9092"
    own = TapOutput(
        "topic:late",
        number=0,
        spark=NOTHING,
        kafka={
            "kafka.bootstrap.servers": "own:9092",
            "kafka.security.protocol": "SSL",
            "subscribe": "orders",
        },
        settings=settings,
    )
    assert own._sink.describe() == "kafka topic late at own:9092"


def test_counts_add_up() -> None:
    assert SideCounts(1, 2, 3) + SideCounts(10, 20, 30) == SideCounts(11, 22, 33)
