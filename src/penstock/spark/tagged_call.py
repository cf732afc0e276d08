"""A function in a thread of its own whose Spark jobs carry one tag, so that they, and nothing else, can be ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

CANCEL_INTERVAL = 0.05
"""Seconds between two cancels: a query may start its next job in the moment after the last one was cancelled."""


class TaggedCall(Generic[T]):
    """One call: started at once, waited for by anyone, ended by its tag.

    Tags are a property of a thread, and PySpark gives each Python thread a thread in the JVM: hence one thread per call.
    """

    def __init__(self, spark: SparkSession, function: Callable[[], T], *, tag: str) -> None:
        self._spark = spark
        self._function = function
        # What the caller set for its jobs, such as a scheduler pool, holds for this call as well.
        self._properties = spark.sparkContext._jsc.sc().getLocalProperties().clone()
        self._done = threading.Event()
        self._cancelled = threading.Event()
        self._value: T | None = None
        self._error: BaseException | None = None
        self.tag = tag

    def start(self) -> None:
        """Run the function in its thread."""
        threading.Thread(target=self._run, name=f"penstock {self.tag}", daemon=True).start()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end of the call; False when the time is over first."""
        return self._done.wait(seconds)

    def value(self) -> T:
        """Return what the function returned, or raise what it raised; only after the end."""
        if self._error is not None:
            raise self._error
        # The function has ended without an error, so this is what it returned.
        return self._value  # type: ignore[return-value]

    @property
    def cancelled(self) -> bool:
        """Whether someone asked for the end."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """End the Spark jobs of the call, those that it may still start too; returns at once."""
        if self._done.is_set() or self._cancelled.is_set():
            return
        self._cancelled.set()
        cancel_tag(self._spark, self.tag)
        threading.Thread(target=self._retry, name=f"penstock cancel {self.tag}", daemon=True).start()

    def _retry(self) -> None:
        while not self._done.wait(CANCEL_INTERVAL):
            cancel_tag(self._spark, self.tag)

    def _run(self) -> None:
        context = self._spark.sparkContext
        try:
            context._jsc.sc().setLocalProperties(self._properties)
            for inherited in context.getJobTags():
                if inherited.startswith("penstock-"):
                    # Ctrl-C in the main thread, or the end of another call, must not end this one.
                    context.removeJobTag(inherited)
            context.addJobTag(self.tag)
            # A task that waits inside the JVM must be interrupted; one that waits for Python ends with its worker.
            context.setInterruptOnCancel(True)
            self._value = self._function()
        except BaseException as error:  # it belongs to whoever waits
            self._error = error
        finally:
            self._done.set()


def cancel_tag(spark: SparkSession, tag: str) -> None:
    """Cancel the running jobs of a tag; a Spark that has ended has none."""
    from py4j.protocol import Py4JError

    try:
        spark.sparkContext.cancelJobsWithTag(tag)
    except (Py4JError, AttributeError, AssertionError, ConnectionError):
        # The session is being stopped by someone else; its jobs end with it.
        return
