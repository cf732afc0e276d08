"""Rows as ticks of an incremental flow: each epoch is one tick, and its number tells a repetition.

The flow knows how many epochs of each query are in: its log has the rows and the number of an epoch in one record,
which is synced before Spark notes the epoch as done. So after a crash the flow is where the query is, or one epoch
ahead, which comes again and counts once. A flow that has not seen what the query has already read refuses it, because
its views would lack those rows; so does one that has seen more than the query has begun.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from penstock.data.batch import DeltaBatch
from penstock.data.operation import WEIGHT
from penstock.errors import ConfigError
from penstock.sinks.base import Epoch, Guarantee, Sink, Target
from penstock.spark.arrow import to_arrow, user_schema

if TYPE_CHECKING:
    import pyarrow as pa


class FlowSource(Protocol):
    """What is known of a source of a flow."""

    @property
    def name(self) -> str:
        """As it was registered."""

    @property
    def primary_key(self) -> Sequence[str]:
        """The columns of its key, if it has one."""


class Flow(Protocol):
    """What a query needs of a flow."""

    @property
    def durability(self) -> str:
        """What survives: memory, local or shared."""

    def source_info(self, name: str) -> FlowSource:
        """What is known of a source; an unknown name is an error."""

    def check(self, source: str, delta: DeltaBatch) -> None:
        """Refuse rows that do not fit, without feeding them."""

    def tick_epoch(self, source: str, delta: DeltaBatch, *, query: str, epoch: int) -> Any:
        """Feed an epoch and step; None when the epoch is in already."""

    def attach_query(self, source: str, query: str, *, epochs: int, begun: int | None = None) -> None:
        """Let a query that has done so many epochs, and begun so many, feed a source."""

    def detach_query(self, source: str, query: str) -> None:
        """The query feeds the source no more."""


class FlowSink(Sink):
    """Inserts in append mode, changes by key in update mode; a column `_weight` says how often each row comes or goes."""

    modes: ClassVar[frozenset[str]] = frozenset({"append", "update"})

    def __init__(self, flow: Flow, source: str) -> None:
        super().__init__({})
        self._flow = flow
        self._source = flow.source_info(source).name
        self._target: Target | None = None
        self._keys: tuple[str, ...] = ()
        self._was_open = False
        self._lasts = flow.durability != "memory"
        self.needs_checkpoint = self._lasts
        self.guarantee_reason = (
            "each epoch is one record of the flow's log"
            if self._lasts
            else "the flow takes every epoch once, and ends with this process"
        )

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.EXACTLY_ONCE if self._lasts else Guarantee.NOT_KEPT

    def describe(self) -> str:
        return f"source {self._source} of a flow"

    def check(self, target: Target) -> None:
        info = self._flow.source_info(self._source)
        keys = tuple(info.primary_key) or target.keys
        if target.keys and info.primary_key and set(target.keys) != set(info.primary_key):
            raise ConfigError(
                f"the key of the query is ({', '.join(target.keys)}), and that of the source '{self._source}' is "
                f"({', '.join(info.primary_key)})",
                code="STREAM_KEY",
                hint="leave .key(...) out: the source has one",
            )
        if target.mode == "update":
            if not keys:
                raise ConfigError(
                    f"update mode needs a key, and the source '{self._source}' has no primary key",
                    code="STREAM_KEY",
                    hint='register it with primary_key="id", or add .key("id") to the writer',
                )
            if WEIGHT in target.schema.names:
                raise ConfigError(
                    f"a stream with '{WEIGHT}' says itself which rows go, which is append",
                    code="STREAM_OUTPUT_MODE",
                    hint='use .output_mode("append")',
                )
        self._keys = keys if target.mode == "update" else ()
        self._flow.check(self._source, self._delta(user_schema(target.schema).empty_table()))

    def open(self, target: Target) -> None:
        # What the checkpoint had begun is known of the first run only: a later one of this query goes on from it.
        begun = None if self._was_open else target.begun + 1
        self._flow.attach_query(self._source, target.query, epochs=target.committed + 1, begun=begun)
        self._target, self._was_open = target, True

    def write(self, epoch: Epoch) -> int | None:
        assert self._target is not None, "a sink is opened before it is written to"
        table = to_arrow(epoch.frame)
        summary = self._flow.tick_epoch(
            self._source, self._delta(table), query=self._target.query, epoch=epoch.number
        )
        return 0 if summary is None else int(table.num_rows)

    def close(self) -> None:
        target, self._target = self._target, None
        if target is not None:
            self._flow.detach_query(self._source, target.query)

    def _delta(self, table: pa.Table) -> DeltaBatch:
        if self._keys:
            return DeltaBatch.upserts(table, keys=self._keys)
        return DeltaBatch.weighted(table) if WEIGHT in table.column_names else DeltaBatch.inserts(table)
