"""The source `kafka`: records of a topic as rows, with what each does to the row with its key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints, WithJsonSchema, model_validator

from penstock.options import Count, Duration, IgnoringCase, Others, PathText, mistake
from penstock.pipeline.columns import Columns
from penstock.pipeline.node import SourceNode
from penstock.spark.kafka_access import BootstrapServers

if TYPE_CHECKING:
    from typing import Self

    from penstock.config import Settings
    from penstock.sources.base import Source

BATCH_SIZE = 100_000
"""How many records end the wait of `batch_flush_interval`, when the user does not say."""


def _as_offsets(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, Mapping) else value


Offsets = Annotated[
    str,
    BeforeValidator(_as_offsets),
    WithJsonSchema({"anyOf": [{"type": "string", "examples": ["earliest", "latest"]}, {"type": "object"}]}),
]


class KafkaNode(SourceNode):
    """Reads records of Kafka: of one topic, of several, or of all that fit a pattern.

    `operations` says where `_op` comes from: a header of the record (the default), Debezium's envelope, or nowhere.
    The pipeline keeps the offsets in its checkpoint, and goes on there when it starts again; `starting_offsets`
    counts for the first start only.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[Annotated[str, StringConstraints(pattern=r"^kafka\.")], Any]
    other_options: ClassVar[Others | None] = Others(
        "kafka.", "settings of the consumer, such as `kafka.security.protocol: SASL_SSL`"
    )

    stored_fields = frozenset({"primary_key", "topic"})

    type: Literal["kafka"] = Field("kafka", description="`kafka`")
    topic: str = Field(description="a topic, several (`a,b`) or a pattern (`/orders-.*/`)")
    bootstrap_servers: BootstrapServers
    data_format: Annotated[Literal["json", "avro", "binary"] | None, IgnoringCase] = Field(
        None,
        description="the format of values: `json`, `avro`, or `binary` (the columns `key` and `value`); "
        "default: `json` when there is a schema, else `avro`",
    )
    columns: Columns | None = Field(
        None,
        validation_alias="schema",
        description='JSON only: the columns, `{id: int64, price: "decimal(10,2)"}` or DDL; with '
        "`operations: debezium` those of the rows",
    )
    avro_schema: str | None = Field(
        None,
        description="Avro only: the schema as JSON, or the path of a file; default: the newest one in the schema registry",
    )
    schema_registry: str | bool | None = Field(
        None,
        repr=False,
        description="Avro only: the address of a schema registry; default: "
        "`PENSTOCK_SCHEMA_REGISTRY_URL`, `false` for plain Avro",
    )
    schema_registry_auth: str | None = Field(None, repr=False, description="`user:password` for the registry")
    subject: str | None = Field(None, description="the subject in the registry; default: `TOPIC-value`")
    starting_offsets: Offsets = Field(
        "earliest",
        description="`earliest`, `latest`, or offsets by topic and partition; only for the first start, "
        "later ones go on where the last ended",
    )
    operations: Annotated[Literal["none", "header", "upsert", "debezium"], IgnoringCase] = Field(
        "header",
        description="what says whether a record inserts, updates or deletes (`_op`): the header `dbz.op` "
        "(without it an insert, and without a value a "
        "delete), `upsert` the same for topics in which a record without the header replaces "
        "the row with its `primary_key`, Debezium's "
        "envelope, or nothing",
    )
    include_metadata: bool = Field(
        False, description="the columns `_key`, `_topic`, `_partition`, `_offset` and `_timestamp` too"
    )
    filter: str | None = Field(
        None,
        description="a condition in SQL; only rows for which it is true are read. With operations, "
        "deletes pass, and an update that does not becomes a delete",
    )
    parallelism: Count | None = Field(
        None,
        description="how many tasks read side by side; default: one per core, and one per partition at least",
    )
    batch_size: Count | None = Field(None, description="how many records one epoch reads at most")
    batch_flush_interval: Duration | None = Field(
        None,
        description="how long an epoch waits for `batch_size` records, or for 100,000 when that is not "
        "set; default: it begins with what is there",
    )
    group: str | None = Field(
        None,
        description="a consumer group to which is committed how far the pipeline has read, for tools that show lag",
    )
    on_bad_record: Annotated[Literal["fail", "drop", "quarantine"], IgnoringCase] = Field(
        "fail",
        description="a record that does not fit fails the pipeline, is dropped and counted, or is stored elsewhere",
    )
    quarantine: PathText | None = Field(
        None, description="where bad records are stored: a folder, an Iceberg table, or `topic:NAME`"
    )
    max_record_bytes: Count | None = Field(None, description="larger records are bad records")

    @property
    def format(self) -> str:
        """The format of values: as declared, or by the schema."""
        return self.data_format or ("avro" if self.columns is None else "json")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.format == "json" and self.columns is None:
            raise mistake(
                "data_format json needs a schema", hint="for example schema: {id: int64, amount: float64}"
            )
        if self.format != "json" and self.columns is not None:
            raise mistake(
                f"schema is for JSON, and data_format is {self.format}", hint="Avro has avro_schema"
            )
        of_avro = ("avro_schema", "schema_registry", "schema_registry_auth", "subject")
        misplaced = [name for name in of_avro if getattr(self, name) is not None]
        if self.format != "avro" and misplaced:
            raise mistake(
                f"{misplaced[0]} is for data_format avro", hint="leave it out, or add data_format: avro"
            )
        if self.format == "binary" and self.operations == "debezium":
            raise mistake("operations debezium needs values in json or avro", hint="add a schema")
        if (self.on_bad_record == "quarantine") != (self.quarantine is not None):
            raise mistake(
                "quarantine and on_bad_record: quarantine belong together",
                hint="for example quarantine: bad/",
            )
        return self

    @property
    def leaves_out_deletes(self) -> bool:
        """Whether records without a value, which delete in a compacted topic, have no key by which they could do that here."""
        return self.operations == "header" and self.format != "binary" and not self.primary_key

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Without settings of the consumer, which may be passwords."""
        settings = self.model_extra or {}
        return ((name, value) for name, value in super().__repr_args__() if name not in settings)

    @property
    def reads(self) -> Mapping[str, Any]:
        return {**super().reads, "topic": self.topic}

    def source(self, settings: Settings) -> Source:
        return self.source_from(settings, self.starting_offsets)

    def source_from(self, settings: Settings, starting_offsets: str) -> Source:
        """Return the source with other offsets to start from."""
        from penstock.sources.kafka import KafkaSource

        return KafkaSource({**self._options(), "starting_offsets": starting_offsets}, settings)

    def _options(self) -> dict[str, Any]:
        direct = (
            *(
                "topic",
                "bootstrap_servers",
                "schema_registry",
                "schema_registry_auth",
                "subject",
                "operations",
            ),
            *("filter", "group", "on_bad_record", "quarantine", "max_record_bytes"),
        )
        values = {name: value for name in direct if (value := getattr(self, name)) is not None}
        values |= {
            **(self.model_extra or {}),
            "metadata": self.include_metadata,
            "primary_key": self.primary_key,
        }
        if self.format != "binary":
            values["format"] = self.format
            schema = self.columns if self.format == "json" else self.avro_schema
            values |= {} if schema is None else {"schema": schema}
        if self.parallelism is not None:
            values["minPartitions"] = str(self.parallelism)
        if self.batch_size is not None:
            values["maxOffsetsPerTrigger"] = str(self.batch_size)
        if self.batch_flush_interval is not None:
            values["minOffsetsPerTrigger"] = str(self.batch_size or BATCH_SIZE)
            values["maxTriggerDelay"] = f"{self.batch_flush_interval}ms"
        return values
