"""Topics of Kafka as streaming DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from penstock import config
from penstock.errors import ConfigError
from penstock.sources import bad, kafka_group
from penstock.sources.bad import BadPoint, BadRecords, Why, split
from penstock.sources.json_record import PARSED, WhyNotJson
from penstock.spark.kafka_access import for_java, prefixed, unprefixed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Large fetches: with the consumer's defaults it waits more than it reads (measured: 0.8M records/s before, 1.5M after).
FETCHES = {
    "kafka.max.partition.fetch.bytes": 16 << 20,
    "kafka.fetch.max.bytes": 64 << 20,
    "kafka.max.poll.records": 50_000,
    "kafka.receive.buffer.bytes": 1 << 20,
}

OWN = ("key", "topic", "partition", "offset", "timestamp")
"""Columns of Kafka's own that stand beside those of the value, with an underscore."""


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


class Decoder(Protocol):
    """How the bytes of a value become columns."""

    def parse(self, value: Column) -> Column:
        """Return one column with all that is in a value; evaluated once per record."""

    def is_bad(self, value: Column, parsed: Column) -> Column:
        """Return whether a value is there and could not be read."""

    def columns(self, parsed: Column) -> list[Column]:
        """Return the columns of the stream."""

    def why(self, max_bytes: int | None) -> Why:
        """Return what says why a value is bad."""


def decoded(
    frame: DataFrame, decoder: Decoder, rule: BadRecords, options: Mapping[str, Any]
) -> tuple[DataFrame, BadPoint]:
    """Return the columns of values, then Kafka's key, topic, partition, offset and timestamp with an underscore.

    A record without a value, which deletes its key in a compacted topic, has NULL in all columns of values.
    """
    from pyspark.sql import functions as F

    value = small = F.col("value")
    large = F.lit(False)
    if rule.max_bytes is not None:
        large = F.coalesce(F.octet_length(value) > rule.max_bytes, large)
        small = F.when(~large, value)
    parsed = frame.withColumn(PARSED, decoder.parse(small))
    watched = parsed.select(
        PARSED,
        *[F.col(name).alias(f"_{name}") for name in OWN],
        _bad(large | decoder.is_bad(small, F.col(PARSED))),
    )
    why = decoder.why(rule.max_bytes)
    good, point = split(watched, rule, place="offset", why=why, kafka=options)
    return good.select(*decoder.columns(F.col(PARSED)), *[f"_{name}" for name in OWN]), point


def limited(frame: DataFrame, rule: BadRecords, options: Mapping[str, Any]) -> tuple[DataFrame, BadPoint]:
    """Return records as Spark has them, without those that are larger than the rule allows."""
    from pyspark.sql import functions as F

    large = F.coalesce(F.octet_length("value") > F.lit(rule.max_bytes), F.lit(False))
    why = WhyNotJson("", rule.max_bytes)
    good, point = split(frame.select("*", _bad(large)), rule, place="offset", why=why, kafka=options)
    return good.select(*frame.columns), point


def _bad(condition: Column) -> Column:
    from pyspark.sql import functions as F

    return bad.column(condition, F.col("value"), **{name: F.col(name) for name in OWN})


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
