"""One run of a pipeline: its seconds, what it used of the processor, and its memory at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import processor

FILTER = "SELECT id, account, amount, at FROM events WHERE kind <> 'other'"


def measured(run: Callable[[str], None]) -> dict[str, Any]:
    """Run a small one, which does not count, then the full one."""
    run("warm")
    began, used = time.perf_counter(), processor.seconds()
    run("full")
    return {
        "seconds": time.perf_counter() - began,
        "processor": processor.seconds() - used,
        "memory": processor.memory(),
    }
