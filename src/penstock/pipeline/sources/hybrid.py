"""The source `hybrid`: a history that comes to an end, then a live source, with no gap and no overlap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from penstock.errors import ConfigError
from penstock.options import OptionsOwner, mistake, read_options, settings_of
from penstock.pipeline.node import SourceNode
from penstock.pipeline.nodes import SOURCE_NODES
from penstock.pipeline.sources.clickhouse import ClickHouseNode
from penstock.pipeline.sources.kafka import KafkaNode

if TYPE_CHECKING:
    from typing import Self

    from penstock.config import Settings
    from penstock.sources.base import Source, SourceContext

OFFSETS = "starting_offsets"


def _model(values: Mapping[str, Any]) -> type[SourceNode]:
    """The model of a source inside the source."""
    kind = values.get("type")
    if kind == "hybrid":
        raise mistake("is a hybrid source itself", hint="it has one history and one live source")
    if not isinstance(kind, str):
        raise mistake(
            "has no type", hint=f"add type: {', '.join(name for name in SOURCE_NODES if name != 'hybrid')}"
        )
    try:
        model: type[SourceNode] = SOURCE_NODES.load(kind)
    except ConfigError as error:
        raise mistake(f"has an {error.message}", hint=error.hint) from None
    assert issubclass(model, SourceNode)
    return model


def _example(values: dict[str, Any]) -> SourceNode:
    """The source without settings: those that complete it are not known yet, and examples stand for them."""
    model = _model(values)
    missing = {name: mark.example for name, mark in settings_of(model).items() if not values.get(name)}
    return model.model_validate({**missing, **values})


def _checked(values: dict[str, Any]) -> dict[str, Any]:
    _example(values)
    return values


Part = Annotated[
    dict[str, Any],
    AfterValidator(_checked),
    WithJsonSchema({"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}}}),
]


class HybridNode(SourceNode):
    """Reads a history first and then a live source, with no gap and no overlap: a table of ClickHouse, then a topic
    of Kafka, for example.

    Take it where the live source does not reach back to the beginning, or where a table is read faster. The columns
    are those of the live source, and the history must have them too. `_op` is that of the live source; the rows of
    the history are inserts.
    """

    type: Literal["hybrid"] = Field("hybrid", description="`hybrid`")
    history: Part = Field(
        repr=False,
        description="a source that comes to an end, with its fields: `{type: clickhouse, table: orders}`",
    )
    live: Part = Field(
        repr=False,
        description="the source that goes on, with its fields: `{type: kafka, topic: orders, schema: {...}}`",
    )
    cursor: str | None = Field(
        None,
        description="a column of both, never NULL, that only grows, such as an id, a block number or a "
        "time: the history gives the rows up to its "
        "greatest value at the first start, the live source those beyond, and all updates and "
        "deletes that it has. If there is none, there must be a primary key: rows are "
        "upserts, and "
        "the live source begins where it stood before the history was read",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        history, live = _example(self.history), _example(self.live)
        if not history.is_bounded:
            raise mistake(
                f"history is a {history.type} source that does not end",
                hint="give it mode: bounded, or another source",
            )
        if live.is_bounded:
            raise mistake(
                f"live is a {live.type} source that ends", hint="give it mode: continuous, or another source"
            )
        if self.cursor is None and not self.primary_key:
            raise mistake(
                "a hybrid source needs a cursor or a primary_key: nothing else says which rows of the "
                "live source are in the history",
                hint="cursor: a column that only grows; or primary_key, and rows that come twice replace each other",
            )
        if self.cursor is None and not isinstance(live, KafkaNode):
            raise mistake(
                f"without a cursor the live source must be kafka, which says where it stands, and it is {live.type}",
                hint="add cursor: a column that only grows",
            )
        return self

    @property
    def reads(self) -> Mapping[str, Any]:
        nodes = {"history": _example(self.history), "live": _example(self.live)}
        # An address that a setting gives is not known here.
        parts = {
            part: {name: value for name, value in node.reads.items() if name != "database"}
            for part, node in nodes.items()
        }
        return {**super().reads, **parts, "cursor": self.cursor}

    def source(self, settings: Settings) -> Source:
        """Return both parts with the rows of the live source; a pipeline runs `history_source`, then `live_source`."""
        from penstock.sources import hybrid

        history = self._history_source(settings, None)
        return hybrid.BothParts(history, self._live_source(settings), cursor=self.cursor)

    def boundary(self, settings: Settings, context: SourceContext) -> dict[str, Any]:
        """Return where the history is to end and the live source to begin: called once, before the first start, and kept.

        It is a dictionary that JSON can say.
        """
        from penstock.sources import hybrid

        fixed = hybrid.boundary(
            self._history_source(settings, None),
            self._live_latest(settings) if self._records_offsets else self._live_source(settings),
            context,
            cursor=self.cursor,
            records_offsets=self._records_offsets,
        )
        return fixed.to_json()

    def history_source(self, settings: Settings, boundary: Mapping[str, Any]) -> Source:
        """Return the rows up to the boundary; they come to an end."""
        from penstock.sources import hybrid

        until = hybrid.Boundary.from_json(boundary).cursor
        history = self._history_source(settings, until)
        return hybrid.HistorySource(history, self._live_source(settings), cursor=self.cursor, until=until)

    def live_source(self, settings: Settings, boundary: Mapping[str, Any]) -> Source:
        """Return the rows beyond the boundary."""
        from penstock.sources import hybrid

        def begin(offsets: str | None) -> Source:
            node = self._live(settings)
            return node.source(settings) if offsets is None else _from(node, settings, offsets)

        return hybrid.LiveSource(begin, hybrid.Boundary.from_json(boundary), cursor=self.cursor)

    @property
    def _records_offsets(self) -> bool:
        """Whether the live source begins at offsets that are noted: it is to begin with what comes, or rows are upserts."""
        if self.live["type"] != "kafka":
            return False
        start = self.live.get(OFFSETS)
        return start == "latest" or (start is None and self.cursor is None)

    def _live_source(self, settings: Settings) -> Source:
        return self._live(settings).source(settings)

    def _live_latest(self, settings: Settings) -> Source:
        return _from(self._live(settings), settings, "latest")

    def _live(self, settings: Settings) -> SourceNode:
        return self._node(self.live, "live", settings)

    def _history_source(self, settings: Settings, until: str | None) -> Source:
        node = self._node(self.history, "history", settings)
        if isinstance(node, ClickHouseNode) and self.cursor is not None:
            return node.model_copy(update={"cursor": self.cursor, "until": until}).source(settings)
        return node.source(settings)

    def _node(self, values: dict[str, Any], part: str, settings: Settings) -> SourceNode:
        owner = OptionsOwner(
            f"the {part} of the hybrid source", code="SOURCE_OPTION", syntax="{name}: {value}"
        )
        with_key = {"primary_key": self.primary_key, **values} if self.primary_key else values
        return read_options(_model(values), with_key, owner=owner, settings=settings)


def _from(node: SourceNode, settings: Settings, offsets: str) -> Source:
    assert isinstance(node, KafkaNode)
    return node.source_from(settings, offsets)
