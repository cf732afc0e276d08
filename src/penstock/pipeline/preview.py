"""Live rows of one node, without running the pipeline: what is above the node is read from the beginning, nothing is
written or kept."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, ClassVar

from penstock.errors import ConfigError, PenstockError, suggest
from penstock.pipeline.graph import graph
from penstock.pipeline.group import GroupPlan, GroupSink, SinkPlan
from penstock.pipeline.node import TransformNode
from penstock.pipeline.planner import Planner
from penstock.sinks.base import Epoch, Guarantee, Sink
from penstock.spark.arrow import to_arrow
from penstock.streaming.trigger import Trigger
from penstock.streaming.writer import StreamWriter

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.engine.session import Session
    from penstock.pipeline.spec import PipelineSpec
    from penstock.streaming.query import StreamingQuery

INTERVAL = "100 ms"


class PreviewSink(Sink):
    """Puts rows into a queue, from which the preview reads them."""

    modes: ClassVar[frozenset[str]] = frozenset({"append"})
    needs_checkpoint = False
    reads_all_rows: ClassVar[bool] = False

    def __init__(self, rows: SimpleQueue[pa.Table | None], limit: int) -> None:
        super().__init__({})
        self._rows = rows
        self._limit = limit

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.NOT_KEPT

    def write(self, epoch: Epoch) -> int | None:
        table = to_arrow(epoch.frame.limit(self._limit))
        self._rows.put(table)
        return int(table.num_rows)


class Preview:
    """The rows of a node while they come; iterate over it inside of `with`."""

    def __init__(self, session: Session, spec: PipelineSpec, node: str, *, limit: int) -> None:
        self._session = session
        self._limit = limit
        self._rows: SimpleQueue[pa.Table | None] = SimpleQueue()
        self._error: PenstockError | None = None
        self._node = shown_node(spec, node)
        self._spec = replace(
            spec, nodes={above.name: above for above in graph(spec).above(self._node)}, tests=()
        )

    @contextmanager
    def opened(self) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
        """Start to read; the rows end after the limit, or with the sources."""
        from penstock.spark.arrow import user_schema

        folder = Path(tempfile.mkdtemp(prefix="penstock-preview-"))
        try:
            planner = Planner(self._session, self._spec, folder=folder, read=[self._node], is_trial=True)
            (group,) = planner.groups()
            output = group.outputs[self._node]
            node = self._spec.nodes[self._node]
            sink = SinkPlan(node, PreviewSink(self._rows, self._limit), self._node, output, (), "append")
            query = self._start(replace(group, sinks=(sink,)))
            try:
                yield user_schema(output.schema), self._batches()
            finally:
                query.stop(0.5)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _start(self, group: GroupPlan) -> StreamingQuery:
        taps = [tap for source in group.read for tap in source.stream.taps]
        trigger = Trigger.available_now() if group.is_bounded else Trigger.processing_time(INTERVAL)
        writer = StreamWriter(self._session.queries, group.frame(), taps=taps).trigger(trigger)
        query = writer.launch(writer.plan_for(GroupSink(group), None, place=self._spec.path))

        def follow() -> None:
            try:
                query.await_termination()
            except PenstockError as error:
                self._error = error
            self._rows.put(None)

        threading.Thread(target=follow, daemon=True).start()
        return query

    def _batches(self) -> Iterator[pa.RecordBatch]:
        left = self._limit
        while left > 0:
            table = self._rows.get()
            if table is None:
                break
            for batch in table.slice(0, left).to_batches():
                yield batch
                left -= batch.num_rows
        if self._error is not None and left > 0:
            raise self._error


def shown_node(spec: PipelineSpec, name: str) -> str:
    """The node whose rows are shown: of a sink, the one that it reads. Tables beside the rows of others show none."""
    node = spec.find(name)
    if node is None:
        raise ConfigError(
            f"'{spec.name}' has no node '{name}'",
            code="PIPELINE_NODE",
            where=spec.path,
            hint=suggest(name, list(spec.nodes), what="node"),
        )
    if isinstance(node.model, TransformNode) and node.model.is_table:
        raise ConfigError(
            f"'{node.name}' is a table for sql nodes, and gives no rows of its own",
            code="PIPELINE_NODE",
            where=str(node.place),
            hint="preview a node that joins or asks it",
        )
    return spec.rows_of(node.name)


def last_node(spec: PipelineSpec) -> str:
    """The node that is shown by default: the last one that gives rows."""
    return [
        node.name
        for node in spec.nodes.values()
        if node.kind != "sink" and not (isinstance(node.model, TransformNode) and node.model.is_table)
    ][-1]
