"""What a node of a pipeline is: frozen models of its fields in YAML, which make the sources, transforms and sinks of
the Python API.

A model is the only list of the fields of a node: it checks what users write, it is the JSON schema that editors read,
and the pages of the reference are written from it. It imports nothing that is slow: `penstock validate` reads a file
without Spark.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from penstock.options import Names, Options, Texts, mistake
from penstock.sources.postgres.address import PostgresUrl

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.sinks.base import Sink
    from penstock.sources.base import Source
    from penstock.transforms.base import Transform

MOST_LABELS = 20


class EventTime(Options):
    """The column that says when a row happened: how far the newest row of an epoch is behind the clock is the lag in
    metrics and in `run --live`."""

    column: str = Field(description="a column of the node's rows")
    unit: Literal["timestamp", "s", "ms", "us", "ns"] = Field(
        "timestamp", description="`timestamp`, or what a number counts since 1970: `s`, `ms`, `us`, `ns`"
    )


class Telemetry(Options):
    """How a node shows itself in metrics and logs."""

    event_time: EventTime | None = Field(None, description="the column that says when a row happened")
    labels: Annotated[Texts, Field(max_length=MOST_LABELS)] = Field(
        {}, description="labels of the node's metrics, 20 at most"
    )


OnError = Literal["fail", "drop", "dead_letter"]


class DeadLetter(Options):
    """Where rows go that a node could not take: with the node, the reason, the time and the row as JSON."""

    type: Literal["file", "kafka", "postgres", "iceberg"] = Field("file", description="what takes them")
    path: str | None = Field(
        None, description="file only: the folder; default: one beside the state of the pipeline"
    )
    topic: str | None = Field(None, description="kafka only, required there: the topic")
    table: str | None = Field(
        None, description="postgres and iceberg only, required there: `table` or `schema.table`"
    )
    url: PostgresUrl | None = Field(
        None,
        repr=False,
        description="postgres only: the address of the database; default: `PENSTOCK_POSTGRES_URL`",
    )
    bootstrap_servers: str | None = Field(
        None, description="kafka only: the brokers; default: `PENSTOCK_KAFKA_BOOTSTRAP_SERVERS`"
    )

    @model_validator(mode="after")
    def _fits_its_type(self) -> Self:
        needed = {"kafka": "topic", "postgres": "table", "iceberg": "table"}.get(self.type)
        if needed is not None and getattr(self, needed) is None:
            raise mistake(f"of type {self.type} needs the field '{needed}'")
        taken = {
            "file": ("path",),
            "kafka": ("topic", "bootstrap_servers"),
            "postgres": ("table", "url"),
            "iceberg": ("table",),
        }[self.type]
        for name in ("path", "topic", "table", "url", "bootstrap_servers"):
            if name not in taken and getattr(self, name) is not None:
                raise mistake(
                    f"of type {self.type} has no field '{name}'", hint=f"it takes {', '.join(taken)}"
                )
        return self


class Node(Options):
    """The fields that every node may have."""

    stored_fields: ClassVar[frozenset[str]] = frozenset({"primary_key"})
    """The fields, by the names that users write, whose values the checkpoint or the state of a pipeline has as they are."""

    type: str = Field(description="what the node is")
    telemetry: Telemetry | None = Field(None, description="how the node shows itself in metrics and logs")


class RowErrors(Options):
    """What becomes of single rows that a node cannot take; of nodes that take rows one by one, and so can tell them apart."""

    on_error: OnError = Field(
        "fail", description="what happens to a row that fails: `fail`, `drop` (counted) or `dead_letter`"
    )
    dead_letter: DeadLetter | None = Field(
        None,
        description="where rows go that fail, with `on_error: dead_letter`: see [Dead letters](dead-letters.md)",
    )

    @field_validator("dead_letter")
    @classmethod
    def _takes_rows(cls, letters: DeadLetter | None, others: ValidationInfo) -> DeadLetter | None:
        on_error = others.data.get("on_error", "dead_letter")
        if letters is not None and on_error != "dead_letter":
            raise mistake(f"gets no rows with `on_error: {on_error}`", hint="add on_error: dead_letter")
        return letters


def labels_of(node: Node) -> Mapping[str, str]:
    """The labels of a node's metrics."""
    return {} if node.telemetry is None else node.telemetry.labels


class SourceNode(Node):
    """Where rows come from."""

    primary_key: Names = Field((), description="the columns that tell rows apart")

    @property
    def is_bounded(self) -> bool:
        """Whether the source comes to an end; a pipeline whose sources all do, ends."""
        return False

    @property
    def poll_interval_ms(self) -> int | None:
        """How often it is to be looked for new rows, when that costs something; None for all the time."""
        return None

    @property
    def reads(self) -> Mapping[str, Any]:
        """What decides which rows it has, by the names that users know: when any of it changes, it is another source,
        and is read from its beginning.

        The address of the server is no part of it: the same rows may move.
        """
        return {"type": self.type}

    @property
    def may_know_its_key(self) -> bool:
        """Whether the source can find the key of its rows out by itself, without `primary_key`."""
        return False

    @abstractmethod
    def source(self, settings: Settings) -> Source:
        """Return the source of the Python API that this node is; raises when an option does not fit."""


class TransformNode(Node):
    """What happens to rows on their way."""

    primary_key: Names = Field((), description="the columns that tell its rows apart")

    @property
    def is_table(self) -> bool:
        """Whether it is a table beside the rows of others, which only `sql` nodes join or ask: no rows come out of it."""
        return False

    @abstractmethod
    def inputs(self, names: Mapping[str, str]) -> tuple[str, ...]:
        """Return the nodes that it reads, of all the nodes that there are (a name in lower case to the name as declared)."""


class RowTransformNode(RowErrors, TransformNode):
    """A transform of the rows of one node, by a `Transform`."""

    from_: str = Field(validation_alias="from", description="the node whose rows it takes")

    def inputs(self, names: Mapping[str, str]) -> tuple[str, ...]:
        return (self.from_,)

    @abstractmethod
    def transform(self, settings: Settings) -> Transform:
        """Return the transform that this node is."""


class SinkNode(Node):
    """Where rows go."""

    from_: str = Field(validation_alias="from", description="the node whose rows it takes")
    primary_key: Names = Field(
        (), description="the columns that tell rows apart; default: those of the node in `from`"
    )

    @property
    def is_keyed(self) -> bool:
        """Whether rows replace and delete each other by the key, so that there must be one."""
        return False

    @property
    def mode(self) -> Literal["append", "update"]:
        """How the sink of the Python API is written to."""
        return "update" if self.is_keyed else "append"

    @abstractmethod
    def sink(self, settings: Settings) -> Sink:
        """Return the sink of the Python API that this node is."""
