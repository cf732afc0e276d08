"""A lake view over a large Iceberg table: a refresh after an append beside computing the same query again.

    python benchmarks/lake.py [--rows 50000000] [--appended 1000000] [--customers 100000] [--rounds 5]

Every round appends rows to the table, refreshes the lake view, and then lets Spark compute the query over the whole table and write it to another Iceberg table.
Both tables are compared at the end.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import penstock as ps
from harness import machine, publish, shown, table, times

QUERIES = {
    "sums by customer": "SELECT customer, count(*) AS orders, sum(amount) AS total FROM {orders} GROUP BY customer",
    "a join, by region": (
        "SELECT region, count(*) AS orders, sum(amount) AS total, max(amount) AS largest, avg(amount) AS mean "
        "FROM {orders} o JOIN {customers} c ON o.customer = c.customer GROUP BY region"
    ),
}


def _seconds(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def _append(session: ps.Session, first: int, count: int, customers: int) -> None:
    session.spark.sql(
        f"INSERT INTO lake.db.orders SELECT id, pmod(hash(id), {customers}) AS customer, CAST(pmod(xxhash64(id), 10000) AS BIGINT) AS amount "
        f"FROM range({first}, {first + count}, 1, 4)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, default in (
        ("rows", 50_000_000),
        ("appended", 1_000_000),
        ("customers", 100_000),
        ("rounds", 5),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="penstock-lake-"))
    try:
        publish("lake", _measured(folder, options))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measured(folder: Path, options: argparse.Namespace) -> str:
    lines = []
    with ps.Session.embedded(
        connectors=("iceberg",), catalogs={"lake": {"type": "hadoop", "warehouse": str(folder)}}
    ) as session:
        spark = session.spark
        spark.sql("CREATE NAMESPACE lake.db")
        spark.sql("CREATE TABLE lake.db.orders (id BIGINT, customer INT, amount BIGINT) USING iceberg")
        spark.sql("CREATE TABLE lake.db.customers (customer INT, region INT) USING iceberg")
        spark.sql(
            f"INSERT INTO lake.db.customers SELECT CAST(id AS INT), CAST(id % 1000 AS INT) FROM range({options.customers})"
        )
        _append(session, 0, options.rows, options.customers)
        names = {"orders": "lake.db.orders", "customers": "lake.db.customers"}
        load = os.getloadavg()[0]
        last = options.rows
        for number, (name, text) in enumerate(QUERIES.items()):
            query, view, other = text.format(**names), f"lake.db.v{number}", f"lake.db.r{number}"
            made = _seconds(partial(session.sql, f"CREATE INCREMENTAL VIEW {view} AS {query}"))
            spark.sql(f"CREATE TABLE {other} USING iceberg AS {query}")
            refreshes, recomputed = [], []
            for round_number in range(options.rounds + 1):
                _append(session, last, options.appended, options.customers)
                last += options.appended
                refresh = _seconds(partial(session.sql, f"REFRESH INCREMENTAL VIEW {view}"))
                again = _seconds(partial(spark.sql, f"INSERT OVERWRITE {other} {query}"))
                if round_number:  # the first one is to warm up
                    refreshes.append(refresh * 1000)
                    recomputed.append(again * 1000)
            assert spark.table(view).exceptAll(spark.table(other)).isEmpty(), (
                "the view is not what Spark computes"
            )
            assert spark.table(other).exceptAll(spark.table(view)).isEmpty(), (
                "the view is not what Spark computes"
            )
            mine, theirs = times(refreshes), times(recomputed)
            lines.append(
                [name, shown(mine.p50), shown(theirs.p50), f"{theirs.p50 / mine.p50:.1f}x", f"{made:.1f} s"]
            )
            session.sql(f"DROP INCREMENTAL VIEW {view}")
    head = ["view", "refresh, ms (p50)", "computing it again, ms (p50)", "ratio", "first fill"]
    return (
        f"{options.rows:,} rows of 3 columns in an Iceberg table, {options.appended:,} appended per round, {options.customers:,} customers, {options.rounds} rounds.\n\n"
        f"{table(head, lines)}\n\nMeasured on: {machine()} (at the first round {load:.1f})."
    )


if __name__ == "__main__":
    main()
