"""Evaluate an expression in Spark's order: an argument only on the rows on which Spark evaluates it.

The kernel evaluates every argument on every row, because few rows raise. Where one does, the expression is evaluated
again from here: `a + 1 / b` is NULL where a is NULL, whatever b is, and `coalesce(c, 1 / 0)` raises only where c is
NULL. An argument that a row does not reach is NULL there.

The order is that of Spark's generated code with each expression on its own. Spark may compute a subexpression that
occurs twice before the row that needs it, and then raises where neither occurrence is reached; views do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.types import kernel_type
from penstock.functions.argument_order import (
    DIVISIONS,
    FILTER_ARGUMENT,
    FILTER_CONDITION,
    NULL_INTOLERANT,
    UNTIL_NULL,
    evaluation_order,
    may_raise,
)
from penstock.functions.scalars import lambdas
from penstock.functions.scalars.base import (
    Build,
    Columns,
    Compiled,
    Datum,
    TickLike,
    array,
    eval_mode,
    typed,
)
from penstock.functions.scalars.elements import reads
from penstock.functions.scalars.logic import equality
from penstock.plan.expression import Call, Column, Expression, Lambda, Literal, conjuncts, walk

_TRUE, _FALSE = pa.scalar(True), pa.scalar(False)


def compile(expression: Expression, leaf: Callable[[Expression], Compiled], build: Build) -> Compiled:
    """Prepare an expression: `leaf` compiles columns and constants, `build` a function over its compiled arguments."""
    return _Compiler(leaf, build).compile(expression)


def compile_condition(
    expression: Expression, leaf: Callable[[Expression], Compiled], build: Build
) -> Compiled:
    """Prepare a filter's condition: a row that is refused by one part of it is not asked for the next."""
    return _Compiler(leaf, build).condition(expression)


@dataclass(frozen=True, slots=True)
class _Argument:
    """A compiled argument, the columns that it reads, and its type."""

    run: Compiled
    reads: frozenset[int]
    kind: pa.DataType
    raises: bool

    def where(self, rows: pa.Array | None, columns: Columns, length: int, tick: TickLike) -> Datum:
        """The value on the rows that are TRUE, NULL on the others; on all rows for None."""
        if rows is None or not self.raises:
            return self.run(columns, length, tick)
        width = len(columns)
        count = int(pc.sum(rows).as_py() or 0)
        if count == 0:
            return pa.nulls(length, self.kind)
        if count == length:
            return self.run(columns, length, tick)
        reached = [
            column.filter(rows) if index in self.reads or index - width in self.reads else None
            for index, column in enumerate(columns)
        ]
        values = typed(array(self.run(reached, count, tick), count), self.kind)
        mask = rows.to_numpy(zero_copy_only=False)
        places = np.zeros(length, np.int64)
        places[mask] = np.arange(count)
        return values.take(pa.array(places, mask=~mask))


@dataclass(frozen=True, slots=True)
class _Compiler:
    leaf: Callable[[Expression], Compiled]
    build: Build

    def compile(self, expression: Expression) -> Compiled:
        if isinstance(expression, Lambda):
            return self.compile(expression.body)
        if not isinstance(expression, Call) or not expression.args:
            return self.leaf(expression)
        if expression.name == FILTER_CONDITION:
            return self.condition(expression.args[0])
        if any(isinstance(item, Lambda) for item in expression.args):
            return self._higher_order(expression)
        args = tuple(self._argument(item) for item in expression.args)
        if expression.name == FILTER_ARGUMENT:
            return _filter_argument(args[0], self.condition(expression.args[1]))
        rule = _RULES.get(expression.name)
        if rule is not None:
            return rule(expression, args)
        applied = self._applied(expression)
        if expression.name in DIVISIONS:
            return _division(expression, args, applied)
        if expression.name == "In":
            return _in(expression, args, applied)
        if expression.name == "Elt":
            return _elt(args, applied)
        stops = expression.name in NULL_INTOLERANT or expression.name in UNTIL_NULL
        order = evaluation_order(expression.name, len(args))
        return _until_null(args, applied, order) if stops else _eager(args, applied)

    def condition(self, expression: Expression) -> Compiled:
        parts = [self._argument(part) for part in _filter_order(expression)]

        def run(columns: Columns, length: int, tick: TickLike) -> Datum:
            passing = pa.repeat(_TRUE, length)
            for part in parts:
                value = part.where(passing, columns, length, tick)
                passing = pc.and_(passing, _is_true(value, length))
            return passing

        return run

    def _argument(self, expression: Expression) -> _Argument:
        kind = kernel_type(expression.type)
        return _Argument(self.compile(expression), reads(expression), kind, may_raise(expression))

    def _higher_order(self, call: Call) -> Compiled:
        """A function of lambdas: its other arguments until one is NULL, then the lambdas, element by element where
        that decides."""
        compiled = [self.compile(item) for item in call.args]
        plain = tuple(self._argument(item) for item in call.args if not isinstance(item, Lambda))
        applied = lambdas.applied(call, compiled, one_by_one=True)

        def run(columns: Columns, length: int, tick: TickLike) -> Datum:
            return applied(_values_until_null(plain, columns, length, tick), columns, length, tick)

        return run

    def _applied(self, call: Call) -> Compiled:
        """The function over columns that hold its arguments; constants stay what they are."""
        return self.build(
            call,
            tuple(
                self.leaf(item) if isinstance(item, Literal) else _position(index)
                for index, item in enumerate(call.args)
            ),
        )


def _position(index: int) -> Compiled:
    return lambda columns, length, tick: columns[index]


def _is_true(value: Datum, length: int) -> pa.Array:
    return pc.fill_null(array(value, length), _FALSE)


def _is_valid(value: Datum, length: int) -> pa.Array:
    return pc.is_valid(array(value, length))


def _filter_order(condition: Expression) -> Iterator[Expression]:
    """The parts of a filter's condition as Spark asks them: IS NOT NULL of a column just before the first part that reads it."""
    parts = list(conjuncts(condition))
    null_checks = [part for part in parts if _is_null_check(part)]
    checked = {item.index: item for part in null_checks for item in walk(part) if isinstance(item, Column)}
    for part in parts:
        if part in null_checks:
            continue
        for item in walk(part):
            if isinstance(item, Column) and checked.pop(item.index, None) is not None:
                yield Call("IsNotNull", (item,), "boolean", nullable=False)
        yield part
    yield from null_checks


def _is_null_check(part: Expression) -> bool:
    return (
        isinstance(part, Call)
        and part.name == "IsNotNull"
        and all(
            not isinstance(item, Call) or item.name in NULL_INTOLERANT or item.name in DIVISIONS
            for item in walk(part.args[0])
        )
    )


# ------------------------------------------------------------------ rules


def _eager(args: tuple[_Argument, ...], applied: Compiled) -> Compiled:
    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        return applied([item.run(columns, length, tick) for item in args], length, tick)

    return run


def _until_null(args: tuple[_Argument, ...], applied: Compiled, order: Sequence[int]) -> Compiled:
    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        ordered = _values_until_null([args[index] for index in order], columns, length, tick)
        values = dict(zip(order, ordered, strict=True))
        return applied([values[index] for index in range(len(args))], length, tick)

    return run


def _values_until_null(
    args: Sequence[_Argument], columns: Columns, length: int, tick: TickLike
) -> list[Datum]:
    """The values of arguments of which those behind the first NULL are not evaluated."""
    values: list[Datum] = []
    open_rows: pa.Array | None = None
    for item in args:
        value = item.where(open_rows, columns, length, tick)
        values.append(value)
        valid = _is_valid(value, length)
        open_rows = valid if open_rows is None else pc.and_(open_rows, valid)
    return values


def _elt(args: tuple[_Argument, ...], applied: Compiled) -> Compiled:
    """ELT: the number, then the text that it names."""

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        number = array(args[0].run(columns, length, tick), length)
        texts = [
            item.where(
                _is_true(pc.equal(number, pa.scalar(index, number.type)), length), columns, length, tick
            )
            for index, item in enumerate(args[1:], 1)
        ]
        return applied([number, *texts], length, tick)

    return run


def _division(call: Call, args: tuple[_Argument, ...], applied: Compiled) -> Compiled:
    dividend_of, divisor_of = args
    zero = pa.scalar(0, divisor_of.kind)
    zero_raises = eval_mode(call) == "ANSI" and call.option("failOnError", True)

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        divisor = array(divisor_of.run(columns, length, tick), length)
        open_rows = pc.is_valid(divisor) if zero_raises else _is_true(pc.not_equal(divisor, zero), length)
        return applied([dividend_of.where(open_rows, columns, length, tick), divisor], length, tick)

    return run


def _in(call: Call, args: tuple[_Argument, ...], applied: Compiled) -> Compiled:
    value_of, *choices = args
    equal = equality(call.args[0].type)

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        value = array(value_of.run(columns, length, tick), length)
        values = [value]
        open_rows = pc.is_valid(value)
        for item in choices:
            choice = item.where(open_rows, columns, length, tick)
            values.append(choice)
            open_rows = pc.and_not(open_rows, _is_true(equal(value, choice), length))
        return applied(values, length, tick)

    return run


def _connective(function: Any, decided: bool) -> Any:
    """AND and OR: the right side is evaluated where the left one does not decide, which NULL never does."""

    def rule(call: Call, args: tuple[_Argument, ...]) -> Compiled:
        left_of, right_of = args
        stop = pa.scalar(decided)

        def run(columns: Columns, length: int, tick: TickLike) -> Datum:
            left = array(left_of.run(columns, length, tick), length)
            open_rows = pc.fill_null(pc.not_equal(left, stop), _TRUE)
            return function(left, right_of.where(open_rows, columns, length, tick))

        return run

    return rule


def _case(call: Call, args: tuple[_Argument, ...]) -> Compiled:
    """CASE WHEN and IF: pairs of condition and value, then the value for the rest."""
    kind = kernel_type(call.type)
    pairs = [(args[index], args[index + 1]) for index in range(0, len(args) - 1, 2)]
    rest = args[-1] if len(args) % 2 else None

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        open_rows = pa.repeat(_TRUE, length)
        result = pa.nulls(length, kind)
        for condition, value in pairs:
            hit = pc.and_(open_rows, _is_true(condition.where(open_rows, columns, length, tick), length))
            result = pc.if_else(hit, typed(value.where(hit, columns, length, tick), kind), result)
            open_rows = pc.and_not(open_rows, hit)
        if rest is not None:
            result = pc.if_else(open_rows, typed(rest.where(open_rows, columns, length, tick), kind), result)
        return result

    return run


def _coalesce(call: Call, args: tuple[_Argument, ...]) -> Compiled:
    kind = kernel_type(call.type)

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        result = pa.nulls(length, kind)
        for item in args:
            open_rows = pc.is_null(result)
            result = pc.if_else(open_rows, typed(item.where(open_rows, columns, length, tick), kind), result)
        return result

    return run


def _nan_value(call: Call, args: tuple[_Argument, ...]) -> Compiled:
    number_of, default_of = args

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        number = array(number_of.run(columns, length, tick), length)
        missing = _is_true(pc.is_nan(number), length)
        return pc.if_else(missing, default_of.where(missing, columns, length, tick), number)

    return run


def _filter_argument(value_of: _Argument, condition: Compiled) -> Compiled:
    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        return value_of.where(condition(columns, length, tick), columns, length, tick)

    return run


_RULES: dict[str, Callable[[Call, tuple[_Argument, ...]], Compiled]] = {
    "And": _connective(pc.and_kleene, False),
    "Or": _connective(pc.or_kleene, True),
    "If": _case,
    "CaseWhen": _case,
    "Coalesce": _coalesce,
    "NaNvl": _nan_value,
}
