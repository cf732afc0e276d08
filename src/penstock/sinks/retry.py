"""Waiting for a server that is away: exponential back-off with jitter, bounded, visible, and over when the query is to end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from penstock.errors import ConnectorError
from penstock.sinks.base import QueryStatus
from penstock.spark.micro_batch.query_run import Drained

T = TypeVar("T")

START_SECONDS = 15.0
"""How long a start waits: the user who starts a query should hear soon that a server does not answer."""


class RetryAfter(Exception):
    """An answer that asks to come back later, perhaps with the time after which."""

    def __init__(self, text: str, *, seconds: float = 0.0) -> None:
        super().__init__(text)
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and for how long something is tried again.

    >>> [RetryPolicy(jitter=0).pause(attempt) for attempt in (1, 2, 3, 20)]
    [0.1, 0.2, 0.4, 10.0]
    """

    seconds: float = 300.0
    first: float = 0.1
    longest: float = 10.0
    jitter: float = 0.5
    """The random part of each pause, so that many queries do not come back in the same moment."""

    def at_start(self) -> RetryPolicy:
        """The policy while a query starts."""
        return RetryPolicy(min(self.seconds, START_SECONDS), self.first, self.longest, self.jitter)

    def pause(self, attempt: int) -> float:
        """How long to wait after so many attempts."""
        full = min(self.longest, self.first * 2.0 ** min(attempt - 1, 30))
        return full * (1 - self.jitter * random.random())


def retry(
    action: Callable[[], T],
    *,
    status: QueryStatus,
    description: str,
    policy: RetryPolicy,
    transient: Callable[[Exception], str | None],
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """Return what the action returns; try again after transient errors, for which `transient` returns the reason.

    Errors for which `transient` returns None are raised at once. When the policy's time is over, the error is a
    ConnectorError; when the query is to end, it is Drained. Meanwhile `status` shows that the query waits for `description`.
    A server that says when to come back is not asked before, unless the policy ends earlier.
    """
    began, attempt = clock(), 0
    while True:
        try:
            result = action()
        except Exception as error:
            reason = transient(error)
            if reason is None:
                raise
            attempt += 1
            spent = clock() - began
            if spent >= policy.seconds:
                raise ConnectorError(
                    f"{description}: {reason}; gave up after {attempt} attempts in {spent:.0f} s",
                    code="SINK_UNREACHABLE",
                    hint="start the query again when the server answers: it goes on where it was; "
                    'the option retry_for, such as "30 minutes", lets an epoch wait longer',
                    retryable=True,
                ) from error
            retry_after = error.seconds if isinstance(error, RetryAfter) else 0.0
            pause = min(max(policy.pause(attempt), retry_after), max(0.0, policy.seconds - spent))
            status.waiting(f"waiting for {description}: {reason} (attempt {attempt}, next in {pause:.1f} s)")
            if status.stopping.wait(pause):
                raise Drained from error
        else:
            if attempt:
                status.resumed()
            return result
