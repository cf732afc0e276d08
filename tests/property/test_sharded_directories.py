"""A durable flow whose number of shards is another one at every opening is the flow in memory: feeds, steps, registrations, drops, checkpoints, closings, crashes;
views that fail, are suspended and go on.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

import penstock as ps
from penstock.circuit.in_process import InProcess
from penstock.circuit.sharded import ShardedKernel
from penstock.engine.directory import local_directory
from penstock.engine.registration import Prepared
from penstock.plan import node as plan
from seed import SEED
from twin.durable import Schedule, add_view, answers, state
from twin.failing import FAILING, READS
from twin.flows import VIEWS, no_fragment
from twin.histories import remembered, resume
from twin.rows import small_state

SHORT = 3


class ShardedSchedule(Schedule):
    """Opened in shards, or without."""

    def _open(self) -> ps.IncrementalFlow:
        shards = self._rng.choice([0, 1, 2, 3, 5])
        flow = ps.IncrementalFlow(clock=lambda: 0)
        if shards:
            flow._make_kernel = lambda: ShardedKernel(InProcess(shards))
        every = self._rng.choice([1, 2_000, 10**9])
        flow._open(local_directory(self._path, checkpoint_every=every))
        return flow

    def _act(self) -> None:
        choice = self._rng.random()
        if choice < 0.15:
            name = self._rng.choice(list(FAILING))
            for flow in self._flows():
                self._add(flow, name)
        elif choice < 0.25:
            said = [resume(flow) for flow in self._flows()]
            assert said[0] == said[1]
        else:
            super()._act()

    def _add(self, flow: ps.IncrementalFlow, name: str) -> None:
        """Register a view that may fail, behind those that it reads."""
        for below in READS.get(name, ()):
            add_view(flow, below) if below in VIEWS else self._add(flow, below)
        views = flow._graph.views
        if name not in views and all(below in views for below in READS.get(name, ())):
            prepared = Prepared(plan.View(name, "", FAILING[name]), no_fragment)
            # It may fail on the rows that are there, or read a view that is suspended.
            with suppress(ps.DataError, ps.StateError):
                flow._install(prepared, "suspend")

    def compare(self) -> None:
        assert answers(self.durable) == answers(self.memory)
        assert _ordered(self.durable) == _ordered(self.memory)


def _ordered(flow: ps.IncrementalFlow) -> object:
    """What a flow remembers; the rows in its quarantine are in no order, and the place of an error names all views that share an operator."""
    saved = state(flow)
    saved["suspended"] = remembered(flow)[-1]
    for source in saved["sources"].values():
        source["quarantine"] = None
    quarantined = [sorted(map(str, flow.quarantined(name).to_pylist())) for name in saved["sources"]]
    return saved, quarantined


@pytest.mark.parametrize(
    "number", [*range(SHORT), *(pytest.param(n, marks=pytest.mark.soak) for n in range(SHORT, 200))]
)
def test_any_number_of_shards_at_any_time(number: int, tmp_path: Path) -> None:
    with small_state():
        ShardedSchedule(SEED + number, tmp_path).run(16)
