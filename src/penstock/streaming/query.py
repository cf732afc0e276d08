"""The handle of a query: what users hold."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, Self

from penstock.errors import PenstockError, StateError
from penstock.streaming.progress import QueryProgress

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.streaming.query_plan import QueryPlan


class QueryState(StrEnum):
    """Where a query is in its life."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    FAILED = "FAILED"

    @property
    def final(self) -> bool:
        """Whether the query has ended."""
        return self in (QueryState.STOPPED, QueryState.FAILED)


@dataclass(frozen=True, slots=True)
class StreamingQueryStatus:
    """A query's state, and what it is doing in words."""

    state: QueryState
    message: str


class Runtime(Protocol):
    """What runs a query, as its handle and the session see it."""

    plan: QueryPlan
    handle: StreamingQuery

    @property
    def state(self) -> QueryState:
        """What the query is doing."""

    @property
    def error(self) -> PenstockError | None:
        """What ended it, if that was an error."""

    @property
    def was_stopped(self) -> bool:
        """Whether somebody asked for its end."""

    @property
    def last_progress(self) -> QueryProgress | None:
        """The newest report."""

    def note(self, text: str) -> None:
        """Write a line into the log of a named query."""

    def state_and_message(self) -> tuple[QueryState, str]:
        """The state, and in words what the query does or waits for."""

    def savepoint(self, path: str) -> int:
        """Copy the checkpoint; return its epoch."""

    def wait(self, seconds: float | None) -> bool:
        """Wait for the end; False when it takes longer."""

    def begin_stop(self) -> object:
        """Let no further batch begin, and return at once."""

    def stop(self, seconds: float | None = None) -> None:
        """End after the batch that runs now; after so many seconds that batch is cut short."""


class StreamingQuery:
    """The handle of a query that was started; it goes on when nobody holds the handle."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @property
    def id(self) -> str:
        """The query's id; the same after a restart from its checkpoint."""
        return self._runtime.plan.id

    @property
    def name(self) -> str:
        """The query's name."""
        return self._runtime.plan.name

    @property
    def checkpoint(self) -> str | None:
        """Where the query keeps how far it has come."""
        return self._runtime.plan.location

    @property
    def status(self) -> StreamingQueryStatus:
        """Its state now, and what it is doing in words."""
        state, message = self._runtime.state_and_message()
        return StreamingQueryStatus(state, message)

    @property
    def last_progress(self) -> QueryProgress | None:
        """What the last batch did; None before the first."""
        return self._runtime.last_progress

    def note(self, text: str) -> None:
        """Write a line into the log of the query, which `penstock jobs logs` shows; a query without a name has none."""
        self._runtime.note(text)

    @property
    def was_stopped(self) -> bool:
        """Whether somebody asked for its end, so that its sources may have rows that it has not read."""
        return self._runtime.was_stopped

    def exception(self) -> PenstockError | None:
        """The error that ended the query, if one did."""
        return self._runtime.error

    def await_termination(self) -> None:
        """Wait until the query ends; raises the error that it ended with."""
        self.await_termination_timeout(None)

    def await_termination_timeout(self, timeout: float | None) -> bool:
        """Wait up to `timeout` seconds; True when the query has ended; raises the error that it ended with."""
        if not self._runtime.wait(timeout):
            return False
        if (error := self._runtime.error) is not None:
            raise error
        return True

    def stop(self, timeout: float | None = None) -> None:
        """End the query after the batch that runs now; after `timeout` seconds that batch is cut short.

        A batch that was cut short is done again after a restart. A second call does nothing.
        """
        self._runtime.stop(timeout)

    def memory_batches(self) -> list[pa.RecordBatch]:
        """The rows that the memory sink keeps, as Arrow batches."""
        sink = self._runtime.plan.sink
        batches = sink.batches()
        if batches is None:
            raise StateError(
                f"the query '{self.name}' does not write to memory but to {sink.describe()}",
                code="STREAM_NOT_IN_MEMORY",
                hint='use .format("memory") to keep rows in this process',
            )
        return batches

    def savepoint(self, path: str | os.PathLike[str]) -> int:
        """Copy all that the query has committed to a new folder; return the last epoch in it.

        `.option("savepoint", path)` starts another query, or a changed one, from it.
        """
        if self.checkpoint is None:
            raise StateError(
                f"the query '{self.name}' has no checkpoint to copy",
                code="STREAM_SAVEPOINT_EMPTY",
                hint='start it with .option("checkpoint.location", "path/")',
            )
        return self._runtime.savepoint(os.fspath(path))

    def explain(self) -> str:
        """The query's plan, where its rows go, and what is promised about them."""
        return self._runtime.plan.explain()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<penstock query {self.name} {self._runtime.state}>"
