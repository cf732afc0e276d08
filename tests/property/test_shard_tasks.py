"""The hub and the tasks of shards, with threads in place of Spark: tasks that die anywhere and run again change no answer."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.circuit.sharded import ShardedKernel
from penstock.engine import replay
from penstock.engine.directory import local_directory
from penstock.engine.registration import Prepared, install
from penstock.plan import node as plan
from penstock.spark.shards import executor as executor_module
from penstock.spark.shards import wire, worker
from seed import SEED
from twin.durable import add_view, answers, declare, random_change, tick
from twin.failing import COUNT, FAILING
from twin.flows import FIELDS, VIEWS, no_fragment
from twin.histories import add, drop_some, remembered, resume
from twin.rows import small_state
from twin.tasks import Threads


class Died(ConnectionError):
    """A task has died."""


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> Iterator[random.Random]:
    """Tasks die when they are about to send or to receive."""
    chance = random.Random(SEED)
    for name in ("send", "receive"):
        original = getattr(wire, name)

        def dying(connection: socket.socket, *rest: Any, original: Any = original) -> Any:
            is_task = not threading.current_thread().name.startswith("penstock-shard")
            if is_task and chance.random() < 0.05:
                connection.close()
                raise Died
            return original(connection, *rest)

        monkeypatch.setattr(wire, name, dying)
    yield chance
    worker._LIVE.clear()


@pytest.mark.parametrize(("shards", "remote"), [(1, False), (3, False), (4, True)])
def test_tasks_that_die_anywhere(shards: int, remote: bool, deaths: random.Random) -> None:
    executor = Threads(shards, deaths, 0.1, remote=remote)
    plain, flow = ps.IncrementalFlow(clock=lambda: 0), ps.IncrementalFlow(clock=lambda: 0)
    flow._graph.kernel = ShardedKernel(executor)
    rng = random.Random(SEED + shards)
    with small_state():
        for one in (plain, flow):
            declare(one)
        names = [*rng.sample(list(VIEWS), 4), *rng.sample(list(FAILING), 3)]
        rng.shuffle(names)
        for at in range(12):
            change, resumes = random_change(rng), rng.random() < 0.4
            said: list[Any] = []
            for one in (plain, flow):
                if at < len(names):
                    add(one, names[at])
                tick(one, change)
                said.append((resume(one) if resumes else None, remembered(one)))
            assert said[0] == said[1]
            drop_some(rng, [plain, flow])
            if at in (4, 8):
                # The states are saved, and the changes before are forgotten.
                assert len(flow._graph.kernel.save()) > shards
            if at % 3 == 2:
                assert answers(flow) == answers(plain)
        assert answers(flow) == answers(plain)
    executor.close()
    assert executor.died > 0


@pytest.mark.parametrize("shards", [1, 3])
def test_ticks_in_one_job(shards: int, deaths: random.Random) -> None:
    """Ticks of which some fail, tasks that die, and the states saved between."""
    executor = Threads(shards, deaths, 0.1)
    plain, flow = ps.IncrementalFlow(clock=lambda: 0), ps.IncrementalFlow(clock=lambda: 0)
    flow._graph.kernel = ShardedKernel(executor)
    rng = random.Random(SEED + shards)
    for one in (plain, flow):
        declare(one)
        for name in ("totals", "named", "top", "inverse", "inverse_count", "huge"):
            add(one, name)
    for _ in range(2):
        before = executor.jobs
        with flow._graph.kernel.together():
            for at in range(6):
                change = random_change(rng)
                for one in (plain, flow):
                    tick(one, change)
                    if at == 4:
                        resume(one)
                if at == 3:
                    assert len(flow._graph.kernel.save()) > shards
            assert (answers(flow), remembered(flow)) == (answers(plain), remembered(plain))
        assert executor.jobs == before + 1
        # And in a job for each.
        change = random_change(rng)
        for one in (plain, flow):
            tick(one, change)
        assert (answers(flow), remembered(flow)) == (answers(plain), remembered(plain))
    executor.close()
    assert executor.died > 0


def test_an_opened_directory_has_one_job_for_the_ticks_of_its_log(tmp_path: Path) -> None:
    executors: list[Threads] = []

    def opened() -> ps.IncrementalFlow:
        flow = ps.IncrementalFlow(clock=lambda: 0)
        executors.append(Threads(2, random.Random(1), 0.0))
        flow._make_kernel = lambda: ShardedKernel(executors[-1])
        flow._open(local_directory(tmp_path / "flow", checkpoint_every=10**9))
        return flow

    flow, rng = opened(), random.Random(SEED)
    declare(flow)
    for name in ("totals", "by_v", "top"):
        add_view(flow, name)
    for _ in range(20):
        tick(flow, random_change(rng))
    before = answers(flow), remembered(flow)
    flow.close()
    again = opened()
    # One for each view, and one for all ticks.
    assert executors[-1].jobs == 4
    assert (answers(again), remembered(again)) == before
    again.close()


def test_nothing_is_left_when_a_directory_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder with the states of shards goes, whatever fails, and so do those of processes that were killed."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    killed = f"import os, pathlib; from penstock.spark.boot import scratch; scratch.make(pathlib.Path({str(temporary)!r}), prefix='penstock-shards-'); os._exit(0)"
    subprocess.run([sys.executable, "-c", killed], check=True)
    (left,) = temporary.iterdir()

    def opened(checkpoint_every: int = 10**9) -> ps.IncrementalFlow:
        flow = ps.IncrementalFlow(clock=lambda: 0)
        flow._make_kernel = lambda: ShardedKernel(Threads(2, random.Random(1), 0.0))
        flow._open(local_directory(tmp_path / "flow", checkpoint_every=checkpoint_every))
        return flow

    flow = opened(checkpoint_every=1)
    declare(flow)
    add_view(flow, "totals")
    tick(flow, [(1, 2, 0, False)])
    # The tick was followed by a checkpoint, which needs no temporary folder.
    assert list(temporary.iterdir()) == [left]
    flow.close()
    flow = opened()
    # The states that were loaded are there for shards that are lost.
    assert len(list(temporary.iterdir())) == 1
    assert not left.exists()
    tick(flow, [(2, 3, 0, False)])
    flow.checkpoint(tmp_path / "saved")
    flow.close()

    def failing(*_: Any) -> None:
        raise OSError("no room")

    # In the checkpoint, and in the log behind it.
    for name in ("_install", "apply"):
        with monkeypatch.context() as patched:
            patched.setattr(replay, name, failing)
            with pytest.raises(OSError, match="no room"):
                opened()
        assert not list(temporary.iterdir())
    flow = opened()
    with monkeypatch.context() as patched:
        patched.setattr(replay, "_install", failing)
        with pytest.raises(OSError, match="no room"):
            flow.restore(tmp_path / "saved")
    assert answers(flow)["totals"] == Counter(["{'k': 1, 'v': 2}", "{'k': 2, 'v': 3}"])
    flow.close()
    assert not list(temporary.iterdir())


def test_a_job_that_is_lost_between_ticks() -> None:
    """Tasks stay for the next tick, and the job ends with an error in between, or while a tick runs."""
    executor = Threads(2, random.Random(1), 0.0)
    flow = ps.IncrementalFlow(clock=lambda: 0)
    flow._graph.kernel = ShardedKernel(executor)
    flow.register_source("rows", "k BIGINT, v BIGINT, w BIGINT")
    add_view(flow, "totals")
    run = executor._run_job

    def failing() -> None:
        run()
        raise OSError("the executor is gone")

    executor._run_job = failing  # type: ignore[method-assign]
    with flow._graph.kernel.together():
        for k in range(6):
            flow.tick("rows", [{"k": k, "v": 1, "w": 0}])
            if k % 2:
                hub, running = executor._begin(), executor._running
                hub.let_go()
                assert running is not None
                assert isinstance(running.exception(), OSError)
    # One for the view, and one for every two ticks.
    assert executor.jobs == 1 + 3
    assert flow.snapshot("totals").num_rows == 6
    executor.close()


@pytest.mark.parametrize("remote", [False, True])
def test_lost_shards_of_sources_that_keep_some_columns(remote: bool) -> None:
    """Saved before the sources keep more columns, and behind that."""
    executor = Threads(3, random.Random(1), 0.0, remote=remote)
    plain, flow = ps.IncrementalFlow(clock=lambda: 0), ps.IncrementalFlow(clock=lambda: 0)
    flow._graph.kernel = ShardedKernel(executor)
    rng = random.Random(SEED)
    for one in (plain, flow):
        one.register_source(
            "rows", "k BIGINT, v BIGINT, w BIGINT", on_missing_delete="quarantine", retain="used"
        )
        one.register_source("names", "k BIGINT, name STRING", primary_key="k", retain="used")
    for views in (["counted"], ["totals", "unnamed"], ["by_v"], ["large"], []):
        for one in (plain, flow):
            for name in views:
                root = plan.Aggregate(FIELDS[:2], plan.Scan(FIELDS[2:], "rows", (2,)), (0,), (COUNT,))
                view = plan.View(name, "", VIEWS.get(name, root))
                install(one._graph, Prepared(view, no_fragment), 0)
        if "large" in views or not views:
            change = [*random_change(rng), *((k, k, k, False) for k in range(9))]
            for one in (plain, flow):
                tick(one, change)
        # What the workers have is lost before the states are saved, and behind that.
        worker._LIVE.clear()
        assert views_of(flow) == views_of(plain)
        assert len(flow._graph.kernel.save()) > 3
        worker._LIVE.clear()
        assert views_of(flow) == views_of(plain)
    executor.close()


def views_of(flow: ps.IncrementalFlow) -> list[Counter[str]]:
    """The rows of all views."""
    return [Counter(map(str, flow.snapshot(name).to_pylist())) for name in flow._graph.views]


def test_a_version_that_was_not_made_final_is_not_kept() -> None:
    executor = Threads(2, random.Random(1), 0.0)
    flow = ps.IncrementalFlow(clock=lambda: 0)
    flow._graph.kernel = ShardedKernel(executor)
    flow.register_source("rows", "k BIGINT, v BIGINT, w BIGINT")
    add_view(flow, "totals")
    flow.tick("rows", [{"k": k, "v": 1, "w": 0} for k in range(10)])
    before = answers(flow)

    def full(event: object) -> None:
        raise OSError("the disk is full")

    flow._runner.journal.append = full  # type: ignore[method-assign]
    with pytest.raises(OSError, match="full"):
        flow.tick("rows", [{"k": 1, "v": 5, "w": 0}])
    del flow._runner.journal.append
    assert answers(flow) == before
    flow.tick("rows", [{"k": 1, "v": 5, "w": 0}])
    assert flow.lookup("totals", k=1).to_pylist() == [{"k": 1, "v": 6}]
    executor.close()


def test_a_tick_whose_tasks_do_not_all_run_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark has fewer cores than before: a task waits for another one, which nobody runs."""
    monkeypatch.setattr(executor_module, "_STALLED_SECONDS", 0.5)
    monkeypatch.setattr(executor_module, "_IDLE_SECONDS", 0.2)
    executor = Threads(2, random.Random(1), 0.0)
    flow = ps.IncrementalFlow(clock=lambda: 0)
    flow._graph.kernel = ShardedKernel(executor)
    flow.register_source("rows", "k BIGINT, v BIGINT, w BIGINT")
    add_view(flow, "totals")
    run, executor._run_job = executor._run_job, executor.run_one  # type: ignore[method-assign]
    with pytest.raises(ps.StateError) as caught:
        flow.tick("rows", [{"k": k, "v": 1, "w": 0} for k in range(10)])
    assert caught.value.code == "FLOW_SHARD_LOST"
    assert executor._tasks == 1
    executor._run_job = run  # type: ignore[method-assign]
    flow.tick("rows", [{"k": k, "v": 1, "w": 0} for k in range(10)])
    assert flow.snapshot("totals").num_rows == 10
    executor.close()


def test_nobody_talks_to_the_hub_without_its_secret() -> None:
    executor = Threads(1, random.Random(1), 0.0)
    hub = executor._begin()
    with socket.create_connection(("127.0.0.1", hub.port)) as stranger:
        stranger.sendall(bytes(32))
        wire.send(stranger, (0, 0))
        try:
            answer = stranger.recv(1)
        except ConnectionResetError:
            answer = b""
    assert answer == b""
    assert not hub.connected
    executor.close()
