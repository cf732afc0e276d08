"""Checkpoints of a flow in shards: each shard writes what has changed, while ticks go on, and the flow is the same behind every fault."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.circuit.in_process import InProcess
from penstock.circuit.local import LocalKernel
from penstock.circuit.sharded import ShardedKernel
from penstock.engine.checkpoint import FlowCheckpoints
from penstock.engine.directory import local_directory
from penstock.state.files import AppendFiles, LocalFiles, Parts
from seed import SEED
from twin.disk import DyingDisk, PowerCut
from twin.durable import actions, add_view, answers, declare, random_change, tick
from twin.rows import small_state
from twin.tasks import Threads

Make = Callable[[], Any]
CALLS_AT_MOST = 400


def in_threads(shards: int, *, remote: bool = False) -> Threads:
    return Threads(shards, random.Random(SEED), 0.0, remote=remote)


EXECUTORS: dict[str, Callable[[int], Any]] = {
    "in process": InProcess,
    "tasks": in_threads,
    "tasks elsewhere": lambda shards: in_threads(shards, remote=True),
}


def opened(
    path: Path, make: Make | None, *, files: AppendFiles | None = None, every: int = 1
) -> ps.IncrementalFlow:
    """A flow in a directory; without `make` in this process."""
    flow = ps.IncrementalFlow(clock=lambda: 0)
    flow._make_kernel = LocalKernel if make is None else lambda: ShardedKernel(make())
    try:
        flow._open(local_directory(path, checkpoint_every=every, files=files))
    except BaseException:
        flow._graph.kernel.close()
        raise
    return flow


def large(flow: ps.IncrementalFlow) -> None:
    declare(flow)
    for name in ("totals", "named", "by_v"):
        add_view(flow, name)
    rows = [{"k": k, "v": k % 7, "w": 0} for k in range(30_000)]
    flow.tick("rows", rows)
    flow.tick("names", [{"k": k, "name": f"n{k}"} for k in range(30_000)])


def small(flow: ps.IncrementalFlow, at: int) -> None:
    flow.tick("rows", [{"k": at * 100 + k, "v": 3, "w": 0} for k in range(20)])


def written(folder: Path, before: set[str]) -> int:
    """Bytes of data files that have come."""
    return sum(path.stat().st_size for path in folder.glob("data-*") if path.name not in before)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


@pytest.mark.parametrize(("kind", "shards"), [("in process", 3), ("tasks", 2), ("tasks elsewhere", 2)])
def test_a_checkpoint_has_what_changed(kind: str, shards: int, tmp_path: Path) -> None:
    """Also the first one of a flow that was opened or restored."""
    saved, path = tmp_path / "saved", tmp_path / "flow"
    plain = ps.IncrementalFlow(clock=lambda: 0)
    flow = opened(path, lambda: EXECUTORS[kind](shards), every=10**9)
    for one in (plain, flow):
        large(one)
    flow.checkpoint(saved)
    whole = written(saved, set())
    sizes = []
    for at in range(3):
        for one in (plain, flow):
            small(one, at)
        before = names(saved)
        flow.checkpoint(saved, keep=2)
        sizes.append(written(saved, before))
    flow.close()
    other = ps.IncrementalFlow(clock=lambda: 0)
    other._make_kernel = lambda: ShardedKernel(EXECUTORS[kind](shards))
    other._graph.kernel = other._make_kernel()
    other.restore(saved)
    assert answers(other) == answers(plain)
    small(plain, 9)
    small(other, 9)
    before = names(saved)
    other.checkpoint(saved)
    sizes.append(written(saved, before))
    other._graph.kernel.close()
    assert all(0 < size < whole / 8 for size in sizes), (sizes, whole)
    for make in (None, lambda: InProcess(shards), lambda: InProcess(shards + 1)):
        loaded = ps.IncrementalFlow(clock=lambda: 0)
        if make is not None:
            loaded._make_kernel = lambda make=make: ShardedKernel(make())  # type: ignore[misc]
        loaded.restore(saved)
        assert answers(loaded) == answers(plain)


class TickingFiles(LocalFiles):
    """Lets something happen before each file is written, and in the middle of it."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], None] | None = None

    def write(self, path: Path, parts: Parts) -> None:
        super().write(path, self._with(parts) if path.suffix == ".bin" else parts)

    def _with(self, parts: Parts) -> Iterator[Any]:
        for part in parts:
            if self.meanwhile is not None:
                self.meanwhile()
            yield part


@pytest.mark.parametrize(("kind", "shards"), [("in process", 3), ("tasks", 1), ("tasks", 2)])
def test_ticks_go_on_while_a_checkpoint_is_written(kind: str, shards: int, tmp_path: Path) -> None:
    """What is written is the flow of the moment at which the checkpoint was taken."""
    rng, ticks = random.Random(SEED + shards), 0
    with small_state():
        plain, flow = ps.IncrementalFlow(clock=lambda: 0), ps.IncrementalFlow(clock=lambda: 0)
        flow._graph.kernel = ShardedKernel(EXECUTORS[kind](shards))
        for one in (plain, flow):
            declare(one)
            for name in ("totals", "named", "by_v", "top"):
                add_view(one, name)
            tick(one, [(k % 4, k % 5, 0, False) for k in range(60)])
        files = TickingFiles()

        def meanwhile() -> None:
            nonlocal ticks
            if ticks < 6 and rng.random() < 0.2:
                ticks += 1
                change = random_change(rng)
                for one in (plain, flow):
                    tick(one, change)

        checkpoints = FlowCheckpoints(tmp_path / "saved", files)
        for _ in range(3):
            expected, ticks = answers(plain), 0
            staged = checkpoints.stage(flow._graph, None)
            files.meanwhile = meanwhile
            checkpoints.write(staged, keep=2)
            files.meanwhile = None
            assert ticks > 0
            assert answers(flow) == answers(plain)
            for count in (shards, shards + 1):
                loaded = ps.IncrementalFlow(clock=lambda: 0)
                loaded._make_kernel = lambda count=count: ShardedKernel(InProcess(count))  # type: ignore[misc]
                loaded.restore(tmp_path / "saved")
                assert answers(loaded) == expected
        flow._graph.kernel.close()


def done_until_the_end(path: Path, disk: DyingDisk, shards: int) -> int:
    """How many actions a flow has done when its disk dies; a checkpoint is taken behind each tick."""
    done = 0
    try:
        flow = opened(path, lambda: InProcess(shards), files=disk)
        for action in actions():
            action(flow)
            done += 1
            assert flow._runner.directory is not None
            flow._runner.directory.wait()
    except PowerCut:
        pass
    return done


@pytest.mark.parametrize("remains", [0.0, 0.5, 1.0])
def test_a_power_cut_at_any_write_loses_nothing_that_has_returned(remains: float, tmp_path: Path) -> None:
    """Every so many writes in the suite, others with each seed; opened with the same and with another number of shards."""
    rng, step = random.Random(SEED), 11
    with small_state():
        flow = ps.IncrementalFlow(clock=lambda: 0)
        expected = [answers(flow)]
        for action in actions():
            action(flow)
            expected.append(answers(flow))
        for calls in range(1 + SEED % step, CALLS_AT_MOST, step):
            path = tmp_path / str(calls)
            done = done_until_the_end(path, disk := DyingDisk(calls, remains), 2)
            left = shutil.copytree(path, tmp_path / f"{calls} left") if path.exists() else path
            again = opened(left, lambda: InProcess(rng.choice([1, 2, 3])), every=10**9)
            assert answers(again) in expected[done : done + 2]
            again.close()
            if not disk.dead:
                return
    pytest.fail("the disk has not seen the end")


def test_a_part_that_is_lost_fails_the_checkpoint_and_the_next_one_is_whole(tmp_path: Path) -> None:
    """The worker of a shard is gone while its states are written: the log has everything."""
    executor = in_threads(2)
    plain, flow = ps.IncrementalFlow(clock=lambda: 0), ps.IncrementalFlow(clock=lambda: 0)
    flow._graph.kernel = ShardedKernel(executor)
    for one in (plain, flow):
        large(one)
    flow.checkpoint(tmp_path)
    stage = executor.stage

    def losing(order: Any) -> Any:
        parts = stage(order)
        parts[1]._connection.shutdown(2)  # type: ignore[attr-defined]
        return parts

    executor.stage = losing  # type: ignore[method-assign]
    for at in range(2):
        for one in (plain, flow):
            small(one, at)
        with pytest.raises(ps.StateError) as caught:
            flow.checkpoint(tmp_path)
        assert caught.value.code == "STATE_CHECKPOINT_UNWRITTEN"
    del executor.stage
    flow.checkpoint(tmp_path, keep=1)
    executor.close()
    loaded = ps.IncrementalFlow(clock=lambda: 0)
    loaded.restore(tmp_path)
    assert answers(loaded) == answers(plain)
    # What the failed ones have written is gone.
    assert len(list(tmp_path.glob("checkpoint-*"))) == 1
