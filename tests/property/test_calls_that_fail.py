"""A fault at the n-th call is at the n-th call of the action, whatever Python does beside it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from twin.faults import broken_at, calls_of


class Cycle:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.me = self


def work(depth: int = 40) -> list[Cycle]:
    """Calls with frames and garbage of their own."""
    Cycle()
    return [Cycle(), *work(depth - 1)] if depth else []


def collected(phase: str, info: dict[str, int]) -> None:
    """What another package wants to know of every collection."""
    len(phase)


@pytest.fixture
def eager_collector() -> Iterator[None]:
    """Collections at nearly every allocation, with a callback in Python."""
    before = gc.get_threshold()
    gc.callbacks.append(collected)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(collected)


@pytest.mark.usefixtures("eager_collector")
@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_collections_of_garbage_are_no_calls_and_hide_none() -> None:
    calls = calls_of(work)
    assert calls == 41 * 2 + 40
    assert [broken_at(call, work) for call in range(1, calls + 3)] == [True] * calls + [False] * 2
    assert gc.isenabled()
