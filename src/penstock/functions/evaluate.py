"""Evaluate expressions on Arrow columns exactly as Spark does, or say why not.

`unsupported` decides when a view is planned, `compile` prepares an expression once, and what it returns is called on every delta.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from penstock.data.types import kernel_type, parse
from penstock.errors import DataError, InternalError, SqlError
from penstock.functions import short_circuit
from penstock.functions.argument_order import FILTER_ARGUMENT, FILTER_CONDITION
from penstock.functions.scalars import (
    arithmetic,
    arrays,
    cast,
    collections,
    datetimes,
    digests,
    encodings,
    formatter,
    intervals,
    json,
    lambdas,
    logic,
    long_text,
    maps,
    math,
    moments,
    number_format,
    patterned,
    powers,
    regexes,
    sequence,
    strings,
    text_functions,
    urls,
    vectors,
)
from penstock.functions.scalars.base import ByRow, Columns, Compiled, Datum, Scalar, TickLike, array, typed
from penstock.functions.scalars.elements import parameter_place
from penstock.plan.expression import Call, Column, Expression, Lambda, Literal, Parameter, walk

FUNCTIONS: dict[str, Scalar] = {
    **arithmetic.FUNCTIONS,
    **logic.FUNCTIONS,
    **cast.FUNCTIONS,
    **strings.FUNCTIONS,
    **long_text.FUNCTIONS,
    **datetimes.FUNCTIONS,
    **moments.FUNCTIONS,
    **patterned.FUNCTIONS,
    **math.FUNCTIONS,
    **collections.FUNCTIONS,
    **arrays.FUNCTIONS,
    **maps.FUNCTIONS,
    **sequence.FUNCTIONS,
    **powers.FUNCTIONS,
    **lambdas.FUNCTIONS,
    **json.FUNCTIONS,
    **digests.FUNCTIONS,
    **encodings.FUNCTIONS,
    **regexes.FUNCTIONS,
    **text_functions.FUNCTIONS,
    **number_format.FUNCTIONS,
    **formatter.FUNCTIONS,
    **urls.FUNCTIONS,
    **intervals.FUNCTIONS,
    **vectors.FUNCTIONS,
}

_SPECIAL = frozenset({"CurrentTimestamp", FILTER_ARGUMENT, FILTER_CONDITION})

# What hands values on and compares none, so that the collation of text does not matter.
_CARRYING = frozenset(
    {
        "CaseWhen",
        "Coalesce",
        "CreateArray",
        "CreateNamedStruct",
        "GetArrayItem",
        "GetStructField",
        "If",
        "IsNotNull",
        "IsNull",
        "Size",
    }
)

Evaluator = Callable[[Sequence[pa.Array], int, TickLike], pa.Array]


def reason(call: Call) -> str | None:
    """Why the kernel does not evaluate this call (its arguments apart), None when it does."""
    if call.name in _SPECIAL:
        return None
    function = FUNCTIONS.get(call.name)
    if function is None:
        return f"the function {call.name}"
    for expression in (call, *call.args):
        why = _type_reason(expression.type, collated=call.name in _CARRYING)
        if why is not None:
            return f"{call.name} with {why}"
    return function.check(call)


def _type_reason(kind: str, *, collated: bool = False) -> str | None:
    if "collate" in kind and not collated:
        return f"the collation of {kind}"
    try:
        kernel_type(kind)
    except SqlError:
        return f"the type {kind}"
    return None


def unsupported(expression: Expression) -> str | None:
    """Why the kernel cannot evaluate an expression, None when it does so exactly as Spark."""
    for item in walk(expression):
        why = reason(item) if isinstance(item, Call) else _type_reason(item.type, collated=True)
        if why is not None:
            return why
    return None


def only_by_row(expression: Expression) -> bool:
    """Whether the kernel evaluates an expression for all but some rows, for which it raises `BeyondKernel`."""
    reasons = (
        reason(item) if isinstance(item, Call) else _type_reason(item.type, collated=True)
        for item in walk(expression)
    )
    return all(why is None or isinstance(why, ByRow) for why in reasons)


def compile(expression: Expression) -> Evaluator:
    """Prepare an expression: the result takes the input columns, their length and the tick, and returns a column.

    Raises DataError, when called, for rows that ANSI mode refuses.
    """
    if isinstance(expression, Column):
        index = expression.index
        return lambda columns, length, tick: columns[index]
    return _evaluator(expression, short_circuit.compile)


def compile_condition(expression: Expression) -> Evaluator:
    """Prepare a filter's condition, of which only TRUE counts: a row that one part refuses does not reach the next part."""
    return _evaluator(expression, short_circuit.compile_condition)


def _evaluator(expression: Expression, in_order: Callable[..., Compiled]) -> Evaluator:
    """Evaluate everything on all rows at once, and in Spark's order when that raises."""
    run = _compile(expression)
    kind = kernel_type(expression.type)
    careful: list[Compiled] = []

    def evaluate(columns: Sequence[pa.Array], length: int, tick: TickLike) -> pa.Array:
        if not length:
            return pa.nulls(0, kind)
        try:
            value = run(columns, length, tick)
        except DataError:
            if not careful:
                careful.append(in_order(expression, _compile, _build))
            value = careful[0](columns, length, tick)
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
        case Parameter():
            place = parameter_place(expression)
            return lambda columns, length, tick: columns[place]
        case Lambda():
            return _compile(expression.body)
        case Call() if expression.name == "CurrentTimestamp":
            return _now
        case Call() if expression.name in (FILTER_ARGUMENT, FILTER_CONDITION):
            return _compile(expression.args[0])
        case Call():
            return _build(expression, tuple(_compile(argument) for argument in expression.args))


def _build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    function = FUNCTIONS.get(call.name)
    if function is None:
        raise InternalError(f"the kernel does not know the function {call.name}")
    return function.build(call, args)


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
    return pa.scalar(_in_nanos(value, expression.type), kind)


def _in_nanos(value: Any, kind: str) -> Any:
    """A constant with its calendar intervals as Arrow has them: months, days and nanoseconds."""
    if value is None or "interval" not in kind:
        return value
    parsed = parse(kind)
    match parsed.kind:
        case "interval":
            months, days, micros = value
            return months, days, micros * 1000
        case "array":
            return [_in_nanos(item, parsed.inner[0]) for item in value]
        case "map":
            return [
                (_in_nanos(key, parsed.inner[0]), _in_nanos(item, parsed.inner[1])) for key, item in value
            ]
        case "struct":
            return {
                name: _in_nanos(value[name], inner)
                for name, inner in zip(parsed.names, parsed.inner, strict=True)
            }
    return value
