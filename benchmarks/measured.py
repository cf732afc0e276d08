"""What one run of a pipeline took: its seconds, those of the processor, and the most memory that it had."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import processor

FILTER = "SELECT id, account, amount, at FROM events WHERE kind <> 'other'"
BETWEEN = 0.5


def measured(run: Callable[[str], None]) -> dict[str, Any]:
    """Run a small one, which does not count, then the full one."""
    run("warm")
    ended = threading.Event()
    memory = [processor.memory()]

    def look() -> None:
        while not ended.wait(BETWEEN):
            memory.append(processor.memory())

    looking = threading.Thread(target=look, daemon=True)
    began, used = time.perf_counter(), processor.seconds()
    looking.start()
    run("full")
    took, used = time.perf_counter() - began, processor.seconds() - used
    ended.set()
    looking.join()
    return {"seconds": took, "processor": used, "memory": max(memory)}
