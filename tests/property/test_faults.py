"""Faults at every call of what ends or begins a tick: a step leaves nothing, and a commit, rollback or maintenance can be called again.

A fault at the n-th call costs the calls before it, so all of them cost the square of their number. Every run has all calls of a small
change of each operator, of each aggregate function alone and of all of them together; `make soak` has all calls of a larger change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest

from penstock.data.tick import Tick
from penstock.plan.node import AggregateCall
from penstock.state.slot_array import Version
from penstock.state.state import Image
from twin.faults import arrays_asked_by, broken_at, calls_of
from twin.replay import random_ticks
from twin.rigs import CALLS, RIGS, Rig, aggregate_rig, bits, image_bits, through_bytes
from twin.rows import multiset, retracted, small_state

TICK = Tick(9, 9)
TOGETHER = 4  # faults of maintenance, each a call further, that are judged by one look


def described(call: AggregateCall) -> str:
    return f"{call.function}{' distinct' if call.distinct else ''} of {list(call.args)}"


def alone(call: AggregateCall) -> Callable[[], Rig]:
    return lambda: aggregate_rig(2, calls=[call])


ALL = RIGS | {described(call): alone(call) for call in CALLS}
EVERY = pytest.mark.parametrize("name", ALL)
# A generator is closed while it fails.
UNRAISABLE = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Subject:
    """A rig with some rows, of which there is a checkpoint, and the change of one more tick."""

    def __init__(self, make: Callable[[], Rig], *, rows: int, last: int) -> None:
        *earlier, self._change = random_ticks(4, ticks=3, rows=rows, last=last)
        self._all = [retracted(deltas) for deltas in zip(*earlier, strict=True)]
        self._most = [delta.take(np.arange(len(delta) - 1)) for delta in self._all]
        self.rig = make()
        self.rig.initial()
        for number, deltas in enumerate(earlier, 1):
            self.rig.step(deltas, Tick(number, number))
            self.rig.end_tick()
        self._begin = [through_bytes(image) for image in self.rig.save()]
        self.changed()

    def step(self) -> list[Any]:
        return [bits(delta) for delta in self.rig.step(self._change, TICK)]

    def step_only(self) -> None:
        self.rig.step(self._change, TICK)

    def answer(self) -> list[Any]:
        """What a step gives; it is rolled back."""
        outputs = self.step()
        self.rig.rollback()
        return outputs

    def begin_again(self) -> None:
        """Be what it was before the tick."""
        self.rig.load(self._begin)
        self.changed()

    def take_back(self) -> None:
        """Let a tick take all rows but one of each input back, without maintenance."""
        self.rig.step(self._most, TICK)
        self.rig.commit()

    def goes_on(self) -> list[Any]:
        """The rows that are there, and what the next two ticks give: all rows come back, and go."""
        outputs = [multiset(rows) for rows in self.rig.contents()]
        for number, deltas in enumerate(([-delta for delta in self._most], self._all), 10):
            outputs += [multiset(delta) for delta in self.rig.step(deltas, Tick(number, number))]
            self.rig.end_tick()
            outputs += [multiset(rows) for rows in self.rig.contents()]
        return outputs

    def state(self) -> list[Any]:
        return [image_bits(image) for image in self.rig.save()]

    def changed(self) -> list[list[int] | None]:
        """The slots of each array that were written since the last call, as a checkpoint asks for them."""
        versions = [version for image in self.rig.save() for version in versions_in(image)]
        changes = [version.changes("checkpoint") for version in versions]
        return [None if slots is None else slots.slots().tolist() for slots in changes]


def versions_in(image: Image) -> Iterator[Version]:
    """The slot arrays of an image."""
    yield from (array for array in image.arrays.values() if isinstance(array, Version))
    for part in image.parts.values():
        yield from versions_in(part)


def break_step(subject: Subject, calls: Iterable[int], *, checked: int) -> int:
    """Let a step fail at each of these calls until it has no more; look at the state after so many faults. Return the last call."""
    before, expected = subject.state(), subject.answer()
    for faults, call in enumerate(calls, 1):
        broken = broken_at(call, subject.step_only)
        subject.rig.rollback()
        if not broken or faults % checked == 0:
            assert subject.state() == before, f"call {call}, or one of the {checked} faults before"
            assert subject.answer() == expected, f"call {call}, or one of the {checked} faults before"
        if not broken:
            return call
    raise AssertionError("a step makes more calls than that")


@EVERY
@UNRAISABLE
def test_a_fault_at_every_call_of_a_step_leaves_nothing(name: str) -> None:
    with small_state():
        subject = Subject(ALL[name], rows=3, last=1)
        calls = calls_of(subject.step_only)
        subject.rig.rollback()
        assert break_step(subject, count(1), checked=16) > calls * 0.9


@pytest.mark.soak
@pytest.mark.parametrize("name", RIGS)
@UNRAISABLE
def test_a_fault_at_every_call_of_a_large_step_leaves_nothing(name: str) -> None:
    with small_state():
        break_step(Subject(RIGS[name], rows=9, last=9), count(1), checked=1)


@EVERY
@UNRAISABLE
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_commit_or_rollback_that_fails_at_any_call_is_finished_by_another_one(name: str, end: str) -> None:
    with small_state():
        subject = Subject(ALL[name], rows=3, last=1)
        action = getattr(subject.rig, end)
        subject.step()
        action()
        expected = subject.state(), subject.changed()
        for call in count(1):
            subject.begin_again()
            subject.step()
            broken = broken_at(call, action)
            action()
            assert (subject.state(), subject.changed()) == expected, f"call {call}"
            if not broken:
                break


@EVERY
def test_a_commit_asks_for_no_array(name: str) -> None:
    """What asks for memory may be refused it, the second time too."""
    with small_state():
        subject = Subject(ALL[name], rows=3, last=3)
        subject.step()
        assert arrays_asked_by(subject.rig.commit) == []


@EVERY
@UNRAISABLE
def test_a_fault_at_every_call_of_maintenance_changes_no_answer(name: str) -> None:
    with small_state():
        subject = Subject(ALL[name], rows=3, last=1)
        subject.take_back()
        expected = subject.goes_on()
        for call in count(1):
            if call % TOGETHER == 1:
                subject.begin_again()
                subject.take_back()
            broken = broken_at(call, subject.rig.maintain)
            if not broken or call % TOGETHER == 0:
                assert subject.goes_on() == expected, f"call {call}, or one of the {TOGETHER - 1} before"
            if not broken:
                break
