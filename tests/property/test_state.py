"""What holds for the state of every operator: saved and loaded, rolled back, broken off, replayed, it gives the same bits."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import circuit, operators
from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.errors import PenstockError
from penstock.operators.base import Operator
from penstock.spark.operator import Recomputed
from penstock.state.state import Composite, State
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
        other.step(changes[at], Tick(at + 1, at + 1))
        other.rollback()
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


# Operators that keep state and have no rig, and why.
WITHOUT_RIG = {
    Recomputed: "it asks Spark for its rows; it keeps them in the spines that joins and views keep theirs in"
}


def test_every_operator_with_state_has_a_rig() -> None:
    for package in (operators, circuit):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    stateful = {
        kind
        for kind in below(Operator)
        if kind.__module__.startswith("penstock.") and kind.states is not Composite.states
    }
    in_rigs = {
        type(operator) for make in RIGS.values() for one, _ in make().operators for operator in parts(one)
    }
    assert stateful - in_rigs == WITHOUT_RIG.keys()


def parts(state: State) -> Iterator[State]:
    """A state and what it is made of."""
    yield state
    for _, part in state.states() if isinstance(state, Composite) else ():
        yield from parts(part)


def below(kind: type[Any]) -> Iterator[type[Any]]:
    """All classes that are made of one."""
    for child in kind.__subclasses__():
        yield child
        yield from below(child)


def test_two_processes_on_different_days_give_the_same_bits() -> None:
    """In another time zone, with another locale and another seed of hashes, and on one thread."""
    there = {"TZ": "Asia/Kathmandu", "LC_ALL": "POSIX", "OMP_NUM_THREADS": "1"}
    here, place = replayed("replay.py", {"TZ": "UTC", "PYTHONHASHSEED": "0"})
    elsewhere, other_place = replayed("another_day.py", {**there, "PYTHONHASHSEED": "1"})
    assert here == elsewhere
    assert set(here) == {*RIGS, *(f"flow {number}" for number in range(5))}
    assert other_place["day"] >= place["day"] + 400
    assert (place["zone"], other_place["zone"], other_place["threads"]) == ("UTC", "+0545", 1)


def replayed(program: str, environment: dict[str, str]) -> tuple[dict[str, str], dict[str, Any]]:
    """What a program in another process says of everything that operators and flows give and keep, and of where it is."""
    path = Path(__file__).parents[1] / "twin" / program
    modules = os.pathsep.join([str(path.parents[1]), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, str(path), str(SEED)],
        env={**os.environ, **environment, "PYTHONPATH": modules},
        check=True,
        capture_output=True,
        text=True,
    )
    digests, place = json.loads(done.stdout)
    return digests, place
