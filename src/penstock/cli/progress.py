"""A line on the terminal while a query runs: its stages, its tasks and the time, gone when the query is."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_AFTER = 1.0
EVERY = 0.25
CLEAR = "\r\033[K"


@contextmanager
def progress(spark: SparkSession, *, stream: TextIO | None = None) -> Iterator[None]:
    """Show what Spark is doing while the body runs, when stderr is a terminal and it takes longer than a second."""
    stream = stream or sys.stderr
    if not stream.isatty():
        yield
        return
    done = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(spark, done, stream), name="penstock-progress", daemon=True
    )
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join(timeout=1)


def line(running: list[tuple[int, int, int]], seconds: float) -> str:
    """The line for the running stages, each as (id, tasks done, tasks).

    >>> line([(3, 12, 200), (4, 0, 8)], 4.25)
    'stage 3: 12/200, stage 4: 0/8 tasks · 4.2 s'
    """
    stages = ", ".join(f"stage {stage}: {done}/{tasks}" for stage, done, tasks in running[:3])
    more = f" and {len(running) - 3} more" if len(running) > 3 else ""
    return f"{stages}{more} tasks · {seconds:.1f} s" if running else f"planning · {seconds:.1f} s"


def _watch(spark: SparkSession, done: threading.Event, stream: TextIO) -> None:
    started = time.monotonic()
    if done.wait(FIRST_AFTER):
        return
    try:
        tracker = spark.sparkContext.statusTracker()
        while not done.is_set():
            infos = [(stage, tracker.getStageInfo(stage)) for stage in sorted(tracker.getActiveStageIds())]
            running = [(stage, info.numCompletedTasks, info.numTasks) for stage, info in infos if info]
            stream.write(CLEAR + line(running, time.monotonic() - started))
            stream.flush()
            done.wait(EVERY)
    except Exception:
        # The JVM is going away under the query: the query's own error says so better than this line could.
        return
    finally:
        stream.write(CLEAR)
        stream.flush()
