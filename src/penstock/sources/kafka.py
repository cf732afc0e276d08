"""Topics of Kafka as streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

from pydantic import Field, model_validator

from penstock.errors import ConfigError
from penstock.options import IgnoringCase, Others, mistake
from penstock.sources import bad_record, kafka_group
from penstock.sources.avro_record import AvroDecoder, with_writers
from penstock.sources.bad_record import (
    BadRecordOptions,
    BadRecords,
    BadRecordTap,
    Evolving,
    MaxRecordBytes,
    Why,
    split,
)
from penstock.sources.base import Context, OffsetReporter, Source, SourceFrame
from penstock.sources.json_record import JsonDecoder, WhyNotJson
from penstock.sources.schema_registry import SchemaRegistry
from penstock.sources.spark_options import Schema
from penstock.spark.connectors import ensure_format
from penstock.spark.kafka_access import SERVERS, BootstrapServers, for_java, prefixed, unprefixed
from penstock.spark.micro_batch import plan
from penstock.spark.micro_batch.frames import as_struct

if TYPE_CHECKING:
    from typing import Self

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
    # With the defaults, of half a minute and more, the user would hear late of a broker that does not answer.
    "kafka.request.timeout.ms": 10_000,
    "kafka.default.api.timeout.ms": 15_000,
}

OWN = ("key", "topic", "partition", "offset", "timestamp")
"""Columns of Kafka's own that stand beside those of the value, with an underscore."""


class KafkaOptions(BadRecordOptions):
    """Which topics, how values become columns, and settings of the consumer."""

    other_options: ClassVar[Others | None] = Others(
        "",
        'options of Spark\'s Kafka source; `kafka.*` are settings of Java\'s consumer, as in `**{"kafka.security.protocol": "SSL"}`',
    )

    topic: str = Field(description='a topic, several (`"a,b"`) or a pattern (`"/orders-.*/"`)')
    bootstrap_servers: BootstrapServers
    columns: Schema = Field(
        None,
        validation_alias="schema",
        description="the columns of values. Without it, the columns are Kafka's own: `key`, `value`, `topic`, `partition`, `offset`, "
        "`timestamp`. With it they stand behind those of the value, with an underscore: `_key`, `_topic`, ...",
    )
    format: Annotated[Literal["json", "avro"] | None, IgnoringCase] = Field(
        None, description="of values; with a schema `json` unless the option says otherwise"
    )
    schema_registry: str | bool | None = Field(
        None,
        repr=False,
        description="the address of a schema registry, see Avro below; default `PENSTOCK_SCHEMA_REGISTRY_URL`, `False` for plain Avro",
    )
    schema_registry_auth: str | None = Field(None, repr=False, description="`user:password` for the registry")
    subject: str | None = Field(None, description="the subject of the registry; without it `TOPIC-value`")
    starting_offsets: str = Field(
        "latest",
        description="`latest`, `earliest`, or Spark's JSON; only for the first start, later ones go on from the checkpoint",
    )
    group: str | None = Field(
        None,
        description="a consumer group to which the query commits, after every batch, how far it has read",
    )
    max_record_bytes: MaxRecordBytes = None

    @model_validator(mode="before")
    @classmethod
    def _with_topic(cls, options: Any) -> Any:
        """Take Spark's own names for topics too."""
        if not isinstance(options, Mapping) or "topic" in options:
            return options
        names = {str(name).lower(): name for name in options}
        for name, topic in (("subscribe", "{}"), ("subscribepattern", "/{}/"), ("assign", "")):
            if name in names:
                return {**options, "topic": topic.format(options[names[name]])}
        return options

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.format != "avro" and (self.schema_registry or self.schema_registry_auth or self.subject):
            raise mistake('schema registries are for format="avro"', hint='add format="avro"')
        if self.format == "json" and self.columns is None:
            raise mistake('format="json" needs the columns', hint='for example schema="id BIGINT"')
        has_good_ones = self.format or self.columns is not None or self.max_record_bytes is not None
        if self.on_bad_record != "fail" and not has_good_ones:
            raise mistake(
                f'on_bad_record="{self.on_bad_record}" needs to know what a good record is',
                hint='give a schema="id BIGINT, ...", or max_record_bytes=...',
            )
        return self

    @property
    def topics(self) -> dict[str, str]:
        """Spark's option for a topic, a list of topics ("a,b") or a pattern ("/orders-.*/")."""
        if not self.topic:
            return {}
        if self.topic.startswith("/") and self.topic.endswith("/") and len(self.topic) > 2:
            return {"subscribePattern": self.topic[1:-1]}
        return {"subscribe": self.topic}


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


class KafkaSource(Source):
    """Records of one or more topics; with a schema, the columns of their values beside Kafka's own."""

    Options = KafkaOptions
    location: ClassVar[str | None] = "topic"

    options: KafkaOptions

    def read(self, context: Context) -> SourceFrame:
        spark, rule = context.spark, self.options.rule
        options = self._spark_options(spark)
        frame = spark.readStream.format("kafka").options(**options).load()
        decoder = self._decoder(context)
        if decoder is not None:
            return SourceFrame(*_decoded(frame, decoder, rule, options))
        if rule.max_bytes is not None:
            return SourceFrame(*_limited(frame, rule, options))
        return SourceFrame(frame)

    @classmethod
    def reporter(cls, options: Mapping[str, str], *, note: Callable[[str], None]) -> OffsetReporter | None:
        return kafka_group.ConsumerGroup(options, note=note) if kafka_group.OPTION in options else None

    @classmethod
    def bounded(cls, spark: SparkSession, relation: Any, *, folder: Callable[[], str]) -> dict[str, str]:
        options = {name.lower(): value for name, value in dict(relation.extraOptions()).items()}
        if options.get("startingoffsets") == "latest" and not any("timestamp" in name for name in options):
            raise ConfigError(
                "once reads what is there, and this source begins with what comes later",
                code="STREAM_ONCE_LATEST",
                hint='say starting_offsets="earliest", or use another trigger',
            )
        if any(name.startswith("ending") for name in options):
            return {}
        jvm: Any = spark._jvm
        with plan.opened(spark, relation, folder()) as stream:
            first = stream.initialOffset()
            everything = jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.allAvailable()
            return {"endingOffsets": str(stream.latestOffset(first, everything).json())}

    def _spark_options(self, spark: SparkSession) -> dict[str, Any]:
        own, group = self.options.spark, self.options.group
        if group is not None:
            kafka_group.check(group, own)
        return {
            **CONSUMER,
            **({} if group is None else {kafka_group.OPTION: group}),
            "minPartitions": spark.sparkContext.defaultParallelism,
            SERVERS: self.options.bootstrap_servers,
            **self.options.topics,
            "startingOffsets": self.options.starting_offsets,
            **{name: value for name, value in own.items() if not name.startswith("kafka.")},
            **prefixed(for_java(unprefixed(own))),
        }

    def _decoder(self, context: Context) -> Decoder | None:
        """What decodes values; None when they stay as they are."""
        if self.options.format == "avro":
            return self._avro_decoder(context)
        if self.options.columns is None:
            return None
        return JsonDecoder(as_struct(self.options.columns))

    def _avro_decoder(self, context: Context) -> AvroDecoder:
        options, topic = self.options, self.options.topic
        option = options.schema_registry
        url = option if isinstance(option, str) else context.settings.schema_registry_url
        registry = None
        if url and option is not False:
            registry = SchemaRegistry(url, options.schema_registry_auth)
        elif options.columns is None:
            raise ConfigError(
                'format="avro" needs a schema, or a schema registry',
                code="AVRO_SCHEMA",
                hint='give schema="orders.avsc", or schema_registry="http://host:8081" '
                "(PENSTOCK_SCHEMA_REGISTRY_URL)",
            )
        ensure_format(context.spark, "avro", context.settings)
        subjects = [] if topic.startswith("/") else [f"{name.strip()}-value" for name in topic.split(",")]
        return with_writers(
            context.spark, options.columns, registry, [options.subject] if options.subject else subjects
        )


def _decoded(
    frame: DataFrame, decoder: Decoder, rule: BadRecords, options: Mapping[str, Any]
) -> tuple[DataFrame, BadRecordTap]:
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

    checked = column().select(
        alias,
        *[F.col(name).alias(f"_{name}") for name in OWN],
        _bad(large | decoder.is_bad(small, F.col(alias))),
    )
    good, tap = split(
        checked,
        rule,
        position="offset",
        why=decoder.why(rule.max_bytes),
        kafka=options,
        evolving=Evolving(alias, column, decoder.learn_from) if isinstance(decoder, AvroDecoder) else None,
    )
    return good.select(*decoder.columns(F.col(alias)), *[f"_{name}" for name in OWN]), tap


def _limited(
    frame: DataFrame, rule: BadRecords, options: Mapping[str, Any]
) -> tuple[DataFrame, BadRecordTap]:
    """Return records as Spark has them, without those that are larger than the rule allows."""
    from pyspark.sql import functions as F

    large = F.coalesce(F.octet_length("value") > F.lit(rule.max_bytes), F.lit(False))
    why = WhyNotJson("", rule.max_bytes)
    good, tap = split(frame.select("*", _bad(large)), rule, position="offset", why=why, kafka=options)
    return good.select(*frame.columns), tap


def _bad(condition: Column) -> Column:
    from pyspark.sql import functions as F

    return bad_record.column(condition, F.col("value"), **{name: F.col(name) for name in OWN})
