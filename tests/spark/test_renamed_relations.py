"""Queries whose relations got other names resolve as before."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.sql.relation import renamed


@pytest.fixture(scope="module")
def names(session: ps.Session) -> dict[str, str]:
    """Two relations with dotted names, and what they are called in the session."""
    spark = session.spark
    spark.sql("SELECT * FROM VALUES (1, 10), (2, 20) AS t(id, amount)").createOrReplaceTempView("renamed_one")
    spark.sql("SELECT * FROM VALUES (2, 'x'), (3, 'y') AS t(id, code)").createOrReplaceTempView("renamed_two")
    return {"raw.orders": "renamed_one", "clean.orders": "renamed_two", "plain": "renamed_two"}


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT raw.orders.amount, orders.id FROM raw.orders ORDER BY orders.id", [(10, 1), (20, 2)]),
        ("SELECT raw.orders.* FROM raw.orders WHERE raw.orders.id = 1", [(1, 10)]),
        ("SELECT o.amount FROM Raw.Orders o JOIN plain USING (id)", [(20,)]),
        ("SELECT plain.code FROM raw.orders JOIN plain ON orders.id = plain.id", [("x",)]),
        (
            "SELECT raw.orders.amount, clean.orders.code FROM raw.orders JOIN clean.orders ON raw.orders.id = clean.orders.id",
            [(20, "x")],
        ),
        ("WITH big AS (SELECT id FROM raw.orders WHERE orders.amount > 10) SELECT * FROM big", [(2,)]),
        ("SELECT id FROM plain WHERE EXISTS (SELECT 1 FROM raw.orders WHERE orders.id = plain.id)", [(2,)]),
        ("TABLE plain UNION ALL SELECT id, 'z' FROM `raw`.`orders` ORDER BY 1, 2", [(1, "z"), (2, "x"), (2, "z"), (3, "y")]),
        ("SELECT count(*) FROM raw.orders TABLESAMPLE (100 PERCENT), plain TABLESAMPLE (100 PERCENT) p", [(4,)]),
        ("FROM plain |> WHERE plain.id > 2 |> SELECT code", [("y",)]),
    ],
)  # fmt: skip
def test_columns_resolve_as_before(
    session: ps.Session, names: dict[str, str], text: str, rows: list[tuple[object, ...]]
) -> None:
    assert [tuple(row) for row in session.spark.sql(renamed(text, names)).collect()] == rows
