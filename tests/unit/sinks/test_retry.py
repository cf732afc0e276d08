"""Waiting for servers: what is tried again, for how long, and who may end it."""

from __future__ import annotations

import threading
import time

import pytest

from penstock.errors import ConnectorError
from penstock.sinks.base import QueryStatus
from penstock.sinks.retry import RetryAfter, RetryPolicy, retry
from penstock.spark.micro_batch.query_run import Drained

QUICK = RetryPolicy(seconds=5, first=0.001, longest=0.01)


def _away(error: Exception) -> str | None:
    return str(error) if isinstance(error, OSError) else None


def test_errors_that_pass_are_tried_again() -> None:
    status, seen = QueryStatus(), []

    def action() -> int:
        seen.append(status.message)
        if len(seen) < 4:
            raise OSError("refused")
        return 7

    assert retry(action, status=status, description="blackhole", policy=QUICK, transient=_away) == 7
    assert status.retries == 3
    assert status.message is None
    assert seen[0] is None
    assert str(seen[3]).startswith("waiting for blackhole: refused (attempt 3, next in ")


def test_other_errors_go_through_at_once() -> None:
    status = QueryStatus()
    with pytest.raises(ZeroDivisionError):
        retry(lambda: 1 // 0, status=status, description="blackhole", policy=QUICK, transient=_away)
    assert status.retries == 0


class Clock(threading.Event):
    """A clock that moves only while somebody waits."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.seconds += timeout
        return False


def test_the_policy_ends() -> None:
    def action() -> None:
        raise OSError("refused")

    status = QueryStatus()
    status.stopping = clock = Clock()
    with pytest.raises(
        ConnectorError, match=r"blackhole: refused; gave up after \d+ attempts in 60 s"
    ) as ended:
        retry(
            action,
            status=status,
            description="blackhole",
            policy=RetryPolicy(60, 0.1, 10),
            transient=_away,
            clock=clock,
        )
    assert clock.seconds == pytest.approx(60)
    assert ended.value.retryable
    assert isinstance(ended.value.__cause__, OSError)


def test_a_server_that_says_when_to_come_back_is_not_asked_before() -> None:
    status, moments = QueryStatus(), list[float]()
    status.stopping = clock = Clock()

    def action() -> None:
        moments.append(clock.seconds)
        raise RetryAfter("busy", seconds=25)

    with pytest.raises(ConnectorError, match="busy"):
        retry(
            action,
            status=status,
            description="hook",
            policy=RetryPolicy(60, 0.1, 10),
            transient=str,
            clock=clock,
        )
    assert moments == [0, 25, 50, 60]


def test_a_query_that_is_to_end_does_not_wait() -> None:
    status = QueryStatus()

    def action() -> None:
        raise OSError("refused")

    def stop_when_it_waits() -> None:
        while status.message is None:
            time.sleep(0.001)
        status.stopping.set()

    threading.Thread(target=stop_when_it_waits, daemon=True).start()
    with pytest.raises(Drained):
        retry(action, status=status, description="blackhole", policy=RetryPolicy(60, 30, 30), transient=_away)
    assert status.retries == 1


def test_pauses_grow_and_differ() -> None:
    pauses = [RetryPolicy().pause(attempt) for attempt in range(1, 30)]
    assert all(pause <= 10 for pause in pauses)
    assert 0.05 <= pauses[0] <= 0.1
    assert all(pause >= 5 for pause in pauses[8:])
    assert len(set(pauses[8:])) > 1
    assert RetryPolicy(seconds=1).at_start().seconds == 1
    assert RetryPolicy(seconds=3600).at_start().seconds == 15
