"""Where rows come from: one connector per file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
        "postgres": "penstock.sources.postgres.source:PostgresSource",
        "postgres_cdc": "penstock.sources.postgres.cdc_source:PostgresCdcSource",
    },
    group="penstock.sources",
)


def source_of(form: str) -> type[Source] | None:
    """Return the class of a source by its name; None when only Spark has it."""
    return source_class(SOURCES.load(form), form) if form in SOURCES else None


def source_class(kind: Any, name: str) -> type[Source]:
    """Return a class of sources as it is, and for a plugin the class that leads it."""
    from penstock.plugin import SourcePlugin
    from penstock.sources.base import Source

    if isinstance(kind, type) and issubclass(kind, SourcePlugin):
        from penstock.sources.plugin import leading

        return leading(kind, name)
    if not (isinstance(kind, type) and issubclass(kind, Source)):
        raise ConfigError(
            f"'{name}' is no source: {kind!r}",
            code="PLUGIN_KIND",
            hint="the entry point must name a subclass of penstock.SourcePlugin",
        )
    return kind
