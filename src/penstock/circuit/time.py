"""Operators for filters and projections, with or without the time of the tick in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.arrays import Bools, Ints
from penstock.data.tick import Tick
from penstock.functions import evaluate
from penstock.operators.base import Operator
from penstock.operators.linear import Filter, Project
from penstock.operators.temporal import TemporalFilter, Timed
from penstock.plan import node as plan
from penstock.plan.expression import Expression, conjunction, conjuncts, time_bound, uses_time


def depends_on_time(node: plan.Node) -> bool:
    """Whether the rows of a plan change when time moves."""
    match node:
        case plan.Filter():
            own = uses_time(node.condition)
        case plan.Project():
            own = any(uses_time(expression) for expression in node.expressions)
        case plan.Spark():
            # What an operator of Spark's asks for is not in the plan.
            own = True
        case _:
            own = False
    return own or any(depends_on_time(child) for child in plan.children(node))


def filter_operators(condition: Expression, types: Sequence[pa.DataType]) -> Iterator[tuple[Operator, bool]]:
    """The operators for one condition, in their order, each with whether it must step in every tick."""
    parts = list(conjuncts(condition))
    plain = [part for part in parts if not uses_time(part)]
    if plain:
        yield Filter(evaluate.compile_condition(conjunction(plain))), False
    for part in parts:
        if uses_time(part):
            yield _temporal(part, types) or _timed_filter(part, types), True


def project_operator(
    expressions: Sequence[Expression], types: Sequence[pa.DataType]
) -> tuple[Operator, bool]:
    """The operator for a projection, and whether it must step in every tick."""
    project = Project([evaluate.compile(expression) for expression in expressions])
    if not any(uses_time(expression) for expression in expressions):
        return project, False
    return Timed(types, lambda rows, tick: project.step([rows], tick)), True


def _timed_filter(condition: Expression, types: Sequence[pa.DataType]) -> Operator:
    test = Filter(evaluate.compile_condition(condition))
    return Timed(types, lambda rows, tick: test.step([rows], tick))


def _temporal(condition: Expression, types: Sequence[pa.DataType]) -> Operator | None:
    """A filter with an index, for a comparison of something of the row with something of the time alone."""
    sides = time_bound(condition)
    if sides is None:
        return None
    of_row, of_time = sides
    return TemporalFilter(types, key=_key(of_row), bound=_bound(of_time), passes=evaluate.compile(condition))


def _key(
    expression: Expression,
) -> Callable[[Sequence[pa.Array], int, Tick], tuple[Ints, Bools]]:
    value = evaluate.compile(expression)

    def key(columns: Sequence[pa.Array], rows: int, tick: Tick) -> tuple[Ints, Bools]:
        column = value(columns, rows, tick)
        return _integers(column), column.is_valid().to_numpy(zero_copy_only=False)

    return key


def _bound(expression: Expression) -> Callable[[Tick], int | None]:
    value = evaluate.compile(expression)

    def bound(tick: Tick) -> int | None:
        column = value([], 1, tick)
        return int(_integers(column)[0]) if column[0].is_valid else None

    return bound


def _integers(column: pa.Array) -> Ints:
    """Times, dates and integers as 64-bit integers in the same order; NULL is 0."""
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    numbers: Ints = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return numbers
