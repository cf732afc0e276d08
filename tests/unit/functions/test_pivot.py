"""The state of a PIVOT: values by place, undone by deletes, and merged."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.data.types import kernel_type
from penstock.errors import InternalError
from penstock.functions.aggregates.base import Parts, Rows
from penstock.functions.aggregates.pivot import PivotPart, make_pivot
from penstock.plan.expression import Literal
from penstock.plan.node import AggregateCall

VALUES: dict[str, list[Any]] = {
    "bigint": [2**63 - 1, -(2**63)],
    "tinyint": [-128, 127],
    "double": [-0.0, float("inf")],
    "float": [1.5, -2.25],
    "boolean": [True, False],
    "decimal(38,2)": [Decimal("-999999999999999999999999999999999999.99"), Decimal("0.01")],
}


def _function(kind: str) -> tuple[Any, PivotPart]:
    parts = Parts([pa.large_string(), kernel_type(kind)])
    listed = (Literal("a", "string"), Literal(None, "string"), Literal("b", "string"))
    call = AggregateCall("PivotFirst", (0, 1), f"array<{kind}>", options=(("pivotColumnValues", listed),))
    function = make_pivot(call, parts)
    ((_, part),) = parts.all()
    assert isinstance(part, PivotPart)
    part.reserve(3)
    return function, part


def _rows(kind: str, rows: list[tuple[int, str | None, Any, int]]) -> Rows:
    slots, pivots, values, weights = (list(column) for column in zip(*rows, strict=True))
    return Rows(
        np.arange(3),
        np.array(slots),
        np.array(weights),
        (pa.array(pivots, pa.large_string()), pa.array(values, kernel_type(kind))),
    )


@pytest.mark.parametrize("kind", VALUES)
def test_values_come_and_go(kind: str) -> None:
    one, two = VALUES[kind]
    function, part = _function(kind)
    part.update(_rows(kind, [(0, "a", one, 1), (0, None, two, 1), (1, "b", two, 1), (1, "other", one, 1)]))
    part.commit()
    assert function.result(np.arange(3)).to_pylist() == [[one, two, None], [None, None, two], [None] * 3]
    part.update(_rows(kind, [(0, "a", one, -1), (0, "a", two, 1), (1, "b", two, -1)]))
    assert function.result(np.arange(2)).to_pylist() == [[two, two, None], [None] * 3]
    part.rollback()
    assert function.result(np.arange(2)).to_pylist() == [[one, two, None], [None, None, two]]


@pytest.mark.parametrize("kind", VALUES)
def test_parts_merge(kind: str) -> None:
    one, two = VALUES[kind]
    function, part = _function(kind)
    _, other = _function(kind)
    part.update(_rows(kind, [(0, "a", one, 1), (1, "b", one, 1)]))
    other.update(_rows(kind, [(2, "b", two, 1), (1, "b", one, -1)]))
    part.merge(other, np.array([0, 1]), np.array([2, 1]))
    assert function.result(np.arange(2)).to_pylist() == [[one, None, two], [None] * 3]


def test_two_values_at_one_place_are_a_fault() -> None:
    function, part = _function("bigint")
    part.update(_rows("bigint", [(0, "a", 1, 1), (0, "a", 2, 1)]))
    with pytest.raises(InternalError):
        function.result(np.arange(1))
