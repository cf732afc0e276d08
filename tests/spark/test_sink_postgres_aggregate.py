"""Aggregates in PostgreSQL: after any history they are what a query over the rows gives."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from open_sink import open_sink
from penstock.sinks.base import Epoch
from penstock.sinks.postgres.aggregate import PostgresAggregateSink
from seed import SEED
from servers.postgres import Postgres

SCHEMA = "id INT, account STRING, day DATE, amount DECIMAL(12,2), n BIGINT, x DOUBLE, note STRING, _op STRING"
BY_ACCOUNT: dict[str, Any] = {
    "group_by": "account",
    "aggregate": {
        "orders": {"fn": "count"},
        "notes": {"fn": "count", "from": "note"},
        "amount": {"fn": "sum"},
        "mean": {"fn": "avg", "from": "amount"},
        "total_n": {"fn": "sum", "from": "n", "type": "bigint"},
        "total_x": {"fn": "sum", "from": "x"},
        "least": {"fn": "min", "from": "n"},
        "last note": {"fn": "max", "from": "note"},
    },
}
RESULTS = "count(*), count(note), sum(amount), avg(amount), sum(n)::bigint, sum(x), min(n), max(note)"


def _rows(spark: SparkSession, *rows: Sequence[Any]) -> DataFrame:
    return spark.createDataFrame(list(rows), SCHEMA).coalesce(1)


def _sink(url: str, frame: DataFrame, *, query: str = "q-1", **options: Any) -> PostgresAggregateSink:
    names = {"landing_table": "landing", "agg_table": "totals"}
    sink = PostgresAggregateSink({"url": url, **names, **BY_ACCOUNT, **options})
    return open_sink(sink, frame, mode="update", keys=("id",), operation="_op", query=query)


def _totals(postgres: Postgres, url: str, columns: str = "*") -> list[Any]:
    return postgres.execute(f"SELECT {columns} FROM totals ORDER BY account NULLS FIRST", url)


@pytest.mark.smoke
def test_inserts_updates_and_deletes_correct_the_aggregates(spark: SparkSession, postgres: Postgres) -> None:
    url = postgres.new_database()
    columns = "account, orders, total_n, least"
    first = spark.createDataFrame(
        [(1, "ann", 5, "i"), (2, "ann", 3, "i"), (3, "bob", 7, "i"), (4, None, 1, "i"), (4, None, 2, "u")],
        "id INT, account STRING, n INT, _op STRING",
    ).coalesce(1)
    aggregate = {
        "orders": {"fn": "count"},
        "total_n": {"fn": "sum", "from": "n"},
        "least": {"fn": "min", "from": "n"},
    }
    sink = _sink(url, first, aggregate=aggregate)
    assert sink.write(Epoch(0, first)) == 4
    assert sink.write(Epoch(0, first)) == 0
    assert _totals(postgres, url, columns) == [(None, 1, 2, 2), ("ann", 2, 8, 3), ("bob", 1, 7, 7)]
    second = spark.createDataFrame(
        [(2, None, None, "d"), (3, "ann", 9, "u"), (4, None, None, "d"), (99, "eve", 1, "d")], first.schema
    ).coalesce(1)
    sink.write(Epoch(1, second))
    sink.close()
    again = _sink(url, first, aggregate=aggregate)
    assert again.write(Epoch(1, second)) == 0
    again.close()
    assert _totals(postgres, url, columns) == [("ann", 2, 14, 5)]


@pytest.mark.parametrize(
    "group_by", ["account", {"account": {"type": "varchar(20)"}, "at": {"from": "day"}}, {}]
)
def test_random_histories(spark: SparkSession, postgres: Postgres, group_by: Any) -> None:
    url, chance = postgres.new_database(), random.Random(SEED)
    sink = _sink(url, _rows(spark), group_by=group_by)
    groups = {"account": "account", "at": "day"} if isinstance(group_by, dict) else {"account": "account"}
    groups = groups if group_by else {}
    kept = ", ".join([*groups, 'orders, notes, amount, mean, total_n, total_x, least, "last note"'])
    wanted = ", ".join([*groups.values(), RESULTS])
    having = f"GROUP BY {', '.join(groups.values())}" if groups else "HAVING count(*) > 0"
    for epoch in range(6):
        rows = [
            (
                chance.randrange(12),
                chance.choice(["a", "b", "", None]),
                chance.choice([None, date(2024, 1, 1), date(2024, 1, 2)]),
                chance.choice([None, Decimal(1), Decimal("2.55"), Decimal(-3)]),
                chance.choice([None, -(2**31), 7, 2**31]),
                chance.choice([None, 0.5, -0.25, float("inf"), float("nan")]),
                chance.choice([None, "x", "y"]),
                chance.choice("iuudd" if epoch else "i"),
            )
            for _ in range(chance.randrange(1, 20))
        ]
        sink.write(Epoch(epoch, _rows(spark, *rows)))
        found = postgres.execute(f"SELECT {kept} FROM totals", url)
        expected = postgres.execute(f"SELECT {wanted} FROM landing {having}", url)
        assert sorted(map(str, found)) == sorted(map(str, expected)), rows
    sink.close()


def test_a_table_of_aggregates_is_made_of_the_rows_that_are_there(
    spark: SparkSession, postgres: Postgres
) -> None:
    url = postgres.new_database()
    frame = spark.createDataFrame(
        [(1, "ann", 5, "i"), (2, "bob", 3, "i")], "id INT, account STRING, n INT, _op STRING"
    )
    plain = {"sum": {"fn": "sum", "from": "n"}}
    sink = _sink(url, frame, aggregate=plain)
    sink.write(Epoch(0, frame))
    sink.close()
    with pytest.raises(ps.DataError, match="is not made of these aggregates") as refused:
        _sink(url, frame, aggregate={"sum": {"fn": "max", "from": "n"}})
    assert refused.value.code == "STREAM_SCHEMA_CHANGED"
    postgres.execute("DROP TABLE totals", url)
    sink = _sink(url, frame, aggregate=plain)
    assert _totals(postgres, url, "account, sum") == [("ann", 5), ("bob", 3)]
    postgres.execute("DELETE FROM totals", url)
    with pytest.raises(ps.DataError, match="lacks rows that landing had"):
        sink.write(Epoch(1, spark.createDataFrame([(1, "ann", 5, "d")], frame.schema)))
    sink.close()
    assert len(postgres.execute("SELECT * FROM landing", url)) == 2


def test_an_error_in_the_middle_leaves_both_tables_as_they_were(
    spark: SparkSession, postgres: Postgres
) -> None:
    url = postgres.new_database()
    postgres.execute("CREATE TABLE landing (id INT PRIMARY KEY, account TEXT, n INT CHECK (n < 100))", url)
    frame = spark.createDataFrame([(1, "ann", 5, "i")], "id INT, account STRING, n INT, _op STRING")
    sink = _sink(url, frame, aggregate={"sum": {"fn": "sum", "from": "n"}})
    sink.write(Epoch(0, frame))
    bad = spark.createDataFrame([(1, "ann", 5, "d"), (2, "bob", 100, "i")], frame.schema)
    with pytest.raises(ps.DataError, match="violates check constraint"):
        sink.write(Epoch(1, bad))
    sink.close()
    assert postgres.execute("SELECT * FROM landing", url) == [(1, "ann", 5)]
    assert _totals(postgres, url, "account, sum") == [("ann", 5)]


def test_two_queries_keep_one_table(spark: SparkSession, postgres: Postgres) -> None:
    url = postgres.new_database()
    frame = spark.createDataFrame(
        [(1, "ann", 5, "i"), (2, "bob", 1, "i")], "id INT, account STRING, n INT, _op STRING"
    )
    aggregate = {"sum": {"fn": "sum", "from": "n"}}
    one, other = (_sink(url, frame, query=query, aggregate=aggregate) for query in ("q-1", "q-2"))
    one.write(Epoch(0, frame))
    other.write(Epoch(0, spark.createDataFrame([(1, "bob", 7, "u")], frame.schema)))
    one.close()
    other.close()
    assert _totals(postgres, url, "account, sum") == [("bob", 8)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"aggregate": {}}, "aggregate"),
        ({"aggregate": {"s": {"fn": "sum", "from": "amont"}}}, "no column 'amont'"),
        ({"aggregate": {"s": {"fn": "sum", "from": "note"}}}, "sum of 'note', which is string"),
        ({"aggregate": {"s": {"fn": "median"}}}, "unknown aggregate.* 'median'"),
        (
            {"aggregate": {"s": {"fn": "max", "from": "n", "type": "int; DROP TABLE x"}}},
            "is no type of PostgreSQL",
        ),
        ({"aggregate": {"account": {"fn": "count"}}}, "the column 'account' twice"),
        ({"group_by": {"who": {"from": "nobody"}}}, "no column 'nobody'"),
    ],
)
def test_what_cannot_work_is_refused_at_once(
    spark: SparkSession, postgres: Postgres, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ps.ConfigError, match=words):
        _sink(postgres.url(), _rows(spark), **options)
