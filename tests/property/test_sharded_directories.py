"""A durable flow whose number of shards is another one at every opening is the flow in memory: feeds, steps, registrations, drops, checkpoints, closings, crashes."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from penstock.circuit.in_process import InProcess
from penstock.circuit.sharded import ShardedKernel
from penstock.engine.directory import local_directory
from seed import SEED
from twin.durable import Schedule, answers, state
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

    def compare(self) -> None:
        assert answers(self.durable) == answers(self.memory)
        assert _ordered(self.durable) == _ordered(self.memory)


def _ordered(flow: ps.IncrementalFlow) -> object:
    """What a flow remembers; the rows in its quarantine are in no order."""
    saved = state(flow)
    for source in saved["sources"].values():
        source["quarantine"] = None
    quarantined = [sorted(map(str, flow.quarantined(name).to_pylist())) for name in saved["sources"]]
    return saved, quarantined


@pytest.mark.parametrize(
    "number", [*range(SHORT), *(pytest.param(n, marks=pytest.mark.soak) for n in range(SHORT, 200))]
)
def test_any_number_of_shards_at_any_time(number: int, tmp_path: Path) -> None:
    with small_state():
        ShardedSchedule(SEED + number, tmp_path).run(12)
