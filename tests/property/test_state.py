"""What holds for the state of every operator: saved and loaded, rolled back, broken off, replayed, it gives the same bits."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.errors import PenstockError
from seed import SEED
from twin.replay import random_ticks
from twin.rigs import RIGS, Rig, bits, image_bits, through_bytes
from twin.rows import small_state

EVERY = pytest.mark.parametrize("name", RIGS)
SEEDS = pytest.mark.parametrize("seed", [1, 2])
Ticks = list[tuple[Delta, Delta]]


def begun(name: str) -> Rig:
    rig = RIGS[name]()
    rig.initial()
    return rig


def run(rig: Rig, changes: Ticks, first: int = 1) -> list[Any]:
    given_rows = []
    for number, deltas in enumerate(changes, first):
        given_rows.append([bits(delta) for delta in rig.step(deltas, Tick(number, number))])
        rig.end_tick()
    return given_rows


def same(one: Rig, other: Rig) -> bool:
    return state_bits(one) == state_bits(other)


def state_bits(rig: Rig) -> list[Any]:
    """All that is kept, but for the layout of indexes: entries that no look-up finds go when runs are merged."""
    return [without_indexes(image_bits(image)) for image in rig.save()]


def without_indexes(image: Any) -> Any:
    values, arrays, parts = image
    return values, arrays, {name: without_indexes(part) for name, part in parts.items() if name != "index"}


@EVERY
@SEEDS
@pytest.mark.parametrize("at", [1, 5, 11])
def test_a_loaded_state_goes_on_as_the_saved_one(name: str, seed: int, at: int) -> None:
    changes = random_ticks(seed, ticks=16)
    with small_state():
        one, other = begun(name), RIGS[name]()
        run(one, changes[:at])
        other.load([through_bytes(image) for image in one.save()])
        assert same(one, other)
        assert run(one, changes[at:], at + 1) == run(other, changes[at:], at + 1)
        assert same(one, other)


@EVERY
@SEEDS
def test_a_loaded_state_whose_first_tick_is_rejected_is_the_saved_one(name: str, seed: int) -> None:
    changes = random_ticks(seed, ticks=6)
    with small_state():
        one, other = begun(name), RIGS[name]()
        run(one, changes[:3])
        other.load([through_bytes(image) for image in one.save()])
        with contextlib.suppress(PenstockError):
            other.step(changes[5], Tick(4, 4))
        other.rollback()
        assert same(one, other)
        assert run(one, changes[3:], 4) == run(other, changes[3:], 4)


@EVERY
@SEEDS
def test_a_rejected_tick_leaves_nothing(name: str, seed: int) -> None:
    (first, *changes), wrong = random_ticks(seed, ticks=10), random_ticks(seed + 1, ticks=9)
    with small_state():
        one, other = begun(name), begun(name)
        assert run(one, [first]) == run(other, [first])
        for number, (deltas, refused) in enumerate(zip(changes, wrong, strict=True), 2):
            tick = Tick(number, number)
            # Rows are retracted that were never inserted: most operators fail, somewhere in the middle.
            with contextlib.suppress(PenstockError):
                one.step([-deltas[0], refused[1]], tick)
            one.rollback()
            assert same(one, other)
            outputs = [[bits(delta) for delta in rig.step(deltas, tick)] for rig in (one, other)]
            assert outputs[0] == outputs[1]
            one.end_tick()
            other.end_tick()


class Broken(Exception):
    """The fault that is injected."""


def broken_at(call: int, action: Callable[[], Any]) -> bool:
    """Run an action, and let its n-th call of anything fail; return whether there were as many."""
    left = call

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal left
        if event in ("call", "c_call"):
            left -= 1
            if left == 0:
                sys.setprofile(None)
                raise Broken

    sys.setprofile(count)
    try:
        action()
    except Exception:  # NumPy and others may raise an error of their own because of it
        assert left == 0
    finally:
        sys.setprofile(None)
    return left == 0


def calls_of(action: Callable[[], Any]) -> int:
    """How many calls an action makes."""
    made = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return made


MOST_FAULTS = 150


@EVERY
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # a generator is closed while it fails
def test_a_fault_at_any_call_of_a_step_leaves_nothing(name: str) -> None:
    changes = random_ticks(7, ticks=4)
    with small_state():
        rig = begun(name)
        run(rig, changes[:-1])
        before = [image_bits(image) for image in rig.save()]
        tick = Tick(9, 9)
        calls = calls_of(lambda: rig.step(changes[-1], tick))
        rig.rollback()
        expected = [bits(delta) for delta in rig.step(changes[-1], tick)]
        rig.rollback()
        hit = 0
        for call in range(1, calls, max(1, calls // MOST_FAULTS)):
            hit += broken_at(call, lambda: rig.step(changes[-1], tick))
            rig.rollback()
            assert [image_bits(image) for image in rig.save()] == before, f"call {call}"
        assert hit >= min(calls - 1, MOST_FAULTS // 2)
        assert [bits(delta) for delta in rig.step(changes[-1], tick)] == expected


@EVERY
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_commit_or_rollback_that_is_interrupted_anywhere_is_finished_by_another_one(
    name: str, end: str
) -> None:
    *earlier, last = random_ticks(8, ticks=4)
    tick = Tick(9, 9)

    def stepped() -> Rig:
        rig = begun(name)
        run(rig, earlier)
        rig.step(last, tick)
        return rig

    with small_state():
        rig = stepped()
        calls = calls_of(getattr(rig, end))
        expected = [image_bits(image) for image in rig.save()]
        for call in range(1, calls, max(1, calls // 25)):
            rig = stepped()
            broken_at(call, getattr(rig, end))
            getattr(rig, end)()
            assert [image_bits(image) for image in rig.save()] == expected, f"call {call}"


def test_two_processes_with_other_hash_seeds_give_the_same_bits() -> None:
    program = Path(__file__).parents[1] / "twin" / "replay.py"
    digests = []
    for hash_seed in ("0", "1"):
        path = os.pathsep.join([str(program.parents[1]), *filter(None, sys.path)])
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, str(program), str(SEED)],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        digests.append(json.loads(done.stdout))
    assert digests[0] == digests[1]
    assert set(digests[0]) == {*RIGS, *(f"flow {number}" for number in range(5))}
