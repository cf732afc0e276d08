"""The heartbeat of a job: renews its lease, says when it is lost, and hands on what others ask for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from penstock.backend.codec import as_stored
from penstock.backend.model import Beat, Lease, Request
from penstock.backend.process import clock
from penstock.errors import PenstockError, StateError

if TYPE_CHECKING:
    from penstock.backend.backend import Backend

log = logging.getLogger("penstock.backend")

PART_OF_TTL = 0.3
"""How much of its time to live passes between two renewals of a lease."""

RETRY_PART_OF_TTL = 0.05


class Heartbeat:
    """Two threads: one renews and may have to wait for the database, one watches that the lease has not run out meanwhile.

    `on_lost` is called once, with the reason, as soon as the lease is known to be lost or its time is over without a
    renewal; whoever runs the job must stop then. Failures of the database in between are logged and tried again.
    `on_request` is called in a thread of its own, once per request. `progress` is asked before
    each renewal for what to record of the job; None records nothing. `every` is the number of seconds between renewals.
    """

    def __init__(
        self,
        backend: Backend,
        lease: Lease,
        *,
        on_lost: Callable[[StateError], None],
        on_request: Callable[[Request], None] | None = None,
        progress: Callable[[], Mapping[str, Any] | None] | None = None,
        every: float | None = None,
    ) -> None:
        self.lease = lease
        self._every = lease.ttl_ms / 1000 * PART_OF_TTL if every is None else every
        self._backend = backend
        self._on_lost = on_lost
        self._on_request = on_request
        self._progress = progress
        self._deadline = lease.deadline
        self._changed = threading.Condition()
        self._stopped = False
        self._lost: StateError | None = None
        self._answered: datetime | None = None
        self._threads = [
            threading.Thread(target=target, name=f"penstock-{name}-{lease.job}", daemon=True)
            for name, target in (("heartbeat", self._renew), ("lease", self._watch))
        ]

    def start(self) -> Self:
        """Begin to renew."""
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """End the renewals; the lease stays until it is released or its time is over."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            # A renewal that waits for a database that does not answer ends by itself, later.
            if thread is not threading.current_thread():
                thread.join(timeout=self.lease.ttl_ms / 1000)

    @property
    def lost(self) -> StateError | None:
        """Why the lease is lost; None while it is active."""
        return self._lost

    def require(self) -> None:
        """Raise STATE_LEASE_LOST unless the lease lasts; it asks this machine's clock, because a renewal says how
        long that is."""
        from penstock.backend.lease import lost

        with self._changed:
            if self._lost is not None:
                raise self._lost
            if clock() >= self._deadline:
                raise lost(self.lease, "it could not be renewed in time", location=self._backend.location)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _renew(self) -> None:
        ttl = self.lease.ttl_ms / 1000
        renewed = True
        while self._pause(self._every if renewed else ttl * RETRY_PART_OF_TTL):
            sent_at = clock()
            try:
                beat = self._backend.leases.beat(self.lease, self._present())
            except PenstockError as error:
                if renewed:
                    log.warning(
                        "the lease of '%s' could not be renewed and is tried again: %s", self.lease.job, error
                    )
                renewed = False
                continue
            if not renewed:
                log.warning("the lease of '%s' is renewed again", self.lease.job)
            renewed = True
            if not beat.renewed:
                self._lose("another process has taken it, or its time was over")
                return
            with self._changed:
                self._deadline = sent_at + ttl
            self._hand_on(beat)

    def _watch(self) -> None:
        with self._changed:
            while not self._stopped and self._lost is None:
                rest = self._deadline - clock()
                if rest <= 0:
                    break
                # In steps, since a wait does not count the time that the machine sleeps.
                self._changed.wait(min(rest, self.lease.ttl_ms / 1000 * PART_OF_TTL))
            else:
                return
        self._lose("it could not be renewed in time")

    def _pause(self, seconds: float) -> bool:
        """Wait; False means that the heartbeat is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._lost is not None, seconds)
            return not self._stopped and self._lost is None

    def _lose(self, why: str) -> None:
        from penstock.backend.lease import lost

        with self._changed:
            if self._stopped or self._lost is not None:
                return
            self._lost = lost(self.lease, why, location=self._backend.location)
            self._changed.notify_all()
        log.error("the lease of '%s' is lost: %s", self.lease.job, why)
        self._on_lost(self._lost)

    def _present(self) -> dict[str, Any] | None:
        if self._progress is None:
            return None
        try:
            progress = self._progress()
            # What cannot be stored must fail here, and not together with the renewal.
            return None if progress is None else dict(as_stored(progress))
        except Exception:
            # The lease matters more than what a caller's function has to say.
            log.exception("the progress of '%s' could not be read", self.lease.job)
            return None

    def _hand_on(self, beat: Beat) -> None:
        if beat.request is None or self._on_request is None or beat.requested_at == self._answered:
            return
        self._answered = beat.requested_at
        # Stopping a job takes its time, and the lease must be renewed meanwhile.
        threading.Thread(
            target=self._on_request,
            args=(beat.request,),
            name=f"penstock-request-{self.lease.job}",
            daemon=True,
        ).start()
