"""From the specification of a pipeline to groups that can run: sources are opened, types resolved through Spark,
steps put in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import ConfigError, suggest
from penstock.pipeline.dead_letter import LetterStore
from penstock.pipeline.dynamic_table_step import DynamicTables, DynamicTableStep, plan_checks
from penstock.pipeline.event_time import event_time_of
from penstock.pipeline.failed_rows import FailedRows
from penstock.pipeline.fields import ENDING_TRIGGERS
from penstock.pipeline.graph import PipelineGraph, graph, reachable
from penstock.pipeline.group import GroupPlan, Phase, SinkPlan, SourcePlan, refuse_unfit
from penstock.pipeline.group_folder import GroupFolder
from penstock.pipeline.group_name import group_names, job_name
from penstock.pipeline.levels import levels, reads_of
from penstock.pipeline.lookup_step import LookupStep
from penstock.pipeline.node import (
    DeadLetter,
    RowErrors,
    RowTransformNode,
    SinkNode,
    SourceNode,
    TransformNode,
    labels_of,
)
from penstock.pipeline.node_output import NodeOutput
from penstock.pipeline.replay import Letters
from penstock.pipeline.source_change import READS, SourceChanges, fingerprint, note_reads, source_changes
from penstock.pipeline.sources.hybrid import HybridNode
from penstock.pipeline.step import SqlStep, Step, TransformStep, require_columns
from penstock.pipeline.transforms.dynamic_table import DynamicTableNode
from penstock.pipeline.transforms.lookup import LookupNode
from penstock.pipeline.transforms.plugin import PluginTransformNode
from penstock.pipeline.transforms.sql import SqlNode
from penstock.pipeline.values import GroupValues, PlannedValues, Stored
from penstock.sources.base import SourceContext
from penstock.spark.errors.query import translated
from penstock.spark.micro_batch import plan as spark_plan
from penstock.transforms.base import TransformContext

if TYPE_CHECKING:
    from penstock.engine.session import Session
    from penstock.pipeline.graph import Group
    from penstock.pipeline.spec import NodeSpec, PipelineSpec
    from penstock.sources.base import Source


BOUNDARY, HISTORY_DONE = "boundary", "history_done"
"""What is remembered of a hybrid source, and of a group with one."""


class Planner:
    """Plans the groups of one pipeline in a session; nothing runs, and what is fixed for the first start is stored
    when the lease is there."""

    def __init__(
        self,
        session: Session,
        spec: PipelineSpec,
        *,
        folder: Path,
        read: Collection[str] = (),
        before: Mapping[str, Mapping[str, str]] | None = None,
        stored: Callable[[str], Stored] = lambda group: {},
        runs: bool = False,
        is_trial: bool = False,
    ) -> None:
        """`folder` has the state of views; `read` are nodes whose rows something else than a sink reads.

        `before` are the groups that have run, as `group_names` takes them. `stored` gives what a group remembers. A
        pipeline that `runs` goes on from it; any other is only compared with it. A trial writes nothing anywhere:
        dynamic tables that the pipeline fills begin empty, in memory, and dead letters and side outputs go nowhere.
        """
        self._session = session
        self._spec = spec
        self._folder = folder
        self._read = frozenset(read)
        self._stored = stored
        self._runs = runs
        self._is_trial = is_trial
        self._graph: PipelineGraph = graph(spec)
        kinds = [{node.name: node.kind for node in group.nodes} for group in self._graph.queries]
        self._before = before or {}
        self._names = group_names(kinds, self._before)

    def groups(self) -> list[GroupPlan]:
        """Return the plan of every group, in the order of the file; raises the first thing that cannot work, with its place."""
        groups = zip(self._graph.queries, self._names, strict=True)
        return [self._group(group, name) for group, name in groups]

    def following(self, name: str) -> GroupPlan:
        """Return the plan of a group whose histories have been read to their ends."""
        return self._group(self._graph.queries[self._names.index(name)], name, history_done=True)

    def group_of(self, node: str) -> str:
        """Return the name of the group that a node is in."""
        groups = zip(self._graph.queries, self._names, strict=True)
        return next(name for group, name in groups if node in {member.name for member in group.nodes})

    def _group(self, group: Group, name: str, *, history_done: bool = False) -> GroupPlan:
        folder = GroupFolder.of(self._folder, name)
        values = GroupValues.of(self._stored(name), begins=not folder.has_begun)
        if history_done:
            values.planned.put(HISTORY_DONE, True)
        models = {node.name: node.model for node in group.sources if isinstance(node.model, SourceNode)}
        obstacle = self._obstacle(models, values.planned)
        changed = note_reads(values.planned, {name: model.reads for name, model in models.items()})
        phase = self._phase(group, values.planned)
        sources = tuple(self._sources(group, values.planned, folder, phase))
        outputs = {source.node.name: source.output for source in sources}
        changes = self._source_changes(name, folder, phase, sources, changed)
        steps = tuple(self._steps(group, folder, outputs))
        sinks = tuple(self._sinks(group, outputs))
        takers = [*group.transforms, *group.sinks]
        failed = tuple(self._failed(node) for node in takers if _may_fail(node))
        letters = {
            node.name: Letters(node, self.dead_letters(node), self._rows_of(node, outputs))
            for node in takers
            if has_letters(node)
        }
        nodes = {node.name: node for node in group.nodes}
        by_node = {**outputs, **{sink.node.name: sink.input for sink in sinks}}
        event_times = {
            node: event_time
            for node, output in by_node.items()
            if (event_time := event_time_of(nodes[node], output.schema)) is not None
        }
        return GroupPlan(
            name,
            folder,
            phase,
            sources,
            steps,
            sinks,
            outputs,
            nodes,
            failed,
            letters,
            values if self._runs else None,
            replace(changes, obstacle=obstacle or changes.obstacle),
            event_times,
        )

    def _phase(self, group: Group, values: PlannedValues) -> Phase:
        hybrid = any(isinstance(node.model, HybridNode) for node in group.sources)
        if not hybrid or not self._runs or values.get(HISTORY_DONE):
            return Phase.LIVE
        return Phase.HISTORY

    def _source_changes(
        self,
        name: str,
        folder: GroupFolder,
        phase: Phase,
        sources: Sequence[SourcePlan],
        changed: Mapping[str, str],
    ) -> SourceChanges:
        """What sources mean for the checkpoint of their group."""
        checkpoint = folder.checkpoint(phase.folder)
        if not checkpoint.exists():
            return SourceChanges()
        words = [
            (source.node.name, text) for source in sources if not source.is_idle for text in _shape(source)
        ]
        elsewhere = {
            node: f"the group '{job_name(self._spec.name, other)}'"
            for other, kinds in self._before.items()
            if other != name
            for node in kinds
        }
        return source_changes(checkpoint, words, changed, elsewhere)

    @staticmethod
    def _obstacle(models: Mapping[str, SourceNode], values: PlannedValues) -> str:
        """Why a group that has run cannot go on: the phases of its hybrid sources are those of all its sources."""
        for name, model in models.items():
            if values.values and isinstance(model, HybridNode):
                noted = values.within(name).get(READS)
                if noted is None:
                    return f"the hybrid source '{name}' comes to a group that has run"
                if noted != fingerprint(model.reads):
                    return f"the hybrid source '{name}' reads something else than before"
        return ""

    def _sources(
        self, group: Group, values: PlannedValues, folder: GroupFolder, phase: Phase
    ) -> Iterator[SourcePlan]:
        """Open the sources by their names, not in the order of the file: Spark identifies them by their order from
        one run to the next."""
        goes_on = not all(_is_bounded(node) for node in group.sources)
        for node in sorted(group.sources, key=lambda node: node.name):
            model = node.model
            assert isinstance(model, SourceNode)
            context = SourceContext(
                self._session.spark,
                self._session.settings,
                values.within(node.name) if self._runs else None,
                str(folder.source(node.name)) if self._runs else None,
                goes_on and _is_bounded(node),
                self._spec.settings.get("trigger") in ENDING_TRIGGERS,
                self._session.queries.temporary_folder,
            )
            with translated(where=str(node.place)):
                source = self._source(model, context, phase).named(self._spec.name, node.name)
                stream = self._session.read_stream.of(source, context)
                keys = tuple(model.primary_key) or source.keys
            require_columns(node, model.primary_key, stream.frame.columns)
            output = NodeOutput(stream.frame.schema, keys)
            is_idle = phase is Phase.HISTORY and not isinstance(model, HybridNode)
            yield SourcePlan(node, source, stream, output, is_idle)

    def _source(self, model: SourceNode, context: SourceContext, phase: Phase) -> Source:
        """The source that a node is; a hybrid one is its history, and then its live source."""
        settings = self._session.settings
        if not isinstance(model, HybridNode) or context.state is None:
            return model.source(settings)
        boundary = context.state.get(BOUNDARY)
        if boundary is None:
            boundary = model.boundary(settings, context)
            context.state.put(BOUNDARY, boundary)
        if phase is Phase.HISTORY:
            return model.history_source(settings, boundary)
        return model.live_source(settings, boundary)

    def _steps(self, group: Group, folder: GroupFolder, outputs: dict[str, NodeOutput]) -> Iterator[Step]:
        """Plan the steps in order, and add what their nodes give."""
        tables = DynamicTables()
        asked = [node.name for node in group.transforms if isinstance(node.model, DynamicTableNode)]
        plan_checks(self._session.spark, asked, tables)
        order = levels([*group.sources, *group.transforms], self._graph.inputs)
        for level in range(max(order.level.values()) + 1):
            views = order.of(level, group.transforms)
            if views:
                from penstock.pipeline.views_step import ViewsStep  # with all of the kernel

                step: Step = ViewsStep(
                    self._session,
                    views,
                    outputs,
                    level=level,
                    folder=folder.views(level),
                    readers=self._outside({node.name for node in views}, order.views),
                    once=self._read_logs(group, order.views, outputs),
                    origins={node.name: self._origin(node) for node in group.nodes},
                )
                outputs.update(step.outputs())
                yield step
            for node in group.transforms:
                if node.name not in order.views and order.level[node.name] == level:
                    step = self._step(node, outputs, tables)
                    outputs.update(step.outputs())
                    yield step

    def _outside(self, views: set[str], all_views: Collection[str]) -> dict[str, set[str]]:
        """Of every view whose changes are read outside of its flow: the sinks, and the views of later flows, that
        store what they compute from them."""
        readers = self._graph.readers
        outside = {name: set(readers.get(name, ())) - views for name in views}
        passing = {name: () if name in all_views else who for name, who in readers.items()}
        keeps = {*all_views, *(node.name for group in self._graph.groups for node in group.sinks)}
        return {
            name: reachable(who, passing) & keeps
            for name, who in outside.items()
            if who or name in self._read
        }

    def _read_logs(
        self, group: Group, views: Collection[str], outputs: Mapping[str, NodeOutput]
    ) -> frozenset[str]:
        """The views for which every row counts that comes, whatever its key."""
        operations = {*views, *(name for name, output in outputs.items() if output.operations)}
        names = {node.name.lower(): node.name for node in group.nodes}
        return frozenset(
            node.name
            for node in group.transforms
            if node.name in views and any(read.log for read in reads_of(node, operations, names))
        )

    def _origin(self, node: NodeSpec) -> tuple[tuple[str, str], ...]:
        """What the sources above a node read."""
        above = sorted(self._graph.above(node.name), key=lambda other: other.name)
        return tuple(
            (other.name, ",".join(fingerprint(other.model.reads).values()))
            for other in above
            if isinstance(other.model, SourceNode)
        )

    def _step(self, node: NodeSpec, outputs: Mapping[str, NodeOutput], tables: DynamicTables) -> Step:
        spark, model = self._session.spark, node.model
        # A dynamic table has no rows for its readers: queries call its function.
        inputs = {name: outputs[name] for name in self._graph.inputs[node.name] if name in outputs}
        if isinstance(model, DynamicTableNode):
            if self._is_trial and model.sql is not None:
                model = model.model_copy(update={"backend": "InMemory"})
            table = model.dynamic_table(self._session.settings, name=node.name)
            query = None if model.sql is None else SqlStep(node, spark, inputs)
            return DynamicTableStep(node, table, query, tables=tables, context=self._context(node, ()))
        if isinstance(model, SqlNode):
            if not inputs:
                raise ConfigError(
                    f"'{node.name}' reads no other node",
                    code="PIPELINE_SQL_INPUT",
                    where=str(node.place_of("sql")),
                    hint=suggest("", list(outputs), what="node"),
                )
            return SqlStep(node, spark, inputs)
        if isinstance(model, LookupNode) and model.is_table:
            return LookupStep(node, model.relation(self._session.settings, name=node.name), spark)
        assert isinstance(model, RowTransformNode | LookupNode), f"no transform: {type(model).__name__}"
        if self._is_trial and isinstance(model, PluginTransformNode):
            model = model.model_copy(update={"side_outputs": model.side_outputs.going_nowhere()})
        (only_input,) = inputs.values()
        context = self._context(node, only_input.keys)
        with translated(where=str(node.place)):
            transform = model.transform(self._session.settings)
        return TransformStep(node, transform, spark, inputs, context)

    def _context(self, node: NodeSpec, keys: tuple[str, ...]) -> TransformContext:
        """The node of a transform; without a key of its own it has that of its input."""
        model = node.model
        assert isinstance(model, TransformNode)
        return TransformContext(
            self._session.spark,
            self._spec.name,
            node.name,
            self._session.settings,
            model.on_error if isinstance(model, RowErrors) else "fail",
            tuple(model.primary_key) or keys,
            labels_of(model),
        )

    def _rows_of(self, node: NodeSpec, relations: Mapping[str, NodeOutput]) -> NodeOutput:
        """The rows that come into a node, beside the tables that it joins or asks."""
        read = [relations[name] for name in self._graph.inputs[node.name] if name in relations]
        return next(relation for relation in read if not relation.static)

    def _failed(self, node: NodeSpec) -> FailedRows:
        """What happens to the rows that a node cannot take."""
        model = node.model
        assert isinstance(model, RowErrors)
        has_store = model.on_error == "dead_letter" and not self._is_trial
        letters = self.dead_letters(node).letters() if has_store else None
        return FailedRows(node, self._spec.name, letters)

    def dead_letters(self, node: NodeSpec) -> LetterStore:
        """Where the dead letters of a node are stored."""
        model = node.model
        assert isinstance(model, RowErrors)
        folder = self._folder / "dead-letters" / node.name
        letters = model.dead_letter or DeadLetter.model_validate({})
        return LetterStore(letters, str(folder), self._session.settings)

    def _sinks(self, group: Group, outputs: Mapping[str, NodeOutput]) -> Iterator[SinkPlan]:
        for node in group.sinks:
            model = node.model
            assert isinstance(model, SinkNode)
            (name,) = self._graph.inputs[node.name]
            output = outputs[name]
            require_columns(node, model.primary_key, output.columns)
            with translated(where=str(node.place)):
                sink = model.sink(self._session.settings)
            keys = tuple(model.primary_key) or output.keys
            plan = SinkPlan(node, sink, name, output, keys, model.mode)
            refuse_unfit(plan)
            yield plan


def has_letters(node: NodeSpec) -> bool:
    """Whether a node keeps rows that it cannot take as dead letters."""
    return isinstance(node.model, RowErrors) and node.model.on_error == "dead_letter"


def _shape(source: SourcePlan) -> list[str]:
    """The sources of Spark that a source is, in the words of a checkpoint."""
    shape = [part for part in spark_plan.shape(source.stream.df) if part[0] == spark_plan.SOURCE]
    return [text for _, text in spark_plan.named(shape, [source.node.name] * len(shape))]


def _may_fail(node: NodeSpec) -> bool:
    return isinstance(node.model, RowErrors) and node.model.on_error != "fail"


def _is_bounded(node: NodeSpec) -> bool:
    return isinstance(node.model, SourceNode) and node.model.is_bounded
