"""What a plugin stores in an epoch is written at its end, without what a batch did that comes again."""

from __future__ import annotations

from contextlib import suppress

import pytest

from penstock.plugin import TransientValues
from penstock.transforms.transaction import ValueTransaction


@pytest.fixture
def stored() -> TransientValues:
    values = TransientValues()
    values.put("rows", 5)
    values.put("names", ["a"])
    return values


def test_values_are_written_at_the_end_of_an_epoch(stored: TransientValues) -> None:
    state = ValueTransaction(stored)
    state.begin()
    state.put("rows", 6)
    state.remove("names")
    state.remove("nothing")
    assert (state.get("rows"), state.get("names"), state.get("names", 0)) == (6, None, 0)
    assert (stored.get("rows"), stored.get("names")) == (5, ["a"])
    state.commit()
    assert (stored.get("rows"), stored.get("names")) == (6, None)
    state.put("rows", 7)  # in the finalizer, or before the first epoch
    assert stored.get("rows") == 7


def test_an_epoch_that_comes_again_finds_the_values_of_before(stored: TransientValues) -> None:
    state = ValueTransaction(stored)
    for _ in range(2):
        state.begin()
        state.put("rows", state.get("rows") + 1)
        names = state.get("names")
        names.append("b")
    assert (state.get("rows"), state.get("names")) == (6, ["a"])
    state.commit()
    assert (stored.get("rows"), stored.get("names")) == (6, ["a"])


def test_an_attempt_that_fails_leaves_nothing(stored: TransientValues) -> None:
    state = ValueTransaction(stored)
    state.begin()
    state.put("rows", 6)
    with suppress(ValueError), state.attempt():
        state.clear()
        state.put("rows", 7)
        assert (state.get("rows"), state.get("names")) == (7, None)
        raise ValueError("bad")
    assert (state.get("rows"), state.get("names")) == (6, ["a"])
    with state.attempt(keep=False):
        state.put("rows", 7)
    assert state.get("rows") == 6
    with state.attempt():
        state.clear()
        state.put("names", "b")
    assert (state.get("rows"), state.get("names"), stored.get("rows")) == (None, "b", 5)
    state.commit()
    assert (stored.get("rows"), stored.get("names")) == (None, "b")


def test_an_attempt_between_epochs(stored: TransientValues) -> None:
    state = ValueTransaction(stored)
    with suppress(ValueError), state.attempt():
        state.put("rows", 7)
        raise ValueError("bad")
    assert stored.get("rows") == 5
    with state.attempt():
        state.put("rows", 7)
    assert stored.get("rows") == 7
