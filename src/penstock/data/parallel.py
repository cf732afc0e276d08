"""Work on large arrays on all cores: NumPy lets other threads run while it sorts and gathers.

Only bulk changes come here; a small tick is done before a thread would begin.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_here = threading.local()


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), "penstock-bulk", initializer=setattr, initargs=(_here, "busy", True))


# Threads do not come along into a forked process.
os.register_at_fork(after_in_child=_pool.cache_clear)


def spread(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return the results of a function for several items, in their order; an error of one of them is raised."""
    # A thread of the pool that waited for others of the pool could wait for ever.
    if len(items) < 2 or cores() < 2 or getattr(_here, "busy", False):
        return [function(item) for item in items]
    return list(_pool().map(function, items))
