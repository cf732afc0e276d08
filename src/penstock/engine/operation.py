"""Submitted queries: their states, their tickets, and the registry that knows them all.

An operation is QUEUED while `CONCURRENT` others run, RUNNING while Spark works, and then DONE, FAILED or CANCELLED.
Its result stays with Spark, one ticket per partition. A result that nobody touched for its time to live is EXPIRED: let go.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self

from penstock.errors import PenstockError, QueryTimeout, StateError, suggest

if TYPE_CHECKING:
    import pyarrow as pa

Clock = Callable[[], float]

DEFAULT_TTL = 15 * 60_000
"""Milliseconds after the last use of a result before it is let go."""
CONCURRENT = 8
"""How many operations of a session work at the same time; the others wait in line."""
REMEMBERED = 1_000
"""How many ended operations the registry still lists."""
SWEEP_SECONDS = 30.0
"""How often results that nobody uses are looked for."""
PARTITIONS_PER_JOB = 8
"""How many partitions `result` reads with one job: few enough for the driver's memory, many enough for its speed."""


class Result(Protocol):
    """A result that stays where it was computed, in partitions; calls come from several threads."""

    partitions: int
    schema: pa.Schema

    def materialise(self) -> None:
        """Compute the partitions; called once, before the operation is done."""

    def read(self, partitions: Sequence[int]) -> list[pa.RecordBatch]:
        """Return the batches of some partitions, in their order, the same ones every time."""

    def release(self) -> None:
        """Let the partitions go; called once, also when nobody waits for an error any more."""


class Execution(Protocol):
    """What runs an operation."""

    def start(self, work: Callable[[], None]) -> None:
        """Run `work`, which calls `execute` and `materialise`, in a thread whose jobs `cancel` can end; returns at once."""

    def execute(self) -> Result:
        """Plan the query and return its result, partitions not yet computed; called inside `work`."""

    def cancel(self) -> None:
        """End the jobs of `work` and of `read`, those that are still to come too; returns at once."""

    def translate(self, error: BaseException) -> PenstockError:
        """Return the error that the user gets for an exception of `execute`, `materialise` or `read`."""


class OperationState(StrEnum):
    """Where an operation is in its life."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"

    @property
    def ended(self) -> bool:
        """Whether nothing happens any more."""
        return self not in (OperationState.QUEUED, OperationState.RUNNING)


@dataclass(frozen=True, slots=True)
class Ticket:
    """The right to fetch one partition of a result: a small value that can be sent anywhere.

    `expires_at` (seconds since 1970) is when the result goes if nobody uses it before; every use moves that moment.
    """

    operation: str
    partition: int
    expires_at: float

    def to_bytes(self) -> bytes:
        """Return the ticket as bytes."""
        return json.dumps([self.operation, self.partition, self.expires_at]).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` wrote; anything else is refused."""
        try:
            operation, partition, expires_at = json.loads(data)
            return cls(str(operation), int(partition), float(expires_at))
        except (ValueError, TypeError) as error:
            raise _unknown_ticket("these bytes are no ticket") from error


class Operation:
    """One submitted query.

    >>> op = session.submit("SELECT * FROM orders")                     # doctest: +SKIP
    >>> for ticket in op.tickets:                                       # doctest: +SKIP
    ...     for batch in op.fetch(ticket): ...
    """

    def __init__(
        self,
        execution: Execution,
        *,
        sql: str | None = None,
        ttl: int = DEFAULT_TTL,
        clock: Clock = time.time,
        operation_id: str | None = None,
    ) -> None:
        self.id = operation_id or uuid.uuid4().hex
        self.sql = sql
        self.ttl = ttl
        self.execution = execution
        self._clock = clock
        self._changed = threading.Condition()
        self._state = OperationState.QUEUED
        self._result: Result | None = None
        self._error: PenstockError | None = None
        self._submitted = self._used = clock()
        self._started: float | None = None
        self._ended: float | None = None

    @property
    def state(self) -> OperationState:
        """The state now."""
        return self._state

    @property
    def submitted_at(self) -> datetime:
        """When it was submitted."""
        return datetime.fromtimestamp(self._submitted, UTC)

    @property
    def started_at(self) -> datetime | None:
        """When Spark began, or None."""
        return None if self._started is None else datetime.fromtimestamp(self._started, UTC)

    @property
    def ended_at(self) -> datetime | None:
        """When it was done, failed or cancelled, or None."""
        return None if self._ended is None else datetime.fromtimestamp(self._ended, UTC)

    @property
    def exception(self) -> PenstockError | None:
        """Why it failed, or None."""
        return self._error

    @property
    def schema(self) -> pa.Schema:
        """The result's columns; waits until they are known."""
        return self._await_result().schema

    @property
    def tickets(self) -> tuple[Ticket, ...]:
        """One ticket per partition of the result, in its order; waits until their number is known."""
        result = self._await_result()
        expires = self._touch()
        return tuple(Ticket(self.id, partition, expires) for partition in range(result.partitions))

    def fetch(self, ticket: Ticket | bytes) -> list[pa.RecordBatch]:
        """Return the record batches of one partition: in any order, from any thread, as often as needed."""
        if isinstance(ticket, bytes):
            ticket = Ticket.from_bytes(ticket)
        if not isinstance(ticket, Ticket) or ticket.operation != self.id:
            raise _unknown_ticket(f"this ticket is not of operation {self.id}")
        result = self._await_result()
        if not 0 <= ticket.partition < result.partitions:
            raise _unknown_ticket(
                f"the result has {result.partitions} partitions and none of number {ticket.partition}"
            )
        return self._read(result, [ticket.partition])

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end, at most `timeout` seconds; say whether it came."""
        with self._changed:
            return self._changed.wait_for(lambda: self._state.ended, timeout)

    def result(self, timeout: float | None = None) -> pa.Table:
        """Wait, at most `timeout` seconds, and return all rows; the query goes on when the time is over."""
        import pyarrow as pa

        try:
            if not self.wait(timeout):
                raise QueryTimeout(
                    f"operation {self.id} is not done after {timeout:g} s and goes on",
                    code="RESULT_NOT_READY",
                    hint="call result() again, or cancel()",
                )
            result = self._await_result()
            batches: list[pa.RecordBatch] = []
            for first in range(0, result.partitions, PARTITIONS_PER_JOB):
                some = range(first, min(first + PARTITIONS_PER_JOB, result.partitions))
                batches += self._read(result, list(some))
        except KeyboardInterrupt:
            self.cancel()
            raise
        return pa.Table.from_batches(batches, result.schema)

    def cancel(self) -> bool:
        """End the Spark jobs, or give back a result that is there; say whether there was something to end."""
        with self._changed:
            if self._state in (OperationState.FAILED, OperationState.CANCELLED, OperationState.EXPIRED):
                return False
            started = self._started is not None
            self._finish(OperationState.CANCELLED)
        if started:
            self.execution.cancel()
        return True

    def start(self, ended: Callable[[], None]) -> bool:
        """Begin, and call `ended` afterwards; False when it was cancelled while it waited.

        Called by the registry when its turn has come.
        """
        with self._changed:
            if self._state is not OperationState.QUEUED:
                return False
            self._state = OperationState.RUNNING
            self._started = self._clock()
        self.execution.start(lambda: self._work(ended))
        return True

    def expire(self, now: float) -> bool:
        """Let the result go when nobody used it for its time to live; say whether it went."""
        with self._changed:
            if self._state is not OperationState.DONE or now < self._used + self.ttl / 1000:
                return False
            self._finish(OperationState.EXPIRED)
            return True

    def __repr__(self) -> str:
        return f"<operation {self.id} {self._state.value}>"

    def _work(self, ended: Callable[[], None]) -> None:
        try:
            self._compute()
        except BaseException as error:  # it belongs to whoever asks for the result
            translated = self.execution.translate(error)
            with self._changed:
                if self._state is OperationState.RUNNING:
                    self._error = translated
                    self._finish(OperationState.FAILED)
        finally:
            ended()

    def _compute(self) -> None:
        result = self.execution.execute()
        with self._changed:
            if self._state is not OperationState.RUNNING:
                result.release()
                return
            self._result = result
            self._changed.notify_all()
        result.materialise()
        with self._changed:
            if self._state is OperationState.RUNNING:
                self._finish(OperationState.DONE)

    def _finish(self, state: OperationState) -> None:
        """Enter a last state; the caller holds the lock."""
        self._state = state
        now = self._clock()
        if self._ended is None:
            self._ended = self._used = now
        if state is not OperationState.DONE:
            result, self._result = self._result, None
            if result is not None:
                result.release()
        self._changed.notify_all()

    def _await_result(self) -> Result:
        """Wait until the partitions are known; what has none raises the reason."""
        with self._changed:
            self._changed.wait_for(lambda: self._result is not None or self._state.ended)
            self.expire(self._clock())
            if self._result is not None:
                return self._result
            raise self._refusal()

    def _refusal(self) -> PenstockError:
        if self._error is not None:
            return self._error
        if self._state is OperationState.EXPIRED:
            return StateError(
                f"the result of operation {self.id} was not used for {self.ttl / 1000:g} s and is gone",
                code="TICKET_EXPIRED",
                hint="submit the query again, with a longer time to live: submit(query, ttl='1 hour')",
            )
        return StateError(
            f"operation {self.id} was cancelled", code="QUERY_CANCELLED", hint="submit the query again"
        )

    def _read(self, result: Result, partitions: list[int]) -> list[pa.RecordBatch]:
        self._touch()
        try:
            return result.read(partitions)
        except Exception as error:
            with self._changed:
                if self._result is not result:
                    raise self._refusal() from None
            raise self.execution.translate(error) from None

    def _touch(self) -> float:
        with self._changed:
            self._used = self._clock()
            return self._used + self.ttl / 1000


class OperationRegistry:
    """The operations of a session: those that run, wait or have ended, by id."""

    def __init__(self, *, clock: Clock = time.time, concurrent: int = CONCURRENT) -> None:
        self._clock = clock
        self._concurrent = concurrent
        self._lock = threading.Lock()
        self._all: dict[str, Operation] = {}
        self._line: deque[Operation] = deque()
        self._busy: set[str] = set()
        self._closed = threading.Event()
        self._sweeper: threading.Thread | None = None

    def list(self) -> list[Operation]:
        """All known operations, the oldest first."""
        self.sweep()
        with self._lock:
            return [*self._all.values()]

    def get(self, operation_id: str) -> Operation:
        """The operation of that id; an unknown one is an error."""
        with self._lock:
            operation = self._all.get(operation_id)
            ids = [*self._all]
        if operation is None:
            raise StateError(
                f"no operation '{operation_id}'",
                code="UNKNOWN_OPERATION",
                hint=suggest(operation_id, ids, what="operation"),
            )
        return operation

    def cancel(self, operation_id: str) -> bool:
        """Cancel the operation of that id; say whether there was something to end."""
        return self.get(operation_id).cancel()

    def add(self, operation: Operation) -> None:
        """Take in a new operation, and start it unless too many run."""
        self.sweep()
        with self._lock:
            if self._closed.is_set():
                raise StateError("this session is stopped", code="SESSION_STOPPED")
            self._all[operation.id] = operation
            self._line.append(operation)
            if self._sweeper is None:
                self._sweeper = threading.Thread(target=self._watch, name="penstock expiry", daemon=True)
                self._sweeper.start()
        self._start_next()

    def sweep(self) -> None:
        """Let go of results whose time is over, and forget the oldest operations beyond what is remembered."""
        with self._lock:
            operations = [*self._all.values()]
        now = self._clock()
        for operation in operations:
            operation.expire(now)
        excess = len(operations) - REMEMBERED
        ended = [
            operation.id
            for operation in operations
            if operation.state.ended and operation.state is not OperationState.DONE
        ]
        with self._lock:
            for operation_id in ended[: max(0, excess)]:
                self._all.pop(operation_id, None)

    def close(self) -> None:
        """Cancel everything; nothing new is taken in."""
        with self._lock:
            self._closed.set()
            self._line.clear()
            operations = [*self._all.values()]
        for operation in operations:
            operation.cancel()

    def _start_next(self) -> None:
        while True:
            with self._lock:
                if not self._line or len(self._busy) >= self._concurrent or self._closed.is_set():
                    return
                operation = self._line.popleft()
                self._busy.add(operation.id)
            if not operation.start(partial(self._start_after, operation.id)):
                self._busy.discard(operation.id)

    def _start_after(self, operation_id: str) -> None:
        with self._lock:
            self._busy.discard(operation_id)
        self._start_next()

    def _watch(self) -> None:
        while not self._closed.wait(SWEEP_SECONDS):
            self.sweep()


def _unknown_ticket(message: str) -> StateError:
    return StateError(message, code="TICKET_UNKNOWN", hint="take a ticket from op.tickets")
