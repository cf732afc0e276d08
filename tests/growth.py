"""How work grows with the size of what it is done to, on machines that are busy with other things as well."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

TRIES = 3


def growth(work: Callable[[int], Any], size: int, *, factor: int = 8) -> float:
    """How many times as long this thread computes for `factor` times the size: `factor` when the work is proportional to the size."""
    return least_seconds(lambda: work(factor * size)) / least_seconds(lambda: work(size))


def least_seconds(work: Callable[[], Any]) -> float:
    """What this thread computes at least for a piece of work."""
    return min(_seconds(work) for _ in range(TRIES))


def _seconds(work: Callable[[], Any]) -> float:
    begin = time.thread_time()
    work()
    return max(time.thread_time() - begin, 1e-6)
