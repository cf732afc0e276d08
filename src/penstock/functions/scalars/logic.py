"""Comparisons, three-valued logic and conditions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.arrays import Bools
from penstock.data.equality import equal_rows
from penstock.data.ordering import exact_words
from penstock.data.types import kernel_type, parse
from penstock.functions.scalars.base import (
    FLOATING,
    INTEGRAL,
    RAISED,
    AnsiError,
    Check,
    Columns,
    Compiled,
    Datum,
    Scalar,
    TickLike,
    accept,
    ansi_error,
    array,
    from_numbers,
    is_kind,
    null_of,
    only,
    typed,
    valid_mask,
)
from penstock.plan.expression import Call, Literal

COMPARABLE = (
    *INTEGRAL,
    *FLOATING,
    "decimal",
    "string",
    "binary",
    "boolean",
    "date",
    "timestamp",
    "timestamp_ntz",
    "time",
    "interval",
)
_TRUE, _FALSE = pa.scalar(True), pa.scalar(False)

# ------------------------------------------------------------------ comparisons


def _nan_equal(left: Datum, right: Datum) -> Datum:
    return pc.or_(pc.equal(left, right), pc.and_(pc.is_nan(left), pc.is_nan(right)))


def _nan_less(left: Datum, right: Datum) -> Datum:
    # NaN is greater than everything else and equal to itself.
    return pc.or_(pc.less(left, right), pc.and_(pc.is_nan(right), pc.invert(pc.is_nan(left))))


def _nan_less_equal(left: Datum, right: Datum) -> Datum:
    return pc.or_(pc.less_equal(left, right), pc.is_nan(right))


def _is_nested(kind: str) -> bool:
    return kind.startswith(("array<", "struct<"))


def _sides(first: Datum, second: Datum) -> tuple[pa.Array, pa.Array, Bools]:
    """Two values as arrays of one length, and where both are not NULL."""
    length = next((len(side) for side in (first, second) if isinstance(side, pa.Array)), 1)
    left, right = array(first, length), array(second, length)
    return left, right, valid_mask(left, length) & valid_mask(right, length)


def _of_sides(result: pa.Array, first: Datum, second: Datum) -> Datum:
    """What a comparison of two constants gives is a constant."""
    return result if isinstance(first, pa.Array) or isinstance(second, pa.Array) else result[0]


def _nested_equal(first: Datum, second: Datum) -> Datum:
    left, right, valid = _sides(first, second)
    rows = np.arange(len(left))
    same = from_numbers(equal_rows([left], rows, [right], rows), valid, pa.bool_())
    return _of_sides(same, first, second)


def _nested_order(test: Callable[..., Any]) -> Callable[..., Any]:
    """A comparison of arrays or structs, element by element, by their ranks among all of them."""

    def compare(first: Datum, second: Datum) -> Datum:
        left, right, valid = _sides(first, second)
        ranks = exact_words(pa.concat_arrays([left, typed(right, left.type)]))[0]
        ordered = from_numbers(test(ranks[: len(left)], ranks[len(left) :]), valid, pa.bool_())
        return _of_sides(ordered, first, second)

    return compare


_nested_less = _nested_order(np.less)


def _swap(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda left, right: function(right, left)


def _compare(plain: Any, floating: Any, nested: Any) -> Any:
    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        left_of, right_of = args
        function = floating if call.args[0].type in FLOATING else plain
        if _is_nested(call.args[0].type):
            function = nested
        elif (
            any(isinstance(item, Literal) and item.value == item.value for item in call.args)
            and plain is pc.equal
        ):
            # A constant that is not NaN needs no care for NaN: nothing but itself equals it.
            function = plain
        return lambda columns, length, tick: function(
            left_of(columns, length, tick), right_of(columns, length, tick)
        )

    return build


def equality(kind: str) -> Callable[..., Any]:
    """The function that compares values of a type; NaN equals itself."""
    if _is_nested(kind):
        return _nested_equal
    return _nan_equal if kind in FLOATING else pc.equal


def _null_safe(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    left_of, right_of = args
    equal = equality(call.args[0].type)

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        left, right = left_of(columns, length, tick), right_of(columns, length, tick)
        same = pc.fill_null(equal(left, right), _FALSE)
        return pc.or_(same, pc.and_(pc.is_null(left), pc.is_null(right)))

    return run


def _is_null(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    (argument,) = args
    return lambda columns, length, tick: pc.is_null(argument(columns, length, tick))


def _is_not_null(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    (argument,) = args
    return lambda columns, length, tick: pc.is_valid(argument(columns, length, tick))


def _is_nan(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    (argument,) = args
    return lambda columns, length, tick: pc.fill_null(pc.is_nan(argument(columns, length, tick)), _FALSE)


def _not(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    (argument,) = args
    return lambda columns, length, tick: pc.invert(argument(columns, length, tick))


def _in(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    value_of = args[0]
    choices = call.args[1:]
    kind = kernel_type(call.args[0].type)
    plain_kind = call.args[0].type not in FLOATING and not _is_nested(call.args[0].type)
    if plain_kind and all(isinstance(item, Literal) for item in choices):
        plain = [item.value for item in choices if isinstance(item, Literal) and item.value is not None]
        lookup = pa.array(plain, kind)
        has_null = len(plain) < len(choices)
        unknown = null_of(pa.bool_())

        def listed(columns: Columns, length: int, tick: TickLike) -> Datum:
            value = value_of(columns, length, tick)
            matches = pc.is_in(value, value_set=lookup, skip_nulls=True)
            if has_null:
                return pc.if_else(matches, _TRUE, unknown)
            if value.null_count if isinstance(value, pa.Array) else not value.is_valid:
                return pc.if_else(pc.is_valid(value), matches, unknown)
            return matches

        return listed
    equal = equality(call.args[0].type)
    others = args[1:]

    def compared(columns: Columns, length: int, tick: TickLike) -> Datum:
        value = value_of(columns, length, tick)
        matches = equal(value, others[0](columns, length, tick))
        for other in others[1:]:
            matches = pc.or_kleene(matches, equal(value, other(columns, length, tick)))
        return matches

    return compared


# ------------------------------------------------------------------ conditions


def _connective(function: Any) -> Any:
    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        left_of, right_of = args
        return lambda columns, length, tick: function(
            left_of(columns, length, tick), right_of(columns, length, tick)
        )

    return build


def _case(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    """CASE WHEN and IF: pairs of condition and value, then the value for the rest."""
    kind = kernel_type(call.type)
    pairs = [(index, index + 1) for index in range(0, len(args) - 1, 2)]
    rest = len(args) - 1 if len(args) % 2 else None
    nothing = null_of(kind)

    def value_of(index: int | None, columns: Columns, length: int, tick: TickLike) -> Datum:
        return nothing if index is None else typed(args[index](columns, length, tick), kind)

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        result = value_of(rest, columns, length, tick)
        for test, value in reversed(pairs):
            condition = args[test](columns, length, tick)
            if isinstance(condition, pa.Scalar):
                if condition.as_py():
                    result = value_of(value, columns, length, tick)
                continue
            if condition.null_count:
                condition = condition.fill_null(False)
            result = pc.if_else(condition, value_of(value, columns, length, tick), result)
        return result

    return run


def _coalesce(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    kind = kernel_type(call.type)
    return lambda columns, length, tick: pc.coalesce(
        *(typed(item(columns, length, tick), kind) for item in args)
    )


def _nan_value(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    number_of, default_of = args

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        number = number_of(columns, length, tick)
        return pc.if_else(pc.is_nan(number), default_of(columns, length, tick), number)

    return run


def _extreme(less: bool) -> Any:
    """LEAST and GREATEST: NULLs are skipped, NaN is the greatest."""

    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        before = _nan_less if call.type in FLOATING else pc.less
        if _is_nested(call.type):
            before = _nested_less

        def run(columns: Columns, length: int, tick: TickLike) -> Datum:
            best = args[0](columns, length, tick)
            for item in args[1:]:
                other = item(columns, length, tick)
                better = before(other, best) if less else before(best, other)
                # Unknown when one of them is NULL: then the other one wins.
                best = pc.if_else(pc.fill_null(better, _FALSE), other, pc.coalesce(best, other))
            return best

        return run

    return build


def _raise(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    """The planner's own check: the first argument is the message, the others are values to show with it."""
    kind = kernel_type(call.type)

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        if length:
            shown = [array(item(columns, length, tick), length)[0].as_py() for item in args[1:]]
            text = array(args[0](columns, length, tick), length)[0].as_py()
            raise ansi_error(call, AnsiError(str(text), str(call.option("code", RAISED))), shown)
        return pa.nulls(0, kind)

    return run


def _raise_check(call: Call) -> str | None:
    # Catalyst's own has an error class and a map of parameters, whose words only Spark knows.
    return None if call.option("code", None) else "raise_error"


def is_comparable(kind: str) -> bool:
    """Whether the kernel compares values of a type: plain ones, and arrays and structs of them."""
    parsed = parse(kind)
    if parsed.kind in ("array", "struct"):
        return all(is_comparable(inner) for inner in parsed.inner)
    return (
        kind != "interval"
        and "collate" not in kind
        and any(is_kind(kind, comparable) for comparable in COMPARABLE)
    )


def _nested_or(plain: Check) -> Check:
    """Plain values, or arrays and structs that all have the same type."""

    def check(call: Call) -> str | None:
        kinds = {argument.type for argument in call.args}
        if not any(_is_nested(kind) for kind in kinds):
            return plain(call)
        if len(kinds) == 1 and is_comparable(call.args[0].type):
            return None
        return f"{call.name} over {' and '.join(sorted(kinds))}"

    return check


_SAME_KIND = _nested_or(only(*COMPARABLE))
_ORDERED_KIND = _nested_or(only(*(kind for kind in COMPARABLE if kind != "interval")))

FUNCTIONS: dict[str, Scalar] = {
    "EqualTo": Scalar(_compare(pc.equal, _nan_equal, _nested_equal), _SAME_KIND),
    "EqualNullSafe": Scalar(_null_safe, _SAME_KIND),
    "LessThan": Scalar(_compare(pc.less, _nan_less, _nested_less), _SAME_KIND),
    "LessThanOrEqual": Scalar(
        _compare(pc.less_equal, _nan_less_equal, _nested_order(np.less_equal)), _SAME_KIND
    ),
    "GreaterThan": Scalar(_compare(pc.greater, _swap(_nan_less), _nested_order(np.greater)), _SAME_KIND),
    "GreaterThanOrEqual": Scalar(
        _compare(pc.greater_equal, _swap(_nan_less_equal), _nested_order(np.greater_equal)), _SAME_KIND
    ),
    "IsNull": Scalar(_is_null, accept),
    "IsNotNull": Scalar(_is_not_null, accept),
    "IsNaN": Scalar(_is_nan, only(*FLOATING)),
    "Not": Scalar(_not, only("boolean")),
    "In": Scalar(_in, _SAME_KIND),
    "And": Scalar(_connective(pc.and_kleene), only("boolean")),
    "Or": Scalar(_connective(pc.or_kleene), only("boolean")),
    "If": Scalar(_case, accept),
    "CaseWhen": Scalar(_case, accept),
    "Coalesce": Scalar(_coalesce, accept),
    "NaNvl": Scalar(_nan_value, only(*FLOATING)),
    "Least": Scalar(_extreme(True), _ORDERED_KIND),
    "Greatest": Scalar(_extreme(False), _ORDERED_KIND),
    "RaiseError": Scalar(_raise, _raise_check),
}
