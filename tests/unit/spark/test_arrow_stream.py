"""Batches on their way from Spark: which attempt counts, in which order, and where they wait."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark import arrow_stream
from penstock.spark.arrow_stream import BATCH, COMMIT, _Frame, _gathered, _in_order
from penstock.spark.boot import janino

SCHEMA = pa.schema([("n", pa.int64())])
NOTHING = pa.py_buffer(b"")


def batch(partition: int, attempt: int, *numbers: int) -> _Frame:
    rows = pa.record_batch([pa.array(numbers, pa.int64())], schema=SCHEMA)
    return _Frame(BATCH, partition, attempt, rows.serialize())


def commit(partition: int, attempt: int) -> _Frame:
    return _Frame(COMMIT, partition, attempt, NOTHING)


# The second partition is done first, and the first one's first task fails after it has sent something.
FRAMES = [
    batch(1, 11, 4, 5),
    batch(0, 10, 1),
    batch(1, 11, 6),
    commit(1, 11),
    batch(3, 14, 7),
    batch(0, 12, 1, 2),
    batch(0, 12, 3),
    commit(0, 12),
    commit(2, 13),
    commit(3, 14),
]


@pytest.mark.parametrize("limit", [0, 250, 1 << 20])
def test_rows_come_in_the_order_of_their_partitions_from_the_attempt_that_counts(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(arrow_stream, "SPOOLED_BYTES", limit)
    batches = [pa.ipc.read_record_batch(batch, SCHEMA) for batch in _in_order(iter(FRAMES))]
    assert [n for rows in batches for n in rows["n"].to_pylist()] == [1, 2, 3, 4, 5, 6, 7]


def test_a_partition_is_given_as_soon_as_it_counts() -> None:
    frames = iter(FRAMES)
    batches = _in_order(frames)
    assert pa.ipc.read_record_batch(next(batches), SCHEMA)["n"].to_pylist() == [1, 2]
    assert list(frames) == FRAMES[8:]


def test_what_was_not_counted_is_no_part_of_a_result() -> None:
    batches, attempts = _gathered(iter(FRAMES))
    assert attempts == {0: 12, 1: 11, 2: 13, 3: 14}
    assert len(batches[0, 12]) == 2
    assert (2, 13) not in batches


def test_a_query_that_comes_while_the_server_starts_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    first = threading.Event()

    def start(*_: object) -> object:
        started.append(object())
        first.set()
        time.sleep(0.2)
        return started[-1]

    monkeypatch.setattr(janino, "instance_for_tasks", start)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=threading.Event()))
    arrow_stream.prepare(spark)
    assert first.wait(10)
    assert arrow_stream.server(spark) is started[0]
    assert len(started) == 1
