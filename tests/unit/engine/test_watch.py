from __future__ import annotations

import asyncio
import threading
from threading import Thread

import pytest

import penstock as ps
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


def test_coroutines_wait_without_threads() -> None:
    """More readers than an executor has threads: each gets every change as soon as it comes, and the end."""
    watches = [Watch("v") for _ in range(200)]
    read: list[int] = []

    async def reader(watch: Watch) -> None:
        read.extend([delta.to_pylist()[0]["n"] async for delta in watch])

    def publish() -> None:
        for number in range(3):
            for watch in watches:
                watch.publish(_delta(number))
        for watch in watches:
            watch.close()

    async def main() -> int:
        before = threading.active_count()
        tasks = [asyncio.create_task(reader(watch)) for watch in watches]
        await asyncio.sleep(0.05)
        during = threading.active_count() - before
        writer = Thread(target=publish)
        writer.start()
        await asyncio.wait_for(asyncio.gather(*tasks), 20)
        writer.join()
        return during

    assert asyncio.run(main()) == 0
    assert sorted(read) == sorted([0, 1, 2] * 200)


def test_a_coroutine_that_is_cancelled_leaves_the_watch_usable() -> None:
    watch = Watch("v")

    async def one() -> None:
        async for _ in watch:
            return

    async def main() -> None:
        task = asyncio.create_task(one())
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    watch.publish(_delta(1))
    received = watch.recv(timeout=0)
    assert received is not None


def test_an_error_comes_after_what_waits() -> None:
    watch = Watch("v")
    watch.publish(_delta(1))
    watch.fail(ValueError("lost"))
    assert watch.closed
    assert watch.recv(timeout=0) is not None
    with pytest.raises(ValueError, match="lost"):
        watch.recv(timeout=0)


def test_it_is_a_public_name() -> None:
    assert ps.Watch is Watch
    assert "Watch" in ps.__all__
