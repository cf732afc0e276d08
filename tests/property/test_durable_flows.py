"""A durable flow is the same flow after every restart and every crash."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock as ps
from seed import SEED
from twin.disk import DyingDisk, PowerCut
from twin.durable import Schedule, add_view, answers, opened, random_change, tick
from twin.rows import small_state

SHORT = 6
CALLS_AT_MOST = 2_000


@pytest.mark.parametrize(
    "number", [*range(SHORT), *(pytest.param(n, marks=pytest.mark.soak) for n in range(SHORT, 200))]
)
def test_a_durable_flow_is_the_flow_in_memory(number: int, tmp_path: Path) -> None:
    with small_state():
        Schedule(SEED + number, tmp_path).run(20)


def actions() -> list[Callable[[ps.IncrementalFlow], None]]:
    """Registrations, ticks and drops: one event each."""
    rng = random.Random(7)
    changes = [[*random_change(rng), (1, 2, 0, False)] for _ in range(5)]
    return [
        lambda flow: flow.register_source(
            "rows", "k BIGINT, v BIGINT, w BIGINT", on_missing_delete="quarantine"
        ),
        lambda flow: flow.register_source("names", "k BIGINT, name STRING", primary_key="k"),
        lambda flow: add_view(flow, "totals"),
        lambda flow: tick(flow, changes[0]),
        lambda flow: add_view(flow, "top_total"),
        lambda flow: tick(flow, changes[1]),
        lambda flow: add_view(flow, "named"),
        lambda flow: tick(flow, changes[2]),
        lambda flow: flow.drop_view("top_total"),
        lambda flow: tick(flow, changes[3]),
        lambda flow: tick(flow, changes[4]),
    ]


def done_until_the_end(path: Path, disk: DyingDisk) -> int:
    """How many actions a flow has done when its disk dies; a checkpoint is taken behind each tick."""
    done = 0
    try:
        flow = opened(path, disk)
        for action in actions():
            action(flow)
            done += 1
            assert flow._directory is not None
            flow._directory.wait()
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
