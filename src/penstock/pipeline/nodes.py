"""The node types of pipelines: the values of `type:` in YAML. Other names are those of plugins."""

from __future__ import annotations

from penstock.registry import Registry

SOURCE_NODES = Registry(
    "source",
    {
        "kafka": "penstock.pipeline.sources.kafka:KafkaNode",
        "file": "penstock.pipeline.sources.file:FileNode",
        "rate": "penstock.pipeline.sources.rate:RateNode",
        "iceberg": "penstock.pipeline.sources.iceberg:IcebergNode",
        "clickhouse": "penstock.pipeline.sources.clickhouse:ClickHouseNode",
        "postgres": "penstock.pipeline.sources.postgres:PostgresNode",
        "postgres_cdc": "penstock.pipeline.sources.postgres_cdc:PostgresCdcNode",
        "hybrid": "penstock.pipeline.sources.hybrid:HybridNode",
    },
)
TRANSFORM_NODES = Registry(
    "transform",
    {
        "sql": "penstock.pipeline.transforms.sql:SqlNode",
        "view": "penstock.pipeline.transforms.view:ViewNode",
        "dedup": "penstock.pipeline.transforms.dedup:DedupNode",
        "cdc": "penstock.pipeline.transforms.cdc:CdcNode",
        "script": "penstock.pipeline.transforms.script:ScriptNode",
        "handler": "penstock.pipeline.transforms.handler:HandlerNode",
        "lookup": "penstock.pipeline.transforms.lookup:LookupNode",
        "dynamic_table": "penstock.pipeline.transforms.dynamic_table:DynamicTableNode",
        "expect": "penstock.pipeline.transforms.expect:ExpectNode",
    },
)
SINK_NODES = Registry(
    "sink",
    {
        "print": "penstock.pipeline.sinks.console:PrintNode",
        "blackhole": "penstock.pipeline.sinks.blackhole:BlackholeNode",
        "memory": "penstock.pipeline.sinks.memory:MemoryNode",
        "file": "penstock.pipeline.sinks.file:FileNode",
        "webhook": "penstock.pipeline.sinks.webhook:WebhookNode",
        "postgres": "penstock.pipeline.sinks.postgres:PostgresNode",
        "postgres_aggregate": "penstock.pipeline.sinks.postgres_aggregate:PostgresAggregateNode",
        "kafka": "penstock.pipeline.sinks.kafka:KafkaNode",
        "clickhouse": "penstock.pipeline.sinks.clickhouse:ClickHouseNode",
        "iceberg": "penstock.pipeline.sinks.iceberg:IcebergNode",
    },
)
