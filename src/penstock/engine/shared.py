"""A flow on storage that all nodes reach: who owns it, and what of it counts, are in the state backend.

The head of a flow is one value of the backend: up to which record the log counts, whose records count from which
number on, and the manifests of its checkpoints. It is changed by compare-and-swap in a transaction that is fenced by
the owner's lease. So an owner whose lease was taken over cannot publish anything: what it has put into the storage is
never read.

1. A tick is stepped, and its record is put into the storage under the owner's own name.
2. The head counts it: swap, fenced. The tick is final.

When the backend does not answer, 2 waits and tries again; the answer to a swap that went through may be lost, so the
head is read again before the swap is repeated.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from penstock.backend import Backend, Heartbeat, Job, JobState, this_process
from penstock.backend.model import Request
from penstock.backend.process import clock
from penstock.errors import ConfigError, ConnectorError, PenstockError, StateError
from penstock.state.object_log import Span

LOG = logging.getLogger("penstock.flow")
TTL_MS = 5_000
WAIT_SECONDS = 30.0
"""How long a tick waits for a backend that does not answer."""
_PAUSE_SECONDS = 0.1
_NAMESPACE, _KEY = "flow", "head"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Head:
    """What of a flow counts."""

    location: str
    next: int = 1  # the first record of the log that does not count
    spans: tuple[Span, ...] = ()  # (first record, writer)
    checkpoints: tuple[str, ...] = ()  # names of manifests, the newest last

    def to_json(self) -> dict[str, Any]:
        """As a value of the backend."""
        return {
            **asdict(self),
            "spans": [list(span) for span in self.spans],
            "checkpoints": list(self.checkpoints),
        }

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Head:
        """Of a value of the backend."""
        spans = tuple((first, writer) for first, writer in saved["spans"])
        return cls(saved["location"], saved["next"], spans, tuple(saved["checkpoints"]))


class SharedOwner:
    """The right of this process to change a flow, and the head of the flow; a log and a folder of checkpoints publish
    through it."""

    def __init__(
        self,
        backend: Backend,
        name: str,
        location: str,
        *,
        is_new: bool = True,
        ttl_ms: int = TTL_MS,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        """Take the lease of a flow, STATE_LEASE_HELD when another process has it, and let its records count from now on.

        A flow that the backend does not know must be new: `is_new` says whether its location is empty.
        """
        self._backend = backend
        self._name = name
        self._ttl_ms = ttl_ms
        self._wait_seconds = wait_seconds
        self._ended = threading.Event()
        self._swapping = threading.RLock()
        self._fenced: StateError | None = None
        # Those that were to be published since the last one that was: any of them may be there.
        self._doubtful: list[Head] = []
        self._oldest = 1  # the first record that anybody may still read
        self._id = uuid.uuid4().hex
        self.on_stop: Callable[[], None] | None = None
        """Closes the flow, when another process asks for that (`penstock jobs stop`)."""
        _refuse_other_kind(backend, name)
        self._lease = backend.leases.acquire(name, this_process(), ttl_ms=ttl_ms)
        self._heartbeat = self._beating()
        try:
            self._head = self._begun(location, is_new=is_new)
            self._record(location)
        except BaseException:
            self._heartbeat.stop()
            backend.leases.release(self._lease)
            raise

    @property
    def writer(self) -> str:
        """The name of this owner in the names of files."""
        return self._head.spans[-1][1]

    # The log and the catalog of checkpoints

    @property
    def spans(self) -> Sequence[Span]:
        return self._head.spans

    @property
    def next(self) -> int:
        return self._head.next

    def publish_log(self, next: int) -> None:
        """Let all records before a number count."""
        with self._swapping:
            self._publish(replace(self._head, next=next))

    def dropped_before(self, number: int) -> None:
        """The records before a number are gone, and so need no writer."""
        self._oldest = number

    def names(self) -> list[str]:
        """The manifests that count."""
        return list(self._head.checkpoints)

    def publish(self, names: list[str]) -> None:
        """Let these manifests count."""
        with self._swapping:
            self._publish(replace(self._head, checkpoints=tuple(names)))

    def release(self) -> None:
        """Give the lease back: the flow was closed."""
        self._ended.set()
        self._heartbeat.stop()
        try:
            if self._fenced is None:
                self._backend.jobs.update(self._lease, state=JobState.STOPPED)
                self._backend.leases.release(self._lease)
        except PenstockError as error:
            # It ends by itself.
            LOG.warning("the lease of flow '%s' could not be given back: %s", self._name, error)
        finally:
            self._backend.close()

    # Inside

    def _begun(self, location: str, *, is_new: bool) -> Head:
        saved = self._backend.state.get(self._name, _KEY, namespace=_NAMESPACE)
        if saved is None and not is_new:
            raise StateError(
                f"there is a flow at {location}, and the state backend knows no flow '{self._name}' there",
                code="FLOW_STATE_MISSING",
                hint="set PENSTOCK_STATE, and name=, to those that it was written with; or load a "
                "checkpoint from its folder checkpoints/ into another flow",
                where=self._backend.location,
            )
        before = Head(location) if saved is None else Head.from_json(saved)
        if before.location != location:
            raise ConfigError(
                f"flow '{self._name}' is at {before.location}",
                code="FLOW_LOCATION",
                hint="open it there, or give this one another name: IncrementalFlow(name=...)",
                where=self._backend.location,
            )
        writer = f"w{self._lease.epoch}x{self._lease.token[:8]}"
        # A writer that has written nothing needs no span.
        spans = tuple(span for span in before.spans if span[0] < before.next)
        head = replace(before, spans=(*spans, (before.next, writer)))
        if not self._swap(saved, head):
            raise self._lost("another process has changed the flow")
        return head

    def _record(self, location: str) -> None:
        job = Job(
            self._name, kind="flow", checkpoint=location, definition={"durability": "shared"}, id=self._id
        )
        self._backend.jobs.record(job, self._lease)
        self._backend.jobs.update(self._lease, state=JobState.RUNNING)

    def _publish(self, head: Head) -> None:
        if self._fenced is not None:
            raise self._fenced
        ends = (*(first for first, _ in head.spans[1:]), head.next + 1)
        needed = (span for span, end in zip(head.spans, ends, strict=True) if end > self._oldest)
        head = replace(head, spans=tuple(needed))
        self._doubtful.append(head)
        self._patiently(lambda: self._swapped(head))
        self._head = head
        self._doubtful.clear()

    def _swapped(self, head: Head) -> None:
        self._hold()
        if self._swap(self._head.to_json(), head):
            return
        current = self._backend.state.get(self._name, _KEY, namespace=_NAMESPACE)
        if current == head.to_json():
            return
        mine = any(current == doubtful.to_json() for doubtful in self._doubtful)
        if not mine or not self._swap(current, head):
            raise self._lost("another process has changed the flow")

    def _swap(self, before: dict[str, Any] | None, head: Head) -> bool:
        return self._backend.state.swap(
            self._name, _KEY, before, head.to_json(), namespace=_NAMESPACE, lease=self._lease
        )

    def _hold(self) -> None:
        """Take the lease again when it has run out, as when the backend was away; nobody may have had it in between."""
        if self._heartbeat.lost is None:
            return
        last = self._backend.leases.get(self._name)
        if last is None or last.token != self._lease.token:
            raise self._lost("another process has taken it")
        # It ends by the clock of the backend, a moment later than by that of this machine.
        lease = self._backend.leases.acquire(
            self._name, this_process(), ttl_ms=self._ttl_ms, wait_ms=2 * self._ttl_ms
        )
        if lease.epoch != self._lease.epoch + 1:
            self._backend.leases.release(lease)
            raise self._lost("another process has had it in between")
        self._heartbeat.stop()
        self._lease = lease
        self._heartbeat = self._beating()
        self._record(self._head.location)

    def _patiently(self, attempt: Callable[[], T]) -> T:
        """Try again while the backend does not answer; an owner that is fenced off never comes back."""
        end = clock() + self._wait_seconds
        while True:
            try:
                return attempt()
            except ConnectorError as error:
                if not error.retryable:
                    raise
                if clock() >= end or self._ended.is_set():
                    raise StateError(
                        f"the state backend does not answer: {error.message}",
                        code="FLOW_BACKEND",
                        hint="nothing has changed here; feed it again when the backend is back, with an ordinal, "
                        "because a tick whose answer was lost may count",
                        where=self._backend.location,
                    ) from error
            except StateError as error:
                if error.code in ("STATE_LEASE_LOST", "STATE_LEASE_HELD"):
                    self._fenced = self._lost(error.message)
                    raise self._fenced from error
                raise
            self._ended.wait(_PAUSE_SECONDS)

    def _beating(self) -> Heartbeat:
        return Heartbeat(
            self._backend, self._lease, on_lost=lambda error: None, on_request=self._answer
        ).start()

    def _answer(self, request: Request) -> None:
        """Do what another process asks for; only the program can open the flow again."""
        if request == "stop" and self.on_stop is not None:
            self.on_stop()

    def _lost(self, why: str) -> StateError:
        return StateError(
            f"this process does not own flow '{self._name}' any more: {why}",
            code="STATE_LEASE_LOST",
            where=self._backend.location,
            hint="nothing of this tick counts; open the flow again where it is to run",
        )


def _refuse_other_kind(backend: Backend, name: str) -> None:
    job = backend.jobs.find(name)
    if job is not None and job.kind != "flow":
        raise ConfigError(
            f"the state backend has a {job.kind} '{name}'",
            code="FLOW_LOCATION",
            hint="give the flow another name: IncrementalFlow(name=...)",
            where=backend.location,
        )
