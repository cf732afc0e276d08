"""The ticks of a flow: batches that wait for a step, steps over them, and the changes handed over to watches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from threading import RLock

from penstock.circuit.budget import MemoryBudget
from penstock.circuit.kernel import Kernel
from penstock.circuit.local import LocalKernel
from penstock.engine import replay
from penstock.engine.changelog import Changelog
from penstock.engine.directory import FlowDirectory
from penstock.engine.event import RejectEvent
from penstock.engine.followers import pass_tick
from penstock.engine.graph import FedBatch, Graph
from penstock.engine.isolation import step_isolated
from penstock.engine.stepper import Stepper
from penstock.engine.summary import StepSummary
from penstock.engine.tick import Journal, NoJournal, Ticked, maintain, run_tick
from penstock.errors import PenstockError, StateError

LOG = logging.getLogger("penstock.flow")


class Runner:
    """Runs ticks of the flow in `graph`, each alone under `lock`, which callers of everything but `stop` have taken.

    With a directory every tick is an event of its log.
    """

    def __init__(
        self,
        name: str | None,
        clock: Callable[[], int],
        budget: MemoryBudget | None = None,
        kernel: Kernel | None = None,
    ) -> None:
        self.graph = Graph(kernel or LocalKernel(), budget=budget)
        self.name = name
        self.lock = RLock()
        self.pending: list[FedBatch] = []
        self.changelogs: dict[str, Changelog] = {}
        self.directory: FlowDirectory | None = None
        self.journal: Journal = NoJournal()
        self.checkpoints_when_due = True  # behind a tick; otherwise somebody else takes them
        self._clock = clock
        self._stepper: Stepper | None = None

    def open(self, graph: Graph, name: str | None, directory: FlowDirectory) -> None:
        """Be the flow that was read from a directory, and write every event from now on to its log."""
        self.graph, self.name = graph, name
        self.directory = self.journal = directory

    def replace(self, graph: Graph, name: str | None) -> Sequence[Changelog]:
        """Be another flow, for which nothing waits; returns the changelogs of this one."""
        if self.directory is not None:
            try:
                self.directory.replace(graph, name)
            except BaseException:
                graph.kernel.close()
                raise
        changelogs, kernel = tuple(self.changelogs.values()), self.graph.kernel
        self.graph, self.name, self.pending, self.changelogs = graph, name, [], {}
        kernel.close()
        return changelogs

    def now(self) -> int:
        """The time of the next tick: never before that of the last one."""
        return max(self._clock(), self.graph.state.micros)

    def waiting_rows(self) -> int:
        """How many fed rows wait for the next step."""
        with self.lock:
            return sum(len(batch.delta) for batch in self.pending)

    # Ticks

    def step(self) -> StepSummary:
        """Run one tick over everything that waits, as `run` does it while that is on."""
        self.refuse_ended()
        return self._step_isolated() if self._stepper is not None else self.step_with([])

    def step_with(self, batches: Sequence[FedBatch]) -> StepSummary:
        """Step these batches with all that wait, or behind them while `run` is on, which must not forget what waits."""
        self.refuse_ended()
        if self._stepper is not None:
            if self.pending:
                self._step_isolated()
            return self._tick(batches)
        waiting, self.pending = self.pending, []
        return self._tick([*waiting, *batches])

    def publish_tick(self, run: Callable[[], Ticked]) -> StepSummary:
        """Run a tick and hand over what it has changed."""
        if self.graph.budget is not None:
            self.graph.budget.require(self.graph.kernel)
        ticked = run()
        try:
            self._publish(ticked)
        except BaseException as error:
            self._lose_changes(ticked, error)
            raise
        if ticked.interrupt is not None:
            raise ticked.interrupt
        maintain(self.graph)
        if self.checkpoints_when_due:
            self.checkpoint_if_due()
        return ticked.summary

    def checkpoint_if_due(self) -> None:
        """Take a checkpoint when the log has grown so much that there should be one."""
        if self.directory is not None and self.directory.is_due():
            self.directory.checkpoint(self.graph, self.name)

    def _tick(self, batches: Sequence[FedBatch]) -> StepSummary:
        return self.publish_tick(partial(run_tick, self.graph, batches, self.now(), self.journal))

    def _publish(self, ticked: Ticked) -> None:
        pass_tick(self.graph, ticked.changes)
        for name, suspension in ticked.suspended.items():
            LOG.warning("view '%s' is %s", name, suspension)
        for name, changelog in self.changelogs.items():
            if name in ticked.changes:
                changelog.publish(self.graph.state.ticks, ticked.changes[name])

    def _lose_changes(self, ticked: Ticked, error: BaseException) -> None:
        """Let watches know that they may lack a change: handing it over was interrupted."""
        pass_tick(self.graph, ticked.changes)
        for name, changelog in self.changelogs.items():
            if name in ticked.changes:
                changelog.lose(self.graph.state.ticks, error)

    # In the background

    def run(self, *, every: int | str, max_rows: int) -> None:
        """Step in the background, until `stop`."""
        self.refuse_ended()
        if self._stepper is not None:
            raise StateError(
                "the flow is running already", code="FLOW_RUNNING", hint="call flow.stop() first"
            )
        self._stepper = Stepper(self._step_waiting, self.waiting_rows, every=every, max_rows=max_rows)
        self._stepper.start()

    def stop(self) -> None:
        """End `run` after a step over what waits; raises what ended it, if that was an error. Called without `lock`."""
        stepper = self._stepper
        if stepper is None:
            return
        try:
            stepper.stop()
        finally:
            with self.lock:
                if self._stepper is stepper:
                    self._stepper = None

    def refuse_ended(self) -> None:
        """StateError when the background stepping has ended with an error that nobody has asked for yet."""
        if self._stepper is not None and self._stepper.error is not None:
            raise StateError(
                f"stepping in the background has ended with an error: {self._stepper.error}",
                code="FLOW_STOPPED",
                hint="flow.stop() raises that error; the rows that were fed wait for flow.run() or flow.step() after it",
            )

    def _step_waiting(self) -> None:
        with self.lock:
            self._step_isolated()

    def _step_isolated(self) -> StepSummary:
        """Step what waits; batches whose data is refused go to the quarantine, and on another error the rest goes on waiting."""
        summaries: list[StepSummary] = []

        def step(batches: Sequence[FedBatch]) -> None:
            before, stepped = self.graph.state.ticks, len(batches)
            try:
                summaries.append(self._tick(batches))
            finally:
                # An interrupt may come behind a tick that has happened.
                if self.graph.state.ticks > before:
                    del self.pending[:stepped]

        step_isolated(tuple(self.pending), step=step, reject=self._reject)
        return summaries[-1]

    def _reject(self, batch: FedBatch, error: PenstockError) -> None:
        """Quarantine the first batch that waits."""
        LOG.warning("%d rows of source '%s' were rejected: %s", len(batch.delta), batch.source, error)
        reason = f"rejected: {error.code}: {error.message}"
        self.journal.append(RejectEvent(batch, reason))
        replay.reject(self.graph, batch, reason)
        del self.pending[0]
