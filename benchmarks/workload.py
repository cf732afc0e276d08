"""The tables, changes and queries of the tick benchmarks, the same for every engine: NumPy and PyArrow only.

`orders` has ten rows per customer and a hundred per product. A change inserts fresh rows and deletes random ones, 80 to 20.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]

ORDERS = pa.schema(
    [("id", pa.int64()), ("customer", pa.int64()), ("product", pa.int64()), ("amount", pa.float64())]
)
CUSTOMERS = pa.schema([("customer", pa.int64()), ("city", pa.int64())])
SCHEMAS = {"orders": ORDERS, "customers": CUSTOMERS}


@dataclass(frozen=True, slots=True)
class Case:
    """One query: its name, the tables that it reads, and the p50 it should reach in milliseconds."""

    name: str
    sql: str
    tables: tuple[str, ...]
    goal: float


_RANKED = "SELECT id, product, amount, row_number() OVER (PARTITION BY product ORDER BY amount DESC, id) AS place FROM orders"

CASES = {
    case.name: case
    for case in (
        Case(
            "aggregate",
            "SELECT customer, sum(amount) AS s, count(*) AS n, avg(amount) AS a, min(amount) AS lo, max(amount) AS hi "
            "FROM orders GROUP BY customer",
            ("orders",),
            5,
        ),
        Case(
            "join",
            "SELECT c.city, sum(o.amount) AS s, count(*) AS n FROM orders o JOIN customers c "
            "ON o.customer = c.customer GROUP BY c.city",
            ("orders", "customers"),
            10,
        ),
        Case(
            "top-10",
            f"SELECT id, product, amount, place FROM ({_RANKED}) WHERE place <= 10",
            ("orders",),
            10,
        ),
        Case(
            "count distinct",
            "SELECT customer, count(DISTINCT product) AS n FROM orders GROUP BY customer",
            ("orders",),
            10,
        ),
        Case(
            "left join",
            "SELECT o.id, o.amount, c.city FROM orders o LEFT JOIN customers c ON o.customer = c.customer "
            "WHERE o.amount > 50",
            ("orders", "customers"),
            10,
        ),
        Case(
            "window",
            "SELECT id, customer, amount, rank() OVER (PARTITION BY customer ORDER BY amount DESC) AS place FROM orders",
            ("orders",),
            10,
        ),
        Case(
            "aggregate, one group",
            "SELECT sum(amount) AS s, count(*) AS n, avg(amount) AS a, min(amount) AS lo, max(amount) AS hi FROM orders",
            ("orders",),
            5,
        ),
        Case(
            "top-10, one group",
            "SELECT id, product, amount FROM orders ORDER BY amount DESC, id LIMIT 10",
            ("orders",),
            10,
        ),
        Case(
            "count distinct, one group",
            "SELECT count(DISTINCT product) AS n FROM orders",
            ("orders",),
            10,
        ),
    )
}
SIX = ("aggregate", "join", "top-10", "count distinct", "left join", "window")


def _mixed(ids: Ints, salt: int) -> npt.NDArray[np.uint64]:
    """Numbers that look random, a function of the id: a deleted row is made again from it."""
    words = ids.astype(np.uint64) + np.uint64(salt * 0x9E3779B97F4A7C15 % 2**64)
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


class Table:
    """One table: which rows are there, and the next change of them."""

    def __init__(self, name: str, rows: int, seed: int = 7) -> None:
        self.name = name
        self._share = 10 if name == "customers" else 1
        self._customers = max(rows // 10, 10)
        self._products = max(rows // 100, 10)
        self._alive = np.arange(rows // self._share)
        self._next = len(self._alive)
        self._random = np.random.default_rng(seed)

    def load(self) -> pa.Table:
        """All rows at the start."""
        return self._rows(self._alive)

    def change(self, rows: int, deleted: float = 0.2) -> pa.Table:
        """The next change, with `_weight`; of the customers, a tenth of that many rows."""
        rows = max(rows // self._share, 1)
        gone = int(rows * deleted)
        fresh = np.arange(self._next, self._next + rows - gone)
        self._next += len(fresh)
        at = self._random.choice(len(self._alive), gone, replace=False)
        ids = np.concatenate([fresh, self._alive[at]])
        # Fresh rows take the places of deleted ones, so that the choice stays cheap.
        self._alive[at] = fresh[:gone]
        self._alive = np.concatenate([self._alive, fresh[gone:]])
        weights = np.ones(len(ids), np.int64)
        weights[len(fresh) :] = -1
        return self._rows(ids).append_column("_weight", pa.array(weights))

    def _rows(self, ids: Ints) -> pa.Table:
        if self.name == "customers":
            cities = (_mixed(ids, 5) % np.uint64(max(self._customers // 10, 1))).astype(np.int64)
            return pa.table([pa.array(ids), pa.array(cities)], schema=CUSTOMERS)
        columns: Mapping[str, npt.NDArray[np.generic]] = {
            "id": ids,
            "customer": (_mixed(ids, 1) % np.uint64(self._customers)).astype(np.int64),
            "product": (_mixed(ids, 2) % np.uint64(self._products)).astype(np.int64),
            "amount": (_mixed(ids, 3) % np.uint64(1_000_000)) / 10_000,
        }
        return pa.table({name: pa.array(column) for name, column in columns.items()}, schema=ORDERS)
