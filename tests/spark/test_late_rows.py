"""Rows that come after the watermark has passed them are kept with all their columns."""

from __future__ import annotations

import json
import os
import random
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer
from pyspark.sql import functions as F

import penstock as ps
from penstock.spark import catalogs
from servers.kafka import Broker
from waiting import wait_for

START = datetime(2026, 1, 1, 12)


class Input:
    """A folder that gets a file per batch, of rows at so many seconds after noon."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._files = 0

    def add(self, *seconds: float, keys: Mapping[float, str | None] = MappingProxyType({})) -> None:
        """Write the next file; the key is "a" where nothing else is said."""
        lines = [
            json.dumps(
                {
                    "at": (START + timedelta(seconds=each)).isoformat() + "Z",
                    "s": each,
                    "k": keys.get(each, "a"),
                }
            )
            for each in seconds
        ]
        draft = self.folder.parent / "draft"
        draft.write_text("\n".join(lines))
        when = time.time() - 1_000 + self._files  # Spark reads files in the order of their times
        os.utime(draft, (when, when))
        draft.rename(self.folder / f"{self._files:03d}.json")
        self._files += 1


def start(tmp_path: Path, stream: ps.Stream) -> ps.StreamingQuery:
    """Begin to read what has come since the last run."""
    return (
        stream.write_stream.output_mode("append")
        .trigger(ps.Trigger.available_now())
        .format("memory")
        .option("checkpoint.location", tmp_path / "ckpt")
        .start()
    )


def run(tmp_path: Path, stream: ps.Stream) -> ps.StreamingQuery:
    """Read what has come since the last run."""
    query = start(tmp_path, stream)
    query.await_termination()
    return query


def late(tmp_path: Path, name: str = "late") -> list[float]:
    place = tmp_path / name
    return (
        sorted(row["s"] for row in pq.read_table(place).to_pylist()) if any(place.glob("*.parquet")) else []
    )


def read(session: ps.Session, given: Input) -> ps.Stream:
    return (
        session.read_stream.json(
            given.folder, schema="at TIMESTAMP, s DOUBLE, k STRING", maxFilesPerTrigger=1
        )
        .with_event_time("at")
        .with_watermark("10 seconds")
        .side_output_late(given.folder.parent / "late")
    )


def count(stream: ps.Stream) -> ps.Stream:
    return stream.agg(n=F.count("*"))


# The watermark is 100 s after noon when the third file comes.
SHAPES: dict[str, tuple[Callable[[ps.Stream], ps.Stream], list[float]]] = {
    "tumbling": (lambda stream: count(stream.tumbling_window(60_000)), [5, 59.999]),
    # Windows end at 60, 90 and 120 s: a row at 59.999 is in those that end at 60 and 90.
    "sliding": (lambda stream: count(stream.sliding_window(60_000, 30_000)), [5, 59.999]),
    "session": (lambda stream: count(stream.key_by("k").session_window(30_000)), [5, 59.999, 60, 70]),
    "key": (lambda stream: count(stream.key_by("at", "k")), [5, 59.999, 60, 70, 100]),
    "duplicates": (lambda stream: stream.drop_duplicates("s", within="10 seconds"), [5, 59.999, 60, 70, 100]),
}


def test_rows_that_come_too_late_are_kept(session: ps.Session, tmp_path: Path) -> None:
    queries = []
    for shape, (make, _) in SHAPES.items():  # side by side: each waits for Spark most of the time
        folder = tmp_path / shape
        folder.mkdir()
        given = Input(folder / "in")
        given.add(1, 110)
        given.add(111)
        given.add(5, 59.999, 60, 70, 100, 100.001, 109)
        queries.append(start(folder, make(read(session, given))))
    for query in queries:
        query.await_termination()
    assert {shape: late(tmp_path / shape) for shape in SHAPES} == {
        shape: expected for shape, (_, expected) in SHAPES.items()
    }
    for shape in SHAPES:
        assert pq.read_table(tmp_path / shape / "late").column_names == ["at", "s", "k"]


class Pair:
    """Two inputs that are joined, each with a place for late rows, and the progress of every epoch."""

    def __init__(self, session: ps.Session, folder: Path) -> None:
        self.session = session
        self.folder = folder
        self.left, self.right = Input(folder / "left"), Input(folder / "right")
        self.counted: list[int] = []

    def read(self, given: Input) -> ps.Stream:
        return (
            self.session.read_stream.json(
                given.folder, schema="at TIMESTAMP, s DOUBLE, k STRING", maxFilesPerTrigger=1
            )
            .with_event_time("at")
            .with_watermark("10 seconds")
        )

    def watched(self, given: Input) -> ps.Stream:
        return self.read(given).side_output_late(self.folder / f"late_{given.folder.name}")

    def run(self, stream: ps.Stream) -> list[dict[str, Any]]:
        return self.start(stream)()

    def start(self, stream: ps.Stream) -> Callable[[], list[dict[str, Any]]]:
        """Start a query, and return what waits for its end and returns its rows; others may run beside it."""
        counted: list[tuple[str, int]] = []
        ended: set[str] = set()

        class Listener(ps.StreamingQueryListener):
            def on_query_progress(self, event: Any) -> None:
                counted.append((event.query_id, event.progress.late_rows))

            def on_query_terminated(self, event: Any) -> None:
                ended.add(event.query_id)

        listener = Listener()
        manager = ps.StreamingQueryManager(self.session)
        manager.add_listener(listener)
        query = start(self.folder, stream)

        def rows() -> list[dict[str, Any]]:
            try:
                query.await_termination()
                wait_for(lambda: query.id in ended, "the end of the query")
            finally:
                manager.remove_listener(listener)
            assert query.exception() is None
            self.counted += [late_rows for query_id, late_rows in counted if query_id == query.id]
            return [row for batch in query.memory_batches() for row in batch.to_pylist()]

        return rows

    def late(self) -> tuple[list[float], list[float]]:
        return late(self.folder, "late_left"), late(self.folder, "late_right")


def _renamed(stream: ps.Stream) -> ps.Stream:
    return stream.with_column("other", F.col("s"))


JOINS: dict[str, tuple[Callable[[Pair], ps.Stream], list[float], list[float]]] = {
    "inner": (
        lambda pair: (
            pair.watched(pair.left).join(pair.watched(pair.right), "k", within="20 seconds").select("k")
        ),
        [5, 60, 100],
        [6, 61],
    ),
    # An inner join leaves out rows without a key before it looks at their times; a full one has them.
    "full": (
        lambda pair: (
            pair.watched(pair.left)
            .join(pair.watched(pair.right), "k", "full", within="20 seconds")
            .select("k")
        ),
        [5, 50, 60, 100],
        [6, 61],
    ),
    "only the left": (
        lambda pair: (
            pair.watched(pair.left).join(pair.read(pair.right), "k", "left", within="20 seconds").select("k")
        ),
        [5, 50, 60, 100],
        [],
    ),
    "only the right, semi": (
        lambda pair: (
            pair.read(pair.left)
            .join(pair.watched(pair.right), "k", "left_semi", within="20 seconds")
            .select("k")
        ),
        [],
        [6, 61],
    ),
    "the time is a key": (
        lambda pair: pair.watched(pair.left).join(pair.watched(pair.right), ["at", "k"]).select("k"),
        [5, 60, 100],
        [6, 61],
    ),
    # Spark does not give the time to a join that has no use for it: nothing is dropped.
    "no time": (
        lambda pair: pair.watched(pair.left).join(pair.watched(pair.right), "k").select("k"),
        [],
        [],
    ),
    # Spark applies such a condition before the join.
    "a condition behind the join": (
        lambda pair: (
            _renamed(pair.watched(pair.left))
            .join(pair.watched(pair.right), "k", within="20 seconds")
            .where("other >= 60")
            .select("k")
        ),
        [60, 100],
        [6, 61],
    ),
    "duplicates behind the join": (
        lambda pair: (
            _renamed(pair.watched(pair.left))
            .join(pair.watched(pair.right), "k", within="20 seconds")
            .drop_duplicates(["k", "other"])
            .select("k")
        ),
        [5, 60, 100],
        [6, 61],
    ),
    # The duplicates come first, and drop the late rows of the left.
    "duplicates before the join": (
        lambda pair: (
            pair.watched(pair.left)
            .drop_duplicates(["k", "s"], within="10 seconds")
            .with_event_time("at")
            .side_output_late(pair.folder / "late_again")
            .join(pair.watched(pair.right), "k", within="20 seconds")
            .select("k")
        ),
        [5, 50, 60, 100],
        [6, 61],
    ),
}


@pytest.mark.timeout(600)
def test_rows_that_come_too_late_for_a_join_are_kept(session: ps.Session, tmp_path: Path) -> None:
    pairs, ends = {}, []
    for shape, (build, _, _) in JOINS.items():
        folder = tmp_path / shape
        folder.mkdir()
        pair = pairs[shape] = Pair(session, folder)
        for given in (pair.left, pair.right):
            given.add(1, 110)
            given.add(111)
        pair.left.add(5, 60, 100.001, 109, 50, 100, keys={50: None, 100: "b"})
        pair.right.add(6, 61, 103)
        ends.append(pair.start(build(pair)))
    for end in ends:
        end()
    # What is late on the other side is counted only.
    one_sided = {"only the left": 2, "only the right, semi": 3}
    for shape, (_, left, right) in JOINS.items():
        assert pairs[shape].late() == (left, right), shape
        assert late(pairs[shape].folder, "late_again") == [], shape
        assert sum(pairs[shape].counted) == len(left) + len(right) + one_sided.get(shape, 0), shape


def test_every_row_is_joined_or_late(session: ps.Session, tmp_path: Path) -> None:
    chance = random.Random(7)
    pair = Pair(session, tmp_path)
    given = {"left": set[float](), "right": set[float]()}
    for number in range(3):
        for side in (pair.left, pair.right):
            rows = {round(number * 10 + chance.uniform(-60, 60), 3) for _ in range(12)}
            side.add(*rows)
            given[side.folder.name] |= rows

    def joined() -> ps.Stream:
        left, right = pair.watched(pair.left), pair.watched(pair.right)
        both = left.join(right, "k", "full", within="1 second")
        return both.select(left.frame["s"].alias("left"), right.frame["s"].alias("right"))

    out = pair.run(joined())
    for side in (pair.left, pair.right):  # time passes, so that rows without a partner are given up
        side.add(10_000)
    out += pair.run(joined())
    late_rows = dict(zip(given, pair.late(), strict=True))
    for name, rows in given.items():
        came = [row[name] for row in out if row[name] is not None and row[name] < 10_000]
        assert late_rows[name]
        assert set(came) | set(late_rows[name]) == rows
        assert not set(came) & set(late_rows[name])
    assert sum(pair.counted) == sum(len(rows) for rows in late_rows.values())


def test_counts_and_epochs_that_come_again(session: ps.Session, tmp_path: Path) -> None:
    given = Input(tmp_path / "in")
    given.add(1, 110)
    given.add(111)

    def windows() -> ps.Stream:
        return count(read(session, given).tumbling_window(60_000))

    run(tmp_path, windows())
    assert late(tmp_path) == []
    given.add(5, 6, 112)
    query = run(tmp_path, windows())
    assert late(tmp_path) == [5, 6]
    commits = tmp_path / "ckpt" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for path in (commits / str(last), commits / f".{last}.crc"):
        path.unlink(missing_ok=True)
    query = run(tmp_path, windows())
    assert query.exception() is None
    assert late(tmp_path) == [5, 6]


def test_a_topic_takes_late_rows(session: ps.Session, kafka: Broker, tmp_path: Path) -> None:
    topic, other = kafka.new_topic(), kafka.new_topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

    def send(*seconds: int) -> None:
        for each in seconds:
            at = (START + timedelta(seconds=each)).isoformat() + "Z"
            producer.produce(topic, json.dumps({"at": at, "s": each}).encode())
        assert producer.flush(30) == 0

    def windows() -> ps.Stream:
        return count(
            session.read_stream.kafka(
                topic=topic,
                bootstrap_servers=kafka.bootstrap_servers,
                starting_offsets="earliest",
                schema="at TIMESTAMP, s INT",
            )
            .with_event_time("at")
            .with_watermark("10 seconds")
            .side_output_late(f"topic:{other}")
            .tumbling_window(60_000)
        )

    send(1, 110)
    run(tmp_path, windows())
    send(5, 112)
    run(tmp_path, windows())
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "late", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([other])
    message = consumer.poll(30)
    assert message is not None
    assert message.error() is None
    value = message.value()
    assert value is not None
    assert json.loads(value)["s"] == 5
    assert consumer.poll(1) is None
    consumer.close()


def test_a_table_takes_the_late_rows_of_both_sides(session: ps.Session, tmp_path: Path) -> None:
    lake = f"lake_{uuid.uuid4().hex[:8]}"
    for key, value in catalogs.conf_of(lake, {"type": "hadoop", "warehouse": str(tmp_path / "lake")}).items():
        session.spark.conf.set(key, value)
    session.spark.sql(f"CREATE NAMESPACE {lake}.db")
    pair = Pair(session, tmp_path)

    def joined() -> ps.Stream:
        left, right = (
            pair.read(each).side_output_late(f"{lake}.db.late") for each in (pair.left, pair.right)
        )
        return left.join(right, "k", within="20 seconds").select("k")

    pair.left.add(1, 110)
    pair.right.add(1, 110)
    pair.run(joined())
    pair.left.add(5, 112)
    pair.right.add(6, 113)
    pair.run(joined())
    assert sorted(row.s for row in session.spark.table(f"{lake}.db.late").collect()) == [5, 6]


def test_where_nothing_can_be_late(session: ps.Session, tmp_path: Path) -> None:
    given = Input(tmp_path / "in")
    stream = read(session, given)
    wrong: list[Callable[[], Any]] = [
        lambda: stream.write_stream,
        lambda: stream.key_by("k").agg(n=F.count("*")),
        lambda: stream.sql("SELECT * FROM stream"),
        lambda: stream.join(session.spark.range(1), "s"),
    ]
    for each in wrong:
        with pytest.raises(ps.ConfigError) as caught:
            each()
        assert caught.value.code == "STREAM_LATE"
    with pytest.raises(ps.ConfigError) as caught:
        session.read_stream.json(given.folder, schema="at TIMESTAMP").side_output_late("late")
    assert caught.value.code == "STREAM_EVENT_TIME"
