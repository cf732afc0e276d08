"""A DataFrame that follows the rows of one of its leaves gives what Spark gives over the rows of then."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import penstock as ps

ORDERS = [
    {"id": 1, "customer": 7, "amount": 30},
    {"id": 2, "customer": 7, "amount": 12},
    {"id": 3, "customer": 8, "amount": 5},
]


@pytest.fixture
def orders(session: ps.Session) -> DataFrame:
    return session.spark.createDataFrame(
        [tuple(row.values()) for row in ORDERS], "id BIGINT, customer BIGINT, amount BIGINT"
    )


@pytest.fixture
def customers(session: ps.Session) -> DataFrame:
    return session.spark.createDataFrame([(7, "Oslo"), (8, "Lima")], "id BIGINT, city STRING")


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(map(str, rows))


def totals(frame: DataFrame) -> DataFrame:
    return (
        frame.where("amount > 4").groupBy("customer").agg(F.sum("amount").alias("total")).orderBy("customer")
    )


def test_every_kind_of_change(session: ps.Session, orders: DataFrame) -> None:
    inc = ps.to_incremental(totals(orders))
    live = list(ORDERS)

    def check() -> None:
        expected = totals(session.spark.createDataFrame(live, orders.schema)).toArrow().to_pylist()
        assert inc.snapshot().to_pylist() == expected

    check()
    changes = inc.changes()
    live.append({"id": 4, "customer": 9, "amount": 6})
    summary = inc.insert(live[-1:])
    assert summary is not None
    assert summary.rows_out == 1
    check()
    assert changes.recv(timeout=5).to_pylist() == [{"customer": 9, "total": 6, "_weight": 1}]
    inc.delete([live.pop(0)])
    check()
    old, new = live[0], {**live[0], "amount": 100}
    inc.update([old], [new])
    live[0] = new
    check()
    live[0] = {**new, "customer": 8}
    inc.update([live[0]], keys=["id"])
    check()
    inc.apply_cdc([{"op": "d", **live[1]}, {"op": "c", "id": 9, "customer": 1, "amount": 50}], keys=["id"])
    live[1] = {"id": 9, "customer": 1, "amount": 50}
    check()
    with pytest.raises(ps.ConfigError) as refused:
        inc.update([live[0]])
    assert refused.value.code == "FLOW_KEYS"
    assert inc.explain().tier == "kernel"
    inc.close()
    assert changes.recv(timeout=5) is not None
    assert session.spark.range(1).count() == 1, "Spark goes on"


def refused_transaction(inc: ps.IncrementalDataFrame, *inserts: Any, delete: int | None = None) -> None:
    with inc.transaction():
        for rows in inserts:
            inc.insert(rows)
        if delete is not None:
            inc.delete([{"id": delete}])


def test_a_transaction_is_one_tick_or_nothing(orders: DataFrame) -> None:
    inc = ps.to_incremental(totals(orders), primary_key="id")
    before = inc.snapshot()
    tick = inc.flow.ticks()[-1]
    with inc.transaction() as transaction:
        assert inc.insert([{"id": 4, "customer": 9, "amount": 6}]) is None
        inc.update([{"id": 1, "customer": 9, "amount": 5}])
        inc.delete([{"id": 2}])
        with pytest.raises(ps.DataError):
            refused_transaction(
                inc, [{"id": 5, "customer": 9, "amount": 1_000}], [{"id": 8, "customer": "x"}]
            )
        assert inc.snapshot() == before
    assert transaction.summary is not None
    assert transaction.summary.tick == tick + 1
    assert inc.snapshot().to_pylist() == [{"customer": 8, "total": 5}, {"customer": 9, "total": 11}]
    after = inc.snapshot()
    for last in ([{"id": 8, "customer": "x"}], [{"id": 8, "customer": 9, "amount": None, "more": 1}]):
        with pytest.raises(ps.DataError):
            refused_transaction(inc, [{"id": 7, "customer": 9, "amount": 6}], last)
    with pytest.raises(ps.DataError) as refused:
        refused_transaction(
            inc, [{"id": 7, "customer": 9, "amount": 6}], [{"id": 8, "customer": 9, "amount": 1}], delete=99
        )
    assert refused.value.code == "DATA_MISSING_ROW"
    assert inc.snapshot() == after
    assert inc.insert([{"id": 7, "customer": 8, "amount": 6}]) is not None
    with inc.transaction() as empty:
        pass
    assert empty.summary is None


def test_several_leaves_need_a_source(session: ps.Session, orders: DataFrame, customers: DataFrame) -> None:
    joined = (
        orders.alias("o")
        .join(customers.alias("c"), F.col("o.customer") == F.col("c.id"))
        .select("o.id", "city")
    )
    with pytest.raises(ps.ConfigError) as refused:
        ps.to_incremental(joined)
    assert refused.value.message == "the DataFrame has 2 leaves: o (id, customer, amount); c (id, city)"
    with pytest.raises(ps.ConfigError, match="no leaf of the name 'orders'"):
        ps.to_incremental(joined, source="orders")
    with pytest.raises(ps.ConfigError, match="is not made of"):
        ps.to_incremental(joined, source=session.spark.range(3))
    for source in ("o", "O", orders):
        inc = ps.to_incremental(joined, source=source)
        inc.insert([{"id": 4, "customer": 8, "amount": 6}])
        assert counted(inc.snapshot().to_pylist()) == counted(
            [
                {"id": number, "city": city}
                for number, city in [(1, "Oslo"), (2, "Oslo"), (3, "Lima"), (4, "Lima")]
            ]
        )
    inc = ps.to_incremental(joined, source=customers)
    inc.delete([{"id": 7, "city": "Oslo"}])
    assert inc.snapshot().to_pylist() == [{"id": 3, "city": "Lima"}]


def test_a_leaf_that_is_read_twice_is_one_source(orders: DataFrame) -> None:
    """A self join, and a subquery."""
    pairs = (
        orders.alias("a")
        .join(orders.alias("b"), "customer")
        .where("a.id < b.id")
        .select("a.id", F.col("b.id").alias("other"))
    )
    inc = ps.to_incremental(pairs)
    inc.insert([{"id": 4, "customer": 8, "amount": 6}])
    assert counted(inc.snapshot().to_pylist()) == counted([{"id": 1, "other": 2}, {"id": 3, "other": 4}])


def test_files_tables_views_and_parts_of_a_query(
    session: ps.Session, orders: DataFrame, tmp_path: Path
) -> None:
    path = str(tmp_path / "orders")
    orders.write.parquet(path)
    inc = ps.to_incremental(totals(session.read_parquet(path)))
    inc.insert([{"id": 4, "customer": 8, "amount": 6}])
    assert inc.snapshot().to_pylist() == [{"customer": 7, "total": 42}, {"customer": 8, "total": 11}]

    orders.where("id < 3").createOrReplaceTempView("inc_orders")
    query = "SELECT * FROM inc_orders WHERE amount < (SELECT MAX(amount) FROM inc_orders)"
    inc = ps.to_incremental(session.sql(query))
    assert inc.source == "inc_orders"
    assert inc.snapshot().to_pylist() == ORDERS[1:2]
    inc.insert([{"id": 5, "customer": 1, "amount": 99}])
    assert counted(inc.snapshot().to_pylist()) == counted(ORDERS[:2])

    local = session.spark.createDataFrame(pa.Table.from_pylist(ORDERS))
    numbers = session.spark.range(2).withColumnRenamed("id", "n")
    inc = ps.to_incremental(
        local.crossJoin(numbers).groupBy("n").agg(F.sum("amount").alias("total")), source=local
    )
    inc.delete(ORDERS[:1])
    assert counted(inc.snapshot().to_pylist()) == counted([{"n": 0, "total": 17}, {"n": 1, "total": 17}])

    large = orders.where("amount > 10").withColumn("half", F.col("amount") / 2)
    inc = ps.to_incremental(large.groupBy().agg(F.sum("half").alias("halves")), source=large)
    assert inc.snapshot().to_pylist() == [{"halves": 21.0}]
    inc.insert([{"id": 9, "customer": 1, "amount": 11, "half": 0.5}])
    assert inc.snapshot().to_pylist() == [{"halves": 21.5}]


def test_what_has_no_rows_that_could_change(session: ps.Session, tmp_path: Path) -> None:
    with pytest.raises(ps.ConfigError, match="no rows that could change"):
        ps.to_incremental(session.sql("SELECT 1 AS one"))
    stream = session.spark.readStream.schema("id BIGINT").parquet(str(tmp_path))
    with pytest.raises(ps.ConfigError, match="is a stream"):
        ps.to_incremental(stream)
    with pytest.raises(ps.ConfigError) as refused:
        ps.to_incremental([{"id": 1}])  # type: ignore[arg-type]
    assert refused.value.code == "INCREMENTAL_SOURCE"
