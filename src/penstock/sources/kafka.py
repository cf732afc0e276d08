"""Topics of Kafka as streaming DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock import config
from penstock.data.schema import to_arrow_schema, to_ddl
from penstock.errors import ConfigError
from penstock.sources import kafka_group
from penstock.spark.kafka_access import for_java, prefixed, unprefixed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Large fetches: with the consumer's defaults it waits more than it reads (measured: 0.8M records/s before, 1.5M after).
FETCHES = {
    "kafka.max.partition.fetch.bytes": 16 << 20,
    "kafka.fetch.max.bytes": 64 << 20,
    "kafka.max.poll.records": 50_000,
    "kafka.receive.buffer.bytes": 1 << 20,
}


def options(
    spark: SparkSession,
    *,
    topic: str,
    bootstrap_servers: str | None,
    starting_offsets: str,
    group: str | None,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return Spark's options for a topic, a list of topics ("a,b") or a pattern ("/orders-.*/")."""
    servers = bootstrap_servers or config.load().kafka_bootstrap_servers
    if not servers:
        raise ConfigError(
            "no Kafka servers are given",
            code="KAFKA_SERVERS",
            hint='write bootstrap_servers="host:9092", or set PENSTOCK_KAFKA_BOOTSTRAP_SERVERS',
        )
    others = {name: value for name, value in options.items() if not name.startswith("kafka.")}
    pattern = topic.startswith("/") and topic.endswith("/") and len(topic) > 2
    if group is not None:
        kafka_group.check(group, options)
    return {
        **FETCHES,
        **({} if group is None else {kafka_group.OPTION: group}),
        "minPartitions": spark.sparkContext.defaultParallelism,
        "kafka.bootstrap.servers": servers,
        "subscribePattern" if pattern else "subscribe": topic[1:-1] if pattern else topic,
        "startingOffsets": starting_offsets,
        **others,
        **prefixed(for_java(unprefixed(options))),
    }


def decoded(frame: DataFrame, schema: Any) -> DataFrame:
    """Return the columns of JSON values, then Kafka's key, topic, partition, offset and timestamp with an underscore."""
    from pyspark.sql import functions

    ddl = schema if hasattr(schema, "fields") else to_ddl(to_arrow_schema(schema))
    parsed = functions.from_json(functions.col("value").cast("string"), ddl, {"mode": "FAILFAST"})
    return frame.select(
        parsed.alias("value"),
        *[
            functions.col(name).alias(f"_{name}")
            for name in ("key", "topic", "partition", "offset", "timestamp")
        ],
    ).select("value.*", "_key", "_topic", "_partition", "_offset", "_timestamp")


def pinned(spark: SparkSession, relation: Any, folder: str) -> dict[str, str]:
    """Return options that let a batch read what the topics hold now, however often it is read.

    `relation` is Spark's node of a plan; `folder` is for notes that nobody reads later.
    """
    given = {name.lower(): value for name, value in dict(relation.extraOptions()).items()}
    if given.get("startingoffsets") == "latest" and not any("timestamp" in name for name in given):
        raise ConfigError(
            "once reads what is there, and this source begins with what comes later",
            code="STREAM_ONCE_LATEST",
            hint='say starting_offsets="earliest", or use another trigger',
        )
    if any(name.startswith("ending") for name in given):
        return {}
    jvm: Any = spark._jvm
    scan = relation.table().newScanBuilder(relation.extraOptions()).build()
    stream = scan.toMicroBatchStream(folder)
    try:
        first = stream.initialOffset()
        everything = jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.allAvailable()
        return {"endingOffsets": str(stream.latestOffset(first, everything).json())}
    finally:
        stream.stop()
