"""A flow in shards with a memory budget is the flow without: every shard keeps its part of it, also behind a checkpoint, and a full disk loses nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.circuit.in_process import InProcess
from penstock.circuit.sharded import ShardedKernel
from penstock.spark.shards import worker
from penstock.state.scratch import LocalScratchFiles
from seed import SEED
from twin.durable import add_view, answers, declare
from twin.tasks import Threads

BUDGET = 1_000_000
EXECUTORS: dict[str, Callable[[int], Any]] = {
    "in process": lambda shards: InProcess(shards, memory=BUDGET),
    "tasks": lambda shards: Threads(shards, random.Random(SEED), 0.2, memory=BUDGET),
}


def feed(flows: list[ps.IncrementalFlow], rng: random.Random) -> None:
    """Rows that come, and some that go again."""
    rows = [{"k": rng.randrange(20_000), "v": rng.randrange(9), "w": 0} for _ in range(6_000)]
    gone = [{**row, "_weight": -1} for row in rows[::7]]
    for flow in flows:
        flow.tick("rows", rows)
        flow.tick("rows", ps.DeltaBatch.weighted(gone))


@pytest.mark.parametrize(("kind", "shards"), [("in process", 3), ("tasks", 2)])
def test_a_budget_in_shards(kind: str, shards: int, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    plain, flow = ps.IncrementalFlow(clock=lambda: 0), ps.IncrementalFlow(clock=lambda: 0)
    flow._graph.kernel = ShardedKernel(EXECUTORS[kind](shards))
    for one in (plain, flow):
        declare(one)
        for name in ("totals", "named", "by_v"):
            add_view(one, name)
    for _ in range(3):
        feed([plain, flow], rng)
    assert answers(flow) == answers(plain)
    kernel = flow._graph.kernel
    assert kernel.memory() > 2 * BUDGET
    assert kernel.memory() - kernel.mapped() <= BUDGET
    flow.checkpoint(tmp_path)
    if kind == "tasks":
        # Shards that are lost have the same budget.
        worker._LIVE.clear()
        assert kernel.memory() - kernel.mapped() <= BUDGET
    kernel.close()
    again = ps.IncrementalFlow(clock=lambda: 0)
    again._make_kernel = lambda: ShardedKernel(EXECUTORS[kind](shards))
    again.restore(tmp_path)
    feed([plain, again], rng)
    assert answers(again) == answers(plain)
    kernel = again._graph.kernel
    assert kernel.memory() - kernel.mapped() <= BUDGET
    kernel.close()


def test_a_shard_without_room_refuses_the_next_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tick whose state could not move is final; the next one is made on no shard, until there is room."""
    rng = random.Random(SEED)
    plain, flow = ps.IncrementalFlow(clock=lambda: 0), ps.IncrementalFlow(clock=lambda: 0)
    flow._graph.kernel = ShardedKernel(InProcess(2, memory=50_000))
    for one in (plain, flow):
        declare(one)
        add_view(one, "totals")

    def full(files: LocalScratchFiles, handle: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(LocalScratchFiles, "allocate", full)
        rows = [{"k": k, "v": 1, "w": 0} for k in range(20_000)]
        for one in (plain, flow):
            one.tick("rows", rows)
        assert answers(flow) == answers(plain)
        with pytest.raises(ps.StateError) as caught:
            flow.tick("rows", rows[:1])
        assert caught.value.code == "FLOW_SCRATCH"
        assert answers(flow) == answers(plain)
    feed([plain, flow], rng)
    assert answers(flow) == answers(plain)
