"""From a pipeline as its file says it to groups that can run: sources are opened, types resolved through Spark, steps put in order."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import ConfigError, suggest
from penstock.pipeline import dead_letter
from penstock.pipeline.failed_rows import FailedRows
from penstock.pipeline.graph import Graph, graph
from penstock.pipeline.group import GroupPlan, SinkPlan, SourcePlan, refuse_unfit
from penstock.pipeline.lookup_step import LookupStep
from penstock.pipeline.node import DeadLetter, RowTransformNode, SinkNode, SourceNode, TransformNode
from penstock.pipeline.relation import Relation
from penstock.pipeline.step import SqlStep, Step, TransformStep, require_columns
from penstock.pipeline.transforms.lookup import LookupNode
from penstock.pipeline.transforms.sql import SqlNode
from penstock.pipeline.views_step import ViewsStep, levels
from penstock.spark.errors.query import translated
from penstock.transforms.base import Context

if TYPE_CHECKING:
    from penstock.engine.session import Session
    from penstock.pipeline.graph import Group
    from penstock.pipeline.spec import NodeSpec, PipelineSpec
    from penstock.streaming.stream import Stream


MAIN = "main"
"""The folder of the only group."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A source that was opened, and its columns."""

    stream: Stream
    relation: Relation


class Planner:
    """Plans the groups of one pipeline in a session; nothing runs and nothing is written."""

    def __init__(
        self,
        session: Session,
        spec: PipelineSpec,
        *,
        folder: Path,
        read: Collection[str] = (),
    ) -> None:
        """`folder` has the state of views; `read` are nodes whose rows somebody looks at who is no sink."""
        self._session = session
        self._spec = spec
        self._folder = folder
        self._read = frozenset(read)
        self._graph: Graph = graph(spec)

    def groups(self) -> list[GroupPlan]:
        """Return the plan of every group, in the order of the file; raises the first thing that cannot work, with its place."""
        groups = self._graph.groups
        return [self._group(group, "" if len(groups) == 1 else group.nodes[0].name) for group in groups]

    def _group(self, group: Group, name: str) -> GroupPlan:
        sources = tuple(self._sources(group))
        relations = {source.node.name: source.relation for source in sources}
        steps = tuple(self._steps(group, name, relations))
        sinks = tuple(self._sinks(group, relations))
        failed = tuple(self._failed(node) for node in group.transforms if _may_fail(node))
        return GroupPlan(
            name, sources, steps, sinks, relations, {node.name: node for node in group.nodes}, failed
        )

    def _sources(self, group: Group) -> Iterator[SourcePlan]:
        for node in group.sources:
            opened = self.open_source(node)
            yield SourcePlan(node, opened.stream, opened.relation)

    def open_source(self, node: NodeSpec) -> Opened:
        """Open the source that a node is."""
        model = node.model
        assert isinstance(model, SourceNode)
        with translated(where=str(node.place)):
            source = model.source(self._session.settings)
            stream = self._session.read_stream.of(source)
        require_columns(node, model.primary_key, stream.frame.columns)
        return Opened(stream, Relation(stream.frame.schema, tuple(model.primary_key)))

    def _steps(self, group: Group, name: str, relations: dict[str, Relation]) -> Iterator[Step]:
        """Plan the steps in order, and add what their nodes give."""
        order = levels([*group.sources, *group.transforms], self._graph.inputs)
        for level in range(max(order.level.values()) + 1):
            views = order.of(level, group.transforms)
            if views:
                folder = self._folder / (name or MAIN) / f"views-{level}"
                wanted = self._wanted({node.name for node in views})
                step: Step = ViewsStep(self._session, views, relations, folder=folder, wanted=wanted)
                relations.update(step.relations())
                yield step
            for node in group.transforms:
                if node.name not in order.views and order.level[node.name] == level:
                    step = self._step(node, relations)
                    relations.update(step.relations())
                    yield step

    def _wanted(self, views: set[str]) -> set[str]:
        """The views whose changes somebody outside of their flow reads."""
        readers = self._graph.readers
        return {name for name in views if name in self._read or not set(readers.get(name, ())) <= views}

    def _step(self, node: NodeSpec, relations: Mapping[str, Relation]) -> Step:
        spark, model = self._session.spark, node.model
        inputs = {name: relations[name] for name in self._graph.inputs[node.name]}
        if isinstance(model, SqlNode):
            if not inputs:
                raise ConfigError(
                    f"'{node.name}' reads no other node",
                    code="PIPELINE_SQL_INPUT",
                    where=str(node.place_of("sql")),
                    hint=suggest("", list(relations), what="node"),
                )
            return SqlStep(node, spark, inputs)
        if isinstance(model, LookupNode) and model.is_table:
            return LookupStep(node, model.relation(self._session.settings, name=node.name), spark)
        assert isinstance(model, RowTransformNode | LookupNode), f"no transform: {type(model).__name__}"
        (relation,) = inputs.values()
        context = Context(
            spark,
            self._spec.name,
            node.name,
            self._session.settings,
            model.on_error,
            tuple(model.primary_key) or relation.keys,
            {} if model.telemetry is None else model.telemetry.labels,
        )
        with translated(where=str(node.place)):
            transform = model.transform(self._session.settings)
        return TransformStep(node, transform, spark, relation, context)

    def _failed(self, node: NodeSpec) -> FailedRows:
        """What happens to the rows that a node cannot take."""
        model = node.model
        assert isinstance(model, TransformNode)
        place = self.dead_letters(node) if model.on_error == "dead_letter" else None
        return FailedRows(node, self._spec.name, None if place is None else place.letters())

    def dead_letters(self, node: NodeSpec) -> dead_letter.Place:
        """Where the dead letters of a node are."""
        model = node.model
        assert isinstance(model, TransformNode)
        folder = self._folder / "dead-letters" / node.name
        return dead_letter.Place(
            model.dead_letter or DeadLetter.model_validate({}), str(folder), self._session.settings
        )

    def _sinks(self, group: Group, relations: Mapping[str, Relation]) -> Iterator[SinkPlan]:
        for node in group.sinks:
            model = node.model
            assert isinstance(model, SinkNode)
            (name,) = self._graph.inputs[node.name]
            relation = relations[name]
            require_columns(node, model.primary_key, relation.columns)
            with translated(where=str(node.place)):
                sink = model.sink(self._session.settings)
            keys = tuple(model.primary_key) or relation.keys
            plan = SinkPlan(node, sink, name, relation, keys, model.mode)
            refuse_unfit(plan)
            yield plan


def _may_fail(node: NodeSpec) -> bool:
    return isinstance(node.model, TransformNode) and node.model.on_error != "fail"
