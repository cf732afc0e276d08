"""Relations and plans for tests that ask Catalyst."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.plan import codec, node
from penstock.spark.catalyst import PlannedView, Relation, plan_view

TPCH = Path(__file__).parents[1] / "golden" / "tpch"


def relation(name: str, ddl: str) -> Relation:
    """A relation from 'column TYPE, ...' without constraints."""
    depth, parts = 0, [""]
    for char in ddl:
        depth += (char in "<(") - (char in ">)")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    columns = [part.strip().partition(" ") for part in parts]
    return Relation(name, tuple(node.Field(column, kind.strip().lower()) for column, _, kind in columns))


TPCH_RELATIONS = {
    name: relation(name, ddl)
    for name, _, ddl in (line.partition(":") for line in (TPCH / "tables.txt").read_text().splitlines())
}
RELATIONS = {
    "t": relation(
        "t",
        "a BIGINT, b INT, s STRING, x DOUBLE, d DATE, ts TIMESTAMP, m DECIMAL(10,2), arr ARRAY<INT>, "
        "st STRUCT<u:INT,v:STRING>, mp MAP<STRING,INT>",
    ),
    "u": relation("u", "a BIGINT, k INT, s STRING, n TIMESTAMP_NTZ"),
    "e": relation("e", "src INT, dst INT"),
}


def planned(spark: SparkSession, sql: Any, relations: dict[str, Relation] = RELATIONS) -> PlannedView:
    """A planned view, which must also survive being saved."""
    found = plan_view(spark, "v", sql, relations)
    assert codec.loads(codec.dumps(found.view)) == found.view or "nan" in codec.dumps(found.view)
    return found


def nodes(root: node.Node) -> list[node.Node]:
    """All nodes of a plan."""
    return [root, *(found for child in node.children(root) for found in nodes(child))]


def of_kind(root: node.Node, kind: type) -> list[Any]:
    """The nodes of a kind, from the root down."""
    return [item for item in nodes(root) if isinstance(item, kind)]
