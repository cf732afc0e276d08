"""A connected group of nodes as one streaming query: its plan, and the sink that runs each epoch through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, ClassVar, cast

from penstock.data.operation import OPERATION
from penstock.errors import ConfigError, ConnectorError
from penstock.pipeline.evaluator import EpochFrames, Evaluator
from penstock.pipeline.event_time import EventTimes
from penstock.pipeline.failed_rows import Failed, FailedRows
from penstock.pipeline.group_folder import GroupFolder
from penstock.pipeline.node import EventTime, RowErrors, labels_of
from penstock.pipeline.node_output import NodeOutput
from penstock.pipeline.replay import Letters, Replay
from penstock.pipeline.source_change import SourceChanges
from penstock.pipeline.step import node_values, other_key
from penstock.sinks.base import Epoch, Guarantee, Sink, Target
from penstock.sinks.refused import RefusedRows
from penstock.spark.errors.query import translate_query_error, translated
from penstock.spark.micro_batch import stateless, union
from penstock.spark.micro_batch.query_run import Drained
from penstock.spark.no_rows import no_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from penstock.pipeline.row_counts import RowCounts
    from penstock.pipeline.spec import NodeSpec
    from penstock.pipeline.step import Step
    from penstock.pipeline.values import GroupValues
    from penstock.pipeline.views_step import ViewsStep
    from penstock.plugin import Namespace
    from penstock.sources.base import Source
    from penstock.streaming.stream import Stream


SOME_EPOCHS = 100
"""For how many epochs behind one in which rows of a query have failed others are expected to."""


class Phase(StrEnum):
    """What of its sources a group reads."""

    HISTORY = "history"
    """The histories of hybrid sources, which come to an end; all others wait."""
    LIVE = "live"
    """All sources, of the hybrid ones what comes behind their histories."""

    @property
    def folder(self) -> str:
        """What the name of its checkpoint has of it."""
        return "" if self is Phase.LIVE else self


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """A source of a group."""

    node: NodeSpec
    source: Source
    stream: Stream
    output: NodeOutput
    is_idle: bool = False
    """Whether it is read later: it gives no rows now."""


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """A sink of a group, and the node whose rows it takes."""

    node: NodeSpec
    sink: Sink
    input_node: str
    input: NodeOutput
    keys: tuple[str, ...]
    mode: str

    @property
    def leaves_out(self) -> bool:
        """Whether rows that its system refuses are left out."""
        return isinstance(self.node.model, RowErrors) and self.node.model.on_error != "fail"

    def target(self, query: Target) -> Target:
        """The sink's own view of the query that runs the group."""
        values = node_values(query, self.node.name)
        return replace(
            query,
            query=f"{query.query}-{self.node.name}",
            name=f"{query.name}.{self.node.name}",
            mode=self.mode,
            schema=self.input.schema,
            keys=self.keys,
            operation=OPERATION if self.input.operations and self.sink.takes_operations else None,
            labels=labels_of(self.node.model),
            stateful=False,
            state=values,
            refused=RefusedRows(query.spark, values) if self.leaves_out else None,
        )


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Everything about a group that was decided before it runs."""

    name: str
    folder: GroupFolder
    phase: Phase
    sources: tuple[SourcePlan, ...]
    steps: tuple[Step, ...]
    sinks: tuple[SinkPlan, ...]
    outputs: Mapping[str, NodeOutput]
    """Of all nodes that give rows, in order."""
    nodes: Mapping[str, NodeSpec]
    failed: tuple[FailedRows, ...] = ()
    """What happens to rows that nodes cannot take, for every node that may have some."""
    letters: Mapping[str, Letters] = field(default_factory=dict)
    """The dead letters of the nodes that write some."""
    values: GroupValues | None = None
    """What the group remembers; None for one that is only looked at."""
    source_changes: SourceChanges = field(default_factory=SourceChanges)
    """What is different about its sources since its last run."""
    event_times: Mapping[str, EventTime] = field(default_factory=dict)
    """Of the nodes that declare one."""

    @property
    def is_bounded(self) -> bool:
        """Whether all sources come to an end."""
        return self.phase is Phase.HISTORY or all(
            getattr(source.node.model, "is_bounded", False) for source in self.sources
        )

    @property
    def views(self) -> tuple[ViewsStep, ...]:
        """The views, level by level."""
        return tuple(cast("ViewsStep", step) for step in self.steps if step.level)

    @property
    def checkpoint(self) -> Path:
        """Where its checkpoint is, or is to be, when other sources begin in it."""
        phase = self.phase.folder
        changed = self.source_changes.changes
        return self.folder.next_checkpoint(phase) if changed else self.folder.checkpoint(phase)

    @property
    def news(self) -> list[str]:
        """Messages for people when the group has been opened."""
        texts = [text for step in self.views for text in step.news]
        if any(sink.mode == "update" for sink in self.sinks):
            texts += [
                f"'{source.node.name}' leaves out records without a value, which delete: it has no primary_key"
                for source in self.read
                if getattr(source.node.model, "leaves_out_deletes", False)
            ]
        return texts

    @property
    def left_views(self) -> list[Path]:
        """The state of views on levels where none are declared any more."""
        return self.folder.views_beside([step.level for step in self.views])

    def begins_anew(self, values: Namespace | None) -> bool:
        """Whether sinks have something to write although no row may come, because views or their readers have
        changed; `values` are those of the query."""
        return any(step.begins_anew(values) for step in self.views)

    @property
    def read(self) -> tuple[SourcePlan, ...]:
        """The sources that give rows now."""
        return tuple(source for source in self.sources if not source.is_idle)

    def frame(self) -> DataFrame:
        """The rows of all sources, as one streaming DataFrame."""
        return union.union([source.stream.df for source in self.read])


@dataclass(frozen=True, slots=True)
class NodeEpoch:
    """What one epoch did at the nodes."""

    epoch: int
    written: Mapping[str, int | None] = field(default_factory=dict)
    """Rows that sinks took, by name; None when a sink does not count them."""
    failed: Mapping[str, int] = field(default_factory=dict)
    """Rows that failed, by the node."""
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """What nodes counted themselves, such as expectations."""
    lags: Mapping[str, float] = field(default_factory=dict)
    """By how many seconds the newest row was behind the clock, of the nodes that declare an event time and had rows."""


class GroupSink(Sink):
    """Runs each epoch through the steps of a group into all its sinks.

    The offsets are committed only when all sinks have the epoch. When one fails, the epoch comes again for all:
    exactly-once sinks leave out what they have.
    """

    modes: ClassVar[frozenset[str]] = frozenset({"append"})

    def __init__(
        self,
        plan: GroupPlan,
        *,
        report: Callable[[NodeEpoch], None] | None = None,
        replay: Replay | None = None,
        counts: RowCounts | None = None,
    ) -> None:
        super().__init__({})
        self._plan = plan
        self._event_times = EventTimes(plan.event_times)
        self._evaluator = Evaluator(
            plan.steps,
            read=[sink.input_node for sink in plan.sinks],
            watched=self._event_times.watched,
            counts=counts,
        )
        self._report = report
        self._replay = replay
        self._failed = {failed.node.name: failed for failed in plan.failed}
        self._columns = [source.output.columns for source in plan.read]
        self._refused: dict[str, RefusedRows] = {}
        """Of the sinks that leave out rows which their systems refuse."""
        self._failing_until = -1
        """The epoch up to which some rows are expected to fail."""
        self._idle: dict[str, DataFrame] = {}
        self._target: Target | None = None
        self.needs_checkpoint = False

    @property
    def guarantee(self) -> Guarantee:
        kinds = {plan.sink.guarantee for plan in self._plan.sinks}
        if kinds == {Guarantee.EXACTLY_ONCE}:
            return Guarantee.EXACTLY_ONCE
        return Guarantee.NOT_KEPT if kinds == {Guarantee.NOT_KEPT} else Guarantee.AT_LEAST_ONCE

    def describe(self) -> str:
        return ", ".join(f"{plan.node.name}: {plan.sink.describe()}" for plan in self._plan.sinks)

    def check(self, target: Target) -> None:
        for source in self._plan.sources:
            with translated(where=str(source.node.place)):
                source.source.check()
        for step in self._plan.steps:
            step.check()
        for failed in self._failed.values():
            with translated(where=str(failed.node.place)):
                failed.check(target)
        for plan in self._plan.sinks:
            with translated(where=str(plan.node.place)):
                try:
                    plan.sink.check(plan.target(target))
                finally:
                    plan.sink.close()

    def open(self, target: Target) -> None:
        self._target = target
        self._idle = {
            source.node.name: no_rows(target.spark, source.output.schema)
            for source in self._plan.sources
            if source.is_idle
        }
        try:
            self._evaluator.open(target)
            if self._replay is not None:
                self._replay.open(target)
            for failed in self._failed.values():
                with translated(where=str(failed.node.place)):
                    failed.open(target)
            for plan in self._plan.sinks:
                own = plan.target(target)
                if own.refused is not None:
                    self._refused[plan.node.name] = own.refused
                with translated(where=str(plan.node.place)):
                    plan.sink.open(own)
        except BaseException:
            # The error of the open is raised, not one of the close that follows from it.
            with suppress(Exception):
                self.close()
            raise

    def write(self, epoch: Epoch) -> int | None:
        with self._placed(None):
            return self._write(epoch)

    @contextmanager
    def _placed(self, place: str | None) -> Iterator[None]:
        """Raise the error of the step whose rows could not be computed; raise any other error with the place of the
        node before its own."""
        try:
            yield
        except Drained:
            raise
        except Exception as error:
            step_error = self._evaluator.failure(error)
            if step_error is not None:
                raise step_error from None
            problem = translate_query_error(error)
            if place is not None:
                problem.where = f"{place} ({problem.where})" if problem.where else place
            if problem is error:
                raise
            raise problem from None

    def _write(self, epoch: Epoch) -> int | None:
        several = len(self._plan.read) > 1
        batch = epoch.frame.persist() if several else epoch.frame
        try:
            parts = union.split(batch, self._columns)
            names = [source.node.name for source in self._plan.read]
            rows = {**self._idle, **dict(zip(names, parts, strict=True))}
            replayed = None if self._replay is None else self._replay.rows(epoch.number)
            return self._write_rows(epoch.number, rows, replayed or {})
        finally:
            if several:
                batch.unpersist()

    def _write_rows(
        self, number: int, rows: Mapping[str, DataFrame], replayed: Mapping[str, DataFrame]
    ) -> int | None:
        """Compute and write an epoch; when that fails, once more without the rows that nodes cannot take.

        Rows are looked for only then: in an epoch in which none fails they cost nothing. They are looked for at once
        in an epoch that may be in sinks already, which would not read them again, and for a while behind one in which
        some had failed.
        """
        assert self._target is not None, "a sink is opened before its first epoch"
        written: dict[str, int | None] = {}
        separates = self._evaluator.may_separate and number <= max(self._target.begun, self._failing_until)
        evaluate = partial(self._evaluator.evaluate, number, rows, fixed=self._fixed(number))
        first, second = EpochFrames(), EpochFrames()
        try:
            try:
                evaluate(replayed=replayed, separates=separates, result=first)
                return self._write_sinks(number, first, replayed, written)
            except Exception as error:
                of_system = isinstance(error, ConnectorError | Drained)
                if separates or of_system or not self._evaluator.may_separate:
                    raise
                evaluate(replayed=replayed, separates=True, before=first, result=second)
                if second.splits.keys() <= first.splits.keys():
                    raise  # no row has failed
                self._failing_until = number + SOME_EPOCHS
            return self._write_sinks(number, second, replayed, written)
        finally:
            second.release()
            first.release()

    def _fixed(self, epoch: int) -> Callable[[str, DataFrame], DataFrame]:
        """Return what makes volatile rows the same whenever the epoch comes, so that all sinks store the same rows."""
        target = self._target
        assert target is not None, "a sink is opened before its first epoch"

        def fixed(node: str, frame: DataFrame) -> DataFrame:
            time_ms = stateless.first_time_ms(target.spark, target.query)
            if time_ms is None:
                return frame
            name = f"{target.query} {node} {epoch}".encode()
            seed = int.from_bytes(blake2b(name, digest_size=8).digest(), signed=True)
            return stateless.fixed(frame, time_ms=time_ms, seed=seed)

        return fixed

    @property
    def wants_epoch(self) -> bool:
        return self._replay is not None and self._replay.is_wanted

    @property
    def is_done(self) -> bool:
        return any(plan.sink.is_done for plan in self._plan.sinks)

    def finalize(self, epoch: int) -> None:
        self._evaluator.finalize(epoch)
        for failed in self._failed.values():
            failed.finalize(epoch)
        for plan in self._plan.sinks:
            plan.sink.finalize(epoch)
        for refused in self._refused.values():
            refused.finalize(epoch)
        if self._replay is not None:
            self._replay.finalize(epoch)

    def close(self) -> None:
        with ExitStack() as closing:
            closing.callback(self._evaluator.close)
            for failed in self._failed.values():
                closing.callback(failed.close)
            for plan in self._plan.sinks:
                closing.callback(plan.sink.close)

    def _write_sinks(
        self,
        number: int,
        frames: EpochFrames,
        replayed: Mapping[str, DataFrame],
        written: dict[str, int | None],
    ) -> int | None:
        """Write an epoch to the sinks that are not among `written`, which gets the others, and then the rows that failed."""
        for plan in self._plan.sinks:
            name = plan.node.name
            if name in written:
                continue
            with self._placed(str(plan.node.place)):
                frame = frames.frames[plan.input_node]
                if name in replayed:
                    frame = frame.unionByName(replayed[name])
                if name in self._refused:
                    self._refused[name].begin(number)
                frame = self._event_times.watched(name, frame)
                written[name] = plan.sink.write(Epoch(number, frame))
        failed = {}
        left_out: dict[str, Failed] = {**frames.splits, **self._refused}
        for name, rows in left_out.items():
            with self._placed(str(self._plan.nodes[name].place)):
                failed[name] = self._failed[name].write(number, rows)
        self._evaluator.commit(number)
        if self._report is not None:
            counts, lags = self._evaluator.counts(), self._event_times.lags()
            self._report(NodeEpoch(number, written, failed, counts, lags))
        row_counts = [rows for rows in written.values() if rows is not None]
        return sum(row_counts) if row_counts else None


def refuse_unfit(plan: SinkPlan) -> None:
    """Refuse a sink that cannot take what its node gives."""
    place = str(plan.node.place)
    if plan.mode == "update" and plan.input.weights:
        raise ConfigError(
            f"'{plan.node.name}' keeps rows by a key, and '{plan.input_node}' has none",
            code="PIPELINE_KEY",
            where=place,
            hint=f"give '{plan.input_node}' a primary_key",
        )
    if plan.mode == "update" and not plan.keys:
        raise ConfigError(
            f"'{plan.node.name}' keeps rows by a key, and nothing says which columns that is",
            code="PIPELINE_KEY",
            where=place,
            hint=f"add primary_key to '{plan.node.name}' or to '{plan.input_node}'",
        )
    if plan.mode == "update" and not plan.input.is_keyed_by(plan.keys):
        raise other_key(plan.node, plan.keys, plan.input, reads=plan.input_node)
