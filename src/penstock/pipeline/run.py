"""A pipeline that runs: one query per group, started together and ended together."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.pipeline.changes import NODES, fingerprints
from penstock.pipeline.group import GroupPlan, GroupSink, NodeEpoch
from penstock.pipeline.node import SinkNode, SourceNode
from penstock.pipeline.planner import MAIN, Planner
from penstock.sinks.base import Guarantee
from penstock.spark.micro_batch import checkpoint
from penstock.streaming.trigger import Trigger
from penstock.streaming.writer import StreamWriter

if TYPE_CHECKING:
    from penstock.engine.session import Session
    from penstock.pipeline.spec import PipelineSpec
    from penstock.streaming.query import StreamingQuery
    from penstock.streaming.query_plan import QueryPlan

INTERVAL = "100 ms"
"""Between two looks for new rows, where the file says nothing: few enough to leave an idle processor idle."""

Report = Callable[[str, NodeEpoch], None]


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """A pipeline that was planned in a session, and not started."""

    spec: PipelineSpec
    groups: tuple[GroupPlan, ...]
    folder: Path
    """Where it keeps checkpoints and views."""
    is_lasting: bool
    """Whether anything of it is there after its end, so that another run goes on where this one ends."""

    @property
    def is_bounded(self) -> bool:
        """Whether it comes to an end by itself."""
        return all(group.is_bounded for group in self.groups)

    def job_name(self, group: GroupPlan) -> str:
        """The name of the job that runs a group."""
        return "/".join(filter(None, (self.spec.name, group.name)))


def plan_pipeline(session: Session, spec: PipelineSpec) -> PipelinePlan:
    """Open the sources of a pipeline, resolve all types, and refuse what cannot work; nothing is started or written."""
    lasting = is_lasting(session, spec)
    folder = state_folder(session, spec) if lasting else Path(session.queries.temporary_folder())
    return PipelinePlan(spec, tuple(Planner(session, spec, folder=folder).groups()), folder, lasting)


def is_lasting(session: Session, spec: PipelineSpec) -> bool:
    """Whether anything of a pipeline is there after its end: if not, every run begins anew."""
    models = [node.model for node in spec.nodes.values()]
    return not all(model.is_bounded for model in models if isinstance(model, SourceNode)) or any(
        model.sink(session.settings).guarantee is not Guarantee.NOT_KEPT
        for model in models
        if isinstance(model, SinkNode)
    )


def state_folder(session: Session, spec: PipelineSpec) -> Path:
    """Where a pipeline keeps checkpoints and views."""
    place = spec.settings.get("checkpoint")
    if place is not None:
        return Path(str(place)).expanduser().absolute()
    return session.settings.home / "pipelines" / _file_name(spec.name)


class PipelineRun:
    """Runs a planned pipeline from its start to its end."""

    def __init__(self, session: Session, plan: PipelinePlan, *, report: Report | None = None) -> None:
        self._session = session
        self.plan = plan
        self._report = report
        self.queries: list[StreamingQuery] = []

    def check(self) -> list[QueryPlan]:
        """Try every connection and refuse what cannot work; no lease is taken, nothing is written."""
        return [self._query_plan(group) for group in self.plan.groups]

    def start(self) -> None:
        """Start all groups; when one cannot start, those that run are stopped again."""
        plans = self.check()
        try:
            for group, plan in zip(self.plan.groups, plans, strict=True):
                self.queries.append(self._writer(group).launch(plan))
        except BaseException:
            self.stop()
            raise

    def wait(self) -> PenstockError | None:
        """Wait for the end of all groups; when one fails the others are stopped. Returns the first error."""
        ends: SimpleQueue[PenstockError | None] = SimpleQueue()

        def follow(query: StreamingQuery) -> None:
            with suppress(PenstockError):
                query.await_termination()
            ends.put(query.exception())

        for query in self.queries:
            threading.Thread(target=follow, args=(query,), daemon=True).start()
        first: PenstockError | None = None
        for _ in self.queries:
            error = ends.get()
            if error is not None and first is None:
                first = error
                self.stop()
        return first

    def stop(self, seconds: float | None = None) -> None:
        """End after the batches that run now."""
        stops = [threading.Thread(target=query.stop, args=(seconds,), daemon=True) for query in self.queries]
        for stop in stops:
            stop.start()
        for stop in stops:
            stop.join()

    def _query_plan(self, group: GroupPlan) -> QueryPlan:
        spec = self.plan.spec
        report = self._report
        name = self.plan.job_name(group)
        sink = GroupSink(group, report=None if report is None else lambda epoch: report(group.name, epoch))
        plan = self._writer(group).plan_for(
            sink, name if self.plan.is_lasting else None, place=str(Path(spec.path).absolute())
        )

        def prepare(location: str) -> None:
            if group.begins_anew:
                checkpoint.begin_empty(self._session.spark, location)

        return replace(
            plan, kind="pipeline", prepare=prepare, parts={"pipeline": spec.path, NODES: _nodes(spec, group)}
        )

    def _writer(self, group: GroupPlan) -> StreamWriter:
        taps = [tap for source in group.sources for tap in source.stream.taps]
        writer = StreamWriter(self._session.queries, group.frame(), taps=taps).trigger(self._trigger())
        if self.plan.is_lasting:
            writer.option("checkpoint.location", self.plan.folder / (group.name or MAIN) / "checkpoint")
        return writer

    def _trigger(self) -> Trigger:
        if self.plan.is_bounded:
            return Trigger.available_now()
        return Trigger.processing_time(str(self.plan.spec.settings.get("trigger", INTERVAL)))


def _nodes(spec: PipelineSpec, group: GroupPlan) -> dict[str, dict[str, str]]:
    """What is recorded of the nodes of a group."""
    return {name: node for name, node in fingerprints(spec).items() if name in group.nodes}


def _file_name(name: str) -> str:
    """A name as that of a folder: what is not plain in it is told apart by a hash."""
    plain = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
