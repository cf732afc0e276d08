"""A query before it starts: everything that was decided and checked about it, as a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.backend.checkpoint import durability_of
from penstock.spark.micro_batch import checkpoint
from penstock.streaming.trigger import OutputMode, Trigger, TriggerKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.backend.model import Kind
    from penstock.sinks.base import Sink, Target
    from penstock.streaming.job import QueryJob
    from penstock.streaming.query_sources import QuerySources


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """What `StreamWriter.plan` returns and `StreamWriter.launch` runs, once; to make one takes no lease and writes nothing."""

    name: str
    named: bool
    """Whether the user chose the name: then the query is a job of the state backend."""
    call_site: str | None
    """The line of the user's program that made the plan."""
    frame: DataFrame
    mode: OutputMode
    trigger: Trigger
    sink: Sink
    """Checked, and not open."""
    target: Target
    sources: QuerySources
    logical_plan: str
    """Spark's analyzed plan, for people."""
    location: str | None = None
    """Where the user wants the checkpoint; None: a temporary folder, or none for one batch."""
    savepoint: str | None = None
    shape: checkpoint.Shape = ()
    """What of the query its checkpoint depends on."""
    rows_only: bool = False
    """Whether no batch is made without new rows, because the query is to end and its state changes with the clock."""
    close_windows: bool = False
    wanted_only: bool = False
    """Whether it ends behind the batch that its sink wants, and reads no new rows."""
    obstacle: str | None = None
    """Why `Trigger.continuous` runs micro-batches; None when it need not."""
    kind: Kind = "query"
    """What the state backend calls it."""
    prepare: Callable[[str, QueryJob | None], None] | None = None
    """Called with the place of the checkpoint and the job when the lease is ours, before anything of the checkpoint is read."""
    hide: Callable[[str], str] = field(default=str, repr=False)
    """Takes secrets out of a text that is logged, recorded or raised."""
    parts: Mapping[str, Any] = field(default_factory=dict)
    """What the state backend records beside what every query has."""

    @property
    def id(self) -> str:
        """The id that the query has, or gets when its checkpoint is new."""
        return self.target.query

    @property
    def is_batch(self) -> bool:
        """Whether all rows are one batch, without a checkpoint."""
        return self.trigger.kind is TriggerKind.ONCE

    @property
    def is_live(self) -> bool:
        """Whether rows go on as they come, in Spark's real-time mode."""
        return self.trigger.kind is TriggerKind.CONTINUOUS and self.obstacle is None

    @property
    def is_pausable(self) -> bool:
        """Whether it has batches between which it could pause."""
        return not self.is_batch and not self.is_live

    @property
    def note(self) -> str | None:
        """How `Trigger.continuous` runs, and why."""
        if self.trigger.kind is not TriggerKind.CONTINUOUS:
            return None
        return "rows as they come" if self.is_live else f"micro-batches back to back: {self.obstacle}"

    def explain(self) -> str:
        """Return the plan, where the rows go, and what is promised about them."""
        sink, note = self.sink, self.note
        lines = [
            f"query {self.name} ({self.id})",
            f"  trigger     {self.trigger}{f' ({note})' if note else ''}",
            f"  output mode {self.mode}",
            f"  sink        {sink.describe()}",
            f"  guarantee   {sink.guarantee}{f' ({reason})' if (reason := sink.guarantee_reason) else ''}",
            f"  checkpoint  {self.location or 'none'}",
            f"  durability  {durability_of(self.location)}",
            "",
            self.logical_plan,
        ]
        return "\n".join(lines)

    def definition(self) -> dict[str, Any]:
        """Return what the state backend records about the query."""
        return {
            "sink": self.hide(self.sink.describe()),
            "guarantee": self.sink.guarantee.value,
            "trigger": str(self.trigger),
            "pausable": self.is_pausable,
            "output_mode": self.mode.value,
            "columns": self.target.schema.simpleString(),
            "durability": durability_of(self.location),
            **self.parts,
        }
