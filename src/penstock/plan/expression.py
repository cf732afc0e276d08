"""Frozen scalar expressions over the columns of one input row.

Types are Spark's own DDL names ("bigint", "decimal(10,2)", "timestamp_ntz", "array<string>"), because Arrow's types alone
lose distinctions that Spark makes. Functions carry the name of their Catalyst class, so that the table of what the kernel
knows reads like Spark's source.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Column:
    """The input column at `index`."""

    index: int
    type: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; `value` is a plain Python value (int, float, str, bytes, bool, Decimal, date, datetime, None, list, dict)."""

    value: Any
    type: str

    @property
    def nullable(self) -> bool:
        return self.value is None


@dataclass(frozen=True, slots=True)
class Call:
    """The Catalyst expression `name` over `args`, with the options that change its meaning (evalMode, timeZoneId, ...)."""

    name: str
    args: tuple[Expression, ...]
    type: str
    nullable: bool = True
    options: tuple[tuple[str, Any], ...] = ()

    def option(self, name: str, default: Any = None) -> Any:
        return dict(self.options).get(name, default)


Expression = Column | Literal | Call


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and everything below it."""
    yield expression
    if isinstance(expression, Call):
        for argument in expression.args:
            yield from walk(argument)


def shift(expression: Expression, mapping: dict[int, int]) -> Expression:
    """Return the expression over other column positions."""
    if isinstance(expression, Column):
        return Column(mapping[expression.index], expression.type, expression.nullable)
    if isinstance(expression, Call):
        moved = tuple(shift(argument, mapping) for argument in expression.args)
        return Call(expression.name, moved, expression.type, expression.nullable, expression.options)
    return expression


def uses_time(expression: Expression) -> bool:
    """Whether an expression reads the time of the tick; every function of the time is one of `CurrentTimestamp`."""
    return any(isinstance(part, Call) and part.name == "CurrentTimestamp" for part in walk(expression))
