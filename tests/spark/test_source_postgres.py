"""Tables of PostgreSQL as bounded streams: exact types, ranges side by side, one consistent snapshot."""

from __future__ import annotations

import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

import penstock as ps
from penstock.sources.postgres.snapshot import SnapshotReader
from penstock.sources.postgres.source import PostgresSource
from servers.postgres import Postgres
from table_types import TYPES, fill_types, make_types


def _read(stream: Any, checkpoint: Path | None = None) -> list[dict[str, Any]]:
    writer = stream.write_stream.trigger(ps.Trigger.available_now()).format("memory")
    if checkpoint is not None:
        writer = writer.option("checkpoint.location", str(checkpoint))
    query = writer.start()
    query.await_termination()
    return [row for batch in query.memory_batches() for row in batch.to_pylist()]


def _source(session: ps.Session, url: str, table: str = "t", **options: Any) -> Any:
    reader = session.read_stream.format("postgres").option("url", url)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(table)


@pytest.mark.smoke
def test_every_type_is_read_as_it_is(session: ps.Session, postgres: Postgres) -> None:
    url = postgres.new_database()
    make_types(url)
    fill_types(url)
    first, second = sorted(_read(_source(session, url)), key=lambda row: row["id"])
    found = {kind: first[f"c{place}"] for place, kind in enumerate(TYPES)}
    assert found == {kind: value for kind, (_, value) in TYPES.items()}
    assert [name for name, value in second.items() if value is not None] == ["id"]


def test_ranges_are_read_in_one_snapshot_while_rows_move(session: ps.Session, postgres: Postgres) -> None:
    """Every transaction moves a row to the other end of the key: readers of two moments would have it twice, or not at all."""
    url = postgres.new_database()
    postgres.execute("CREATE TABLE t (a text, b integer, at integer, PRIMARY KEY (a, b))", url)
    postgres.execute("INSERT INTO t SELECT chr(97 + g % 26), g, 1 FROM generate_series(1, 20000) g", url)
    over = threading.Event()

    def move() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not over.wait(0.001):
                connection.execute(
                    "UPDATE t SET a = chr(219 - ascii(a)) WHERE b = (SELECT 1 + (random() * 19999)::int)"
                )

    thread = threading.Thread(target=move)
    thread.start()
    try:
        rows = _read(_source(session, url, partitions=5, filter="b % 2 = 0 AND a <> '%{}'"))
    finally:
        over.set()
        thread.join()
    assert sorted(row["b"] for row in rows) == list(range(2, 20001, 2))


def test_columns_types_and_views(session: ps.Session, postgres: Postgres) -> None:
    url = postgres.new_database()
    postgres.execute("CREATE SCHEMA shop", url)
    postgres.execute("CREATE TABLE shop.t (id integer, n numeric, secret text)", url)
    postgres.execute("INSERT INTO shop.t VALUES (1, 'NaN', 'x'), (NULL, 1.25, NULL)", url)
    postgres.execute("CREATE VIEW v AS SELECT id, n FROM shop.t", url)
    stream = _source(session, url, schema="shop", columns="id,n", types={"n": "string"}, primary_key="id")
    assert sorted(map(str, _read(stream))) == ["{'id': 1, 'n': 'NaN'}", "{'id': None, 'n': '1.25'}"]
    assert {row["n"] for row in _read(_source(session, url, "v", special_values="null"))} == {
        None,
        Decimal("1.25"),
    }
    with pytest.raises(ps.PenstockError, match="the value 'NaN' of column 'n'") as error:
        _read(_source(session, url, "v"))
    assert error.value.code == "SOURCE_VALUE"


def test_a_batch_that_comes_again_has_the_same_ranges(postgres: Postgres) -> None:
    url = postgres.new_database()
    postgres.execute("CREATE TABLE t (id integer PRIMARY KEY)", url)
    postgres.execute("INSERT INTO t SELECT generate_series(1, 1000)", url)
    source = PostgresSource({"url": url, "table": "t", "partitions": 4})
    assert source.keys == ("id",)
    reading = source.plan()

    def read(reader: SnapshotReader, end: dict[str, Any]) -> list[list[int]]:
        parts = reader.partitions(reader.initial_offset(), end)
        return [
            [row for batch in reader.read(part) for row in batch.column("id").to_pylist()] for part in parts
        ]

    first = SnapshotReader(reading)
    end = first.latest_offset()
    before = read(first, end)
    assert first.latest_offset() == end
    first.stop()
    postgres.execute("DELETE FROM t WHERE id = 500", url)
    postgres.execute("INSERT INTO t VALUES (0), (2000)", url)
    again = SnapshotReader(reading)
    assert again.partitions(end, end) == []
    after = read(again, end)
    assert again.latest_offset() == end
    again.stop()
    assert [sorted(part) for part in before] == [list(range(low, low + 250)) for low in (1, 251, 501, 751)]
    assert sorted(row for part in after for row in part) == [0, *range(1, 500), *range(501, 1001), 2000]
    assert [min(part) for part in after] == [0, 251, 501, 751]


@pytest.mark.parametrize(
    ("options", "code", "hint"),
    [
        ({"table": "ordres"}, "SOURCE_TABLE_MISSING", "did you mean 'orders'"),
        ({"columns": "id,amuont"}, "SOURCE_COLUMN", "did you mean 'amount'"),
        ({"filter": "amount >"}, "SOURCE_STATEMENT", "filter"),
        ({"types": {"id": "date"}}, "SOURCE_TYPE", "string"),
        ({"url": "postgresql://penstock:wrong-secret@127.0.0.1:1/x"}, "SOURCE_UNREACHABLE", "start"),
    ],
)
def test_mistakes_are_told_before_a_query_runs(
    postgres: Postgres, options: dict[str, Any], code: str, hint: str
) -> None:
    url = postgres.new_database()
    postgres.execute("CREATE TABLE orders (id integer PRIMARY KEY, amount numeric)", url)
    with pytest.raises(ps.PenstockError) as error:
        PostgresSource({"url": url, "table": "orders", **options}).check()
    assert error.value.code == code
    assert hint in str(error.value.hint)
    assert "secret" not in str(error.value)
