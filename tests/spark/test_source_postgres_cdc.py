"""A table of PostgreSQL followed by logical replication: nothing lost, nothing doubled, no transaction split."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame

import penstock as ps
from seed import SEED
from servers.postgres import Postgres
from table_writer import CREATE, TableWriter, apply, content
from waiting import wait_for


class Follower:
    """A query that follows the table `t`, and what it has read so far."""

    def __init__(self, session: ps.Session, url: str, checkpoint: Path, **options: Any) -> None:
        self.epochs: list[tuple[int, list[dict[str, Any]]]] = []
        reader = session.read_stream.format("postgres_cdc").option("url", url)
        for name, value in options.items():
            reader = reader.option(name, value)
        writer = reader.load("t").write_stream.foreach_batch(self._take)
        self.query = writer.option("checkpoint.location", str(checkpoint)).start()

    def _take(self, frame: DataFrame, epoch: int) -> None:
        self.epochs.append((epoch, frame.toArrow().to_pylist()))

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for _, rows in self.epochs for row in rows]

    @property
    def phase(self) -> str | None:
        progress = self.query.last_progress
        return None if progress is None or progress.sources[0].end_offset is None else self.offset["phase"]

    @property
    def offset(self) -> dict[str, Any]:
        progress = self.query.last_progress
        assert progress is not None
        return dict(progress.sources[0].end_offset)

    def table(self, *, strict: bool = True) -> dict[int, tuple[Any, ...]]:
        found: dict[int, tuple[Any, ...]] = {}
        apply(found, self.rows, strict=strict)
        return found

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
    with TableWriter(url, seed=SEED) as writer:
        with following(session, url, tmp_path, partitions=3, max_rows=500) as follower:
            follower.wait(lambda: follower.phase == "following", "end of the snapshot")
            before = writer.transactions
            follower.wait(lambda: writer.transactions > before + 300, "changes")
        # The next query goes on where this one was stopped.
        first = follower.rows
        with following(session, url, tmp_path, max_rows=500) as follower:
            before = writer.transactions
            follower.wait(lambda: follower.epochs and writer.transactions > before + 100, "more changes")
            writer.__exit__()
            expected = content(url)
            follower.epochs.insert(0, (0, first))
            follower.wait(lambda: follower.table() == expected, "the same table")
    assert {row["_op"] for row in follower.rows} == {"i", "u", "d"}
