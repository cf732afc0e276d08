"""Waiting for something that happens in another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_for(
    condition: Callable[[], object],
    what: str = "what was waited for",
    seconds: float = 60,
    *,
    shown: Callable[[], str] = str,
) -> None:
    """Return as soon as the condition holds; fail when it does not in time, with what `shown` returns."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"no {what} after {seconds} s\n{shown()}"
        time.sleep(0.05)
