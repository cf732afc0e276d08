"""Plugins as sources: their life, exact repetition after a kill, retries, errors that name the plugin."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from class_archive import archive_conf
from penstock.errors import ConfigError, ConnectorError, PenstockError
from penstock.streaming.writer import StreamWriter
from waiting import wait_for

PROGRAM = """
import os, signal, sys
import pyarrow as pa
import penstock as ps

class Lines(ps.SourcePlugin):
    schema = "line STRING"
    batch_size = 4

    def read(self, offset, limit):
        first = offset or 0
        lines = open("lines").read().splitlines()[first : first + limit]
        return [pa.record_batch({"line": [line]}) for line in lines], first + len(lines)

def store(rows, epoch):
    text = "".join(row.line + "\\n" for row in rows.collect())
    open(f"epoch-{epoch}", "a").write(text + "--\\n")
    if epoch == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)

with ps.Session.embedded(master="local[1]") as session:
    stream = session.read_stream.format(Lines).load()
    writer = stream.write_stream.foreach_batch(store).trigger(ps.Trigger.processing_time(0))
    writer.option("checkpoint.location", "ckpt").start("lines").await_termination()
"""
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


class Numbers(ps.SourcePlugin):
    """Counts up to an end that a file says, and tells its life."""

    class Options(ps.Options):
        path: str
        end: int = 10

    schema: Any = "id BIGINT, name STRING"
    batch_size = 4

    def initialize(self, context: Any) -> None:
        self.context = context
        self.tell("initialize", context.name, context.schema.names, context.state.get("epoch"))

    def read(self, offset: Any, limit: int) -> tuple[list[pa.RecordBatch], Any]:
        first = offset or 0
        last = min(self.options.end, first + limit)
        rows = [{"id": number, "name": f"n{number}"} for number in range(first, last)]
        return ([pa.RecordBatch.from_pylist(rows, schema=SCHEMA)] if rows else []), last

    def process_checkpoint_marker(self, epoch: int) -> None:
        self.tell("marker", epoch, self.context.epoch)
        self.context.state.put("epoch", epoch)

    def process_checkpoint_finalizer(self, epoch: int) -> None:
        self.tell("finalizer", epoch)

    def terminate(self) -> None:
        self.tell("terminate")

    def tell(self, *what: Any) -> None:
        with Path(self.options.path).open("a") as file:
            file.write(json.dumps(what) + "\n")


def _story(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _writer(session: ps.Session, kind: type[ps.SourcePlugin], tmp_path: Path, **options: Any) -> StreamWriter:
    stream = session.read_stream.format(kind).options(**options).load()
    writer = stream.write_stream.format("memory").trigger(ps.Trigger.available_now())
    return writer.option("checkpoint.location", tmp_path / "ckpt")


def _ids(query: ps.StreamingQuery) -> list[int]:
    return sorted(row["id"] for batch in query.memory_batches() for row in batch.to_pylist())


def test_the_life_of_a_source(session: ps.Session, tmp_path: Path) -> None:
    calls = tmp_path / "calls"

    def run(end: int) -> list[int]:
        query = _writer(session, Numbers, tmp_path, path=str(calls), end=end).start("source-life")
        query.await_termination()
        return _ids(query)

    assert run(10) == list(range(10))
    assert _story(calls) == [
        ["initialize", "source-life", ["id", "name"], None],
        ["marker", 0, 0],
        ["finalizer", 0],
        ["terminate"],
    ]
    assert run(13) == [10, 11, 12]
    assert _story(calls)[4:] == [
        ["initialize", "source-life", ["id", "name"], 0],
        ["finalizer", 0],
        ["marker", 1, 1],
        ["finalizer", 1],
        ["terminate"],
    ]


def test_an_epoch_that_a_kill_cut_short_comes_again_as_it_was(tmp_path: Path) -> None:
    lines = tmp_path / "lines"

    def run(fatal_epoch: int) -> int:
        environment = {**os.environ, "PENSTOCK_CONF": archive_conf()}
        program = [sys.executable, "-c", PROGRAM, str(fatal_epoch)]
        return subprocess.run(program, cwd=tmp_path, env=environment, timeout=120, check=False).returncode

    def epoch(number: int) -> list[str]:
        return (tmp_path / f"epoch-{number}").read_text().split("--\n")

    lines.write_text("".join(f"{number}\n" for number in range(6)))
    assert run(1) == -signal.SIGKILL
    assert epoch(0) == ["0\n1\n2\n3\n", ""]
    assert epoch(1) == ["4\n5\n", ""]
    # There is more now than when the epoch was read first, and it is not in it.
    with lines.open("a") as more:
        more.write("".join(f"{number}\n" for number in range(6, 11)))
    assert run(2) == -signal.SIGKILL
    assert epoch(1) == ["4\n5\n", "4\n5\n", ""]
    assert epoch(2) == ["6\n7\n8\n9\n", ""]


class Flaky(Numbers):
    """Fails now and then."""

    failures = 2

    def read(self, offset: Any, limit: int) -> Any:
        if Flaky.failures:
            Flaky.failures -= 1
            raise ConnectorError("the server is away", retryable=True)
        return super().read(offset, limit)


def test_an_error_that_passes_is_waited_for(session: ps.Session, tmp_path: Path) -> None:
    calls = str(tmp_path / "calls")
    writer = _writer(session, Flaky, tmp_path, path=calls).trigger(ps.Trigger.processing_time(0))
    with writer.start() as query:
        wait_for(lambda: len(_ids(query)) == 10)
    assert Flaky.failures == 0
    assert query.exception() is None
    life = [each[0] for each in _story(tmp_path / "calls")]
    assert (life.count("initialize"), life.count("terminate")) == (1, 1)


class Bad(ps.SourcePlugin):
    """Gives what it should not."""

    class Options(ps.Options):
        what: str

    schema = "id BIGINT NOT NULL, name STRING"

    def read(self, offset: Any, limit: int) -> Any:
        row = {"id": 1, "name": "a"}
        match self.options.what:
            case "raises":
                raise ValueError("no such thing")
            case "no tuple":
                return None
            case "rows":
                return [[row]], 1
            case "offset":
                return [pa.RecordBatch.from_pylist([row])], object()
            case "column":
                return [pa.RecordBatch.from_pylist([{"id": 1, "nam": "a"}])], 1
            case "type":
                return [pa.RecordBatch.from_pylist([{"id": "x", "name": "a"}])], 1
            case _:
                return [pa.RecordBatch.from_pylist([{"id": None, "name": "a"}], schema=SCHEMA)], 1


@pytest.mark.parametrize(
    ("what", "why", "code"),
    [
        ("raises", "the plugin Bad failed: ValueError: no such thing", "PLUGIN_READ"),
        ("no tuple", r"the plugin Bad gave NoneType, and read returns \(batches, offset\)", "PLUGIN_READ"),
        ("rows", "the plugin Bad gave list, and a batch is a pyarrow.RecordBatch", "PLUGIN_BATCH"),
        ("offset", "an offset that JSON cannot say", "PLUGIN_READ"),
        ("column", "unknown column 'nam'", "DATA_UNKNOWN_COLUMN"),
        ("type", "column 'id' holds string values that do not fit int64: 'x'", "DATA_TYPE"),
        ("null", "column 'id' is NOT NULL and has 1 NULLs", "DATA_NULL"),
    ],
)
def test_what_a_source_must_not_give(
    session: ps.Session, tmp_path: Path, what: str, why: str, code: str
) -> None:
    query = _writer(session, Bad, tmp_path, what=what).start()
    with pytest.raises(PenstockError, match=why) as refused:
        query.await_termination()
    assert refused.value.code == code
    assert "Bad" in str(refused.value)


def test_streams_that_are_refused(session: ps.Session, tmp_path: Path) -> None:
    calls = str(tmp_path / "calls")
    with pytest.raises(ConfigError, match="no option 'pth'; the option 'path' is missing"):
        session.read_stream.format(Numbers).option("pth", calls).load()

    class Untyped(Numbers):
        schema: Any = None

    with pytest.raises(ConfigError, match="does not say which columns it has") as untyped:
        session.read_stream.format(Untyped).option("path", calls).load()
    assert untyped.value.code == "PLUGIN_SCHEMA"
    stream = session.read_stream.format(Numbers).option("path", calls).load()
    with stream.write_stream.format("memory").start():
        second = stream.write_stream.format("memory")
        with pytest.raises(ConfigError, match="are read by the query") as shared:
            second.start().await_termination()
        assert shared.value.code == "PLUGIN_SOURCE_SHARED"
