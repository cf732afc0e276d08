"""Evaluate expressions on Arrow columns exactly as Spark does, or say why not.

`unsupported` decides when a view is planned, `compile` prepares an expression once, and what it returns is called on every delta.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from penstock.data.types import kernel_type
from penstock.errors import InternalError, SqlError
from penstock.functions.scalars import arithmetic, cast, collections, datetimes, logic, math, strings
from penstock.functions.scalars.base import Columns, Compiled, Datum, Scalar, TickLike, array, typed
from penstock.plan.expression import Call, Column, Expression, Literal, walk

LAZY = logic.LAZY

FUNCTIONS: dict[str, Scalar] = {
    **arithmetic.FUNCTIONS,
    **logic.FUNCTIONS,
    **cast.FUNCTIONS,
    **strings.FUNCTIONS,
    **datetimes.FUNCTIONS,
    **math.FUNCTIONS,
    **collections.FUNCTIONS,
}

Evaluator = Callable[[Sequence[pa.Array], int, TickLike], pa.Array]


def reason(call: Call) -> str | None:
    """Why the kernel does not evaluate this call (its arguments apart), None when it does."""
    if call.name == "CurrentTimestamp":
        return None
    function = FUNCTIONS.get(call.name)
    if function is None:
        return f"the function {call.name}"
    for expression in (call, *call.args):
        why = _type_reason(expression.type)
        if why is not None:
            return f"{call.name} with {why}"
    return function.check(call)


def _type_reason(kind: str) -> str | None:
    if "collate" in kind:
        return f"the collation of {kind}"
    try:
        kernel_type(kind)
    except SqlError:
        return f"the type {kind}"
    return None


def unsupported(expression: Expression) -> str | None:
    """Why the kernel cannot evaluate an expression, None when it does so exactly as Spark."""
    for item in walk(expression):
        why = reason(item) if isinstance(item, Call) else _type_reason(item.type)
        if why is not None:
            return why
    return None


def compile(expression: Expression) -> Evaluator:
    """Prepare an expression: the result takes the input columns, their length and the tick, and returns a column.

    Raises DataError, when called, for rows that ANSI mode refuses.
    """
    run = _compile(expression)
    kind = kernel_type(expression.type)
    if isinstance(expression, Column):
        index = expression.index
        return lambda columns, length, tick: columns[index]

    def evaluate(columns: Sequence[pa.Array], length: int, tick: TickLike) -> pa.Array:
        value = run(columns, length, tick)
        return typed(array(value, length), kind)

    return evaluate


def _compile(expression: Expression) -> Compiled:
    match expression:
        case Column():
            index = expression.index
            return lambda columns, length, tick: columns[index]
        case Literal():
            value = literal(expression)
            return lambda columns, length, tick: value
        case Call() if expression.name == "CurrentTimestamp":
            return _now
        case Call():
            function = FUNCTIONS.get(expression.name)
            if function is None:
                raise InternalError(f"the kernel does not know the function {expression.name}")
            return function.build(expression, tuple(_compile(argument) for argument in expression.args))


def _now(columns: Columns, length: int, tick: TickLike) -> Datum:
    return pa.scalar(tick.micros, pa.timestamp("us", tz="UTC"))


def literal(expression: Literal) -> pa.Scalar:
    """The Arrow value of a constant."""
    kind = kernel_type(expression.type)
    value: Any = expression.value
    if pa.types.is_timestamp(kind) and isinstance(value, datetime):
        # Arrow refuses a zone on a column without one, and the other way round.
        value = value if kind.tz else value.replace(tzinfo=None)
    if pa.types.is_date(kind) and isinstance(value, int):
        return pa.scalar(value, pa.int32()).cast(kind)
    return pa.scalar(value, kind)
