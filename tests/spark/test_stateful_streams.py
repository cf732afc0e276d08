"""Streams that remember: over several batches, and after a restart from the checkpoint."""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import penstock as ps

SCHEMA = "id BIGINT, k STRING, ts TIMESTAMP"


def _at(seconds: int) -> str:
    return f"2024-01-01T00:{seconds // 60:02d}:{seconds % 60:02d}Z"


@dataclass
class Course:
    """A query that is run again and again from one checkpoint, over files that are added in between."""

    session: ps.Session
    folder: Path
    build: Callable[[Callable[..., ps.Stream]], ps.Stream]
    mode: str = "append"
    schemas: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, *rows: dict[str, Any]) -> None:
        """One file, which is one batch."""
        place = self.folder / name
        place.mkdir(exist_ok=True)
        temporary = self.folder / f"{uuid.uuid4().hex}.json"
        temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))
        number = len(list(place.iterdir()))
        # Spark takes the oldest file first, and two of one millisecond in any order.
        made = time.time() - 1_000 + number
        os.utime(temporary, (made, made))
        temporary.rename(place / f"{number:04d}.json")

    def run(self, **options: Any) -> list[tuple[Any, ...]]:
        """All that is there, file by file; the rows that came out of it."""
        query = self.query(**options)
        rows = [tuple(row.values()) for batch in query.memory_batches() for row in batch.to_pylist()]
        return sorted(rows, key=str)

    def query(self, **options: Any) -> ps.StreamingQuery:
        """A query over all that is there, which has ended."""
        query = (
            self.build(self._stream)
            .write_stream.output_mode(self.mode)
            .trigger(ps.Trigger.available_now())
            .format("memory")
            .options(**{"checkpoint.location": self.folder / "ckpt", **options})
            .start()
        )
        query.await_termination()
        return query

    def _stream(self, name: str = "in", schema: str = SCHEMA) -> ps.Stream:
        (self.folder / name).mkdir(exist_ok=True)
        return self.session.read_stream.json(self.folder / name, schema=schema, maxFilesPerTrigger=1)


def _row(number: int, key: str, seconds: int) -> dict[str, Any]:
    return {"id": number, "k": key, "ts": _at(seconds)}


@pytest.mark.smoke
def test_session_windows_close_when_the_watermark_passes(session: ps.Session, tmp_path: Path) -> None:
    course = Course(
        session,
        tmp_path,
        lambda stream: (
            stream()
            .with_event_time("ts")
            .with_watermark("5 seconds")
            .session_window("10 seconds")
            .key_by("k")
            .agg(n=F.count("*"), first=F.min("id"))
            .select("k", "n", "first", F.unix_timestamp("window_end") % 1000)
        ),
    )
    course.add("in", _row(1, "a", 0), _row(2, "b", 3))
    course.add("in", _row(3, "a", 8))  # the same session, in another batch
    assert course.run() == []
    course.add("in", _row(4, "a", 15))  # the same session, after a restart
    course.add("in", _row(5, "c", 45))
    end = 1704067200 % 1000
    assert course.run() == [("a", 3, 1, end + 25), ("b", 1, 2, end + 13)]
    course.add("in", _row(6, "a", 20))  # too late: its window is closed
    course.add("in", _row(7, "d", 100))
    assert course.run() == [("c", 1, 5, end + 55)]


def test_duplicates_are_dropped_across_batches_and_restarts(session: ps.Session, tmp_path: Path) -> None:
    course = Course(
        session,
        tmp_path,
        lambda stream: (
            stream().with_event_time("ts").drop_duplicates("k", within="10 seconds").select("id", "k")
        ),
    )
    course.add("in", _row(1, "a", 0), _row(2, "a", 1), _row(3, "b", 2))
    course.add("in", _row(4, "a", 5))
    assert [row[1] for row in course.run()] == ["a", "b"]
    course.add("in", _row(5, "b", 6), _row(6, "c", 7))
    assert course.run() == [(6, "c")]
    course.add("in", _row(7, "d", 60))
    assert course.run() == [(7, "d")]
    course.add("in", _row(8, "a", 61))  # the watermark has passed: what was remembered of it is gone
    assert course.run() == [(8, "a")]


JOINED = {"left": "id BIGINT, k STRING, ts TIMESTAMP", "right": "other BIGINT, k STRING, at TIMESTAMP"}


def _join(how: str) -> Callable[[Callable[..., ps.Stream]], ps.Stream]:
    def build(stream: Callable[..., ps.Stream]) -> ps.Stream:
        left = stream("left", JOINED["left"]).with_event_time("ts").with_watermark("1 second")
        right = stream("right", JOINED["right"]).with_event_time("at").with_watermark("1 second")
        names = ("id", "k") if how == "left_semi" else ("id", "k", "other")
        return left.join(right, "k", how, within="5 seconds").select(*names)

    return build


def _other(number: int, key: str, seconds: int) -> dict[str, Any]:
    return {"other": number, "k": key, "at": _at(seconds)}


@pytest.mark.parametrize(
    ("how", "at_once", "late"),
    [
        ("inner", [(1, "a", 10)], []),
        ("left", [(1, "a", 10)], [(2, "b", None)]),
        ("right", [(1, "a", 10)], [(None, "c", 12)]),
        ("full", [(1, "a", 10)], [(2, "b", None), (None, "c", 12)]),
        ("left_semi", [(1, "a")], []),
    ],
)
def test_streams_are_joined_within_an_interval(
    session: ps.Session, tmp_path: Path, how: str, at_once: list[Any], late: list[Any]
) -> None:
    course = Course(session, tmp_path, _join(how))
    course.add("left", _row(1, "a", 10), _row(2, "b", 10))
    course.add("right", _other(11, "b", 16))  # six seconds later: too far apart
    first = course.run()
    course.add("right", _other(10, "a", 12), _other(12, "c", 12))  # the other half comes after a restart
    course.add("left", _row(3, "z", 10))
    found = first + course.run()
    # Time passes in both streams, so that what has found no partner can be given up.
    for step in range(2):
        course.add("left", _row(90 + step, "x", 200 + step))
        course.add("right", _other(90 + step, "y", 200 + step))
    found += course.run()
    known = [row for row in found if row[1] in ("a", "b", "c") and 11 not in row]
    assert sorted(known, key=str) == sorted(at_once + late, key=str)


def test_a_stream_is_joined_with_a_table(session: ps.Session, spark: SparkSession, tmp_path: Path) -> None:
    names = spark.createDataFrame([("a", "Ann"), ("b", "Bob")], "k STRING, name STRING")

    def run(how: str) -> list[list[tuple[Any, ...]]]:
        folder = tmp_path / how
        folder.mkdir()
        course = Course(
            session, folder, lambda stream: stream().join(names, "k", how).select("id", "k", "name")
        )
        course.add("in", _row(1, "a", 0), _row(2, "c", 0))
        first = course.run()
        course.add("in", _row(3, "b", 0))
        return [first, course.run()]

    assert run("inner") == [[(1, "a", "Ann")], [(3, "b", "Bob")]]
    assert run("left") == [[(1, "a", "Ann"), (2, "c", None)], [(3, "b", "Bob")]]


class Totals(StatefulProcessor):
    """Counts the rows of a key, and forgets a key a while after its last row."""

    def __init__(self, ttl_ms: int | None = None) -> None:
        self._ttl = ttl_ms

    def init(self, handle: Any) -> None:
        self._count = handle.getValueState("count", "n BIGINT", self._ttl)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        from pyspark.sql import Row

        seen = self._count.get()
        total = (seen[0] if seen else 0) + sum(1 for _ in rows)
        self._count.update((total,))
        yield Row(k=key[0], n=total)

    def close(self) -> None:
        pass


class Quiet(StatefulProcessor):
    """Tells of a key that was quiet for ten seconds of event time."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._last = handle.getValueState("last", "at BIGINT")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        latest = max(int(row.ts.timestamp() * 1000) for row in rows)
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        self._last.update((latest,))
        self._handle.registerTimer(latest + 10_000)
        yield from ()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, N803
        from pyspark.sql import Row

        last = self._last.get()
        self._last.clear()
        yield Row(k=key[0], n=last[0] // 1000 % 1000)

    def close(self) -> None:
        pass


class Last(StatefulProcessor):
    """Counts the rows of a key, and keeps its last id too when the schema of its state has a field for it."""

    def __init__(self, schema: str, *, lists: bool = False) -> None:
        self._schema = schema
        self._lists = lists

    def init(self, handle: Any) -> None:
        self._seen = handle.getValueState("seen", self._schema)
        self._ids = handle.getListState("ids", "id BIGINT") if self._lists else None

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        from pyspark.sql import Row

        names = [field.split()[0] for field in self._schema.split(", ")]
        seen = dict(zip(names, self._seen.get() or (), strict=False))
        ids = [row.id for row in rows]
        now = {"n": int(seen.get("n") or 0) + len(ids), "last": f"after {seen.get('last')}: {ids[-1]}"}
        self._seen.update(tuple(now[name] for name in names))
        if self._ids is not None:
            self._ids.appendList([(each,) for each in ids])
        yield Row(k=key[0], n=now["n"], last=now["last"] if "last" in names else None)

    def close(self) -> None:
        pass


@pytest.fixture
def by_value() -> Any:
    """Tasks cannot import this file: its classes travel with their code."""
    import sys

    from pyspark import cloudpickle

    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


def test_state_of_ones_own_goes_on_after_a_restart(
    session: ps.Session, tmp_path: Path, by_value: None
) -> None:
    course = Course(
        session,
        tmp_path,
        lambda stream: (
            stream().key_by("k").transform_with_state(Totals(), "k STRING, n BIGINT", output_mode="update")
        ),
        mode="update",
    )
    course.add("in", _row(1, "a", 0), _row(2, "a", 0), _row(3, "b", 0))
    course.add("in", _row(4, "a", 0))
    assert course.run() == [("a", 2), ("a", 3), ("b", 1)]
    course.add("in", _row(5, "a", 0), _row(6, "c", 0))
    assert course.run() == [("a", 4), ("c", 1)]


def test_state_with_a_time_to_live_is_forgotten(session: ps.Session, tmp_path: Path, by_value: None) -> None:
    ttl_ms = 2_000
    course = Course(
        session,
        tmp_path,
        lambda stream: (
            stream()
            .key_by("k")
            .transform_with_state(
                Totals(ttl_ms=ttl_ms), "k STRING, n BIGINT", output_mode="update", time_mode="processing_time"
            )
        ),
        mode="update",
    )
    course.add("in", _row(1, "a", 0))
    assert course.run() == [("a", 1)]
    # The state's time began before the run ended: a slow machine can only make it end sooner.
    time.sleep(ttl_ms / 1000 + 0.1)
    course.add("in", _row(2, "a", 0))
    assert course.run() == [("a", 1)]


def test_timers_of_event_time(session: ps.Session, tmp_path: Path, by_value: None) -> None:
    course = Course(
        session,
        tmp_path,
        lambda stream: (
            stream()
            .with_event_time("ts")
            .with_watermark("0 seconds")
            .key_by("k")
            .transform_with_state(Quiet(), "k STRING, n BIGINT", time_mode="event_time")
        ),
    )
    course.add("in", _row(1, "a", 0), _row(2, "b", 3))
    course.add("in", _row(3, "a", 8))
    assert course.run() == []
    course.add("in", _row(4, "c", 14))  # b was quiet for more than ten seconds, a was not
    start = 1704067200 % 1000
    assert course.run() == [("b", start + 3)]
    course.add("in", _row(5, "c", 40))
    assert course.run() == [("a", start + 8)]


class Evolution:
    """One checkpoint and a processor that changes from run to run."""

    def __init__(self, session: ps.Session, folder: Path) -> None:
        self.processor = Last("n INT")
        self.key = "k"
        self.course = Course(
            session,
            folder,
            lambda stream: (
                stream()
                .key_by(self.key)
                .transform_with_state(self.processor, "k STRING, n BIGINT, last STRING", output_mode="update")
            ),
            mode="update",
        )
        self.course.add("in", _row(1, "a", 0), _row(2, "a", 0))
        assert self.course.run() == [("a", 2, None)]


def test_the_state_of_a_processor_gets_other_fields(
    session: ps.Session, tmp_path: Path, by_value: None
) -> None:
    made = Evolution(session, tmp_path)
    course = made.course

    def kept(variable: str, *columns: str) -> list[tuple[Any, ...]]:
        rows = session.state(tmp_path / "ckpt", variable=variable).select(*columns).collect()
        return sorted(tuple(row) for row in rows)

    made.processor = Last("n BIGINT, last STRING")
    course.add("in", _row(3, "a", 0))
    assert course.run() == [("a", 3, "after None: 3")]
    assert kept("seen", "key.k", "value.n", "value.last") == [("a", 3, "after None: 3")]
    made.processor = Last("last STRING, n BIGINT", lists=True)
    course.add("in", _row(4, "a", 0), _row(5, "b", 0))
    assert course.run() == [("a", 4, "after after None: 3: 4"), ("b", 1, "after None: 5")]
    assert kept("ids", "key.k", "list_element.id") == [("a", 4), ("b", 5)]
    made.processor = Last("n BIGINT")
    course.add("in", _row(6, "a", 0))
    assert course.run() == [("a", 5, None)]
    assert [row.value.n for row in session.state(tmp_path / "ckpt").where("key.k = 'a'").collect()] == [5]


def test_state_that_cannot_change_so_is_refused(session: ps.Session, tmp_path: Path, by_value: None) -> None:
    made = Evolution(session, tmp_path)
    made.processor = Last("n STRING")
    made.course.add("in", _row(3, "a", 0))
    with pytest.raises(ps.StateError) as caught:
        made.course.run()
    assert caught.value.code == "STREAM_STATE_SCHEMA"
    assert "n STRING instead of n INT" in str(caught.value)
    made.key = "id"
    with pytest.raises(ps.StateError, match="a processor by id BIGINT now and had a processor by k STRING"):
        made.course.run()
    made.processor, made.key = Last("n INT"), "k"  # nothing was lost
    assert made.course.run() == [("a", 3, None)]


def test_which_variable_of_a_processor(session: ps.Session, tmp_path: Path, by_value: None) -> None:
    made = Evolution(session, tmp_path)
    with pytest.raises(ps.ConfigError, match="keeps no variable 'sen'") as caught:
        session.state(tmp_path / "ckpt", variable="sen")
    assert "did you mean 'seen'" in str(caught.value)
    with pytest.raises(ps.ConfigError, match="no operator 3") as caught:
        session.state(tmp_path / "ckpt", 3)
    assert caught.value.code == "STREAM_STATE_OPERATOR"
    with pytest.raises(ps.StateError, match="no query has kept anything here") as missing:
        session.state(tmp_path / "chkpt")
    assert missing.value.code == "STREAM_STATE_MISSING"
    made.processor = Last("n INT", lists=True)
    made.course.add("in", _row(3, "a", 0))
    made.course.run()
    with pytest.raises(ps.ConfigError, match="keeps several variables: ids, seen"):
        session.state(tmp_path / "ckpt")


def test_a_savepoint_of_a_processor_needs_the_first_checkpoint_no_more(
    session: ps.Session, tmp_path: Path, by_value: None
) -> None:
    made = Evolution(session, tmp_path)
    saved = tmp_path / "saved"
    made.course.query().savepoint(saved)
    shutil.rmtree(tmp_path / "ckpt")
    # A start that was killed while it copied the savepoint: some of it is there, and what is there is begun again.
    shutil.copytree(saved / "offsets", tmp_path / "ckpt" / "offsets")
    (tmp_path / "ckpt" / "_penstock_copying").write_text(str(saved))
    made.processor = Last("n BIGINT, last STRING")
    made.course.add("in", _row(3, "a", 0))
    assert made.course.run(savepoint=saved) == [("a", 3, "after None: 3")]
