"""State in scratch files is the state in memory: the same bits, in every operator and every flow, also on a full disk."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.data.tick import Tick
from penstock.engine.durability import Profile, own_folder
from penstock.state.scratch import Scratch, using
from seed import SEED
from twin.durable import Schedule, add_view, answers, declare, opened, random_change, tick
from twin.flows import VIEWS, Subject
from twin.replay import random_ticks
from twin.rigs import RIGS, Rig, bits, image_bits, through_bytes
from twin.rows import small_state
from twin.scratch import FullDisk, tiny_budget, tiny_scratch

EVERY = pytest.mark.parametrize("name", RIGS)


def move_all(rig: Rig, scratch: Scratch) -> int:
    """Let all state of a rig lie in scratch files; return the number of pieces."""
    pieces = [piece for operator, _ in rig.operators for piece in operator.pieces()]
    for piece in pieces:
        piece.move(scratch)
    return len(pieces)


def begun(name: str) -> Rig:
    rig = RIGS[name]()
    rig.initial()
    rig.commit()
    return rig


def state_bits(rig: Rig) -> list[Any]:
    """All that is kept, but for entries of indexes that no look-up finds: they go when runs are merged."""
    return [without_indexes(image_bits(image)) for image in rig.save()]


def without_indexes(image: Any) -> Any:
    values, arrays, parts = image
    return values, arrays, {name: without_indexes(part) for name, part in parts.items() if name != "index"}


def refusal(action: Callable[[], Any]) -> str | None:
    """The code of the StateError that an action raises."""
    try:
        action()
    except ps.StateError as error:
        return error.code
    return None


@EVERY
def test_an_operator_in_scratch_files_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    scratch, chance, moved = tiny_scratch(tmp_path), random.Random(SEED), 0
    with small_state():
        in_memory, in_files = begun(name), begun(name)
        for number, deltas in enumerate(random_ticks(SEED, ticks=12), 1):
            version = in_files.save()
            if number == 8:
                before = state_bits(in_memory)
                assert state_bits(in_files) == before
                with using(scratch):
                    in_files = RIGS[name]()
                    in_files.load([through_bytes(image) for image in version])
            outputs = []
            for rig in (in_memory, in_files):
                rig.step(deltas, Tick(number, number))
                rig.rollback()
                outputs.append([bits(delta) for delta in rig.step(deltas, Tick(number, number))])
            assert outputs[0] == outputs[1]
            in_memory.end_tick()
            with using(scratch):
                in_files.end_tick()
            if chance.random() < 0.7:
                moved += move_all(in_files, scratch)
            if number == 8:
                assert [without_indexes(image_bits(image)) for image in version] == before
        assert state_bits(in_files) == state_bits(in_memory)
    assert moved > 0
    assert list(tmp_path.iterdir()) == []


@EVERY
def test_all_of_a_state_is_counted_in_memory_or_in_files(name: str, tmp_path: Path) -> None:
    rig, scratch = begun(name), tiny_scratch(tmp_path)
    for number, deltas in enumerate(random_ticks(SEED, ticks=6), 1):
        rig.step(deltas, Tick(number, number))
        rig.end_tick()
    memory = sum(operator.memory() for operator, _ in rig.operators)
    assert sum(operator.mapped() for operator, _ in rig.operators) == 0
    pieces = sum(piece.size for operator, _ in rig.operators for piece in operator.pieces())
    assert 0 < pieces <= memory
    move_all(rig, scratch)
    # A column that was a part of another one may have had a few bits more.
    assert sum(operator.memory() for operator, _ in rig.operators) == pytest.approx(memory, rel=0.01)
    assert sum(operator.mapped() for operator, _ in rig.operators) == pytest.approx(pieces, rel=0.01)
    assert not [piece for operator, _ in rig.operators for piece in operator.pieces()]


@EVERY
def test_a_move_that_finds_no_room_changes_nothing(name: str, tmp_path: Path) -> None:
    with small_state():
        rig = begun(name)
        for number, deltas in enumerate(random_ticks(SEED, ticks=6), 1):
            rig.step(deltas, Tick(number, number))
            rig.end_tick()
        expected = state_bits(rig)
        for call in count(1):
            disk = FullDisk(call)
            code = refusal(partial(move_all, rig, tiny_scratch(tmp_path, disk)))
            assert code == ("FLOW_SCRATCH" if disk.failed else None)
            assert state_bits(rig) == expected, f"call {call}"
            if not disk.failed:
                break


@pytest.mark.parametrize("number", range(4))
def test_a_flow_with_a_tiny_budget_gives_the_same_bits(number: int, tmp_path: Path) -> None:
    chance = random.Random(SEED + number)
    changes = [random_change(chance) for _ in range(24)]
    with small_state():
        free, bound = Subject(changes), Subject(changes)
        bound.flow._graph.budget = tiny_budget(tmp_path)
        names = list(VIEWS)
        chance.shuffle(names)
        for at in range(len(changes)):
            for name in names[at::12]:
                free.add(name)
                bound.add(name)
            assert [bits(one) for one in free.emitted()] == [bits(one) for one in bound.emitted()]
        saved = [
            {key: image_bits(image) for key, image in subject.kernel.save().items()}
            for subject in (free, bound)
        ]
        assert saved[0] == saved[1]
        metrics = bound.flow.metrics()
        assert metrics["penstock_flow_memory_budget_bytes"] == 1
        assert metrics["penstock_flow_state_mapped_bytes"] > 0.9 * metrics["penstock_flow_state_bytes"]
        assert free.flow.metrics()["penstock_flow_state_mapped_bytes"] == 0


@pytest.mark.parametrize(
    "number", [*range(3), *(pytest.param(n, marks=pytest.mark.soak) for n in range(3, 100))]
)
def test_a_durable_flow_with_a_tiny_budget_is_the_flow_in_memory(number: int, tmp_path: Path) -> None:
    with small_state():
        Schedule(SEED + number, tmp_path, lambda: tiny_budget(tmp_path / "scratch")).run(20)


def test_a_full_disk_at_any_call_rejects_the_next_tick_and_tears_nothing(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    changes = [[*random_change(chance), (1, 2, 0, False)] for _ in range(8)]

    def begun(disk: FullDisk | None) -> ps.IncrementalFlow:
        flow = opened(budget=None if disk is None else tiny_budget(tmp_path, disk))
        declare(flow)
        for name in ("totals", "named", "top", "ranked", "large"):
            add_view(flow, name)
        return flow

    with small_state():
        free, expected = begun(None), []
        for change in changes:
            tick(free, change)
            expected.append(answers(free))
        rejected = 0
        for call in range(1 + SEED % 13, 2_000, 13):
            disk = FullDisk(call, full=True)
            try:
                flow = begun(disk)
            except ps.StateError:
                continue
            for at, change in enumerate(changes):
                if code := refusal(partial(tick, flow, change)):
                    assert code == "FLOW_SCRATCH"
                    rejected += 1
                    assert at == 0 or answers(flow) == expected[at - 1], f"call {call}"
                    disk.full = False
                    tick(flow, change)
                assert answers(flow) == expected[at], f"call {call}"
            if not disk.failed:
                break
        else:
            raise AssertionError("the scenario makes more calls than that")
        assert rejected > 5


def test_a_checkpoint_of_state_in_scratch_files_is_that_of_the_state_in_memory(tmp_path: Path) -> None:
    flow = opened(budget=tiny_budget(tmp_path / "scratch"))
    declare(flow)
    add_view(flow, "totals")
    add_view(flow, "top")
    rng = random.Random(SEED)
    with small_state():
        for number in range(10):
            tick(flow, random_change(rng))
            if number % 3 == 0:
                flow.checkpoint(tmp_path / "checkpoint")
        flow.checkpoint(tmp_path / "checkpoint")
        loaded = ps.IncrementalFlow.load(tmp_path / "checkpoint", memory=1)
        assert answers(loaded) == answers(flow)
        change = random_change(rng)
        for one in (flow, loaded):
            tick(one, change)
        assert answers(loaded) == answers(flow)


def test_a_full_checkpoint_is_loaded_into_scratch_files(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    flow = opened()
    declare(flow)
    for name in ("totals", "named", "top", "ranked"):
        add_view(flow, name)
    with small_state():
        for _ in range(10):
            tick(flow, [*random_change(rng), (1, 2, 0, False)])
        flow.checkpoint_full(tmp_path / "full")
        bound = opened(budget=tiny_budget(tmp_path / "scratch"))
        bound.restore(tmp_path / "full")
        metrics = bound.metrics()
        assert metrics["penstock_flow_state_mapped_bytes"] > 0.9 * metrics["penstock_flow_state_bytes"]
        assert answers(bound) == answers(flow)
        change = random_change(rng)
        for one in (flow, bound):
            tick(one, change)
        assert answers(bound) == answers(flow)


def test_a_flow_that_is_read_beside_its_owner_has_a_budget_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with ps.IncrementalFlow(path=tmp_path / "flow", clock=lambda: 0) as flow:
        declare(flow)
        add_view(flow, "totals")
        tick(flow, [(1, 2, 0, False)])
        with ps.IncrementalFlow.read(tmp_path / "flow", memory="1 MB") as reader:
            assert answers(reader) == answers(flow)
            assert scratch_of(reader) == temporary
        assert not (tmp_path / "flow" / "scratch").exists()


def scratch_of(flow: ps.IncrementalFlow) -> Path:
    assert flow._graph.budget is not None
    return flow._graph.budget.scratch.folder


def test_scratch_files_are_on_a_disk_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary, path = tmp_path / "temporary", tmp_path / "flow"
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PENSTOCK_STATE", f"sqlite:///{tmp_path}/state.db")
    assert scratch_of(ps.IncrementalFlow(memory="1 MB")) == temporary
    for local in (path, str(path), path.as_uri()):
        with ps.IncrementalFlow(path=local, memory="1 MB") as flow:
            assert scratch_of(flow) == path / "scratch"
    assert own_folder(Profile("shared", "s3://bucket/flows/orders")) is None
    chance, shared = random.Random(SEED), tmp_path / "shared"
    with small_state(), ps.IncrementalFlow(path=shared, durability="shared", memory=1) as flow:
        assert scratch_of(flow) == temporary
        flow._graph.budget.scratch.least = 1  # type: ignore[union-attr]
        declare(flow)
        add_view(flow, "totals")
        memory = opened()
        declare(memory)
        add_view(memory, "totals")
        for _ in range(10):
            change = random_change(chance)
            for one in (flow, memory):
                tick(one, change)
        assert answers(flow) == answers(memory)
        assert flow.metrics()["penstock_flow_state_mapped_bytes"] > 0
        assert temporary.is_dir()
        assert not (shared / "scratch").exists()


def test_what_a_dead_process_left_is_taken_away(tmp_path: Path) -> None:
    left = tmp_path / "flow" / "scratch" / "scratch-x"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"left")
    with ps.IncrementalFlow(path=tmp_path / "flow", memory="1 MB") as flow:
        assert not left.exists()
        assert flow.metrics()["penstock_flow_memory_budget_bytes"] == 1_000_000


@pytest.mark.parametrize("memory", ["", "much", "2 XB", 0, -1, True, 1.5])
def test_a_budget_that_is_no_size_is_refused(memory: Any) -> None:
    with pytest.raises(ps.ConfigError) as refused:
        ps.IncrementalFlow(memory=memory)
    assert refused.value.code == "CONFIG_SIZE"
