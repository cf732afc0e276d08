"""Operators that look at one row at a time: filter, project, union, expand, generate, constant rows.

Rule: Q(A + dA) = Q(A) + Q(dA), so the change of the output is the operator applied to the change of the input. Cost: delta.
None of them keeps state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Positions
from penstock.data.column_view import gather, true_mask
from penstock.data.delta import Delta, concat, empty
from penstock.data.tick import Tick
from penstock.operators.base import Operator

# A compiled expression: its value for each of so many rows.
Scalar = Callable[[Sequence[pa.Array], int, Tick], pa.Array]
# A compiled generator: for each generated row the position of its parent, and the generated columns.
Generator = Callable[[Sequence[pa.Array], int, Tick], tuple[Positions, Sequence[pa.Array]]]


class Filter(Operator):
    """Rows for which the condition is TRUE: neither FALSE nor NULL."""

    def __init__(self, condition: Scalar) -> None:
        self._condition = condition

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        (delta,) = inputs
        if len(delta) == 0:
            return delta
        passed = true_mask(self._condition(delta.columns, len(delta), tick))
        return delta if passed.all() else delta.take(np.flatnonzero(passed))


class Project(Operator):
    """One expression per output column."""

    def __init__(self, expressions: Sequence[Scalar]) -> None:
        self._expressions = tuple(expressions)

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        (delta,) = inputs
        return Delta(_evaluate(self._expressions, delta, tick), delta.weights)


class Select(Operator):
    """Some of the input columns, by position."""

    def __init__(self, columns: Sequence[int]) -> None:
        self._columns = tuple(columns)

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        return inputs[0].select(self._columns)


class Union(Operator):
    """All rows of all inputs: the weights of equal rows add up."""

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        filled = [delta for delta in inputs if len(delta)]
        return concat(filled or inputs[:1])


class Expand(Operator):
    """Every input row once per projection (grouping sets)."""

    def __init__(self, projections: Sequence[Sequence[Scalar]]) -> None:
        self._projections = tuple(tuple(projection) for projection in projections)

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        (delta,) = inputs
        return concat(
            [Delta(_evaluate(projection, delta, tick), delta.weights) for projection in self._projections]
        )


class Generate(Operator):
    """The required columns of every input row, once per row that the generator makes of it, then the generated columns."""

    def __init__(self, generator: Generator, required: Sequence[int]) -> None:
        self._generator = generator
        self._required = tuple(required)

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        (delta,) = inputs
        parents, generated = self._generator(delta.columns, len(delta), tick)
        required = gather([delta.columns[column] for column in self._required], parents)
        return Delta((*required, *generated), delta.weights[parents])


class Feed(Operator):
    """What comes from outside of the circuit."""

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        return inputs[0]


class Values(Operator):
    """Constant rows, which enter at registration."""

    def __init__(self, rows: Delta) -> None:
        self._rows = rows

    def initial(self, tick: Tick) -> Delta | None:
        return self._rows

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        return empty([column.type for column in self._rows.columns])


def _evaluate(expressions: Sequence[Scalar], delta: Delta, tick: Tick) -> tuple[pa.Array, ...]:
    return tuple(expression(delta.columns, len(delta), tick) for expression in expressions)
