from __future__ import annotations

import asyncio
from threading import Thread

from penstock.data.batch import DeltaBatch
from penstock.engine.watch import Watch


def _delta(number: int) -> DeltaBatch:
    return DeltaBatch.inserts([{"n": number}])


def test_changes_come_once_and_in_order() -> None:
    watch = Watch("v")
    for number in range(3):
        watch.publish(_delta(number))
    watch.close()
    assert [delta.to_pylist()[0]["n"] for delta in watch] == [0, 1, 2]
    assert watch.recv(timeout=0) is None


def test_a_reader_waits_for_the_next_change() -> None:
    watch = Watch("v")
    assert watch.recv(timeout=0.01) is None
    Thread(target=watch.publish, args=(_delta(7),)).start()
    received = watch.recv(timeout=10)
    assert received is not None
    assert received.to_pylist()[0]["n"] == 7


def test_a_slow_reader_loses_nothing() -> None:
    watch = Watch("v", bound=2)
    for number in range(5):
        watch.publish(_delta(number % 2))
    watch.publish(DeltaBatch.deletes([{"n": 0}]))
    watch.close()
    received = list(watch)
    assert len(received) <= 2
    total = received[0]
    for delta in received[1:]:
        total = total + delta
    assert sorted((row["n"], row["_weight"]) for row in total.consolidate().to_pylist()) == [(0, 2), (1, 2)]


def test_it_can_be_awaited_and_closed() -> None:
    closed: list[Watch] = []
    watch = Watch("v", on_close=closed.append)

    async def read() -> list[DeltaBatch]:
        return [delta async for delta in watch]

    watch.publish(_delta(1))
    watch.close()
    watch.close()
    assert len(asyncio.run(read())) == 1
    assert closed == [watch]
