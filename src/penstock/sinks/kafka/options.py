"""The options of the Kafka sink."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, StringConstraints

from penstock.options import IgnoringCase, Others, Texts
from penstock.sinks.server import ServerOptions
from penstock.spark.kafka_access import BootstrapServers

PREFIX = "kafka."


class KafkaTopicOptions(ServerOptions):
    """The topic, what a record has, and settings of the producer."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[Annotated[str, StringConstraints(pattern=r"^kafka\.")], Any]
    other_options: ClassVar[Others | None] = Others(
        PREFIX,
        "settings of the producer: Java's, or librdkafka's in a transaction. Settings for TLS and passwords may be either's: see "
        "[Kafka with TLS and passwords](connectors.md#kafka-with-tls-and-passwords)",
    )

    topic: str = Field(description="the topic; it must exist unless the broker creates topics by itself")
    bootstrap_servers: BootstrapServers
    avro_schema: str | None = Field(
        None,
        description="the Avro schema of values, as JSON; default: it follows from the columns",
    )
    schema_registry: str | None = Field(
        None,
        repr=False,
        description="Avro only: the address of a schema registry; the schema is registered there, and values begin with its id",
    )
    schema_registry_auth: str | None = Field(None, repr=False, description="`user:password` for the registry")
    subject: str | None = Field(None, description="the subject in the registry; default: `TOPIC-value`")
    headers: Texts = Field(
        {},
        description="headers of every record; a query that gives whole records (`key`, `value`) may have "
        "a column `headers` instead",
    )
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None = Field(
        None,
        description="how the producer compresses records; default: as the settings of the producer say",
    )
    tombstones: bool = Field(
        False,
        description="where rows have `_op`: a row that is deleted is a record without a value, as "
        "compacted topics want it, and not the row",
    )
    transactional_id: str | None = Field(
        None,
        description="write in transactions of this id, exactly once",
    )
    exactly_once: bool = Field(
        False,
        description="write exactly once, with transactions whose id is that of the query; `transactional_id` gives them another",
    )

    @property
    def in_transactions(self) -> bool:
        """Whether rows are written exactly once."""
        return self.exactly_once or self.transactional_id is not None


class KafkaOptions(KafkaTopicOptions):
    """The topic, how rows become records, and settings of the producer."""

    value_format: Annotated[Literal["json", "avro", "string", "binary"] | None, IgnoringCase] = Field(
        None,
        description="`json` (all columns, NULL written out), `avro` (all columns), `string` or `binary` "
        "(the column `value`). Default: "
        "a query that has only `value` and perhaps `key` and `headers` is sent as it is, all others as JSON",
    )
