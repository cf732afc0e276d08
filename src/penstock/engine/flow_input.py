"""What feeds a flow: changes that wait for a step or are one, and epochs of streaming queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock.data.batch import DeltaBatch
from penstock.engine import feed, feeder
from penstock.engine.names import registered
from penstock.engine.runner import Runner
from penstock.engine.summary import StepSummary


class FlowInput:
    """Takes the changes of one flow, each alone under the lock of its ticks."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    # Changes

    def feed(self, source: str, delta: DeltaBatch | Any, ordinal: int | None) -> bool:
        """Hold a change for the next step; False when its ordinal is not above the last one."""
        with self._runner.lock:
            self._runner.refuse_ended()
            batch = feed.batch_of(self._runner.graph, source, delta, ordinal, self._runner.pending)
            if batch is not None:
                self._runner.pending.append(batch)
            return batch is not None

    def feed_snapshot(self, source: str, rows: Any) -> None:
        """Hold the difference between these rows and what the source holds."""
        with self._runner.lock:
            self._runner.refuse_ended()
            batch = feed.snapshot_batch(self._runner.graph, source, rows, self._runner.pending)
            self._runner.pending.append(batch)

    def check(self, source: str, delta: DeltaBatch | Any) -> None:
        """Refuse rows that do not fit a source, without feeding them."""
        with self._runner.lock:
            feed.batch_of(self._runner.graph, source, delta, None, ())

    def tick(self, source: str, delta: DeltaBatch | Any, ordinal: int | None) -> StepSummary:
        """Feed one change and step."""
        with self._runner.lock:
            self._runner.refuse_ended()
            batch = feed.batch_of(self._runner.graph, source, delta, ordinal, self._runner.pending)
            return self._runner.step_with([] if batch is None else [batch])

    def tick_all(self, source: str, deltas: Sequence[DeltaBatch | Any]) -> StepSummary:
        """Feed several changes of a source and step; when one of them is refused, none is fed."""
        with self._runner.lock:
            self._runner.refuse_ended()
            batches = [feed.batch_of(self._runner.graph, source, delta, None, ()) for delta in deltas]
            return self._runner.step_with([batch for batch in batches if batch is not None])

    # Epochs of streaming queries

    def attach_query(self, source: str, query: str, *, epochs: int, begun: int | None) -> None:
        """Let a streaming query that has done so many epochs, and begun so many, feed a source."""
        with self._runner.lock:
            feeder.attach_query(self._runner.graph.find_source(source), query, epochs, begun)

    def detach_query(self, source: str, query: str) -> None:
        """The streaming query feeds the source no more; how far it came stays known."""
        with self._runner.lock:
            sources = self._runner.graph.sources
            if (spelled := registered(source, sources)) is not None:
                feeder.detach_query(sources[spelled], query)

    def tick_epoch(
        self, source: str, delta: DeltaBatch | Any, *, query: str, epoch: int
    ) -> StepSummary | None:
        """Feed an epoch and step, on the disk when this returns; None, and nothing is fed, when the epoch is in already."""
        with self._runner.lock:
            summary = self._step_epoch(source, delta, query, epoch)
            journal = self._runner.journal
        journal.sync()
        return summary

    def _step_epoch(self, source: str, delta: DeltaBatch | Any, query: str, epoch: int) -> StepSummary | None:
        entry = self._runner.graph.find_source(source)
        if epoch < entry.state.feeders.get(query, 0):
            return None
        batch = feed.batch_of(self._runner.graph, source, delta, None, ())
        assert batch is not None, "a batch without an ordinal is new"
        ordinal = feed.last_ordinal(entry, self._runner.pending) + 1
        return self._runner.step_with([replace(batch, ordinal=ordinal, query=query, epoch=epoch)])
