"""Ctrl-C in the main thread: the query it waits for ends in Spark too, and the session stays usable.

PySpark's own handler sends its cancel over the connection that is waiting for the query's answer, so it hangs until the
query is done. Here another thread cancels, by a job tag that only the main thread's jobs carry: streams and operations
of other threads go on.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import socket
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

TAG = "penstock-main"
# A query that is still being planned, or is between two jobs, has none to cancel; its next one is caught within this time.
CANCEL_SECONDS = 120.0
_numbers = itertools.count()


@contextlib.contextmanager
def handler_kept() -> Iterator[None]:
    """Keep the process's handler of Ctrl-C, which creating a SparkContext replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def install(context: SparkContext) -> None:
    """Let Ctrl-C end the main thread's query before the handler that is there now raises."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before in (signal.SIG_IGN, None):
        return
    signal.signal(signal.SIGINT, _Handler(context, before))


def uninstall() -> None:
    """Put the earlier handler back, and cancel no more."""
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, _Handler):
        handler.over.set()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler.before)


class _Handler:
    def __init__(self, context: SparkContext, before: Any) -> None:
        self.context = context
        self.before = before if callable(before) else signal.default_int_handler
        self.busy = False
        self.over = threading.Event()
        self.tag = self._new_tag()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        try:
            self.before(number, frame)
        except BaseException:
            if not self.busy and self.context._jsc is not None:
                self._end_query()
            raise

    def _end_query(self) -> None:
        self.busy = True  # pressed again while we are here: raise at once
        try:
            threading.Thread(
                target=_cancel, args=(self.context, self.tag, self.over), name="penstock-cancel", daemon=True
            ).start()
            _drop_connection(self.context)
            with contextlib.suppress(Exception):
                ended, self.tag = self.tag, self._new_tag()
                self.context.removeJobTag(ended)  # what this thread starts next is not to be cancelled
        finally:
            self.busy = False

    def _new_tag(self) -> str:
        tag = f"{TAG}-{next(_numbers)}"
        self.context.addJobTag(tag)
        return tag


def _drop_connection(context: SparkContext) -> None:
    """Leave this thread's connection if it waits for an answer: the answer must not reach the next question."""
    if context._gateway is None:
        return
    client = context._gateway._gateway_client
    connection = client.get_thread_connection()
    if connection is None or connection in client.deque or connection.socket is None:
        return
    with contextlib.suppress(OSError):
        connection.socket.shutdown(socket.SHUT_RDWR)
    connection.socket = None


def _cancel(context: SparkContext, tag: str, over: threading.Event) -> None:
    """End the jobs with this tag, and those that their query still starts."""
    began = time.monotonic()
    with contextlib.suppress(Exception):  # the JVM may be gone or going
        while (elapsed := time.monotonic() - began) < CANCEL_SECONDS and not over.is_set():
            context.cancelJobsWithTag(tag)
            over.wait(max(0.1, elapsed / 10))
