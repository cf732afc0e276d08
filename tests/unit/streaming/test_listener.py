"""Listeners: a thread each, so that none disturbs a query or another listener."""

from __future__ import annotations

import logging
import threading

import pytest

from penstock.errors import DataError
from penstock.streaming import listener as listening
from penstock.streaming.listener import (
    Dispatcher,
    QueryEvent,
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from penstock.streaming.progress import QueryProgress

PROGRESS = QueryProgress("once", 0, 1, 1, 5, "2026-01-01T00:00:00.000Z")


class Recorder(StreamingQueryListener):
    def __init__(self) -> None:
        self.heard: list[QueryEvent] = []

    def on_query_started(self, event: QueryStartedEvent) -> None:
        self.heard.append(event)

    def on_query_progress(self, event: QueryProgressEvent) -> None:
        self.heard.append(event)

    def on_query_idle(self, event: QueryIdleEvent) -> None:
        self.heard.append(event)

    def on_query_terminated(self, event: QueryTerminatedEvent) -> None:
        self.heard.append(event)


def test_events_arrive_in_order() -> None:
    dispatcher, recorder = Dispatcher(), Recorder()
    dispatcher.add(recorder)
    dispatcher.add(recorder)
    events = [
        QueryStartedEvent("1", "q"),
        QueryProgressEvent("1", "q", PROGRESS),
        QueryIdleEvent("1", "q"),
        QueryTerminatedEvent("1", "q", DataError("bad"), PROGRESS),
    ]
    for event in events:
        dispatcher.publish(event)
    dispatcher.close()
    assert recorder.heard == events


def test_a_listener_that_raises_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Recorder):
        def on_query_started(self, event: QueryStartedEvent) -> None:
            raise ValueError("no")

    dispatcher, failing, other = Dispatcher(), Failing(), Recorder()
    dispatcher.add(failing)
    dispatcher.add(other)
    with caplog.at_level(logging.ERROR, "penstock.streaming"):
        dispatcher.publish(QueryStartedEvent("1", "q"))
        dispatcher.publish(QueryIdleEvent("1", "q"))
        deliveries = dict(dispatcher._deliveries)
        dispatcher.close()
    assert deliveries[failing].failures == 1
    assert failing.heard == [QueryIdleEvent("1", "q")]
    assert len(other.heard) == 2
    assert "Failing raised on QueryStartedEvent" in caplog.text


def test_a_slow_listener_misses_progress_but_never_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "QUEUE_LENGTH", 3)
    busy = threading.Event()

    class Slow(Recorder):
        def on_query_started(self, event: QueryStartedEvent) -> None:
            busy.wait(30)

    dispatcher, slow = Dispatcher(), Slow()
    dispatcher.add(slow)
    dispatcher.publish(QueryStartedEvent("1", "q"))
    for _ in range(20):
        dispatcher.publish(QueryProgressEvent("1", "q", PROGRESS))
    dispatcher.publish(QueryTerminatedEvent("1", "q", None, None))
    dropped = dispatcher.dropped(slow)
    busy.set()
    dispatcher.close()
    assert dropped >= 16
    assert slow.heard[-1] == QueryTerminatedEvent("1", "q", None, None)


def test_a_removed_listener_hears_nothing_more() -> None:
    dispatcher, recorder = Dispatcher(), Recorder()
    dispatcher.add(recorder)
    dispatcher.remove(recorder)
    dispatcher.publish(QueryIdleEvent("1", "q"))
    dispatcher.close()
    assert recorder.heard == []
    assert dispatcher.failures(recorder) == 0
