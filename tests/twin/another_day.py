"""The program `replay.py` on another day, 400 days from now, in another time zone, with other time counters, on one thread.

python tests/twin/another_day.py SEED
"""

from __future__ import annotations

import runpy
import time
from collections.abc import Callable
from pathlib import Path

LATER = 400 * 86_400  # seconds


def moved(clock: Callable[[], int], by: int) -> Callable[[], int]:
    return lambda: clock() + by


def moved_seconds(clock: Callable[[], float]) -> Callable[[], float]:
    return lambda: clock() + LATER


if __name__ == "__main__":
    # Before anything is imported that may ask for the time.
    time.time, time.monotonic = moved_seconds(time.time), moved_seconds(time.monotonic)
    time.perf_counter = moved_seconds(time.perf_counter)
    time.time_ns = moved(time.time_ns, LATER * 1_000_000_000)

    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    runpy.run_path(str(Path(__file__).with_name("replay.py")), run_name="__main__")
