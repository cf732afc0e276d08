"""What a durable flow says of an earlier tick is what it said at that tick."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.engine import stretch, time_travel
from penstock.engine.event import Event
from penstock.engine.graph import Graph
from penstock.engine.registration import Prepared
from penstock.plan import node as plan
from penstock.sinks.view_sink import VIEW_SINKS
from seed import SEED
from twin.durable import Answers, add_view, answers, declare, opened, random_change, tick
from twin.flows import VIEWS, no_fragment
from twin.rows import small_state
from twin.view_sink import KINDS, STORES, Store

SHORT = 4


class History:
    """A durable flow to which things happen, with what it said when each tick was the last one."""

    def __init__(self, seed: int, path: Path) -> None:
        self._rng = random.Random(seed)
        self._path = path
        self.flow = self._open()
        declare(self.flow)
        self.remembered: dict[int, Answers] = {}
        self.remember()

    def _open(self) -> ps.IncrementalFlow:
        return opened(self._path, checkpoint_every=self._rng.choice([1, 2_000, 20_000, 10**9]))

    def remember(self) -> None:
        self.remembered[self.flow.ticks()[-1]] = answers(self.flow)

    def act(self) -> None:
        choice = self._rng.random()
        if choice < 0.2:
            add_view(self.flow, self._rng.choice(list(VIEWS)))
        elif choice < 0.25 and self.flow._graph.views:
            name = self._rng.choice(list(self.flow._graph.views))
            if not self.flow._graph.readers(name):
                self.flow.drop_view(name)
        elif choice < 0.3:
            self.flow.close()
            self.flow = self._open()
        elif choice < 0.35:
            self._restore()
        else:
            tick(self.flow, random_change(self._rng))
        self.remember()

    def _restore(self) -> None:
        """Go back to a flow of before: later ticks of then are of another flow."""
        folder = self._path.with_name("saved")
        if folder.exists() and self._rng.random() < 0.5:
            self.flow.restore(folder)
            self.remembered = {}
        else:
            self.flow.checkpoint(folder)

    def check(self, number: int) -> None:
        expected = self.remembered[number]
        past_rows = {
            name: self.flow.snapshot(name, at_tick=number).to_pylist()
            for name in self._rng.sample(list(expected), len(expected))
        }
        assert {name: sorted(map(str, rows)) for name, rows in past_rows.items()} == {
            name: sorted(rows.elements()) for name, rows in expected.items()
        }, f"tick {number}"
        self.check_look_ups(number, past_rows)

    def check_look_ups(self, number: int, past_rows: dict[str, list[dict[str, Any]]]) -> None:
        """Look-ups and the rows behind those of a view, by those of the same tick."""
        for key in {row["k"] for row in past_rows["rows"]} | {99}:
            rows = [row for row in past_rows["rows"] if row["k"] == key]
            found = self.flow.lookup("rows", at_tick=number, k=key).to_pylist()
            assert sorted(map(str, found)) == sorted(map(str, rows))
            if rows and "totals" in past_rows:
                behind = self.flow.why("totals", {"k": key}, at_tick=number)["rows"].to_pylist()
                weighted = [row for row in behind for _ in range(row.pop("_weight"))]
                assert sorted(map(str, weighted)) == sorted(map(str, rows))

    def ticks(self) -> range:
        """The ticks that are there when no checkpoint is being written, which may drop some."""
        assert self.flow._runner.directory is not None
        self.flow._runner.directory.wait()
        return self.flow.ticks()

    def check_some(self) -> None:
        ticks = self.ticks()
        assert set(ticks) <= self.remembered.keys()
        for number in self._rng.sample(ticks, min(3, len(ticks))):
            self.check(number)


@pytest.mark.parametrize(
    "number", [*range(SHORT), *(pytest.param(n, marks=pytest.mark.soak) for n in range(SHORT, 200))]
)
def test_a_tick_of_the_past_is_what_it_was(number: int, tmp_path: Path) -> None:
    with small_state():
        history = History(SEED + number, tmp_path / "flow")
        for _ in range(30):
            history.act()
            if number % 2:
                history.check_some()
        for there in history.ticks():
            history.check(there)
        history.flow.close()


def test_reading_the_past_disturbs_no_tick_and_no_checkpoint(tmp_path: Path) -> None:
    """Ticks, each with a checkpoint that drops files, beside threads that read earlier ticks."""
    rng = random.Random(SEED)
    flow = opened(tmp_path / "flow", checkpoint_every=1)
    declare(flow)
    add_view(flow, "totals")
    remembered: dict[int, Answers] = {0: answers(flow)}
    ended = threading.Event()
    errors: list[BaseException] = []
    reads = [0, 0]

    def read(reader: int) -> None:
        own = random.Random(reader)
        while not ended.is_set():
            number = own.choice(flow.ticks())
            try:
                rows = flow.snapshot("totals", at_tick=number)
            except ps.StateError as error:
                # Between the two calls a checkpoint may have dropped it.
                if error.code != "FLOW_TICK" or number in flow.ticks():
                    errors.append(error)
            except BaseException as error:
                errors.append(error)
            else:
                while number not in remembered:
                    ended.wait(0.001)
                if sorted(map(str, rows.to_pylist())) != sorted(remembered[number]["totals"].elements()):
                    errors.append(AssertionError(number))
                reads[reader] += 1

    threads = [threading.Thread(target=read, args=(reader,)) for reader in range(2)]
    for thread in threads:
        thread.start()
    while flow.ticks()[-1] < 60 or not all(count > 20 for count in reads):
        with flow._lock:
            tick(flow, random_change(rng))
            remembered[flow.ticks()[-1]] = answers(flow)
        assert not errors
    ended.set()
    for thread in threads:
        thread.join()
    assert not errors
    assert flow.ticks()[0] > 0, "nothing was dropped"
    flow.close()


@pytest.fixture
def flow(tmp_path: Path) -> ps.IncrementalFlow:
    flow = opened(tmp_path / "flow", checkpoint_every=10**9)
    declare(flow)
    add_view(flow, "totals")
    for number in range(5):
        tick(flow, [(number, number, 0, False)])
    return flow


def test_ticks_that_are_not_there_are_refused_with_those_that_are(flow: ps.IncrementalFlow) -> None:
    assert flow.ticks() == range(6)
    for number, why in [(6, "has not happened yet"), (-1, "is none")]:
        with pytest.raises(ps.StateError, match=f"tick {number} {why}: ticks 0 to 5 are there") as refused:
            flow.snapshot("totals", at_tick=number)
        assert refused.value.code == "FLOW_TICK"
    with pytest.raises(ps.ConfigError, match="at_tick='yesterday' is not the number of a tick"):
        flow.snapshot("totals", at_tick="yesterday")  # type: ignore[arg-type]
    add_view(flow, "named")
    assert flow.snapshot("named", at_tick=5).num_rows == 5
    with pytest.raises(ps.ConfigError, match="no source or view 'named'") as unknown:
        flow.snapshot("named", at_tick=4)
    assert unknown.value.where == "tick 4"
    flow.close()
    with pytest.raises(ps.StateError) as refused:
        flow.snapshot("totals", at_tick=3)
    assert refused.value.code == "FLOW_CLOSED"


def test_a_flow_without_a_path_has_its_last_tick_only() -> None:
    flow = ps.IncrementalFlow()
    flow.register_source("rows", "k BIGINT")
    flow.tick("rows", [{"k": 1}])
    assert flow.ticks() == range(1, 2)
    assert flow.snapshot("rows", at_tick=1).to_pylist() == [{"k": 1}]
    with pytest.raises(ps.StateError, match="tick 0 is gone: only tick 1 is there") as refused:
        flow.snapshot("rows", at_tick=0)
    assert refused.value.hint is not None
    assert "path" in refused.value.hint


def test_going_forward_replays_only_the_ticks_between(
    flow: ps.IncrementalFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied: list[Event] = []

    def noted(graph: Graph, events: Iterable[Event], apply: Callable[[Event], None]) -> None:
        happened = list(events)
        applied.extend(happened)
        stretch.replay_all(graph, happened, apply)

    monkeypatch.setattr(time_travel, "replay_all", noted)
    flow.snapshot("totals", at_tick=1)
    behind_tick_1 = len(applied)
    flow.snapshot("rows", at_tick=1)
    assert len(applied) == behind_tick_1
    flow.snapshot("totals", at_tick=3)
    assert len(applied) == behind_tick_1 + 2
    assert flow.metrics()["penstock_flow_past_bytes"] > 0
    monkeypatch.setattr(time_travel, "MOST_BYTES", 0)
    flow.snapshot("totals", at_tick=4)
    assert flow.metrics()["penstock_flow_past_bytes"] == 0
    flow.close()


def test_a_view_that_was_suspended_and_resumed(tmp_path: Path) -> None:
    flow = opened(tmp_path / "flow", checkpoint_every=10**9)
    declare(flow)
    flow._install(Prepared(plan.View("sums", "", VIEWS["totals"]), no_fragment), "suspend")
    expected = {}

    def remember() -> None:
        expected[flow.ticks()[-1]] = flow.snapshot("sums").to_pylist()

    tick(flow, [(1, 2, 0, False)])
    remember()
    flow.tick("rows", [{"k": 1, "v": 2**63 - 1, "w": 0}])
    remember()
    flow.tick("rows", ps.DeltaBatch.deletes([{"k": 1, "v": 2**63 - 1, "w": 0}]))
    tick(flow, [(1, 3, 0, False)])
    remember()
    flow.resume_view("sums")
    remember()
    assert expected == {
        1: [{"k": 1, "v": 2}],
        2: [{"k": 1, "v": 2}],
        4: [{"k": 1, "v": 2}],
        5: [{"k": 1, "v": 5}],
    }
    tick(flow, [(2, 2, 0, False)])
    assert {number: flow.snapshot("sums", at_tick=number).to_pylist() for number in expected} == expected
    flow.close()


def test_a_crash_in_a_restore_leaves_no_ticks_of_the_flow_before(tmp_path: Path) -> None:
    path, saved = tmp_path / "flow", tmp_path / "saved"
    flow = opened(path, checkpoint_every=1)
    declare(flow)
    tick(flow, [(1, 1, 1, False)])
    flow.checkpoint(saved)
    for number in range(4):
        tick(flow, [(2, number, 1, False)])
    flow.close()
    shutil.copytree(path, tmp_path / "before")
    flow = opened(path, checkpoint_every=10**9)
    assert flow.ticks()[-1] == 5
    flow.restore(saved)
    tick(flow, [(3, 3, 3, False)])
    flow.close()
    # As if the process had died before it dropped the files of the other flow.
    for file in (tmp_path / "before").rglob("*"):
        dropped = path / file.relative_to(tmp_path / "before")
        if not dropped.exists():
            shutil.copy(file, dropped)
    flow = opened(path, checkpoint_every=10**9)
    assert flow.ticks() == range(1, 3)
    assert flow.snapshot("rows", at_tick=1).to_pylist() == [{"k": 1, "v": 1, "w": 1}]
    with pytest.raises(ps.StateError, match="tick 4 has not happened yet: ticks 1 to 2 are there"):
        flow.snapshot("rows", at_tick=4)
    flow.close()


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_sinks_get_nothing_of_the_past(
    has_checkpoint: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VIEW_SINKS.builtin, "changelog", KINDS["changelog"])  # type: ignore[arg-type]
    monkeypatch.setitem(STORES, "totals", Store(random.Random(0)))
    flow = opened(tmp_path / "flow", checkpoint_every=10**9)
    declare(flow)
    add_view(flow, "totals")
    flow.sink("totals", "changelog", place="totals")
    for number in range(4):
        tick(flow, [(1, number, 0, False)])
        directory = flow._runner.directory
        if has_checkpoint and number == 1 and directory is not None:
            directory.checkpoint(flow._graph, flow.name)
            directory.wait()
    flow.drop_sink(next(iter(flow._graph.state.sinks)))
    flow.drop_view("totals")
    tick(flow, [])
    assert flow.ticks() == range(2 if has_checkpoint else 0, 6)
    assert flow._past is not None
    assert (
        flow._past.read(3, lambda graph: dict(graph.state.sinks), now=5, end=flow._runner.journal.position)
        == {}
    )
    assert flow.snapshot("totals", at_tick=3).to_pylist() == [{"k": 1, "v": 3}]
    with pytest.raises(ps.ConfigError):
        flow.snapshot("totals", at_tick=4)
    flow.close()
