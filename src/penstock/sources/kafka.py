"""Topics of Kafka as streaming DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from penstock import config
from penstock.errors import ConfigError, suggest
from penstock.sources import bad_record, kafka_group
from penstock.sources.avro_record import AvroDecoder, with_writers
from penstock.sources.bad_record import BadPoint, BadRecords, Evolving, Why, split
from penstock.sources.json_record import JsonDecoder, WhyNotJson
from penstock.sources.schema_registry import SchemaRegistry
from penstock.spark.connectors import ensure_format
from penstock.spark.kafka_access import for_java, prefixed, unprefixed
from penstock.spark.micro_batch import plan
from penstock.spark.micro_batch.frames import as_struct

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Large fetches: with the consumer's defaults it waits more than it reads (measured: 0.8M records/s before, 1.5M after).
CONSUMER = {
    "kafka.max.partition.fetch.bytes": 16 << 20,
    "kafka.fetch.max.bytes": 64 << 20,
    "kafka.max.poll.records": 50_000,
    "kafka.receive.buffer.bytes": 1 << 20,
    # After every fetch Spark asks where the topic ends, and that seems to wait for the fetch which the consumer has sent ahead: with the
    # default, half a second (a batch of three records: 780 ms before, 300 after).
    "kafka.fetch.max.wait.ms": 10,
    # With the defaults, of half a minute and more, nobody would hear for long that a broker is away.
    "kafka.request.timeout.ms": 10_000,
    "kafka.default.api.timeout.ms": 15_000,
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
        **CONSUMER,
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

    @property
    def alias(self) -> str:
        """The name of the column with all that is in a value."""

    def parse(self, value: Column) -> Column:
        """Return one column with all that is in a value; evaluated once per record."""

    def is_bad(self, value: Column, parsed: Column) -> Column:
        """Return whether a value is there and could not be read."""

    def columns(self, parsed: Column) -> list[Column]:
        """Return the columns of the stream."""

    def why(self, max_bytes: int | None) -> Why:
        """Return what says why a value is bad."""


@dataclass(frozen=True, slots=True)
class Format:
    """How values are written, as the user told it."""

    name: str | None = None
    schema: Any = None
    registry: str | bool | None = None
    registry_auth: str | None = None
    subject: str | None = None

    def decoder(self, spark: SparkSession, topic: str) -> Decoder | None:
        """Return what decodes values; None when they stay as they are."""
        name = self.name or ("json" if self.schema is not None else "")
        if name not in ("", "json", "avro"):
            raise ConfigError(
                f"unknown format {self.name!r} of values",
                code="SOURCE_OPTION_VALUE",
                hint=suggest(name, ("json", "avro"), what="format"),
            )
        if name != "avro" and (self.registry or self.registry_auth or self.subject):
            raise ConfigError(
                'schema registries are for format="avro"',
                code="SOURCE_OPTION_VALUE",
                hint='add format="avro"',
            )
        if name == "avro":
            return self._avro(spark, topic)
        if name == "json" and self.schema is None:
            raise ConfigError(
                'format="json" needs the columns',
                code="SOURCE_OPTION_VALUE",
                hint='for example schema="id BIGINT"',
            )
        return JsonDecoder(as_struct(self.schema)) if name else None

    def _avro(self, spark: SparkSession, topic: str) -> AvroDecoder:
        settings = config.load()
        url = self.registry if isinstance(self.registry, str) else settings.schema_registry_url
        registry = None
        if url and self.registry is not False:
            registry = SchemaRegistry(url, self.registry_auth)
        elif self.schema is None:
            raise ConfigError(
                'format="avro" needs a schema, or a schema registry',
                code="AVRO_SCHEMA",
                hint='give schema="orders.avsc", or schema_registry="http://host:8081" '
                "(PENSTOCK_SCHEMA_REGISTRY_URL)",
            )
        ensure_format(spark, "avro", settings)
        named = [] if topic.startswith("/") else [f"{each.strip()}-value" for each in topic.split(",")]
        return with_writers(spark, self.schema, registry, [self.subject] if self.subject else named)


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
    alias = decoder.alias

    def column() -> DataFrame:
        return frame.withColumn(alias, decoder.parse(small))

    watched = column().select(
        alias,
        *[F.col(name).alias(f"_{name}") for name in OWN],
        _bad(large | decoder.is_bad(small, F.col(alias))),
    )
    good, point = split(
        watched,
        rule,
        place="offset",
        why=decoder.why(rule.max_bytes),
        kafka=options,
        evolving=Evolving(alias, column, decoder.learn_from) if isinstance(decoder, AvroDecoder) else None,
    )
    return good.select(*decoder.columns(F.col(alias)), *[f"_{name}" for name in OWN]), point


def limited(frame: DataFrame, rule: BadRecords, options: Mapping[str, Any]) -> tuple[DataFrame, BadPoint]:
    """Return records as Spark has them, without those that are larger than the rule allows."""
    from pyspark.sql import functions as F

    large = F.coalesce(F.octet_length("value") > F.lit(rule.max_bytes), F.lit(False))
    why = WhyNotJson("", rule.max_bytes)
    good, point = split(frame.select("*", _bad(large)), rule, place="offset", why=why, kafka=options)
    return good.select(*frame.columns), point


def _bad(condition: Column) -> Column:
    from pyspark.sql import functions as F

    return bad_record.column(condition, F.col("value"), **{name: F.col(name) for name in OWN})


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
    with plan.opened(spark, relation, folder) as stream:
        first = stream.initialOffset()
        everything = jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.allAvailable()
        return {"endingOffsets": str(stream.latestOffset(first, everything).json())}
