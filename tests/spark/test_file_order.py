"""Rows of several files in one batch come in the order in which the files were written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import penstock as ps


def _write(path: Path, rows: list[dict[str, object]], *, at: int) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(path, (at, at))


def test_rows_come_by_time_then_by_path_whatever_the_sizes(session: ps.Session, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    sizes = {"z": (1, 3), "b": (2, 400), "c": (2, 1), "a": (3, 50), "d": (4, 2000)}
    for name, (at, count) in sizes.items():
        rows: list[dict[str, object]] = [{"file": name, "n": n} for n in range(count)]
        _write(folder / f"{name}.json", rows, at=1_700_000_000 + at)
    stream = session.read_stream.json(folder, schema="file STRING, n INT")
    query = stream.write_stream.trigger(ps.Trigger.available_now()).format("memory").start("file_order")
    query.await_termination()
    read = [(row["file"], row["n"]) for batch in query.memory_batches() for row in batch.to_pylist()]
    assert read == [(name, n) for name, (_, count) in sizes.items() for n in range(count)]
