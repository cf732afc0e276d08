"""A flow on shared storage is the same flow for every owner, and nothing of an owner that was fenced off counts."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import penstock as ps
from seed import SEED
from twin.disk import DyingDisk, PowerCut
from twin.durable import actions, add_view, answers, declare, opened, random_change, state, tick
from twin.flows import VIEWS
from twin.rows import small_state
from twin.shared import lapse, owned

SHORT = 4
CALLS_AT_MOST = 2_000


@pytest.fixture
def backend(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/state.db"


@pytest.mark.parametrize(
    "number", [*range(SHORT), *(pytest.param(n, marks=pytest.mark.soak) for n in range(SHORT, 60))]
)
def test_owners_come_and_go(number: int, tmp_path: Path, backend: str) -> None:
    """At every change of owners the one before goes on writing, and nobody sees it."""
    rng = random.Random(SEED + number)
    path = tmp_path / "flow"
    with small_state():
        memory = opened()
        flow, owner = owned(path, backend)
        for either in (memory, flow):
            declare(either)
        late: list[ps.IncrementalFlow] = []
        for _ in range(6):
            for _ in range(rng.randint(1, 4)):
                change, view = random_change(rng), rng.choice(list(VIEWS))
                for either in (memory, flow):
                    tick(either, change)
                    add_view(either, view)
            if rng.random() < 0.5:
                lapse(owner)
                late.append(flow)
                # Until another one has taken the lease, it still owns the flow.
                for either in (memory, flow):
                    tick(either, [(1, 1, 1, False)])
            else:
                flow.close()
            flow, owner = owned(path, backend, checkpoint_every=rng.choice([1, 2_000, 10**9]))
            for stale in late:
                _refused(stale, rng)
            assert answers(flow) == answers(memory)
            assert state(flow) == state(memory)
        flow.close()


def _refused(stale: ps.IncrementalFlow, rng: random.Random) -> None:
    """A tick of an owner that was fenced off raises, and has changed nothing in it either."""
    before = answers(stale)
    with pytest.raises(ps.StateError) as refused:
        tick(stale, [*random_change(rng), (1, 1, 1, False)])
    assert refused.value.code == "STATE_LEASE_LOST"
    assert answers(stale) == before
    assert stale._runner.directory is not None
    # A checkpoint of it, too.
    stale._runner.directory.checkpoint(stale._graph, None)
    stale._runner.directory.wait()
    assert stale._runner.directory.error is not None


def done_until_the_end(path: Path, backend: str, disk: DyingDisk) -> int:
    """How many actions an owner has done when the storage fails it."""
    done = 0
    flow, owner = owned(path, backend, files=disk)
    try:
        for action in actions():
            action(flow)
            done += 1
            assert flow._runner.directory is not None
            flow._runner.directory.wait()
    except PowerCut:
        pass
    lapse(owner)
    return done


@pytest.mark.parametrize(
    ("remains", "every"),
    [
        *((remains, 3) for remains in (0.0, 0.5)),
        *(
            pytest.param(remains, 1, marks=[pytest.mark.soak, pytest.mark.timeout(1_200)])
            for remains in (0.0, 0.5, 1.0)
        ),
    ],
)
def test_a_power_cut_at_any_write_loses_nothing_that_has_returned(
    remains: float, every: int, tmp_path: Path
) -> None:
    """At every call, or at every third one: three seeds that follow each other have all of them."""
    with small_state():
        flow = opened()
        expected = [answers(flow)]
        for action in actions():
            action(flow)
            expected.append(answers(flow))
        # The two ways to lose what was not synced begin with different calls.
        for calls in range(1 + (SEED + int(remains * 2)) % every, CALLS_AT_MOST, every):
            path = tmp_path / str(calls)
            backend = f"sqlite:///{path}.db"
            done = done_until_the_end(path, backend, disk := DyingDisk(calls, remains))
            reopened, _ = owned(path, backend, checkpoint_every=10**9)
            assert answers(reopened) in expected[done : done + 2], f"call {calls}"
            reopened.close()
            if not disk.dead:
                return
    raise AssertionError("the scenario makes more calls than that")


def test_a_log_that_is_synced_at_times_is_one_file_for_each_time(tmp_path: Path, backend: str) -> None:
    path = tmp_path / "flow"
    flow, _ = owned(path, backend, checkpoint_every=10**9)
    assert flow._runner.directory is not None
    log = flow._runner.directory._log
    for number in range(5):
        log.append({"event": "clear", "source": str(number)}, sync=False)
    log.sync()
    log.append({"event": "clear", "source": "5"})
    assert len(list((path / "log").iterdir())) == 2
    assert [record.header["source"] for record in log.records(1)] == list("012345")
    flow.close()


def test_damage_of_a_shared_log_is_refused_with_its_place(tmp_path: Path, backend: str) -> None:
    path = tmp_path / "flow"
    flow, _ = owned(path, backend, checkpoint_every=10**9)
    for action in actions():
        action(flow)
    before = answers(flow)
    flow.close()
    for file in sorted((path / "log").iterdir()):
        content = file.read_bytes()
        for damaged in (content[:-1], content[: len(content) // 2], b"", content[:30] + b"##" + content[32:]):
            file.write_bytes(damaged)
            with pytest.raises(ps.StateError) as refused:
                owned(path, backend)
            assert refused.value.code == "STATE_LOG_DAMAGED"
        file.unlink()
        with pytest.raises(ps.StateError, match="missing") as refused:
            owned(path, backend)
        assert refused.value.code == "STATE_LOG_DAMAGED"
        file.write_bytes(content)
    again, _ = owned(path, backend)
    assert answers(again) == before
    again.close()


def test_a_head_has_the_writers_that_are_still_read(tmp_path: Path, backend: str) -> None:
    for number in range(5):
        flow, owner = owned(tmp_path / "flow", backend, checkpoint_every=10**9)
        if number == 0:
            declare(flow)
        tick(flow, [(number, 1, 1, False)])
        assert len(owner.spans) == number + 1
        flow.close()
    flow, owner = owned(tmp_path / "flow", backend)
    for number in range(4):
        tick(flow, [(number, 1, 1, False)])
        assert flow._runner.directory is not None
        flow._runner.directory.wait()
        assert flow._runner.directory.error is None
    assert len(owner.spans) == 1
    expected = answers(flow)
    flow.close()
    again, _ = owned(tmp_path / "flow", backend)
    assert answers(again) == expected
    again.close()


def test_a_flow_is_open_once_at_one_place_and_under_its_own_name(tmp_path: Path, backend: str) -> None:
    flow, _ = owned(tmp_path / "flow", backend)
    with pytest.raises(ps.StateError) as held:
        owned(tmp_path / "flow", backend)
    assert held.value.code == "STATE_LEASE_HELD"
    flow.close()
    with pytest.raises(ps.StateError, match="closed"):
        flow.register_source("late", "k BIGINT")
    with pytest.raises(ps.ConfigError, match="is at") as moved:
        owned(tmp_path / "elsewhere", backend)
    assert moved.value.code == "FLOW_LOCATION"
    again, _ = owned(tmp_path / "flow", backend)
    again.close()
