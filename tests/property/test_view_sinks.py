"""A sink that follows a view has the rows of its mark, whatever was killed, and all of them in the end."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import penstock as ps
from penstock.engine import backlog, follow
from penstock.engine.directory import local_directory
from penstock.sinks.retry import RetryPolicy
from penstock.sinks.view_sink import VIEW_SINKS
from seed import SEED
from twin.disk import DyingDisk, PowerCut
from twin.durable import add_view, declare, opened, random_change, tick
from twin.rows import small_state
from twin.view_sink import KINDS, STORES, Store, texts

SHORT = 6
SINKS = {"totals": "keyed", "large": "changelog"}


@pytest.fixture(autouse=True)
def sinks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The sinks in memory, which come back at once and keep few changes apart."""
    for kind, place in KINDS.items():
        monkeypatch.setitem(VIEW_SINKS.builtin, kind, place)  # type: ignore[arg-type]
    monkeypatch.setattr(follow, "RetryPolicy", partial(RetryPolicy, first=0.001, longest=0.002))
    monkeypatch.setattr(backlog, "MOST_CHANGES", 3)
    yield
    STORES.clear()


class Run:
    """A durable flow with two sinks, and what its views had after each tick."""

    def __init__(self, seed: int, folder: Path, *, files: DyingDisk | None = None) -> None:
        self.rng = random.Random(seed)
        self._folder, self._path, self._copies = folder, folder / "flow", 0
        STORES.update({view: Store(random.Random(seed + 1)) for view in SINKS})
        self.flow = self._open(files)
        self.history: dict[int, dict[str, Counter[str]]] = {}
        declare(self.flow)
        for view in SINKS:
            add_view(self.flow, view)
        self.note()
        for view, kind in SINKS.items():
            self.flow.sink(view, kind, place=view, key=["k"] if kind == "keyed" else None)
        for store in STORES.values():
            store.faults = 0.2

    def _open(self, files: DyingDisk | None = None) -> ps.IncrementalFlow:
        flow = ps.IncrementalFlow(clock=lambda: 0)
        every = self.rng.choice([1, 2_000, 10**9])
        sync_ms = None if files is None else 10**9
        flow._open(local_directory(self._path, checkpoint_every=every, files=files, sync_ms=sync_ms))
        return flow

    def note(self) -> None:
        """Keep what the views have now."""
        self.history[self.flow._graph.state.ticks] = {view: texts(self.flow.snapshot(view)) for view in SINKS}

    def tick(self) -> None:
        tick(self.flow, random_change(self.rng))
        self.note()

    def kill(self) -> None:
        """End the process as kill -9 does, and open what it has left."""
        for store in STORES.values():
            store.kill()
        assert self.flow._runner.directory is not None
        self.flow._runner.directory.wait()
        self._reopen()

    def cut(self, disk: DyingDisk) -> None:
        """End the machine."""
        for store in STORES.values():
            store.kill()
        assert self.flow._runner.directory is not None
        self.flow._runner.directory.wait()
        with contextlib.suppress(PowerCut):
            disk._die()
        self._reopen()

    def _reopen(self) -> None:
        self._copies += 1
        left = self._folder / f"flow {self._copies}"
        shutil.copytree(self._path, left)
        # Only to end its threads: its files are not looked at any more.
        with contextlib.suppress(BaseException):
            self.flow.close()
        self._path = left
        self.compare_marks()
        self.flow = self._open()

    def close(self) -> None:
        """End the process in order: every sink has every tick."""
        self.flow.close()
        assert all(store.mark is not None for store in STORES.values())
        self.compare_marks()
        last = self.history[max(self.history)]
        assert {view: store.rows for view, store in STORES.items()} == last
        self.flow = self._open()

    def compare_marks(self) -> None:
        """Each sink has what its view had after the tick of its mark."""
        for view, store in STORES.items():
            if store.mark is not None:
                assert store.rows == self.history[store.mark][view], f"{view} at tick {store.mark}"


@pytest.mark.parametrize(
    "number", [*range(SHORT), *(pytest.param(n, marks=pytest.mark.soak) for n in range(SHORT, 200))]
)
def test_a_sink_has_the_rows_of_its_mark_after_kills_and_faults(number: int, tmp_path: Path) -> None:
    with small_state():
        run = Run(SEED + number, tmp_path)
        for _ in range(25):
            choice = run.rng.random()
            if choice < 0.2:
                run.kill()
            elif choice < 0.3:
                run.close()
            elif choice < 0.4:
                assert run.flow.flush_sinks(60)
                run.compare_marks()
            else:
                run.tick()
        run.close()
        run.flow.close()
        # The log or the checkpoint always has what the sink lacks.
        assert STORES["totals"].replaced == 1


@pytest.mark.parametrize("number", range(8))
def test_a_sink_is_never_ahead_of_a_flow_whose_machine_was_cut_off(number: int, tmp_path: Path) -> None:
    with small_state():
        disk = DyingDisk(-1, remains=0)
        run = Run(SEED + number, tmp_path, files=disk)
        for _ in range(run.rng.randint(0, 6)):
            run.tick()
            if run.rng.random() < 0.3:
                assert run.flow.flush_sinks(60)
        run.cut(disk)
        ticks = run.flow._graph.state.ticks
        for store in STORES.values():
            assert store.mark is not None
            assert store.mark <= ticks
        assert run.flow.flush_sinks(60)
        for view, store in STORES.items():
            assert store.rows == texts(run.flow.snapshot(view)) == run.history[ticks][view]
        run.flow.close()


def test_a_copy_of_an_older_flow_brings_a_table_in_line_and_ends_a_changelog(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(SEED, tmp_path)
    for store in STORES.values():
        store.faults = 0
    tick(run.flow, [(1, 2, 0, False)])
    run.flow.close()
    shutil.copytree(run._path, tmp_path / "older")
    run.flow = run._open()
    tick(run.flow, [(1, 3, 0, False), (2, 5, 0, False)])
    run.flow.close()
    older = opened(tmp_path / "older")
    with pytest.raises(ps.StateError, match="it has tick 2") as lost:
        older.flush_sinks(60)
    assert lost.value.code == "FLOW_SINK_LOST"
    assert older._followers._running["totals_keyed"].flush(60)
    assert STORES["totals"].rows == texts(older.snapshot("totals"))
    assert STORES["totals"].mark == 1
    assert "brought in line with all rows of view 'totals': it has tick 2" in caplog.text
    assert "ended: sink 'large_changelog' cannot go on" in str(older.explain("large"))
    older.drop_sink("large_changelog")
    older.close()


class StuckDisk(DyingDisk):
    """A disk that takes bytes and cannot say that they are safe."""

    stuck = False

    def sync(self, handle: int) -> None:
        if self.stuck:
            raise OSError("I/O error")
        super().sync(handle)


def test_a_sink_gets_nothing_that_the_log_may_lose(tmp_path: Path) -> None:
    disk = StuckDisk(-1)
    run = Run(SEED, tmp_path, files=disk)
    for store in STORES.values():
        store.faults = 0
    disk.stuck = True
    tick(run.flow, [(1, 2, 0, False)])
    for stuck in (True, False):
        disk.stuck = stuck
        with pytest.raises(ps.StateError) as lost:
            run.flow.flush_sinks(60)
        assert lost.value.code == "FLOW_LOG_FAILED"
        assert {store.mark for store in STORES.values()} == {0}
        # A sink that is started again does not get it either.
        run.flow.sink("totals", "keyed", place="totals", key=["k"])
    with pytest.raises(ps.StateError):
        run.flow.close()
