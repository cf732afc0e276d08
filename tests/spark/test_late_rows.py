"""Rows that come after the watermark has passed them are kept with all their columns."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import penstock as ps

START = datetime(2026, 1, 1, 12)


class Input:
    """A folder that gets a file per batch, of rows at so many seconds after noon."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._files = 0

    def add(self, *seconds: float) -> None:
        """Write the next file."""
        lines = [
            json.dumps({"at": (START + timedelta(seconds=each)).isoformat() + "Z", "s": each, "k": "a"})
            for each in seconds
        ]
        draft = self.folder.parent / "draft"
        draft.write_text("\n".join(lines))
        when = time.time() - 1_000 + self._files  # Spark reads files in the order of their times
        os.utime(draft, (when, when))
        draft.rename(self.folder / f"{self._files:03d}.json")
        self._files += 1


def run(tmp_path: Path, stream: ps.Stream) -> ps.StreamingQuery:
    """Read what has come since the last run."""
    query = (
        stream.write_stream.output_mode("append")
        .trigger(ps.Trigger.available_now())
        .format("memory")
        .option("checkpoint.location", tmp_path / "ckpt")
        .start()
    )
    query.await_termination()
    return query


def late(tmp_path: Path) -> list[float]:
    place = tmp_path / "late"
    return sorted(row["s"] for row in pq.read_table(place).to_pylist()) if place.exists() else []


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


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_that_come_too_late_are_kept(session: ps.Session, tmp_path: Path, shape: str) -> None:
    given = Input(tmp_path / "in")
    given.add(1, 110)
    given.add(111)
    given.add(5, 59.999, 60, 70, 100, 100.001, 109)
    make, expected = SHAPES[shape]
    run(tmp_path, make(read(session, given)))
    assert late(tmp_path) == expected
    assert pq.read_table(tmp_path / "late").column_names == ["at", "s", "k"]


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


def test_where_nothing_can_be_late(session: ps.Session, tmp_path: Path) -> None:
    given = Input(tmp_path / "in")
    stream = read(session, given)
    wrong: list[Callable[[], Any]] = [
        lambda: stream.write_stream,
        lambda: stream.key_by("k").agg(n=F.count("*")),
        lambda: stream.sql("SELECT * FROM stream"),
        lambda: stream.join(session.spark.range(1), "s"),
        lambda: stream.join(stream, "k", within="5 seconds"),
        lambda: (
            session.stream(stream.drop_duplicates("s").df)
            .with_event_time("at")
            .side_output_late("late")
            .drop_duplicates("k")
        ),
    ]
    for each in wrong:
        with pytest.raises(ps.ConfigError) as caught:
            each()
        assert caught.value.code == "STREAM_LATE"
    with pytest.raises(ps.ConfigError) as caught:
        session.read_stream.json(given.folder, schema="at TIMESTAMP").side_output_late("late")
    assert caught.value.code == "STREAM_EVENT_TIME"
