"""The views of one level of a group as a step: their flow makes one tick per epoch, and gives what has changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from penstock.data.operation import OPERATION
from penstock.errors import ConfigError, PenstockError
from penstock.pipeline.levels import reads_of
from penstock.pipeline.node_output import NodeOutput
from penstock.pipeline.stage_plan import InputPlan, StageInput, StagePlan, StageView, ViewPlan
from penstock.pipeline.step import Step, in_file, require_columns
from penstock.pipeline.transforms.sql import SqlNode
from penstock.pipeline.view_node import ViewInput, ViewTransformNode
from penstock.pipeline.view_stage import ViewStage
from penstock.spark.errors.query import translated
from penstock.spark.micro_batch import stateless

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.engine.session import Session
    from penstock.pipeline.spec import NodeSpec
    from penstock.plugin import Namespace
    from penstock.sinks.base import Target


T = TypeVar("T")
READERS = "readers"
"""Under which a step remembers who has read its views."""


class ViewsStep(Step):
    """The views of one level: all sources of an epoch are one tick, and only views that are read give their changes."""

    reads_now = True

    def __init__(
        self,
        session: Session,
        nodes: Sequence[NodeSpec],
        inputs: Mapping[str, NodeOutput],
        *,
        level: int,
        folder: Path,
        readers: Mapping[str, Collection[str]],
        once: Collection[str] = (),
        origins: Mapping[str, tuple[tuple[str, str], ...]] | None = None,
    ) -> None:
        """`readers` are the sinks, and the views of later flows, that read the changes of each view; `folder` has the state.

        Readers in `once` must not get a row again. `origins` has what the sources above each node read.
        """
        self.level = level
        self._readers = readers
        self._once = frozenset(once)
        self.news: list[str] = []
        """What the last opening meant for the state, in words."""
        self._views = {node.name: node for node in nodes}
        operations = {name for name, output in inputs.items() if output.operations}
        operations |= {node.name for node in nodes if _keys(node)}
        names = {name.lower(): name for name in (*inputs, *self._views)}
        reads = {node.name: reads_of(node, operations, names) for node in nodes}
        outside = {
            read.relation: read
            for name in self._views
            for read in reads[name]
            if read.node not in self._views
        }
        for name in self._views:
            for read in reads[name]:
                _refuse_weights(self._views[name], read, inputs)
        stage_inputs = {
            read.relation: _input(read, inputs[read.node], (origins or {}).get(read.node, ()))
            for read in outside.values()
        }
        self._sources = {relation: read.node for relation, read in outside.items()}
        self.nodes = tuple(self._views)
        self.inputs = tuple(dict.fromkeys(self._sources.values()))
        columns = {
            relation: [field.name for field in stage_input.fields]
            for relation, stage_input in stage_inputs.items()
        }
        views = []
        for node in nodes:
            with translated(where=str(node.place)):
                relation_columns = {
                    read.relation: columns[read.relation]
                    for read in reads[node.name]
                    if read.relation in columns
                }
                views.append(
                    StageView(
                        node.name, _sql(node, relation_columns), _keys(node), wanted=node.name in readers
                    )
                )
        sizes = {getattr(node.model, "memory", None) for node in nodes} - {None}
        shards = {getattr(node.model, "shards", None) for node in nodes} - {None}
        with self._in_file():
            stage = ViewStage(
                session,
                folder,
                list(stage_inputs.values()),
                views,
                shards=_single_value("shards", shards, nodes),
                memory=_single_value("memory", sizes, nodes),
                secrets=frozenset().union(*(node.secrets for node in nodes)),
            )
        self._keys = {view.name: view.keys for view in views}
        for node in nodes:
            self._inherit(node, stage, reads[node.name], inputs)
        self._stage = stage.with_keys(self._keys)

    def _inherit(
        self, node: NodeSpec, stage: ViewStage, reads: Sequence[ViewInput], inputs: Mapping[str, NodeOutput]
    ) -> None:
        """A `sql` node over one view has the key of that view, unless the user gave one or its columns are not there."""
        if self._keys[node.name] or not isinstance(node.model, SqlNode) or len(reads) != 1:
            return
        above = reads[0].node
        keys = self._keys[above] if above in self._views else inputs[above].keys
        with translated(where=str(node.place)):
            if keys and set(keys) <= set(stage.columns(node.name)):
                self._keys[node.name] = keys

    @contextmanager
    def _in_file(self) -> Iterator[None]:
        """Errors of the flow name a view; put the place of its query in the file before that."""
        try:
            yield
        except PenstockError as error:
            where = error.where or ""
            for name, node in self._views.items():
                if where == f"view '{name}'" or where.startswith(f"view '{name}', "):
                    raise in_file(error, node) from None
            raise

    def plan(self) -> StagePlan:
        """What opening would do to the state that is there."""
        return self._stage.plan()

    def outputs(self) -> Mapping[str, NodeOutput]:
        result = {}
        for name in self._views:
            node = self._views[name]
            with self._in_file():
                schema = self._stage.schema(name)
            require_columns(node, self._keys[name], schema.names)
            result[name] = NodeOutput(schema, self._keys[name])
        return result

    def begins_anew(self, values: Namespace | None) -> bool:
        """Whether some of what it gives changes although no row comes: a view was made again, or is new, or has a new reader."""
        return self._stage.has_waiting_changes or bool(self._fresh(values))

    def open(self, target: Target) -> None:
        fresh = self._fresh(target.state) if target.committed >= 0 else ()
        with self._in_file():
            plan = self._stage.open(committed=target.committed, fresh=fresh)
        plans: list[InputPlan | ViewPlan] = [] if target.committed < 0 else [*plan.inputs, *plan.views]
        self.news = [
            ": ".join(filter(None, (f"{part.name} is {part.change}", part.reason)))
            for part in plans
            if part.change != "unchanged"
        ]
        if target.state is not None:
            readers = {name: sorted(names) for name, names in self._readers.items()}
            target.state.within(f"views {self.level}").put(READERS, readers)

    def _fresh(self, values: Namespace | None) -> tuple[str, ...]:
        """The views with a reader that has nothing of theirs yet: all readers get all rows.

        Views without a key are none, nor those with a reader for which every row counts: who has had their rows could
        not take them again.
        """
        before = None if values is None else values.within(f"views {self.level}").get(READERS)
        if before is None:
            return ()
        return tuple(
            name
            for name, readers in self._readers.items()
            if self._keys[name]
            and name in before
            and not set(readers) <= set(before[name])
            and not self._once & set(before[name])
        )

    def evaluate(self, epoch: int, frames: Mapping[str, DataFrame]) -> Mapping[str, DataFrame]:
        rows = {relation: frames[node] for relation, node in self._sources.items()}
        with self._in_file():
            changes = self._stage.step(epoch, rows)
        # In the session of the batch, as all other rows: queries of the pipeline that run beside each other have
        # their own functions and settings.
        spark = next((frame.sparkSession for frame in rows.values()), None)
        return (
            changes
            if spark is None
            else {name: stateless.of_session(spark, frame) for name, frame in changes.items()}
        )

    def finalize(self, epoch: int) -> None:
        self._stage.finalize(epoch)

    def close(self) -> None:
        self._stage.close()


def _sql(node: NodeSpec, columns: Mapping[str, Sequence[str]]) -> str:
    model = node.model
    if isinstance(model, ViewTransformNode):
        return model.definition(columns)
    assert isinstance(model, SqlNode)
    return model.sql


def _keys(node: NodeSpec) -> tuple[str, ...]:
    model = node.model
    return tuple(model.keys if isinstance(model, ViewTransformNode) else getattr(model, "primary_key", ()))


def _input(read: ViewInput, output: NodeOutput, origin: tuple[tuple[str, str], ...]) -> StageInput:
    operations = output.operations and OPERATION in output.columns
    return StageInput(
        read.relation,
        output.schema,
        () if read.log else output.keys,
        operations=operations,
        weights=output.weights,
        log=read.log,
        origin=origin,
    )


def _refuse_weights(node: NodeSpec, read: ViewInput, inputs: Mapping[str, NodeOutput]) -> None:
    """Refuse a log of rows that come and go without a key: nothing shows which of them a row replaces."""
    if read.log and read.node in inputs and inputs[read.node].weights:
        raise ConfigError(
            f"'{node.name}' ({node.type}) reads the changes of the view '{read.node}', which has no primary key",
            code="PIPELINE_KEY",
            where=str(node.place_of("from")),
            hint=f"give '{read.node}' a primary_key",
        )


def _single_value(field: str, values: Collection[T], nodes: Sequence[NodeSpec]) -> T | None:
    """The one value that views of a level have for a field that is of their flow."""
    if len(values) > 1:
        names = ", ".join(node.name for node in nodes)
        raise ConfigError(
            f"the views {names} are one flow, and have different values of `{field}`: {', '.join(map(str, values))}",
            code="PIPELINE_VIEW",
            where=str(nodes[0].place),
            hint=f"give `{field}` to one of them",
        )
    return next(iter(values), None)
