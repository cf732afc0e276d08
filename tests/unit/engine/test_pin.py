"""Files are dropped when nobody reads them."""

from __future__ import annotations

import threading

from penstock.engine.pin import Pins


def test_a_pin_keeps_the_files_and_does_not_wait() -> None:
    pins = Pins()
    with pins.pin(), pins.pin(), pins.unpinned(wait=False) as alone:
        assert not alone
    with pins.unpinned(wait=False) as alone:
        assert alone
        with pins.unpinned(wait=False) as second:
            assert not second


def test_who_waits_comes_before_readers_that_begin_later() -> None:
    pins, events = Pins(), []
    dropped, blocked = threading.Event(), threading.Event()

    def drop() -> None:
        with pins.unpinned():
            events.append("dropped")
        dropped.set()

    def read() -> None:
        blocked.set()
        with pins.pin():
            events.append("read")

    with pins.pin():
        dropper = threading.Thread(target=drop)
        dropper.start()
        while not pins._dropping:
            dropped.wait(0.001)
        reader = threading.Thread(target=read)
        reader.start()
        blocked.wait()
        assert events == []
    dropper.join()
    reader.join()
    assert events == ["dropped", "read"]
