"""The tables of a query stand still while Spark optimizes it, whichever of its threads ask for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from penstock.spark.flow_table import MOST_PINNED, PinnedTables


class Ticking:
    """A flow whose tables have the number of the tick as their only row; every pin comes a tick later."""

    def __init__(self, *, together: int = 1) -> None:
        self.pins = 0
        self._together = threading.Barrier(together)

    def pin(self) -> Mapping[str, Callable[[], pa.Table]]:
        self._together.wait(10)
        self.pins += 1
        rows = pa.table({"tick": [self.pins]})
        return {"orders": lambda: rows, "customers": lambda: rows}


def dataset(name: str, rows: pa.Table) -> Any:
    return [name, *rows["tick"].to_pylist()]


def test_a_query_reads_all_tables_at_one_tick_and_each_once() -> None:
    flow = Ticking()
    tables = PinnedTables(flow.pin, dataset)
    orders = tables.dataset("q", "orders")
    assert tables.dataset("q", "customers") == ["customers", 1]
    assert tables.dataset("q", "orders") is orders
    assert tables.dataset("other", "orders") == ["orders", 2]
    tables.release("q")
    tables.release("q")
    assert tables.dataset("q", "orders") == ["orders", 3]


def test_two_threads_of_one_query_get_the_same_rows() -> None:
    """Both find that the query is new, and pin: the one that comes second takes what the first has."""
    flow = Ticking(together=2)
    tables, answers = PinnedTables(flow.pin, dataset), list[Any]()
    threads = [
        threading.Thread(target=lambda name=name: answers.append(tables.dataset("q", name)))
        for name in ("orders", "customers")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert flow.pins == 2
    assert len({tick for _, tick in answers}) == 1
    tick = answers[0][1]
    assert tables.dataset("q", "orders") == ["orders", tick]
    assert tables.dataset("q", "customers") == ["customers", tick]


def test_queries_that_never_end_are_forgotten() -> None:
    flow = Ticking()
    tables = PinnedTables(flow.pin, dataset)
    for number in range(MOST_PINNED + 1):
        tables.dataset(f"q{number}", "orders")
    assert tables.dataset("q1", "orders") == ["orders", 2]
    assert tables.dataset("q0", "orders") == ["orders", MOST_PINNED + 2]
