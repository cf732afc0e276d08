"""Random schedules of a durable flow, beside the same flow in memory."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.circuit.budget import MemoryBudget
from penstock.circuit.kernel import Kernel
from penstock.engine.directory import local_directory
from penstock.engine.registration import Prepared
from penstock.plan import node as plan
from penstock.state.files import AppendFiles
from twin.flows import VIEWS, Change, no_fragment

Answers = dict[str, Counter[str]]


def opened(
    path: Path | None = None,
    files: AppendFiles | None = None,
    *,
    checkpoint_every: int = 1,
    budget: MemoryBudget | None = None,
    kernel: Kernel | None = None,
) -> ps.IncrementalFlow:
    """A flow in memory, or in a directory."""
    flow = ps.IncrementalFlow(clock=lambda: 0)
    flow._graph.budget = budget
    if kernel is not None:
        flow._graph.kernel = kernel
    if path is not None:
        flow._open(local_directory(path, checkpoint_every=checkpoint_every, files=files))
    return flow


def declare(flow: ps.IncrementalFlow) -> None:
    """Register the two sources."""
    flow.register_source("rows", "k BIGINT, v BIGINT, w BIGINT", on_missing_delete="quarantine")
    flow.register_source("names", "k BIGINT, name STRING", primary_key="k")


def add_view(flow: ps.IncrementalFlow, name: str) -> None:
    """Register a view, after the one that it reads."""
    if name in flow._graph.views:
        return
    if name in ("total_names", "top_total"):
        add_view(flow, "totals")
    flow._install(Prepared(plan.View(name, "", VIEWS[name]), no_fragment), "reject")


def tick(flow: ps.IncrementalFlow, change: Change) -> None:
    """One tick over both sources."""
    rows = [{"k": k, "v": v, "w": w, "_weight": -1 if gone else 1} for k, v, w, gone in change]
    named = [{"k": abs(k), "name": f"n{v}"} for k, v, _, gone in change if not gone]
    if rows:
        flow.feed("rows", ps.DeltaBatch.weighted(rows))
    if named:
        flow.feed("names", named)
    flow.step()


def answers(flow: ps.IncrementalFlow) -> Answers:
    """The rows of all views and sources."""
    names = (*flow._graph.views, *flow._graph.sources)
    return {name: Counter(map(str, flow.snapshot(name).to_pylist())) for name in names}


def random_change(rng: random.Random) -> Change:
    """A few rows that come and go; keys are not negative, so that the recursion ends."""
    return [
        (rng.randint(0, 3), rng.randint(-2, 3), rng.randint(0, 1), rng.random() < 0.3)
        for _ in range(rng.randint(0, 5))
    ]


def actions() -> list[Callable[[ps.IncrementalFlow], None]]:
    """Registrations, ticks and drops: one event each."""
    rng = random.Random(7)
    changes = [[*random_change(rng), (1, 2, 0, False)] for _ in range(5)]
    return [
        lambda flow: flow.register_source(
            "rows", "k BIGINT, v BIGINT, w BIGINT", on_missing_delete="quarantine"
        ),
        lambda flow: flow.register_source("names", "k BIGINT, name STRING", primary_key="k"),
        lambda flow: add_view(flow, "totals"),
        lambda flow: tick(flow, changes[0]),
        lambda flow: add_view(flow, "top_total"),
        lambda flow: tick(flow, changes[1]),
        lambda flow: add_view(flow, "named"),
        lambda flow: tick(flow, changes[2]),
        lambda flow: flow.drop_view("top_total"),
        lambda flow: tick(flow, changes[3]),
        lambda flow: tick(flow, changes[4]),
    ]


class Schedule:
    """Feeds, steps, registrations, drops, checkpoints, closings and crashes, of one seed."""

    def __init__(self, seed: int, folder: Path, budget: Callable[[], MemoryBudget] | None = None) -> None:
        self._rng = random.Random(seed)
        self._budget = budget  # that of the durable flow
        self._folder = folder
        self._path = folder / "flow"
        self._copies = 0
        self.memory, self.durable = opened(), self._open()
        for flow in self._flows():
            declare(flow)

    def _open(self) -> ps.IncrementalFlow:
        budget = None if self._budget is None else self._budget()
        return opened(self._path, checkpoint_every=self._rng.choice([1, 2_000, 10**9]), budget=budget)

    def _flows(self) -> tuple[ps.IncrementalFlow, ps.IncrementalFlow]:
        return self.memory, self.durable

    def run(self, steps: int) -> None:
        """Do something so many times; both flows are the same after each reopening."""
        for _ in range(steps):
            self._act()
        self._reopen()

    def _act(self) -> None:
        choice = self._rng.random()
        if choice < 0.25:
            name = self._rng.choice(list(VIEWS))
            for flow in self._flows():
                add_view(flow, name)
        elif choice < 0.3 and self.memory._graph.views:
            self._drop(self._rng.choice(list(self.memory._graph.views)))
        elif choice < 0.5:
            self._reopen()
        else:
            change = random_change(self._rng)
            for flow in self._flows():
                tick(flow, change)

    def _drop(self, name: str) -> None:
        if not self.memory._graph.readers(name):
            for flow in self._flows():
                flow.drop_view(name)

    def _reopen(self) -> None:
        """Close and open the flow, or open a copy of its files, as after a crash."""
        if self._rng.random() < 0.5:
            self.durable.close()
        else:
            self._crash()
        self.durable = self._open()
        self.compare()

    def _crash(self) -> None:
        directory = self.durable._runner.directory
        assert directory is not None
        # Files that come and go while they are copied are another crash than any that a disk knows.
        directory.wait()
        self._copies += 1
        copied = self._folder / f"flow {self._copies}"
        shutil.copytree(self._path, copied)
        self.durable.close()
        self._path = copied

    def compare(self) -> None:
        """Both flows have the same rows and the same state."""
        assert answers(self.durable) == answers(self.memory)
        assert state(self.durable) == state(self.memory)


def state(flow: ps.IncrementalFlow) -> dict[str, Any]:
    """What a flow remembers beside its rows."""
    return flow._graph.state.to_dict()
