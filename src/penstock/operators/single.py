"""A scalar subquery: always exactly one row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat, empty
from penstock.data.tick import Tick
from penstock.errors import DataError
from penstock.operators.base import Operator
from penstock.state.cell import RowCell
from penstock.state.state import State

_SHOWN = 3  # rows in a message


class Single(Operator):
    """The one row of the input, or a row of NULLs when it is empty.

    Rule: d = -row(A-) + row(A+), nothing when they are equal; an input of two rows rejects the tick. Cost: delta.
    """

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._types = tuple(types)
        self._rows = RowCell(self._types)

    def states(self) -> Iterator[tuple[str, State]]:
        yield "rows", self._rows

    def initial(self, tick: Tick) -> Delta | None:
        return self._shown(empty(self._types))

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        rows = consolidate(concat([self._rows.value, inputs[0]]))
        count = int(rows.weights.sum())
        if count > 1:
            raise DataError(
                f"a scalar subquery gave {count} rows, such as {_sample(rows)}",
                code="DATA_SCALAR_SUBQUERY",
                condition="SCALAR_SUBQUERY_TOO_MANY_ROWS",
                hint="add LIMIT 1 or an aggregate such as max() to the subquery",
            )
        self._rows.stage(rows)
        return consolidate(concat([-self._shown(self._rows.value), self._shown(rows)]))

    def _shown(self, rows: Delta) -> Delta:
        if len(rows):
            return rows
        return Delta(tuple(pa.nulls(1, kind) for kind in self._types), np.ones(1, np.int64))


def _sample(rows: Delta) -> str:
    """The first values, each as often as it is there."""
    values = rows.columns[0][:_SHOWN].to_pylist()
    shown = [value for value, weight in zip(values, rows.weights, strict=False) for _ in range(int(weight))]
    return " and ".join(repr(value) for value in shown[:_SHOWN])
