"""Topics of Kafka as streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

from pydantic import Field, model_validator

from penstock.data.operation import INSERT, OPERATION, UPDATE
from penstock.errors import ConfigError
from penstock.options import IgnoringCase, Names, Others, mistake
from penstock.sources import bad_record, kafka_group, kafka_operation
from penstock.sources.avro_record import AvroDecoder, with_key_schemas, with_writers
from penstock.sources.bad_record import (
    BadRecordOptions,
    BadRecords,
    BadRecordTap,
    Evolving,
    MaxRecordBytes,
    Why,
    split,
)
from penstock.sources.base import OffsetReporter, Source, SourceContext, SourceFrame
from penstock.sources.json_record import DOES_NOT_FIT, JsonDecoder, WhyNotJson
from penstock.sources.kafka_operation import HEADER, EnvelopeDecoder, Operations
from penstock.sources.schema_registry import SchemaRegistry
from penstock.sources.spark_options import Schema
from penstock.spark.connectors import ensure_format
from penstock.spark.errors.query import translate_query_error
from penstock.spark.kafka_access import SERVERS, BootstrapServers, for_java, prefixed, unprefixed
from penstock.spark.micro_batch import plan
from penstock.spark.micro_batch.frames import as_struct
from penstock.spark.operation import passing
from penstock.sql.lexer import significant

if TYPE_CHECKING:
    from typing import Self

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

# Large fetches: with the consumer's defaults it waits more than it reads (measured: 0.8M records/s before, 1.5M after).
CONSUMER = {
    "kafka.max.partition.fetch.bytes": 16 << 20,
    "kafka.fetch.max.bytes": 64 << 20,
    "kafka.max.poll.records": 50_000,
    "kafka.receive.buffer.bytes": 1 << 20,
    # After every fetch Spark asks where the topic ends, and that seems to wait for the fetch which the consumer has
    # sent ahead: with the default, half a second (a batch of three records: 780 ms before, 300 after).
    "kafka.fetch.max.wait.ms": 10,
    # With the defaults, of half a minute and more, the user would hear late of a broker that does not answer.
    "kafka.request.timeout.ms": 10_000,
    "kafka.default.api.timeout.ms": 15_000,
}

OWN = ("key", "topic", "partition", "offset", "timestamp")
"""Columns of Kafka's own that stand beside those of the value, with an underscore."""
KEY = "_penstock_key"


class KafkaOptions(BadRecordOptions):
    """Which topics, how values become columns, and settings of the consumer."""

    other_options: ClassVar[Others | None] = Others(
        "",
        "options of Spark's Kafka source; `kafka.*` are settings of Java's consumer, as in "
        '`**{"kafka.security.protocol": "SSL"}`',
    )

    topic: str = Field(description='a topic, several (`"a,b"`) or a pattern (`"/orders-.*/"`)')
    bootstrap_servers: BootstrapServers
    columns: Schema = Field(
        None,
        validation_alias="schema",
        description="the columns of values. Without it, the columns are Kafka's own: `key`, `value`, "
        "`topic`, `partition`, `offset`, "
        "`timestamp`. With it they stand behind those of the value, with an underscore: `_key`, `_topic`, ...",
    )
    format: Annotated[Literal["json", "avro"] | None, IgnoringCase] = Field(
        None, description="of values; with a schema `json` unless the option says otherwise"
    )
    schema_registry: str | bool | None = Field(
        None,
        repr=False,
        description="the address of a schema registry, see Avro below; default: "
        "`PENSTOCK_SCHEMA_REGISTRY_URL`, `False` for plain Avro",
    )
    schema_registry_auth: str | None = Field(None, repr=False, description="`user:password` for the registry")
    subject: str | None = Field(None, description="the subject of the registry; default: `TOPIC-value`")
    starting_offsets: str = Field(
        "latest",
        description="`latest`, `earliest`, or Spark's JSON; only for the first start, later ones go on from the checkpoint",
    )
    group: str | None = Field(
        None,
        description="a consumer group to which the query commits, after every batch, how far it has read",
    )
    max_record_bytes: MaxRecordBytes = None
    operations: Annotated[Operations, IgnoringCase] = Field(
        "none",
        description="how a record says what it does to the row with its key, which becomes the column "
        "`_op` (`i`, `u`, `d`): `header` (the header "
        "`dbz.op`; without it an insert, and without a value a delete), `upsert` (the same, "
        "but without the header the record takes the place of the "
        "row with its key), `debezium` (values are Debezium's change events), or `none`",
    )
    primary_key: Names = Field(
        (),
        description="with `operations`: the columns that a record without a value, which deletes, gets "
        "from its key (JSON, the plain value, or Avro with a schema registry); "
        "without it, records without a value are left out",
    )
    metadata: bool = Field(
        True,
        description="with a schema: Kafka's own columns too, `_key`, `_topic`, `_partition`, `_offset`, `_timestamp`",
    )
    filter: str | None = Field(
        None,
        description="a condition in SQL; only records for which it is true are read. With `operations`, "
        "deletes pass, and an update that does not "
        "becomes a delete",
    )

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
        if self.operations == "debezium" and self.format is None and self.columns is None:
            raise mistake(
                'operations="debezium" needs the columns of the rows', hint='for example schema="id BIGINT"'
            )
        if self.operations == "upsert" and not self.primary_key:
            raise mistake(
                'operations="upsert" needs the key of the rows', hint='for example primary_key="id"'
            )
        has_good_ones = self.format or self.columns is not None or self.max_record_bytes is not None
        if self.on_bad_record != "fail" and not has_good_ones:
            raise mistake(
                f'on_bad_record="{self.on_bad_record}" needs to know what a good record is',
                hint='give a schema="id BIGINT, ...", or max_record_bytes=...',
            )
        return self

    @property
    def has_headers(self) -> bool:
        """Whether headers say what records do."""
        return self.operations in ("header", "upsert")

    @property
    def without_header(self) -> str:
        """What a record with a value does when no header says it."""
        return UPDATE if self.operations == "upsert" else INSERT

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

    def read(self, context: SourceContext) -> SourceFrame:
        from pyspark.sql import functions as F

        spark, rule, wanted = context.spark, self.options.rule, self.options
        options = self._spark_options(spark)
        frame = spark.readStream.format("kafka").options(**options).load()
        decoder = self._decoder(context)
        tap: BadRecordTap | None = None
        if decoder is not None:
            frame, tap = _decoded(frame, decoder, rule, options, wanted=wanted)
        else:
            if wanted.has_headers:
                operation = kafka_operation.of_header(
                    F.col("headers"), F.col("value"), without=wanted.without_header
                )
                frame = frame.withColumn(OPERATION, operation).drop("headers")
            if rule.max_bytes is not None:
                frame, tap = _limited(frame, rule, options)
        if wanted.filter is not None:
            condition = F.expr(wanted.filter)
            names_operation = OPERATION in {word.text for word in significant(wanted.filter)}
            frame = frame.where(condition) if names_operation else passing(frame, condition)
        if not wanted.metadata:
            hidden = [f"_{name}" for name in OWN] if decoder is not None else [*OWN[1:], "timestampType"]
            frame = frame.drop(*hidden)
        return SourceFrame(frame, tap)

    def check(self) -> None:
        from pyspark.sql import SparkSession

        spark = SparkSession.active()
        frame = spark.readStream.format("kafka").options(**self._spark_options(spark)).load()
        (reading,) = plan.readings(frame)
        # Java's client goes there as it will for the stream, so that whatever keeps it out is known now.
        try:
            with TemporaryDirectory() as folder, plan.opened(spark, reading.relation, folder) as stream:
                stream.initialOffset()
        except Exception as error:
            refusal = translate_query_error(error)
            if refusal.code == "KAFKA_TOPIC_MISSING":
                refusal.message = f"no such topic: {self.options.topic}"
            raise refusal from None

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
            **({"includeHeaders": "true"} if self.options.has_headers else {}),
            "startingOffsets": self.options.starting_offsets,
            **{name: value for name, value in own.items() if not name.startswith("kafka.")},
            **prefixed(for_java(unprefixed(own))),
        }

    def _decoder(self, context: SourceContext) -> Decoder | None:
        """What decodes values; None when they stay as they are."""
        has_envelope = self.options.operations == "debezium"
        if self.options.format == "avro":
            decoder = self._avro_decoder(context)
            return EnvelopeDecoder.of_avro(decoder) if has_envelope else decoder
        if self.options.columns is None:
            return None
        columns = as_struct(self.options.columns)
        return EnvelopeDecoder.of_json(columns) if has_envelope else JsonDecoder(columns)

    def _avro_decoder(self, context: SourceContext) -> AvroDecoder:
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
        topics = [] if topic.startswith("/") else [name.strip() for name in topic.split(",")]
        subjects = [options.subject] if options.subject else [f"{name}-value" for name in topics]
        decoder = with_writers(context.spark, options.columns, registry, subjects)
        if registry is not None and options.has_headers and options.primary_key:
            decoder.keys = with_key_schemas(context.spark, registry, [f"{name}-key" for name in topics])
        return decoder


def _decoded(
    frame: DataFrame,
    decoder: Decoder,
    rule: BadRecords,
    options: Mapping[str, Any],
    *,
    wanted: KafkaOptions,
) -> tuple[DataFrame, BadRecordTap]:
    """Return the columns of values, `_op` if it is wanted, then Kafka's key, topic, partition, offset and timestamp
    with an underscore.

    A record without a value, which deletes its key in a compacted topic, has NULL in all columns of values, but for
    those of the primary key when operations come from headers.
    """
    from pyspark.sql import functions as F

    has_header, keys = wanted.has_headers, wanted.primary_key
    if wanted.operations == "debezium" or (has_header and not keys):
        frame = frame.where(F.col("value").isNotNull())  # nothing says which row such a record is about
    value = small = F.col("value")
    large = F.lit(False)
    if rule.max_bytes is not None:
        large = F.coalesce(F.octet_length(value) > rule.max_bytes, large)
        small = F.when(~large, value)
    alias = decoder.alias

    def column() -> DataFrame:
        return frame.withColumn(alias, decoder.parse(small))

    columns = {name: kind for name, kind in _types(column(), decoder).items() if has_header and name in keys}
    avro_keys = decoder.keys if isinstance(decoder, AvroDecoder) else None
    from_key = kafka_operation.of_key(F.col("key"), columns, avro_keys)
    carried, is_bad = [], large | decoder.is_bad(small, F.col(alias))
    if has_header:
        operation = kafka_operation.of_header(F.col("headers"), value, without=wanted.without_header)
        is_bad = F.coalesce(is_bad, F.lit(False)) | operation.isNull()
        carried.append(operation.alias(OPERATION))
    if from_key:
        lost = reduce(or_, (part.isNull() for part in from_key.values()))
        is_bad = is_bad | (value.isNull() & lost)
        parts = F.struct(*[part.alias(name) for name, part in from_key.items()])
        carried.append(F.when(value.isNull(), parts).alias(KEY))
    decoded = column()
    checked = decoded.select(
        alias,
        *carried,
        *[F.col(name).alias(f"_{name}") for name in OWN],
        _bad(decoded, is_bad),
    )
    inner = decoder.inner if isinstance(decoder, EnvelopeDecoder) else decoder
    good, tap = split(
        checked,
        rule,
        position="offset",
        why=_WhyNotRow(decoder.why(rule.max_bytes)) if has_header else decoder.why(rule.max_bytes),
        kafka=options,
        evolving=Evolving(alias, column, inner.learn_from) if isinstance(inner, AvroDecoder) else None,
    )
    rows = good.select(
        *decoder.columns(F.col(alias)),
        *([F.col(OPERATION)] if has_header else []),
        *([decoder.operation(F.col(alias)).alias(OPERATION)] if isinstance(decoder, EnvelopeDecoder) else []),
        *[f"_{name}" for name in OWN],
        *([KEY] if from_key else []),
    )
    key_columns = {name: F.coalesce(F.col(f"`{name}`"), F.col(KEY).getField(name)) for name in from_key}
    return rows.withColumns(key_columns).drop(KEY) if key_columns else rows, tap


def _types(frame: DataFrame, decoder: Decoder) -> dict[str, DataType]:
    from pyspark.sql import functions as F

    schema = frame.select(*decoder.columns(F.col(decoder.alias))).schema
    return {field.name: field.dataType for field in schema.fields}


@dataclass(frozen=True, slots=True)
class _WhyNotRow:
    """Says why a record is no row and no delete of one."""

    inner: Why

    def __call__(self, raw: bytes | None) -> str:
        if raw is None:
            return "it has no value, and its key is not the primary key"
        reason = self.inner(raw)
        return (
            f"the header {HEADER} is unknown, or the value does not fit" if reason == DOES_NOT_FIT else reason
        )


def _limited(
    frame: DataFrame, rule: BadRecords, options: Mapping[str, Any]
) -> tuple[DataFrame, BadRecordTap]:
    """Return records as Spark has them, without those that are larger than the rule allows."""
    from pyspark.sql import functions as F

    large = F.coalesce(F.octet_length("value") > F.lit(rule.max_bytes), F.lit(False))
    why = WhyNotJson("", rule.max_bytes)
    good, tap = split(frame.select("*", _bad(frame, large)), rule, position="offset", why=why, kafka=options)
    return good.select(*frame.columns), tap


def _bad(records: DataFrame, condition: Column) -> Column:
    from pyspark.sql import functions as F

    own = {name: F.col(name) for name in OWN}
    return bad_record.column(records.sparkSession, condition, F.col("value"), **own)
