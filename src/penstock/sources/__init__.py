"""Where rows come from: one connector per file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import ConfigError
from penstock.registry import Registry

if TYPE_CHECKING:
    from penstock.sources.base import Source

SOURCES = Registry(
    "source",
    {
        "parquet": "penstock.sources.file:ParquetSource",
        "csv": "penstock.sources.csv:CsvSource",
        "json": "penstock.sources.json:JsonSource",
        "orc": "penstock.sources.file:OrcSource",
        "avro": "penstock.sources.file:AvroSource",
        "text": "penstock.sources.file:TextSource",
        "kafka": "penstock.sources.kafka:KafkaSource",
        "iceberg": "penstock.sources.table:IcebergSource",
        "table": "penstock.sources.table:TableSource",
        "rate": "penstock.sources.rate:RateSource",
        "clickhouse": "penstock.sources.clickhouse.source:ClickHouseSource",
    },
    group="penstock.sources",
)


def source_of(form: str) -> type[Source] | None:
    """Return the class of a source by its name; None when only Spark has it."""
    from penstock.sources.base import Source

    if form not in SOURCES:
        return None
    kind = SOURCES.load(form)
    if not (isinstance(kind, type) and issubclass(kind, Source)):
        raise ConfigError(
            f"'{form}' is no source: {kind!r}",
            code="PLUGIN_KIND",
            hint="the entry point must name a subclass of penstock.sources.base.Source",
        )
    return kind
