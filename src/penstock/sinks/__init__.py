"""Where the rows of streaming queries go: one connector per file."""

from __future__ import annotations

from penstock.registry import Registry

SINKS = Registry(
    "sink",
    {
        "memory": "penstock.sinks.memory:MemorySink",
        "console": "penstock.sinks.console:ConsoleSink",
        "blackhole": "penstock.sinks.blackhole:BlackholeSink",
        "parquet": "penstock.sinks.file:ParquetSink",
        "csv": "penstock.sinks.file:CsvSink",
        "json": "penstock.sinks.file:JsonSink",
        "orc": "penstock.sinks.file:OrcSink",
        "kafka": "penstock.sinks.kafka.sink:KafkaSink",
        "postgres": "penstock.sinks.postgres.sink:PostgresSink",
        "postgres_aggregate": "penstock.sinks.postgres.aggregate:PostgresAggregateSink",
        "clickhouse": "penstock.sinks.clickhouse.sink:ClickHouseSink",
        "iceberg": "penstock.sinks.iceberg:IcebergSink",
        "webhook": "penstock.sinks.webhook:WebhookSink",
        "python": "penstock.sinks.plugin:PYTHON_SINK",
    },
    group="penstock.sinks",
)
