"""Pathway: the query as a dataflow; a tick is a commit of a Python connector, until its result is out."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

import pathway as pw

from workload import CASES, Table


class Orders(pw.Schema):
    order: int = pw.column_definition(primary_key=True)  # "id" is the name of Pathway's own row pointers
    customer: int
    product: int
    amount: float


class Customers(pw.Schema):
    customer: int = pw.column_definition(primary_key=True)
    city: int


SCHEMAS: dict[str, Any] = {"orders": Orders, "customers": Customers}


def result(case: str, tables: dict[str, Any]) -> Any:
    """The query of a case."""
    orders = tables["orders"]
    if case == "aggregate":
        return orders.groupby(orders.customer).reduce(
            orders.customer,
            s=pw.reducers.sum(orders.amount),
            n=pw.reducers.count(),
            a=pw.reducers.avg(orders.amount),
            lo=pw.reducers.min(orders.amount),
            hi=pw.reducers.max(orders.amount),
        )
    if case == "join":
        customers = tables["customers"]
        joined = orders.join(customers, orders.customer == customers.customer).select(
            customers.city, orders.amount
        )
        return joined.groupby(joined.city).reduce(
            joined.city, s=pw.reducers.sum(joined.amount), n=pw.reducers.count()
        )
    if case == "left join":
        customers = tables["customers"]
        large = orders.filter(orders.amount > 50)
        return large.join_left(customers, large.customer == customers.customer).select(
            large.order, large.amount, customers.city
        )
    if case == "count distinct":
        return orders.groupby(orders.customer).reduce(
            orders.customer, n=pw.reducers.count_distinct(orders.product)
        )
    raise SystemExit("it has no window functions and no LIMIT")


def named(row: dict[str, Any]) -> dict[str, Any]:
    """A row by the names of the schemas, without its weight."""
    return {"order" if name == "id" else name: value for name, value in row.items() if name != "_weight"}


class Feed(pw.io.python.ConnectorSubject):
    """The rows of one table, then its changes, one commit each, when they are asked for."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self._table = table
        self.go = threading.Semaphore(0)
        self.changes: list[list[tuple[dict[str, Any], int]]] = []

    def run(self) -> None:
        for piece in self._table.load().to_batches(max_chunksize=10_000):
            for row in piece.to_pylist():
                self.next(**named(row))
        self.commit()
        for change in self.changes:
            self.go.acquire()
            for row, weight in change:
                if weight > 0:
                    self.next(**row)
                else:
                    self.delete(**row)
            self.commit()


def main(options: dict[str, object]) -> None:
    case = CASES[str(options["case"])]
    rows, ticks = int(str(options["rows"])), int(str(options["ticks"]))
    tables = {name: Table(name, rows) for name in case.tables}
    feeds = {name: Feed(Table(name, rows)) for name in tables}
    inputs = {
        name: pw.io.python.read(feed, schema=SCHEMAS[name], autocommit_duration_ms=None)
        for name, feed in feeds.items()
    }
    for name, feed in feeds.items():
        for _ in range(ticks):
            change = tables[name].change(1000).to_pylist()
            feed.changes.append([(named(row), row["_weight"]) for row in change])
    seen = threading.Event()
    changed = threading.Event()
    last = [0.0]

    def on_change(**_: Any) -> None:
        changed.set()

    def on_time_end(_: int) -> None:
        if changed.is_set():
            changed.clear()
            last[0] = time.perf_counter()
            seen.set()

    pw.io.subscribe(result(case.name, inputs), on_change=on_change, on_time_end=on_time_end)
    found: list[float] = []

    def drive() -> None:
        quiet()
        for _ in range(ticks):
            begin = time.perf_counter()
            for feed in feeds.values():
                feed.go.release()
            quiet()
            found.append((last[0] - begin) * 1000)
        print(json.dumps({"ms": found, "version": pw.__version__}), flush=True)
        os._exit(0)

    def quiet() -> None:
        """Wait until results have come and nothing has followed for a while."""
        seen.wait()
        while True:
            seen.clear()
            if not seen.wait(0.3):
                return

    driver = threading.Thread(target=drive, daemon=True)
    driver.start()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    driver.join()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
