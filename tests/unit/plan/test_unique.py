"""Columns that tell the rows of a plan apart."""

from __future__ import annotations

from penstock.plan.expression import Call, Column
from penstock.plan.node import Aggregate, AggregateCall, Field, Filter, Node, Project, Scan, TopK
from penstock.plan.unique import unique_columns

FIELDS = (Field("a", "int"), Field("b", "int"), Field("v", "int"))
SCAN = Scan(FIELDS, "t", (0, 1, 2))
SUMS = Aggregate(FIELDS, SCAN, (0, 1), (AggregateCall("Sum", (2,), "int"),))


def _project(node: Node, *columns: int | str) -> Project:
    expressions = tuple(
        Column(item, "int") if isinstance(item, int) else Call(item, (Column(0, "int"),), "int")
        for item in columns
    )
    return Project(tuple(Field(str(at), "int") for at in range(len(columns))), node, expressions)


def test_groups_are_told_apart_by_their_keys_as_long_as_all_of_them_are_shown() -> None:
    assert unique_columns(SUMS) == (0, 1)
    assert unique_columns(_project(SUMS, 2, 1, 0)) == (2, 1)
    assert unique_columns(_project(SUMS, 2, 1)) is None
    assert unique_columns(_project(SUMS, "UnaryMinus", 1)) is None
    assert unique_columns(TopK(FIELDS, Filter(FIELDS, SUMS, Column(0, "boolean")), (), (), 3)) == (0, 1)
    assert unique_columns(Aggregate(FIELDS[2:], SCAN, (), SUMS.calls)) == ()


def test_plain_rows_may_be_there_twice() -> None:
    assert unique_columns(SCAN) is None
    assert unique_columns(_project(SCAN, 0, 1, 2)) is None
