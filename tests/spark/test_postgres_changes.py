"""The reader behind `postgres_cdc`, called as Spark calls it: crashes at every place, kills of the server, changes of the table."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from penstock.errors import ConfigError, DataError, PenstockError, StateError
from penstock.sources.postgres import slot as slots
from penstock.sources.postgres.cdc_source import PostgresCdcSource
from penstock.sources.postgres.client import lsn_number
from penstock.sources.postgres.follow import ChangeReader
from seed import SEED
from servers.postgres import Postgres
from table_types import TYPES, fill_types, make_types
from table_writer import CREATE, TableWriter, apply, content

Offset = dict[str, Any]


class Query:
    """What Spark does with a reader: offsets are noted before a batch, and batches when they are done."""

    def __init__(self, url: str, *, ends: bool = False, **options: Any) -> None:
        self.url, self.options = url, options
        self.ends = ends
        self.noted: list[Offset] = []
        """The end of every batch, as in Spark's log of offsets."""
        self.done = 0
        self.batches: list[list[dict[str, Any]]] = []
        self.start()

    def start(self) -> None:
        """Start again from the log."""
        source = PostgresCdcSource({"url": self.url, "table": "t", "retry_for": "1 minute", **self.options})
        reading, following = source.plan()
        self.reader = ChangeReader(reading, replace(following, ends=self.ends))
        self._start = self.reader.initial_offset()
        if self.noted:
            assert self.reader.partitions(self.noted[-1], self.noted[-1]) == []
            if self.done < len(self.noted):
                self._run()

    def crash(self) -> None:
        """End as a process that is killed: nothing more is said to the server."""
        self.reader.stop()

    def note(self) -> bool:
        """Ask for the next offset and note it; False when there is nothing new."""
        end = self.reader.latest_offset()
        if end == (self.noted[-1] if self.noted else self._start):
            return False
        self.noted.append(end)
        return True

    def step(self) -> list[dict[str, Any]]:
        """Run a batch, and return its rows."""
        return self._run() if self.note() else []

    def _run(self) -> list[dict[str, Any]]:
        start, end = (self.noted[-2] if len(self.noted) > 1 else self._start), self.noted[-1]
        partitions = self.reader.partitions(start, end)
        ahead = self.reader.ahead(start, end)
        batches = (
            [batch for partition in partitions for batch in self.reader.read(partition)]
            if ahead is None
            else list(ahead)
        )
        rows = [row for batch in batches for row in batch.to_pylist()]
        del self.batches[len(self.noted) - 1 :]
        self.batches.append(rows)
        self.done = len(self.noted)
        return rows

    def table(self, *, strict: bool = True) -> dict[int, tuple[Any, ...]]:
        found: dict[int, tuple[Any, ...]] = {}
        for rows in self.batches:
            apply(found, rows, strict=strict)
        return found

    def steps_until(self, condition: Callable[[], bool], seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline
            self.step()


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    """A database with an empty table `t`; the slots go with the test, because a server has few."""
    address = postgres.new_database()
    _execute(address, CREATE)
    yield address
    _execute(
        postgres.url(),
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active",
    )


def _execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit TO on")
        for statement in statements:
            connection.execute(statement.encode())


def _rows(query: Query, count: int) -> list[dict[str, Any]]:
    """The next so many rows."""
    rows: list[dict[str, Any]] = []
    deadline = time.monotonic() + 30
    while len(rows) < count:
        assert time.monotonic() < deadline, rows
        rows += query.step()
    return rows


def _following(url: str, **options: Any) -> Query:
    """A query that has done the snapshot."""
    query = Query(url, **options)
    query.steps_until(lambda: bool(query.noted) and query.noted[-1]["phase"] == "following")
    return query


def _reached(query: Query, goal: int) -> Callable[[], bool]:
    return lambda: lsn_number(query.noted[-1]["lsn"]) >= goal


def _wrote(writer: TableWriter, count: int) -> Callable[[], bool]:
    goal = writer.transactions + count
    return lambda: writer.transactions > goal


def _pairs(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [(row["_op"], row["id"], *(row[name] for name in names)) for row in rows]


def test_the_snapshot_and_the_changes_meet_exactly(url: str) -> None:
    """Tried often, because a transaction that commits in the moment of the snapshot is the hard case."""
    _execute(url, "INSERT INTO t SELECT g, 'first', g FROM generate_series(0, 399, 2) g")
    with TableWriter(url, seed=SEED, pause=0.0):
        for attempt in range(4):
            query = _following(url, slot=f"s{attempt}", partitions=3)
            with psycopg.connect(url) as connection:
                connection.execute("LOCK TABLE t IN SHARE MODE")  # between two moments of writing
                expected = content(url)
                (end,) = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone() or ("",)
            goal = lsn_number(end)
            query.steps_until(_reached(query, goal))
            seen: dict[int, tuple[Any, ...]] = {}
            matches = False
            for batch in query.batches:
                for row in batch:
                    matches = matches or seen == expected
                    apply(seen, [row])
            assert matches or seen == expected
            query.crash()


def test_a_crash_at_every_place_loses_and_doubles_nothing(url: str) -> None:
    chance = random.Random(SEED)
    _execute(url, "INSERT INTO t SELECT g, 'first', g FROM generate_series(0, 399, 2) g")
    query = _following(url, max_rows=40)
    with TableWriter(url, seed=SEED, pause=0.0) as writer:
        while writer.transactions < 400:
            match chance.randrange(4):
                case 0:
                    query.step()
                case 1:  # noted, and not run
                    query.note()
                    query.crash()
                    query.start()
                case 2:  # run, and killed before Spark has noted that
                    if query.note():
                        before = query._run()
                        query.done -= 1
                        query.crash()
                        query.start()
                        assert query.batches[-1] == before
                case 3:
                    query.step()
                    query.crash()
                    query.start()
    expected = content(url)
    query.steps_until(lambda: query.table() == expected)
    query.crash()


def test_a_kill_of_the_server_loses_and_doubles_nothing() -> None:
    with Postgres() as server:
        url = server.new_database()
        _execute(url, CREATE, "INSERT INTO t SELECT g, 'first', g FROM generate_series(0, 399, 2) g")
        query = _following(url, max_rows=100)
        with TableWriter(url, seed=SEED) as writer:
            for _ in range(2):
                query.steps_until(_wrote(writer, 30))
                server.kill()
                assert query.step() == []  # waits, and says so
                server.start()
            before = writer.transactions
            query.steps_until(lambda: writer.transactions > before + 30)
        expected = content(url)
        query.steps_until(lambda: query.table() == expected)
        query.crash()


def test_a_snapshot_that_comes_again_ends_with_the_right_rows(url: str) -> None:
    """It has the rows of another moment then, without those that the changes between the two bring."""
    _execute(
        url,
        "INSERT INTO t SELECT g, 'first', g FROM generate_series(0, 399, 2) g",
        "CREATE PUBLICATION own FOR TABLE t",
        "SELECT pg_create_logical_replication_slot('own', 'pgoutput')",
    )
    query = Query(url, slot="own")
    with psycopg.connect(url) as open_transaction:
        open_transaction.execute("INSERT INTO t VALUES (1000)")
        assert query.note()
    with TableWriter(url, seed=SEED, pause=0.0) as writer:
        while writer.transactions < 100:
            time.sleep(0.01)
        query.crash()
        query.start()
        assert len(query.batches) == 1
    expected = content(url)
    query.steps_until(lambda: query.table(strict=False) == expected)
    alive: set[int] = set()
    for row in (row for batch in query.batches for row in batch):
        assert row["_op"] != "i" or row["id"] not in alive
        (alive.discard if row["_op"] == "d" else alive.add)(row["id"])
    assert 1000 in alive
    query.crash()


def test_a_transaction_is_never_split_and_small_ones_share_a_batch(url: str) -> None:
    query = _following(url, max_rows=100)
    _execute(url, "INSERT INTO t SELECT g, 'x', g FROM generate_series(1, 5000) g")
    _execute(url, *(f"INSERT INTO t VALUES ({number})" for number in range(6000, 6300)))
    _rows(query, 5300)
    sizes = [len(batch) for batch in query.batches if batch]
    assert sizes[0] == 5000
    assert max(sizes[1:]) <= 100 < sum(sizes[1:])
    assert len(sizes) < 20
    query.crash()


def test_a_transaction_larger_than_what_is_read_ahead_comes_whole(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.sources.postgres.follow.AHEAD_BYTES", 100_000)
    monkeypatch.setattr("penstock.sources.postgres.slot.PIECE_BYTES", 20_000)
    query = _following(url)
    _execute(
        url,
        "INSERT INTO t SELECT g, repeat('x', 50), g FROM generate_series(1, 5000) g",
        "DELETE FROM t WHERE id = 7",
    )
    query.steps_until(lambda: query.table() == content(url))
    assert [len(batch) for batch in query.batches if batch] == [5001]
    before = query.batches[-1]
    query.done -= 1
    query.crash()
    query.start()
    assert query.batches[-1] == before
    query.crash()


def test_a_query_that_ends_reads_all_that_is_there(url: str) -> None:
    _execute(url, "INSERT INTO t VALUES (1)")
    query = Query(url, ends=True, max_rows=3)
    assert _pairs(query.step()) == [("i", 1)]
    query.crash()
    _execute(url, *(f"INSERT INTO t VALUES ({number})" for number in range(2, 12)))
    query.start()
    assert len(query.step()) == 10
    assert query.step() == []
    query.crash()
    _execute(url, "DELETE FROM t WHERE id = 1")
    query.start()
    assert _pairs(query.step()) == [("d", 1)]
    query.crash()


def test_the_slot_follows_what_was_committed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sources.postgres.follow.IDLE_SECONDS", 0.0)
    query = _following(url, slot="own")

    def confirmed() -> int:
        with psycopg.connect(url) as connection:
            state = slots.find(connection, "own", where="")
        assert state is not None
        return state.confirmed

    before = confirmed()
    _execute(url, "INSERT INTO t VALUES (1)")
    while not query.note():
        pass
    end = lsn_number(query.noted[-1]["lsn"])
    assert confirmed() == before < end  # the batch is not done
    query._run()
    query.step()
    assert confirmed() == end
    # While only other tables change, the log can go too.
    _execute(
        url,
        "CREATE TABLE other (x text)",
        "INSERT INTO other SELECT repeat('x', 100) FROM generate_series(1, 1000)",
    )
    query.steps_until(lambda: confirmed() > end + 100_000)
    assert [batch for batch in query.batches[-1:] if batch] == []
    _execute(url, "INSERT INTO t VALUES (2)")
    assert _pairs(_rows(query, 1)) == [("i", 2)]
    query.crash()


def test_keys_that_change_and_large_values_that_do_not(url: str) -> None:
    large = "||".join(["md5(random()::text)"] * 2)
    _execute(
        url,
        "ALTER TABLE t ALTER big SET STORAGE EXTERNAL",
        f"INSERT INTO t SELECT g, 'a', g, repeat({large}, 100) FROM generate_series(1, 3) g",
    )
    big = {key: values[2] for key, values in content(url).items()}
    query = _following(url)
    _execute(url, "UPDATE t SET a = 'b'", "UPDATE t SET id = 10 WHERE id = 1", "DELETE FROM t WHERE id = 2")
    # What the first update gave rows 1 and 2 is not known any more, and does not matter.
    assert _pairs(_rows(query, 4), "a", "big") == [
        ("u", 3, "b", big[3]),
        ("d", 1, None, None),
        ("i", 10, "b", big[1]),
        ("d", 2, None, None),
    ]
    _execute(
        url,
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "UPDATE t SET a = 'c' WHERE id = 3",
        "UPDATE t SET id = 4 WHERE id = 3",
        "DELETE FROM t WHERE id = 4",
    )
    assert _pairs(_rows(query, 4), "a", "big") == [
        ("u", 3, "c", big[3]),
        ("d", 3, "c", big[3]),
        ("i", 4, "c", big[3]),
        ("d", 4, "c", big[3]),
    ]
    query.crash()


def test_large_values_that_are_looked_up_while_they_change_end_right(url: str) -> None:
    _execute(url, "ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
    query = _following(url, max_rows=50)
    with TableWriter(url, seed=SEED, pause=0.0) as writer:
        query.steps_until(lambda: writer.transactions > 200)
    expected = content(url)
    assert any(len(values[2] or "") > 10_000 for values in expected.values())
    # A row whose key changes twice is left out in between.
    query.steps_until(lambda: query.table(strict=False) == expected)
    query.crash()


def test_every_type_comes_as_a_change_as_it_comes_in_the_snapshot(url: str) -> None:
    make_types(url)
    query = _following(url, slot="first")
    fill_types(url)
    changes = _rows(query, 2)
    query.crash()
    assert {kind: changes[0][f"c{place}"] for place, kind in enumerate(TYPES)} == {
        kind: value for kind, (_, value) in TYPES.items()
    }
    other = _following(url, slot="second")
    assert other.batches[0] == changes
    other.crash()


def test_partitions_are_one_table_and_a_filtered_publication_filters_the_snapshot(url: str) -> None:
    _execute(
        url,
        "DROP TABLE t",
        "CREATE TABLE t (id integer PRIMARY KEY, a text) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE high PARTITION OF t FOR VALUES FROM (100) TO (200)",
        "INSERT INTO t SELECT g, 'a' FROM generate_series(0, 199) g",
    )
    query = _following(url, slot="whole", partitions=2)
    _execute(url, "DELETE FROM t WHERE id = 150", "UPDATE t SET id = 150 WHERE id = 5")
    assert _pairs(_rows(query, 3)) == [("d", 150), ("d", 5), ("i", 150)]
    assert sorted(row["id"] for row in query.batches[0]) == list(range(200))
    query.crash()
    _execute(
        url,
        "CREATE PUBLICATION part FOR TABLE t WHERE (id >= 190) WITH (publish_via_partition_root = true)",
    )
    query = _following(url, publication="part", slot="part")
    assert sorted(row["id"] for row in query.batches[0]) == list(range(190, 200))
    query.crash()


def test_truncate_and_changes_of_the_table_are_not_passed_over(url: str) -> None:
    query = _following(url, slot="own")
    _execute(
        url,
        "INSERT INTO t VALUES (1, 'a')",
        "ALTER TABLE t ADD COLUMN extra integer DEFAULT 7",
        "INSERT INTO t VALUES (2, 'b')",
    )
    assert _pairs(_rows(query, 1), "a") == [("i", 1, "a")]
    with pytest.raises(DataError, match="'extra' was added") as error:
        query.steps_until(lambda: False)
    assert error.value.code == "CDC_TABLE_CHANGED"
    query.start()  # goes on with the table as it is now
    assert _pairs(_rows(query, 1), "a", "extra") == [("i", 2, "b", 7)]
    query.crash()
    _execute(
        url,
        "INSERT INTO t VALUES (5, 'c')",
        "ALTER TABLE t ADD COLUMN more integer DEFAULT 8",
        "ALTER TABLE t RENAME COLUMN a TO name",
        "INSERT INTO t VALUES (6, 'd')",
    )
    query.start()  # rows from before have the default of a new column, and what is renamed has its values
    assert _pairs(_rows(query, 2), "name", "more") == [("i", 5, "c", 8), ("i", 6, "d", 8)]
    _execute(url, "ALTER TABLE t RENAME COLUMN name TO a")
    _execute(url, "ALTER TABLE t DROP COLUMN extra", "INSERT INTO t VALUES (3)")
    with pytest.raises(DataError, match="'extra' is gone"):
        query.steps_until(lambda: False)
    query.start()
    assert _pairs(_rows(query, 1)) == [("i", 3)]
    _execute(url, "TRUNCATE t", "INSERT INTO t VALUES (4)")
    with pytest.raises(DataError, match="TRUNCATE") as error:
        query.steps_until(lambda: False)
    assert error.value.code == "CDC_TRUNCATED"
    query.options["on_truncate"] = "ignore"
    query.start()
    assert _pairs(_rows(query, 1)) == [("i", 4)]
    query.crash()


def test_a_slot_that_someone_else_has_read_is_not_read_on(url: str) -> None:
    query = _following(url, slot="own")
    query.crash()
    _execute(url, "INSERT INTO t VALUES (1)")
    _execute(url, "SELECT pg_replication_slot_advance('own', pg_current_wal_lsn())")
    query.start()
    with pytest.raises(StateError, match="someone else has read from it"):
        query.step()
    assert slots.drop(url, "own", "own")
    assert not slots.drop(url, "own", "own")
    query.start()
    with pytest.raises(StateError, match="is gone"):
        query.step()


@pytest.mark.parametrize(
    ("statement", "options", "code"),
    [
        ("ALTER TABLE t DROP CONSTRAINT t_pkey", {}, "SOURCE_KEY"),
        ("ALTER TABLE t DROP CONSTRAINT t_pkey", {"primary_key": "id"}, "CDC_IDENTITY"),
        ("ALTER TABLE t REPLICA IDENTITY NOTHING", {}, "CDC_IDENTITY"),
        ("ALTER TABLE t SET UNLOGGED", {}, "CDC_TABLE"),
        ("ALTER TABLE t ADD twice numeric GENERATED ALWAYS AS (n * 2) STORED", {}, "CDC_TABLE"),
        ("CREATE PUBLICATION own FOR TABLE t WITH (publish = 'insert')", {"slot": "own"}, "CDC_PUBLICATION"),
        ("CREATE PUBLICATION own FOR TABLE t (id, a)", {"slot": "own"}, "CDC_PUBLICATION"),
        ("CREATE PUBLICATION own", {"slot": "own"}, "CDC_PUBLICATION"),
        ("SELECT 1", {"create": False}, "CDC_PUBLICATION"),
        ("SELECT pg_create_physical_replication_slot('own')", {"slot": "own"}, "CDC_SLOT"),
        ("ALTER TABLE t RENAME TO u", {}, "SOURCE_TABLE_MISSING"),
        ("ALTER TABLE t ADD _op text", {}, "SOURCE_COLUMN"),
    ],
)
def test_what_cannot_be_followed_is_refused_at_once(
    url: str, statement: str, options: dict[str, Any], code: str
) -> None:
    _execute(url, statement)
    with pytest.raises(PenstockError) as error:
        PostgresCdcSource({"url": url, "table": "t", **options}).check()
    assert (error.value.code, bool(error.value.hint)) == (code, True)
    assert "secret" not in str(error.value)


def test_a_user_without_rights_is_refused_with_the_statement_that_gives_them(
    postgres: Postgres, url: str
) -> None:
    _execute(url, "CREATE ROLE reader LOGIN PASSWORD 'hidden'", "GRANT SELECT ON t TO reader")
    address = url.replace("penstock:secret", "reader:hidden")
    with pytest.raises(ConfigError, match="may not read a replication slot") as error:
        PostgresCdcSource({"url": address, "table": "t"}).check()
    assert error.value.hint == 'ALTER ROLE "reader" REPLICATION'
    _execute(url, "ALTER ROLE reader REPLICATION")
    with pytest.raises(ConfigError, match="may not create a publication"):
        PostgresCdcSource({"url": address, "table": "t"}).check()
    with pytest.raises(PenstockError) as refused:
        PostgresCdcSource({"url": url.replace("secret", "wrong-password"), "table": "t"}).check()
    assert "wrong-password" not in str(refused.value)
    _execute(url, "DROP OWNED BY reader", "DROP ROLE reader")
