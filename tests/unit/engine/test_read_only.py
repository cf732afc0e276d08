"""A flow directory that somebody else has open, looked at without a lock."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.engine import replay
from penstock.engine.directory import FlowDirectory
from penstock.engine.graph import Graph


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "flow"


def opened(path: Path, **options: int) -> ps.IncrementalFlow:
    flow = ps.IncrementalFlow(path=path, **options)
    flow.register_source("orders", "id BIGINT, amount BIGINT", primary_key="id", dedup=True)
    return flow


def ids(flow: ps.IncrementalFlow) -> list[int]:
    return sorted(row["id"] for row in flow.snapshot("orders").to_pylist())


def test_the_ticks_that_have_returned_are_there(path: Path) -> None:
    with opened(path) as writer:
        writer.tick("orders", [{"id": 1, "amount": 5}])
        with ps.IncrementalFlow.read(path) as reader:
            writer.tick("orders", [{"id": 2, "amount": 7}])
            assert ids(reader) == [1]
        with ps.IncrementalFlow.read(path) as reader:
            assert ids(reader) == [1, 2]
            (source,) = reader.sources()
            assert (source.rows, source.primary_key, source.options) == (2, ("id",), {"dedup": True})
        writer.tick("orders", [{"id": 3, "amount": 9}])
    with ps.IncrementalFlow(path=path) as again:
        assert ids(again) == [1, 2, 3]


def test_it_takes_no_ticks_and_changes_no_file(path: Path) -> None:
    with opened(path) as writer:
        writer.tick("orders", [{"id": 1, "amount": 5}])
    log = next((path / "log").iterdir())
    half = log.read_bytes() + b"PLR1 the beginning of a record"
    log.write_bytes(half)
    with ps.IncrementalFlow.read(path) as reader:
        assert ids(reader) == [1]
        with pytest.raises(ps.StateError, match="reading only") as caught:
            reader.tick("orders", [{"id": 2, "amount": 5}])
        assert caught.value.code == "FLOW_READ_ONLY"
        assert ids(reader) == [1]
    assert log.read_bytes() == half


def test_a_checkpoint_that_takes_files_away_meanwhile(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader lists the log; before it reads it, a checkpoint comes and the log behind it goes."""
    with opened(path, checkpoint_every=1) as writer:
        writer.tick("orders", [{"id": 1, "amount": 5}])
        attempts = []

        def slow(directory: FlowDirectory, *arguments: Any) -> tuple[Graph, str | None]:
            attempts.append(directory)
            if len(attempts) == 1:
                for number in range(2, 6):
                    writer.tick("orders", [{"id": number, "amount": 5}])
                    assert writer._runner.directory is not None
                    writer._runner.directory.wait()
            return read(directory, *arguments)

        read = replay.opened
        monkeypatch.setattr(replay, "opened", slow)
        with ps.IncrementalFlow.read(path) as reader:
            assert ids(reader) == [1, 2, 3, 4, 5]
        assert len(attempts) == 2


def test_damage_is_refused_and_not_tried_again(path: Path) -> None:
    with opened(path) as writer:
        for number in range(3):
            writer.tick("orders", [{"id": number, "amount": 5}])
    log = next((path / "log").iterdir())
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    with pytest.raises(ps.StateError) as caught:
        ps.IncrementalFlow.read(path)
    assert caught.value.code == "STATE_LOG_DAMAGED"


def test_a_folder_without_a_flow(path: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (path, tmp_path / "empty"):
        with pytest.raises(ps.StateError) as caught:
            ps.IncrementalFlow.read(folder)
        assert caught.value.code == "STATE_NO_FLOW"
    assert not path.exists()
    shutil.rmtree(tmp_path / "empty")
