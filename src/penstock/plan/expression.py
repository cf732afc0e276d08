"""Frozen scalar expressions over the columns of one input row, and lambdas over the elements of its arrays and maps.

Types are Spark's own DDL names ("bigint", "decimal(10,2)", "timestamp_ntz", "array<string>"), because Arrow's types alone
lose distinctions that Spark makes. Functions carry the name of their Catalyst class, so that the table of what the kernel
knows reads like Spark's source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Column:
    """The input column at `index`; its name is for people, and equal plans may have different ones."""

    index: int
    type: str
    nullable: bool = True
    name: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A constant; `value` is a plain Python value (int, float, str, bytes, bool, Decimal, date, datetime, None, list, dict).

    Constants are equal when they are written alike, because equal plans share their operators: 0.0 and -0.0 are not, NaN is
    equal to itself, and a list may be a part of a key.
    """

    value: Any
    type: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and (self.type, repr(self.value)) == (other.type, repr(other.value))

    def __hash__(self) -> int:
        return hash((self.type, repr(self.value)))

    @property
    def nullable(self) -> bool:
        return self.value is None


class WithOptions:
    """What has `options` as pairs of name and value, as calls of functions do."""

    __slots__ = ()

    options: tuple[tuple[str, Any], ...]

    def option(self, name: str, default: Any = None) -> Any:
        """Return the value of an option."""
        return dict(self.options).get(name, default)


@dataclass(frozen=True, slots=True)
class Call(WithOptions):
    """The Catalyst expression `name` over `args`, with the options that change its meaning (evalMode, timeZoneId, ...)."""

    name: str
    args: tuple[Expression, ...]
    type: str
    nullable: bool = True
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a lambda around it; parameters are numbered from the outermost lambda of the expression inwards.

    The number, not the name, says which one is meant: `x -> x + 1` and `y -> y + 1` are the same function.
    """

    number: int
    type: str
    nullable: bool = True
    name: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Lambda:
    """A function that a higher-order function applies to elements; its body may read columns of the row as well."""

    parameters: tuple[Parameter, ...]
    body: Expression

    @property
    def type(self) -> str:
        return self.body.type

    @property
    def nullable(self) -> bool:
        return self.body.nullable


Expression = Column | Literal | Call | Lambda | Parameter

_COMPARISONS = frozenset({"LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "EqualTo"})
_ORDERED = frozenset({"timestamp", "timestamp_ntz", "date", "bigint", "int", "smallint", "tinyint"})

_INFIX = {
    "Add": "+",
    "Subtract": "-",
    "Multiply": "*",
    "Divide": "/",
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "And": "AND",
    "Or": "OR",
}


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and everything below it."""
    yield expression
    if isinstance(expression, Call):
        for argument in expression.args:
            yield from walk(argument)
    elif isinstance(expression, Lambda):
        yield from walk(expression.body)


def shift(expression: Expression, mapping: dict[int, int]) -> Expression:
    """Return the expression over other column positions."""
    if isinstance(expression, Column):
        return replace(expression, index=mapping[expression.index])
    if isinstance(expression, Call):
        moved = tuple(shift(argument, mapping) for argument in expression.args)
        return Call(expression.name, moved, expression.type, expression.nullable, expression.options)
    if isinstance(expression, Lambda):
        return Lambda(expression.parameters, shift(expression.body, mapping))
    return expression


def uses_time(expression: Expression) -> bool:
    """Whether an expression reads the time of the tick; every function of the time is one of `CurrentTimestamp`."""
    return any(isinstance(part, Call) and part.name == "CurrentTimestamp" for part in walk(expression))


def conjuncts(condition: Expression) -> Iterator[Expression]:
    """Yield the conditions that all must hold."""
    if isinstance(condition, Call) and condition.name == "And":
        for part in condition.args:
            yield from conjuncts(part)
    else:
        yield condition


def conjunction(parts: Sequence[Expression]) -> Expression:
    """Return the condition that one or more conditions all hold."""
    condition = parts[0]
    for part in parts[1:]:
        condition = Call("And", (condition, part), "boolean", condition.nullable or part.nullable)
    return condition


def time_bound(condition: Expression) -> tuple[Expression, Expression] | None:
    """Return the two sides of a comparison of something of the row with something of the time alone, else None.

    Such a condition can be indexed: when time moves, only the rows between the old and the new bound change sides.
    """
    if not isinstance(condition, Call) or condition.name not in _COMPARISONS:
        return None
    of_row = [side for side in condition.args if _reads_row(side) and not uses_time(side)]
    of_time = [side for side in condition.args if uses_time(side) and not _reads_row(side)]
    if len(of_row) != 1 or len(of_time) != 1 or of_row[0].type not in _ORDERED:
        return None
    return of_row[0], of_time[0]


def show(expression: Expression, columns: Sequence[str] = ()) -> str:
    """Return an expression as people would write it; its columns have these names, or their own.

    >>> show(Call("Add", (Column(0, "int"), Call("Abs", (Literal(1, "int"),), "int")), "int"), ["price"])
    'price + abs(1)'
    """
    text = _text(expression, columns)
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text


def _text(expression: Expression, columns: Sequence[str]) -> str:
    match expression:
        case Column(index=index):
            return columns[index] if index < len(columns) else expression.name or f"#{index}"
        case Literal(value=value):
            return repr(value) if isinstance(value, str) else str(value)
        case Parameter(number=number):
            return expression.name or f"${number}"
        case Lambda(parameters=parameters, body=body):
            names = ", ".join(_text(parameter, columns) for parameter in parameters)
            return f"{names if len(parameters) == 1 else f'({names})'} -> {show(body, columns)}"
        case Call(name=name):
            arguments = [_text(argument, columns) for argument in expression.args]
            if name in _INFIX and len(arguments) == 2:
                return f"({arguments[0]} {_INFIX[name]} {arguments[1]})"
            if name == "Cast":
                return f"cast({arguments[0]} as {expression.type})"
            return f"{name.lower()}({', '.join(arguments)})"


def _reads_row(expression: Expression) -> bool:
    return any(isinstance(part, Column) for part in walk(expression))
