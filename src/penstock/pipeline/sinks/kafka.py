"""`type: kafka`: rows as records of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from penstock.options import IgnoringCase, mistake
from penstock.pipeline.node import RowErrors, SinkNode
from penstock.pipeline.sinks.connector import connector_options
from penstock.sinks.kafka.options import KafkaTopicOptions

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.sinks.kafka.sink import KafkaSink


class KafkaNode(KafkaTopicOptions, RowErrors, SinkNode):
    """Sends a record per row to a topic, in one transaction per epoch.

    `_op` is the header `dbz.op`: `c` inserted, `u` updated, `d` deleted; rows without `_op` have no such header. The value of a
    delete is the row, or nothing with `tombstones: true`. The key of a record is the column of the primary key as text, or a JSON
    object of several. Readers need `isolation.level=read_committed` to see each row once.
    """

    model_config = ConfigDict(extra="allow")

    data_format: Annotated[Literal["json", "avro"], IgnoringCase] = Field(
        "json", description="the format of values: `json` (NULL written out) or `avro`"
    )
    schema_registry: str | Literal[False] | None = Field(  # type: ignore[assignment]  # false turns the setting off
        None,
        repr=False,
        description="Avro only: the address of a schema registry, where the schema is registered; "
        "default: `PENSTOCK_SCHEMA_REGISTRY_URL`, "
        "`false` for plain Avro",
    )
    exactly_once: bool = Field(
        True,
        description="write in transactions: a reader with `isolation.level=read_committed` has every row "
        "once, in order; false: at least once",
    )

    @model_validator(mode="after")
    def _knows_its_rows(self) -> Self:
        if self.on_error != "fail" and not self.exactly_once:
            raise mistake(
                "on_error needs transactions: without them nobody knows which records of a batch have been stored",
                hint="remove `exactly_once: false`, or on_error",
            )
        return self

    def sink(self, settings: Settings) -> KafkaSink:
        from penstock.sinks.kafka.sink import KafkaSink

        options = connector_options(self, KafkaTopicOptions)
        registry = settings.schema_registry_url if self.schema_registry is None else self.schema_registry
        options["schema_registry"] = (registry or None) if self.data_format == "avro" else None
        return KafkaSink({**options, "value_format": self.data_format}, settings)
