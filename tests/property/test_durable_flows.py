"""A durable flow is the same flow after every restart and every crash."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock as ps
from penstock.engine.registration import Prepared
from penstock.plan import node as plan
from penstock.plan.node import Field
from seed import SEED
from twin.disk import DyingDisk, PowerCut
from twin.durable import Schedule, actions, answers, opened, tick
from twin.flows import SUM, no_fragment
from twin.rows import small_state

SHORT = 6
CALLS_AT_MOST = 2_000


@pytest.mark.parametrize(
    "number", [*range(SHORT), *(pytest.param(n, marks=pytest.mark.soak) for n in range(SHORT, 200))]
)
def test_a_durable_flow_is_the_flow_in_memory(number: int, tmp_path: Path) -> None:
    with small_state():
        Schedule(SEED + number, tmp_path).run(20)


def done_until_the_end(path: Path, disk: DyingDisk) -> int:
    """How many actions a flow has done when its disk dies; a checkpoint is taken behind each tick."""
    done = 0
    try:
        flow = opened(path, disk)
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
    with small_state():
        flow = opened()
        expected = [answers(flow)]
        for action in actions():
            action(flow)
            expected.append(answers(flow))
        for calls in range(1, CALLS_AT_MOST):
            path = tmp_path / str(calls)
            done = done_until_the_end(path, disk := DyingDisk(calls, remains))
            # The flow of before has the folder locked, so its files are opened in another place.
            left = shutil.copytree(path, tmp_path / f"{calls} left") if path.exists() else path
            reopened = opened(left, checkpoint_every=10**9)
            # An event that was being written when the power failed may be in, or not.
            assert answers(reopened) in expected[done : done + 2], f"call {calls}"
            reopened.close()
            shutil.rmtree(left)
            if not disk.dead:
                return
    raise AssertionError("the scenario makes more calls than that")


def test_a_directory_is_open_once_and_takes_nothing_after_its_end(tmp_path: Path) -> None:
    path = tmp_path / "flow"
    flow = ps.IncrementalFlow(path=path)
    flow.register_source("rows", "k BIGINT")
    flow.tick("rows", [{"k": 1}])
    with pytest.raises(ps.StateError, match="is open in process") as refused:
        ps.IncrementalFlow(path=path)
    assert refused.value.code == "FLOW_OPEN"
    flow.close()
    flow.close()
    with pytest.raises(ps.StateError, match="closed") as refused:
        flow.tick("rows", [{"k": 2}])
    assert refused.value.code == "FLOW_CLOSED"
    with ps.IncrementalFlow(path=path) as again:
        assert again.snapshot("rows").to_pylist() == [{"k": 1}]


def _code_of(holds: Callable[[], bool]) -> str | None:
    """The code of the error that a statement raises; None when it holds."""
    try:
        assert holds()
    except ps.StateError as error:
        return error.code
    return None


def test_rows_that_a_checkpoint_holds_are_refused_when_a_byte_of_them_changes(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    flow = opened()
    for action in actions():
        action(flow)
    flow.checkpoint(path)
    data, manifest = path / "data-000001.bin", path / "checkpoint-000001.json"
    for file in (data, manifest):
        content = file.read_bytes()
        for at in range(0, len(content), 97):
            file.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
            # A byte between two arrays is nobody's.
            assert _code_of(lambda: answers(ps.IncrementalFlow.load(path)) == answers(flow)) in (
                None,
                "STATE_CHECKPOINT_DAMAGED",
                "STATE_CHECKPOINT_VERSION",
            )
        file.write_bytes(content[:-1])
        with pytest.raises(ps.StateError) as refused:
            ps.IncrementalFlow.load(path)
        assert refused.value.code == "STATE_CHECKPOINT_DAMAGED"
        file.write_bytes(content)
    assert answers(ps.IncrementalFlow.load(path)) == answers(flow)


def test_a_restore_leaves_nothing_of_the_flow_before(tmp_path: Path) -> None:
    saved, live = opened(), opened(tmp_path / "flow")
    for action in actions():
        action(saved)
    saved.checkpoint(tmp_path / "checkpoint")
    live.register_source("others", "k BIGINT")
    live.tick("others", [{"k": 1}])
    live.restore(tmp_path / "checkpoint")
    assert answers(live) == answers(saved)
    for flow in (saved, live):
        tick(flow, [(0, 1, 1, False), (1, 2, 0, True)])
    assert answers(live) == answers(saved)
    live.close()
    again = opened(tmp_path / "flow")
    assert answers(again) == answers(saved)
    with pytest.raises(ps.StateError) as refused:
        saved.restore(tmp_path / "nothing")
    assert refused.value.code == "STATE_NO_CHECKPOINT"


@pytest.mark.parametrize("rows", [5, 20_000])
def test_texts_and_decimals_survive_checkpoints(rows: int, tmp_path: Path) -> None:
    """Decimals are slots of a type with two fields, mapped or not by how many there are."""
    fields = (Field("price", "decimal(20,2)"), Field("v", "bigint"))
    totals = plan.Aggregate(fields, plan.Scan(fields, "rows", (2, 1)), (0,), (SUM,))

    def filled(path: Path | None) -> ps.IncrementalFlow:
        flow = opened(path)
        flow.register_source("rows", "name STRING, v BIGINT, price DECIMAL(20,2)")
        flow.register_source("marks", "name STRING, v BIGINT, mark DECIMAL(20,2)")
        flow._install(Prepared(plan.View("totals", "", totals), no_fragment), "reject")
        flow.register_asof_view(
            "marked", left="rows", right="marks", by="name", left_time="v", right_time="v", columns=["mark"]
        )
        flow.tick("marks", [{"name": f"n{at}", "v": at, "mark": at} for at in range(rows)])
        flow.tick("rows", [{"name": f"n{at % 9}", "v": at, "price": at} for at in range(rows)])
        return flow

    memory, durable = filled(None), filled(tmp_path / "flow")
    memory.checkpoint(tmp_path / "checkpoint")
    memory.checkpoint_full(tmp_path / "full")
    durable.close()
    copies = [opened(tmp_path / "flow")]
    copies += [ps.IncrementalFlow.load(tmp_path / name) for name in ("checkpoint", "full")]
    for flow in (memory, *copies):
        flow.tick("rows", [{"name": "n1", "v": 7, "price": 2}, {"name": "new", "v": 1, "price": None}])
        flow.tick("rows", ps.DeltaBatch.deletes([{"name": "n0", "v": 0, "price": 0}]))
    for copy in copies:
        assert answers(copy) == answers(memory)
