"""A table of PostgreSQL followed by logical replication: nothing lost, nothing doubled, no transaction split."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from pyspark.sql import DataFrame

import penstock as ps
from class_archive import archive_conf
from processes import descendants
from seed import SEED
from servers.postgres import Postgres
from table_writer import CREATE, TableWriter, apply, content
from waiting import wait_for


class Follower:
    """A query that follows the table `t`, and what it has read so far."""

    def __init__(self, session: ps.Session, url: str, checkpoint: Path, **options: Any) -> None:
        self.table: dict[int, tuple[Any, ...]] = options.pop("table", {})
        self.operations: set[str] = set()
        self.epochs = 0
        reader = session.read_stream.format("postgres_cdc").option("url", url)
        for name, value in options.items():
            reader = reader.option(name, value)
        writer = reader.load("t").write_stream.foreach_batch(self._take)
        self.query = writer.option("checkpoint.location", str(checkpoint)).start()

    def _take(self, frame: DataFrame, epoch: int) -> None:
        rows = frame.toArrow().to_pylist()
        apply(self.table, rows)
        self.operations |= {row["_op"] for row in rows}
        self.epochs += 1

    @property
    def phase(self) -> str | None:
        progress = self.query.last_progress
        return None if progress is None or progress.sources[0].end_offset is None else self.offset["phase"]

    @property
    def offset(self) -> dict[str, Any]:
        progress = self.query.last_progress
        assert progress is not None
        return dict(progress.sources[0].end_offset)

    def wait(self, condition: Any, what: str, seconds: float = 60) -> None:
        def there() -> object:
            if self.query.exception() is not None:
                raise self.query.exception()
            return condition()

        wait_for(there, what, seconds)


@contextmanager
def following(session: ps.Session, url: str, checkpoint: Path, **options: Any) -> Iterator[Follower]:
    follower = Follower(session, url, checkpoint, **options)
    try:
        yield follower
    finally:
        follower.query.stop()


def _database(postgres: Postgres, *statements: str) -> str:
    url = postgres.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in (CREATE, *statements):
            connection.execute(statement.encode())
    return url


@pytest.fixture(autouse=True)
def no_slots(postgres: Postgres) -> Iterator[None]:
    """The server has few slots, and a test leaves its own."""
    yield
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active"
        )


@pytest.mark.smoke
def test_a_snapshot_while_writes_run_and_then_every_change(
    session: ps.Session, postgres: Postgres, tmp_path: Path
) -> None:
    url = _database(
        postgres, "INSERT INTO t SELECT g, 'first', g, repeat('x', 10) FROM generate_series(0, 399, 2) g"
    )
    with TableWriter(url, seed=SEED, pause=0.03) as writer:
        with following(session, url, tmp_path, partitions=3, max_rows=2_000) as follower:
            follower.wait(lambda: follower.phase == "following", "end of the snapshot", seconds=180)
            before = writer.transactions
            follower.wait(lambda: writer.transactions > before + 100, "changes")
        first = follower
        # The next query goes on where this one was stopped.
        with following(session, url, tmp_path, max_rows=2_000, table=first.table) as follower:
            before = writer.transactions
            follower.wait(lambda: writer.transactions > before + 50, "more changes")
            writer.__exit__()
            expected = content(url)
            follower.wait(lambda: follower.table == expected, "the same table", seconds=180)
    assert first.operations | follower.operations == {"i", "u", "d"}


def test_errors_come_through_spark_with_their_codes_and_without_secrets(
    session: ps.Session, postgres: Postgres, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    url = _database(postgres, "INSERT INTO t VALUES (1)")
    with following(session, url, tmp_path) as follower:
        follower.wait(lambda: follower.phase == "following", "end of the snapshot", seconds=180)
        postgres.execute("TRUNCATE t", url)
        wait_for(lambda: follower.query.exception() is not None, "error")
    error = follower.query.exception()
    assert isinstance(error, ps.PenstockError)
    assert (error.code, "on_truncate" in (error.hint or "")) == ("CDC_TRUNCATED", True)
    stream = session.read_stream.format("postgres_cdc").option("url", url).load("t")
    told = "\n".join([str(error), stream.df._jdf.queryExecution().toString(), *capfd.readouterr()])
    told += "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file())
    assert "secret" not in told


PROGRAM = """
import json, pathlib, sys
import penstock as ps

url, folder = sys.argv[1:]
folder = pathlib.Path(folder)

def take(frame, epoch):
    rows = [{name: str(value) if name == "n" and value is not None else value for name, value in row.items()} for row in frame.toArrow().to_pylist()]
    path = folder / "epochs" / f"{epoch:06d}.json"
    text = json.dumps(rows)
    if path.exists() and path.read_text() != text:
        (folder / "differs").write_text(f"{path.name} {path.read_text()[:500]} {text[:500]}")
    (folder / "next").write_text(text)
    (folder / "next").rename(path)

with ps.Session.embedded(master="local[2]") as session:
    stream = session.read_stream.format("postgres_cdc").option("url", url).option("max_rows", 300).load("t")
    query = stream.write_stream.foreach_batch(take).option("checkpoint.location", str(folder / "checkpoint")).start()
    query.await_termination()
"""


@contextmanager
def _process(url: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    with (folder / "log").open("a") as log:
        child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, url, str(folder)],
            stdout=log,
            stderr=log,
            text=True,
            env={
                **os.environ,
                "TMPDIR": str(folder),
                "PENSTOCK_STATE": f"sqlite:///{folder}/state.db",
                "PENSTOCK_CONF": f"{archive_conf()} spark.sql.shuffle.partitions=2",
            },
        )
    try:
        yield child
    finally:
        processes = descendants(child.pid) if child.poll() is None else []
        child.kill()
        child.wait()
        psutil.wait_procs(processes, 20)


def _more(epochs: Callable[[], int], count: int, child: subprocess.Popen[str]) -> Callable[[], bool]:
    return lambda: epochs() > count or child.poll() is not None


class Stored:
    """The table as the epochs in a folder make it; those that were looked at are not read again."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._last = folder / "epochs", ""
        self.table: dict[int, tuple[Any, ...]] = {}

    def equals(self, expected: dict[int, tuple[Any, ...]]) -> bool:
        for path in sorted(self._folder.iterdir()):
            if path.name > self._last:
                rows = json.loads(path.read_text())
                apply(self.table, [{**row, "n": row["n"] and Decimal(row["n"])} for row in rows])
                self._last = path.name
        return self.table == expected


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(1, marks=pytest.mark.timeout(600)),
        pytest.param(20, marks=(pytest.mark.soak, pytest.mark.timeout(3600))),
    ],
)
def test_killed_processes_and_servers_lose_and_double_nothing(tmp_path: Path, kills: int) -> None:
    chance = random.Random(SEED)
    (tmp_path / "epochs").mkdir()

    def epochs() -> int:
        return len(list((tmp_path / "epochs").iterdir()))

    with Postgres() as server:
        url = _database(server, "INSERT INTO t SELECT g, 'first', g FROM generate_series(0, 399, 2) g")
        with TableWriter(url, seed=SEED, pause=0.05) as writer:
            for _ in range(kills):
                before = max(epochs(), 1)  # the snapshot is done: read again, it would have other rows
                with _process(url, tmp_path) as child:
                    wait_for(_more(epochs, before, child), "epochs", seconds=180)
                    time.sleep(chance.uniform(0.0, 0.5))
                    server.kill()
                    server.start()
                    wait_for(_more(epochs, epochs(), child), "epochs after the kill", seconds=180)
                    time.sleep(chance.uniform(0.0, 0.5))
                    assert child.poll() is None, (tmp_path / "log").read_text()[-4000:]
            assert writer.transactions > 100
        expected = content(url)
        with _process(url, tmp_path):
            stored = Stored(tmp_path)
            wait_for(lambda: stored.equals(expected), "the same table", seconds=180)
    assert not (tmp_path / "differs").exists(), (tmp_path / "differs").read_text()
