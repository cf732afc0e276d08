"""The bookkeeping of operations, over an execution that lives in this process."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from guarded import OwnedLock, guarded
from penstock.engine.operation import Operation, OperationRegistry, OperationState, Ticket
from penstock.errors import InternalError, PenstockError, QueryTimeout, SqlError, StateError

SCHEMA = pa.schema([("id", pa.int64())])
WAIT = 20


class InMemory:
    """Runs in a thread and holds three partitions; a gate keeps it from getting further than a test wants."""

    def __init__(self, *, error: Exception | None = None) -> None:
        self.partitions = 3
        self.schema = SCHEMA
        self.planned = threading.Event()
        self.computed = threading.Event()
        self.started = threading.Event()
        self.cancelled = threading.Event()
        self.released = 0
        self.reads: list[list[int]] = []
        self.error = error

    def start(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, daemon=True).start()

    def execute(self) -> InMemory:
        self.started.set()
        self._pass(self.planned)
        if self.error is not None:
            raise self.error
        return self

    def materialise(self) -> None:
        self._pass(self.computed)

    def read(self, partitions: Sequence[int]) -> list[pa.RecordBatch]:
        self.reads.append([*partitions])
        return [pa.record_batch({"id": pa.array([number], pa.int64())}) for number in partitions]

    def release(self) -> None:
        self.released += 1

    def cancel(self) -> None:
        self.cancelled.set()

    def translate(self, error: BaseException) -> PenstockError:
        return error if isinstance(error, PenstockError) else InternalError(str(error))

    def go(self) -> InMemory:
        self.planned.set()
        self.computed.set()
        return self

    def _pass(self, gate: threading.Event) -> None:
        while not gate.wait(0.005):
            if self.cancelled.is_set():
                raise RuntimeError("job cancelled")


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def submitted(
    execution: InMemory,
    registry: OperationRegistry | None = None,
    clock: Clock | None = None,
    ttl: int = 60_000,
) -> Operation:
    clock = clock or Clock()
    operation = Operation(execution, sql="SELECT", ttl=ttl, clock=clock)
    (registry or OperationRegistry(clock=clock)).add(operation)
    return operation


def test_a_life() -> None:
    execution, clock = InMemory(), Clock()
    operation = submitted(execution, clock=clock)
    assert execution.started.wait(WAIT)
    assert operation.state is OperationState.RUNNING
    assert operation.started_at is not None
    assert operation.ended_at is None
    execution.planned.set()
    # Partitions are known before all of them are computed, and can be fetched from then on.
    tickets = operation.tickets
    assert [ticket.partition for ticket in tickets] == [0, 1, 2]
    assert [batch.to_pylist() for batch in operation.fetch(tickets[2])] == [[{"id": 2}]]
    assert operation.state is OperationState.RUNNING
    execution.computed.set()
    assert operation.wait(WAIT)
    assert operation.state == "DONE"
    assert operation.result().to_pylist() == [{"id": 0}, {"id": 1}, {"id": 2}]
    assert execution.reads == [[2], [0, 1, 2]]
    assert operation.schema == SCHEMA
    assert operation.exception is None
    assert operation.ended_at is not None


def test_tickets_travel() -> None:
    operation = submitted(InMemory().go())
    ticket = operation.tickets[1]
    assert ticket.expires_at == 1_000_060.0
    assert Ticket.from_bytes(ticket.to_bytes()) == ticket == pickle.loads(pickle.dumps(ticket))
    assert operation.fetch(ticket.to_bytes())[0].to_pylist() == [{"id": 1}]


@pytest.mark.parametrize("ticket", [b"", b"{}", b"[1]", Ticket("other", 0, 0.0), "text", 5])
def test_what_is_no_ticket_is_refused(ticket: Ticket | bytes) -> None:
    operation = submitted(InMemory().go())
    with pytest.raises(StateError) as caught:
        operation.fetch(ticket)
    assert caught.value.code == "TICKET_UNKNOWN"


def test_a_partition_that_is_not_there() -> None:
    operation = submitted(InMemory().go())
    for partition in (-1, 3):
        with pytest.raises(StateError, match="has 3 partitions") as caught:
            operation.fetch(Ticket(operation.id, partition, 0.0))
        assert caught.value.code == "TICKET_UNKNOWN"


def test_a_failure_belongs_to_whoever_asks() -> None:
    operation = submitted(InMemory(error=SqlError("no table 'x'")).go())
    assert operation.wait(WAIT)
    assert operation.state is OperationState.FAILED
    assert operation.exception is not None
    for ask in (operation.result, lambda: operation.tickets, lambda: operation.schema):
        with pytest.raises(SqlError, match="no table 'x'"):
            ask()
    assert not operation.cancel()


def test_cancel_while_running() -> None:
    execution = InMemory()
    operation = submitted(execution)
    assert execution.started.wait(WAIT)
    assert operation.cancel()
    assert operation.state is OperationState.CANCELLED
    assert execution.cancelled.is_set()
    with pytest.raises(StateError, match="was cancelled") as caught:
        operation.result()
    assert caught.value.code == "QUERY_CANCELLED"
    assert caught.value.hint
    assert not operation.cancel()


def test_cancel_gives_a_result_back() -> None:
    execution = InMemory().go()
    operation = submitted(execution)
    ticket = operation.tickets[0]
    assert operation.wait(WAIT)
    assert operation.cancel()
    assert execution.released == 1
    with pytest.raises(StateError, match="was cancelled"):
        operation.fetch(ticket)


def test_waiting_does_not_end_the_query() -> None:
    execution = InMemory()
    operation = submitted(execution)
    with pytest.raises(QueryTimeout, match="goes on") as caught:
        operation.result(timeout=0.01)
    assert caught.value.code == "RESULT_NOT_READY"
    assert operation.state is not OperationState.CANCELLED
    execution.go()
    assert operation.result(timeout=WAIT).num_rows == 3


def test_results_expire_after_their_last_use() -> None:
    execution, clock = InMemory().go(), Clock()
    registry = OperationRegistry(clock=clock)
    operation = submitted(execution, registry, clock)
    ticket = operation.tickets[0]
    assert operation.wait(WAIT)
    clock.now += 59
    operation.fetch(ticket)
    clock.now += 59
    registry.sweep()
    assert operation.state is OperationState.DONE
    clock.now += 2
    with pytest.raises(StateError, match="not used for 60 s and is gone") as caught:
        operation.fetch(ticket)
    assert caught.value.code == "TICKET_EXPIRED"
    assert "ttl=" in (caught.value.hint or "")
    assert operation.state is OperationState.EXPIRED
    assert execution.released == 1
    assert registry.list() == [operation]


def test_a_sweep_lets_abandoned_results_go() -> None:
    execution, clock = InMemory().go(), Clock()
    registry = OperationRegistry(clock=clock)
    operation = submitted(execution, registry, clock)
    assert operation.wait(WAIT)
    del operation
    clock.now += 61
    assert [one.state for one in registry.list()] == ["EXPIRED"]
    assert execution.released == 1


def test_operations_stand_in_line() -> None:
    registry = OperationRegistry(concurrent=1)
    executions = [InMemory() for _ in range(3)]
    first, second, third = (submitted(execution, registry) for execution in executions)
    assert executions[0].started.wait(WAIT)
    assert [one.state for one in registry.list()] == ["RUNNING", "QUEUED", "QUEUED"]
    assert second.started_at is None
    assert registry.cancel(second.id)
    assert second.state is OperationState.CANCELLED
    with pytest.raises(StateError, match="was cancelled"):
        second.result(timeout=WAIT)
    executions[0].go()
    assert first.result(timeout=WAIT).num_rows == 3
    assert executions[2].started.wait(WAIT)
    executions[2].go()
    assert third.result(timeout=WAIT).num_rows == 3
    assert not executions[1].started.is_set()


def test_the_registry_knows_its_own() -> None:
    registry = OperationRegistry()
    operation = submitted(InMemory().go(), registry)
    assert registry.get(operation.id) is operation
    with pytest.raises(StateError, match="no operation 'x'") as caught:
        registry.cancel("x")
    assert caught.value.code == "UNKNOWN_OPERATION"


def test_close_cancels_all_and_takes_nothing_in() -> None:
    registry = OperationRegistry(concurrent=1)
    executions = [InMemory(), InMemory()]
    operations = [submitted(execution, registry) for execution in executions]
    assert executions[0].started.wait(WAIT)
    registry.close()
    assert [one.state for one in operations] == ["CANCELLED", "CANCELLED"]
    assert executions[0].cancelled.is_set()
    assert not executions[1].started.is_set()
    with pytest.raises(StateError, match="stopped"):
        submitted(InMemory(), registry)


def test_the_registry_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engine.operation.REMEMBERED", 2)
    registry = OperationRegistry()
    operations = [submitted(InMemory().go(), registry) for _ in range(4)]
    for operation in operations:
        assert operation.wait(WAIT)
        operation.cancel()
    assert registry.list() == operations[2:]


def test_which_operations_run_is_only_noted_under_the_lock() -> None:
    registry, lock, wrong = OperationRegistry(concurrent=1), OwnedLock(), list[str]()
    registry._lock = lock  # type: ignore[assignment]
    registry._busy = guarded(registry._busy, lock, wrong)
    running, cancelled = InMemory(), Operation(InMemory())
    first = Operation(running)
    registry.add(first)
    cancelled.cancel()
    registry.add(cancelled)
    running.go()
    assert first.wait(WAIT)
    registry.close()
    assert wrong == []
