"""Change streams to PostgreSQL: rows with operations keep a table right, once and only once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from open_sink import open_sink
from penstock.sinks.base import Epoch
from penstock.sinks.postgres.sink import PostgresSink
from seed import SEED
from servers.postgres import Postgres

SCHEMA = "id INT, v STRING, version INT, _op STRING"


def _rows(spark: SparkSession, *rows: Sequence[Any]) -> DataFrame:
    return spark.createDataFrame(list(rows), SCHEMA).coalesce(1)


def _sink(
    url: str, frame: DataFrame, mode: str = "update", keys: tuple[str, ...] = ("id",), **options: Any
) -> PostgresSink:
    sink = PostgresSink({"url": url, "table": "out", **options})
    return open_sink(sink, frame, mode=mode, keys=keys if mode == "update" else (), operation="_op")


def _stored(postgres: Postgres, url: str, table: str = "out") -> list[Any]:
    return postgres.execute(f"SELECT * FROM {table} ORDER BY 1", url)


@pytest.mark.smoke
def test_updates_and_deletes_are_applied_and_the_last_row_of_a_key_wins(
    spark: SparkSession, postgres: Postgres
) -> None:
    url = postgres.new_database()
    first = _rows(spark, (1, "a", 1, "i"), (2, "b", 1, "i"), (1, "c", 2, "u"), (3, "d", 1, "i"))
    sink = _sink(url, first)
    assert sink.write(Epoch(0, first)) == 3
    second = _rows(
        spark,
        (1, None, None, "d"),  # then comes back
        (1, "e", 3, "i"),
        (2, "f", 2, "u"),  # then goes
        (2, "f", 2, "d"),
        (9, None, None, "d"),  # was never there
        (3, None, 2, "u"),  # NULL is a value
        (4, "g", 1, None),  # without an operation it is an insert
    )
    assert sink.write(Epoch(1, second)) == 4
    assert sink.write(Epoch(1, second)) == 0
    sink.close()
    again = _sink(url, first)
    assert again.write(Epoch(1, second)) == 0
    again.close()
    assert _stored(postgres, url) == [(1, "e", 3), (3, None, 2), (4, "g", 1)]


def test_a_key_that_changes_is_a_delete_and_an_insert(spark: SparkSession, postgres: Postgres) -> None:
    url = postgres.new_database()
    frame = _rows(spark, (1, "a", 1, "i"), (2, "b", 1, "i"))
    sink = _sink(url, frame)
    sink.write(Epoch(0, frame))
    sink.write(Epoch(1, _rows(spark, (1, "a", 1, "d"), (2, "a", 2, "i"), (2, "b", 1, "d"), (3, "b", 2, "i"))))
    sink.close()
    assert _stored(postgres, url) == [(3, "b", 2)]


def test_update_where_keeps_newer_rows_and_sees_every_row(spark: SparkSession, postgres: Postgres) -> None:
    url = postgres.new_database()
    frame = _rows(spark, (1, "new", 5, "i"), (1, "old", 3, "u"), (2, "x", 1, "i"))
    sink = _sink(url, frame, update_where={"version": ">"})
    sink.write(Epoch(0, frame))
    sink.write(Epoch(1, _rows(spark, (1, "older", 4, "u"), (2, "y", 2, "u"), (2, "z", 2, "u"))))
    sink.close()
    assert _stored(postgres, url) == [(1, "new", 5), (2, "y", 2)]
    text = _sink(url, frame, update_where="EXCLUDED.version > target.version AND target.v <> 'y'")
    text.write(Epoch(2, _rows(spark, (1, "newer", 9, "u"), (2, "w", 9, "u"))))
    text.write(Epoch(3, _rows(spark, (2, None, None, "d"))))
    text.close()
    assert _stored(postgres, url) == [(1, "newer", 9)]


def test_update_where_with_only_the_last_row_of_a_key(spark: SparkSession, postgres: Postgres) -> None:
    url = postgres.new_database()
    frame = _rows(spark, (1, "a", 1, "i"))
    sink = _sink(url, frame, update_where={"version": ">"}, deduplicate=True)
    sink.write(Epoch(0, frame))
    sink.write(Epoch(1, _rows(spark, (1, "b", 5, "u"), (1, "c", 1, "u"))))
    sink.close()
    assert _stored(postgres, url) == [(1, "a", 1)]


def test_a_condition_that_cannot_work_refuses_the_start(spark: SparkSession, postgres: Postgres) -> None:
    url, frame = postgres.new_database(), _rows(spark, (1, "a", 1, "i"))
    with pytest.raises(ps.ConnectorError, match="nothing does not exist"):
        _sink(url, frame, update_where="EXCLUDED.nothing > 1")
    with pytest.raises(ps.ConfigError, match="has no comparison '~'"):
        _sink(url, frame, update_where={"version": "~"})


def test_on_conflict_nothing_leaves_rows_that_are_there(spark: SparkSession, postgres: Postgres) -> None:
    url = postgres.new_database()
    frame = _rows(spark, (1, "first", 1, "i"), (1, "second", 2, "u"))
    sink = _sink(url, frame, on_conflict="nothing")
    sink.write(Epoch(0, frame))
    sink.write(
        Epoch(1, _rows(spark, (1, "third", 3, "u"), (2, "a", 1, "i"), (2, None, None, "d"), (2, "b", 2, "i")))
    )
    sink.write(Epoch(2, _rows(spark, (1, None, None, "d"), (3, "c", 1, "i"), (3, None, None, "d"))))
    sink.close()
    assert _stored(postgres, url) == [(2, "b", 2)]


@pytest.mark.parametrize("operation", ["d", "u"])
def test_a_table_that_only_grows_refuses_changes_as_a_whole(
    spark: SparkSession, postgres: Postgres, operation: str
) -> None:
    url = postgres.new_database()
    frame = _rows(spark, (1, "a", 1, "i"), (1, "a", 1, "i"))
    sink = _sink(url, frame, "append")
    assert sink.write(Epoch(0, frame)) == 2
    with pytest.raises(ps.DataError, match=f"has the operation '{operation}'") as refused:
        sink.write(Epoch(1, _rows(spark, (2, "b", 1, "i"), (1, "a", 1, operation))))
    sink.close()
    assert refused.value.code == "SINK_OPERATION"
    assert _stored(postgres, url) == [(1, "a", 1), (1, "a", 1)]


def test_an_error_in_the_middle_leaves_the_epoch_out(spark: SparkSession, postgres: Postgres) -> None:
    url = postgres.new_database()
    postgres.execute("CREATE TABLE out (id INT PRIMARY KEY, v TEXT CHECK (v <> 'bad'), version INT)", url)
    frame = _rows(spark, (1, "a", 1, "i"), (2, "b", 1, "i"))
    sink = _sink(url, frame)
    sink.write(Epoch(0, frame))
    with pytest.raises(ps.DataError, match="violates check constraint"):
        sink.write(Epoch(1, _rows(spark, (1, None, None, "d"), (2, "bad", 2, "u"))))
    assert _stored(postgres, url) == [(1, "a", 1), (2, "b", 1)]
    assert sink.write(Epoch(1, _rows(spark, (1, None, None, "d"), (2, "good", 2, "u")))) == 2
    sink.close()
    assert _stored(postgres, url) == [(2, "good", 2)]


def test_a_schema_is_created_with_its_table(spark: SparkSession, postgres: Postgres) -> None:
    url, frame = postgres.new_database(), _rows(spark, (1, "a", 1, "i"))
    for _ in range(2):
        sink = _sink(url, frame, table="Sales.out")
        sink.write(Epoch(0, frame))
        sink.close()
    assert _stored(postgres, url, '"Sales".out') == [(1, "a", 1)]


def test_rows_with_weights_have_no_key(spark: SparkSession, postgres: Postgres) -> None:
    frame = spark.createDataFrame([(1, 1)], "id INT, _weight INT")
    with pytest.raises(ps.ConfigError, match="a view without a key") as refused:
        _sink(postgres.new_database(), frame)
    assert refused.value.hint is not None
    assert "primary_key" in refused.value.hint


@pytest.mark.parametrize("options", [{}, {"update_where": {"version": ">="}}, {"on_conflict": "nothing"}])
def test_random_histories_end_in_the_rows_that_one_by_one_would_give(
    spark: SparkSession, postgres: Postgres, options: dict[str, Any]
) -> None:
    url, chance = postgres.new_database(), random.Random(SEED)
    expected: dict[int, tuple[Any, ...]] = {}
    frame = _rows(spark, (0, "", 0, "i"))
    sink = _sink(url, frame, **options)
    for epoch in range(4):
        rows = [
            (chance.randrange(6), chance.choice(["a", "b", None]), chance.randrange(5), chance.choice("iuud"))
            for _ in range(chance.randrange(1, 25))
        ]
        for key, value, version, operation in rows:
            if operation == "d":
                expected.pop(key, None)
            elif key not in expected or (
                "on_conflict" not in options
                and ("update_where" not in options or version >= expected[key][2])
            ):
                expected[key] = (key, value, version)
        sink.write(Epoch(epoch, _rows(spark, *rows)))
        assert _stored(postgres, url) == sorted(expected.values()), rows
    sink.close()
