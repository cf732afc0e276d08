"""A pipeline that runs: one query per group, started together and ended together."""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from penstock.errors import ConfigError, InternalError, PenstockError, StateError
from penstock.pipeline import record
from penstock.pipeline.fields import ENDING_TRIGGERS
from penstock.pipeline.group import GroupPlan, GroupSink, NodeEpoch, Phase
from penstock.pipeline.group_name import earlier_groups, job_name, kinds_of
from penstock.pipeline.node import SinkNode, SourceNode, labels_of
from penstock.pipeline.outside import OUTSIDE, Note, left_behind, note_resources, resources_of
from penstock.pipeline.owner import refuse_other_file
from penstock.pipeline.planner import Planner
from penstock.pipeline.replay import Replay, Requests
from penstock.pipeline.secret import hide
from penstock.pipeline.spec import STDIN
from penstock.pipeline.values import SOURCES
from penstock.sinks.base import Guarantee
from penstock.sources.postgres.follow import FOLLOWING, SNAPSHOT
from penstock.spark.errors.query import translated
from penstock.spark.micro_batch import checkpoint
from penstock.state.location import is_remote
from penstock.streaming.listener import QueryProgressEvent, QueryTerminatedEvent, StreamingQueryListener
from penstock.streaming.metrics import NodeReport
from penstock.streaming.trigger import Trigger
from penstock.streaming.writer import StreamWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.engine.session import Session
    from penstock.pipeline.row_counts import RowCounts
    from penstock.pipeline.spec import NodeSpec, PipelineSpec
    from penstock.pipeline.values import Stored
    from penstock.spark.micro_batch.checkpoint import Shape
    from penstock.streaming.job import QueryJob
    from penstock.streaming.query import StreamingQuery
    from penstock.streaming.query_plan import QueryPlan

INTERVAL = "200 ms"
"""Between two polls for new rows, where the file has no trigger: long enough to leave an idle processor idle."""

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
    planner: Planner
    left: tuple[tuple[Note, str], ...] = ()
    """What sources that are gone have left in other systems, each with the command that removes it."""

    @property
    def is_bounded(self) -> bool:
        """Whether it comes to an end by itself."""
        models = (node.model for node in self.spec.nodes.values())
        return self.spec.settings.get("trigger") in ENDING_TRIGGERS or all(
            model.is_bounded for model in models if isinstance(model, SourceNode)
        )

    def job_name(self, group: GroupPlan) -> str:
        """The name of the job that runs a group."""
        return job_name(self.spec.name, group.name)


def plan_pipeline(
    session: Session, spec: PipelineSpec, *, runs: bool = False, moved: bool = False
) -> PipelinePlan:
    """Open the sources of a pipeline, resolve all types, and refuse what cannot work; nothing is started or written.

    With `runs` it is to be started: what sources fix at their first start is stored as soon as the lease of their
    group is there. It is refused when another file of the same name owns the state, unless this one has `moved` into
    its place.
    """
    lasting = is_lasting(session, spec)
    folder = state_folder(session, spec) if lasting else Path(session.queries.temporary_folder())

    backend = None
    if lasting:
        backend = session.queries.backend() if runs else session.queries.existing_backend()

    def stored(group: str) -> Stored:
        return {} if backend is None else backend.state.items(job_name(spec.name, group), namespace=SOURCES)

    before = {} if backend is None else earlier_groups(spec.name, backend)
    if runs and not moved:
        refuse_other_file(spec, before.values())
    planner = Planner(
        session,
        spec,
        folder=folder,
        before={name: kinds_of(job) for name, job in before.items()},
        stored=stored,
        runs=lasting and runs,
    )
    groups = tuple(planner.groups())
    left = []
    if backend is not None:
        jobs = {name: job.name for name, job in before.items()}
        left = left_behind(spec.name, jobs, groups, backend)
    return PipelinePlan(spec, groups, folder, lasting, planner, tuple(left))


def is_lasting(session: Session, spec: PipelineSpec) -> bool:
    """Whether anything of a pipeline is there after its end: if not, every run begins anew."""
    models = [node.model for node in spec.nodes.values()]
    return not all(model.is_bounded for model in models if isinstance(model, SourceNode)) or any(
        _stores_rows(node, session) for node in spec.of_kind("sink")
    )


def _stores_rows(node: NodeSpec, session: Session) -> bool:
    """Whether what a sink takes is there after the end of the pipeline."""
    assert isinstance(node.model, SinkNode)
    with translated(where=str(node.place)):
        return node.model.sink(session.settings).guarantee is not Guarantee.NOT_KEPT


def state_folder(session: Session, spec: PipelineSpec) -> Path:
    """Where a pipeline keeps checkpoints and views."""
    folder = spec.settings.get("checkpoint")
    if spec.path == spec.name == STDIN:
        raise ConfigError(
            "a pipeline from stdin that goes on where it ended needs a name, under which its state is kept",
            code="PIPELINE_NAME",
            where=spec.path,
            hint="add name: to it",
        )
    if folder is not None:
        if is_remote(str(folder)):
            raise ConfigError(
                f"the checkpoint of '{spec.name}' is to be in {str(folder).partition('://')[0]}, and a "
                "pipeline keeps it on the disk of its machine",
                code="PIPELINE_CHECKPOINT",
                where=spec.path,
                hint="give checkpoint: a folder",
            )
        return Path(str(folder)).expanduser().absolute()
    return session.settings.home / "pipelines" / _file_name(spec.name)


class PipelineRun:
    """Runs a planned pipeline from its start to its end; `say` takes messages for people, `counts` counts the rows of
    transforms."""

    def __init__(
        self,
        session: Session,
        plan: PipelinePlan,
        *,
        report: Report | None = None,
        say: Callable[[str], None] = lambda text: None,
        counts: RowCounts | None = None,
    ) -> None:
        self._session = session
        self.plan = plan
        self.groups = {group.name: group for group in plan.groups}
        """As they run now: the plan of a group changes when the history of a hybrid source has ended."""
        self.queries: dict[str, StreamingQuery] = {}
        """The running query of each group, by its name."""
        self._report = report
        self._say = say
        self._counts = counts
        self._lock = threading.Lock()
        self._stopping = False
        self._listener = _ProgressListener(self._follows)

    def check(self) -> list[QueryPlan]:
        """Try every connection and refuse what cannot work; no lease is taken, nothing is written."""
        return [self._query_plan(group, replays=False) for group in self.groups.values()]

    def start(self) -> None:
        """Start all groups; when one cannot start, those that run are stopped again."""
        plans = [self._query_plan(group) for group in self.groups.values()]
        self._session.queries.dispatcher.add(self._listener)
        for note, command in self.plan.left:
            cost = f", and {note.resource.cost}" if note.resource.cost else ""
            text = f"the {note} is not read any more{cost}: {command} removes it"
            self._say(hide(text, self.plan.spec.secrets))
        try:
            for name, plan in zip(self.groups, plans, strict=True):
                self._launch(name, plan)
        except BaseException:
            self.stop()
            self._session.queries.dispatcher.remove(self._listener)
            raise

    @property
    def rows_read(self) -> int:
        """How many rows the sources have given."""
        return self._listener.rows

    def wait(self) -> PenstockError | None:
        """Lead all groups to their end, through their phases; when one fails the others are stopped. Returns the first error.

        A group whose history has ended goes on with its live sources only during this call.
        """
        ends: SimpleQueue[PenstockError | None] = SimpleQueue()
        for name in list(self.queries):
            follow = partial(self._follow, name, ends.put)
            threading.Thread(target=follow, name=f"penstock pipeline {name}", daemon=True).start()
        first: PenstockError | None = None
        for _ in list(self.queries):
            error = ends.get()
            if error is not None and first is None:
                first = error
                self.stop()
        self._listener.wait(query.id for query in self.queries.values())
        self._session.queries.dispatcher.remove(self._listener)
        return first

    def replay(self, name: str) -> None:
        """Run the one epoch of a group that takes the requested dead letters, and end; nothing is read from the sources."""
        self._launch(name, replace(self._query_plan(self.groups[name]), wanted_only=True))
        self.queries[name].await_termination()

    def stop(self, seconds: float | None = None) -> None:
        """End after the batches that run now."""
        with self._lock:
            self._stopping = True
            running = list(self.queries.values())
        stops = [threading.Thread(target=query.stop, args=(seconds,), daemon=True) for query in running]
        for stop in stops:
            stop.start()
        for stop in stops:
            stop.join()

    def _follow(self, name: str, ended: Callable[[PenstockError | None], None]) -> None:
        """Wait for the end of a group, through its phases."""
        try:
            while True:
                query = self.queries[name]
                query.await_termination()
                # A history that was stopped has not come to its end.
                if self.groups[name].phase is Phase.LIVE or query.was_stopped or self._stopping:
                    break
                self._follow_history(name)
            if any(plan.sink.is_done for plan in self.groups[name].sinks):
                self.stop()  # a sink that wants no more rows ends the pipeline, not its group alone
        except PenstockError as error:
            ended(error)
        except BaseException as error:
            problem = InternalError(f"{type(error).__name__}: {error}", code="PIPELINE_RUN")
            problem.__cause__ = error
            ended(problem)
        else:
            ended(None)

    def _follow_history(self, name: str) -> None:
        """Go on with the live sources of a group whose histories have ended."""
        group = self.groups[name] = self.plan.planner.following(name)
        self._launch(name, self._query_plan(group))
        text = f"'{self.plan.job_name(group)}': history done, following"
        self.queries[name].note(text)
        self._say(text)

    def _follows(self, query: str, index: int) -> None:
        """The snapshot of a source is done, and its changes are followed."""
        for name, running in list(self.queries.items()):
            if running.name == query:
                node = record.spark_sources(self.groups[name])[index]
                text = f"'{node}': snapshot done, following"
                running.note(text)
                self._say(text)

    def _launch(self, name: str, plan: QueryPlan) -> None:
        self._listener.names.add(plan.name)
        query = self._writer(self.groups[name]).launch(plan)
        with self._lock:
            self.queries[name] = query
            is_late = self._stopping
        for text in self.groups[name].news:
            query.note(text)
            self._say(text)
        if is_late:  # a stop that came meanwhile knew only the queries before
            query.stop()

    def _query_plan(self, group: GroupPlan, *, replays: bool = True) -> QueryPlan:
        spec = self.plan.spec
        if group.source_changes.obstacle:
            raise StateError(
                f"'{self.plan.job_name(group)}' cannot go on: {group.source_changes.obstacle}",
                code="PIPELINE_SOURCE_CHANGED",
                where=spec.path,
                hint=f"change it back, or begin anew: penstock state reset {spec.name}",
            )
        report = self._report
        name = self.plan.job_name(group)
        replay = None
        if replays and self.plan.is_lasting and group.letters:
            replay = Replay(Requests(self._session.queries.backend(), name), group.letters)

        def take(epoch: NodeEpoch) -> None:
            self._session.queries.metrics.nodes(plan.name, _node_reports(group, epoch))
            if report is not None:
                report(group.name, epoch)

        sink = GroupSink(group, report=take, replay=replay, counts=self._counts)
        plan = self._writer(group).plan_for(
            sink,
            name if self.plan.is_lasting else None,
            place=str(Path(spec.path).absolute()),
            sources=[source.node.name for source in group.read],
        )

        def prepare(location: str, job: QueryJob | None) -> None:
            spark, history = self._session.spark, group.folder.checkpoint(Phase.HISTORY)
            if group.source_changes.changes:
                _change_sources(spark, group, Path(location), plan.shape, job)
            if job is not None and group.values is not None:
                # Not before the checkpoint is the one of these sources: a start that dies in between does both again.
                group.values.store(job.values_of(SOURCES))
            if job is not None:
                safe = partial(hide, secrets=spec.secrets)
                everywhere = resources_of(self.groups.values(), safe)
                note_resources(job.values_of(OUTSIDE), resources_of([group], safe), everywhere=everywhere)
            if group.phase is Phase.LIVE and history.exists():
                checkpoint.follow(spark, str(history), location, plan.shape)
            for views in group.left_views:
                shutil.rmtree(views)
            if group.begins_anew(None if job is None else job.values()):
                checkpoint.begin_empty(spark, location)

        return replace(
            plan,
            kind="pipeline",
            prepare=prepare,
            parts=record.parts(spec, group),
            hide=partial(hide, secrets=spec.secrets),
        )

    def _writer(self, group: GroupPlan) -> StreamWriter:
        taps = [tap for source in group.read for tap in source.stream.taps]
        writer = StreamWriter(self._session.queries, group.frame(), taps=taps).trigger(self._trigger(group))
        if self.plan.is_lasting:
            writer.option("checkpoint.location", group.checkpoint)
        return writer

    def _trigger(self, group: GroupPlan) -> Trigger:
        if not self.plan.is_lasting and all(source.node.type == "file" for source in group.sources):
            return Trigger.once()  # nothing to go on from, so nothing need be noted
        trigger = self.plan.spec.settings.get("trigger")
        if group.is_bounded or trigger in ENDING_TRIGGERS:
            return Trigger.available_now()
        if trigger is None:
            polls = [poll for source in group.sources if (poll := _poll(source.node)) is not None]
            trigger = min(polls) if len(polls) == len(group.sources) else INTERVAL
        return Trigger.processing_time(trigger)


def _change_sources(
    spark: SparkSession, group: GroupPlan, location: Path, shape: Shape, job: QueryJob | None
) -> None:
    """Make the checkpoint in which sources that have changed begin, and the others go on; it is there as a whole, or not."""
    changed = {change.node for change in group.source_changes.changes if change.loses_offset}
    for source in (source for source in group.sources if source.node.name in changed):
        source.source.reset()
        if job is not None:
            job.source_values(source.node.name).clear()
    before = group.folder.checkpoints(group.phase.folder)
    building = location.with_name(f".{location.name}")
    shutil.rmtree(building, ignore_errors=True)
    checkpoint.follow(
        spark, str(before[-1]), str(building), shape, continuing=group.source_changes.continuing
    )
    building.rename(location)
    for older in before:
        shutil.rmtree(older)


class _ProgressListener(StreamingQueryListener):
    """Counts the rows that the sources of a pipeline give, and notices when the snapshot of a source is done."""

    def __init__(self, follows: Callable[[str, int], None]) -> None:
        self.rows = 0
        self.names: set[str] = set()
        """The queries of the pipeline; events of other queries of the session come too."""
        self._follows = follows
        self._ended: set[str] = set()
        self._changed = threading.Condition()

    def on_query_progress(self, event: QueryProgressEvent) -> None:
        """Count rows, and report the source whose snapshot is done."""
        if event.name not in self.names:
            return
        self.rows += event.progress.input_rows
        for index, source in enumerate(event.progress.sources):
            if _phase(source.start_offset) == SNAPSHOT and _phase(source.end_offset) == FOLLOWING:
                self._follows(event.name, index)

    def on_query_terminated(self, event: QueryTerminatedEvent) -> None:
        """All reports of a query have come."""
        with self._changed:
            self._ended.add(event.query_id)
            self._changed.notify_all()

    def wait(self, queries: Iterable[str], seconds: float = 5.0) -> None:
        """Wait for the last reports of queries that have ended."""
        wanted = set(queries)
        with self._changed:
            self._changed.wait_for(lambda: wanted <= self._ended, seconds)


def _node_reports(group: GroupPlan, epoch: NodeEpoch) -> dict[str, NodeReport]:
    """What an epoch did at the nodes of a group, for the metrics."""
    return {
        name: NodeReport(
            node.type,
            labels_of(node.model),
            rows=epoch.written.get(name) or 0,
            failed=epoch.failed.get(name, 0),
            counts=epoch.counts.get(name, {}),
            lag_seconds=epoch.lags.get(name),
        )
        for name, node in group.nodes.items()
    }


def _poll(node: NodeSpec) -> int | None:
    return node.model.poll_interval_ms if isinstance(node.model, SourceNode) else None


def _phase(offset: object) -> object:
    return offset.get("phase") if isinstance(offset, Mapping) else None


def _file_name(name: str) -> str:
    """A name as that of a folder; a name with other characters gets a hash, so that it differs from similar ones."""
    letters = "-_." if name.strip(".") else "-_"
    plain = "".join(letter if letter.isalnum() or letter in letters else "_" for letter in name)
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
