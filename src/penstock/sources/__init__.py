"""Where rows come from: one connector per file."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    },
    group="penstock.sources",
)


def source_of(form: str) -> type[Source] | None:
    """Return the class of a source by its name; None when only Spark has it."""
    return SOURCES.load(form) if form in SOURCES else None
