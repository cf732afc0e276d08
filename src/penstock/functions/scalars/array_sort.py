"""Sorting the elements of arrays: by their own order, by a comparator that is an order of keys, or by any other comparator.

A comparator is a lambda. Most of them compare one key of both elements, and then all arrays are sorted at once by
that key. Any other one is asked for the pairs that Java's sort asks for, the next pair of every array at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.arrays import Positions
from penstock.data.ordering import exact_words
from penstock.data.types import kernel_type
from penstock.functions.argument_order import may_raise
from penstock.functions.scalars.base import (
    AnsiError,
    Columns,
    Datum,
    TickLike,
    ansi_error,
    array,
    eval_mode,
)
from penstock.functions.scalars.elements import Body, Elements, elements_of, nested_array
from penstock.functions.tim_sort import Contradiction, sorted_positions
from penstock.plan.expression import Call, Column, Expression, Lambda, Literal, Parameter, walk

NULL_COMPARISON = "DATA_COMPARATOR_RETURNS_NULL"

_LOGIC = frozenset({"If", "CaseWhen", "And", "Or", "Not", "Coalesce"})
_NULL_CHECKS = frozenset({"IsNull", "IsNotNull"})
_COMPARISONS = frozenset(
    {"LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "EqualTo", "EqualNullSafe"}
)


@dataclass(frozen=True, slots=True)
class KeyOrder:
    """The order that a comparator means: a key of the element, its direction, and where NULL goes (None: no order with it)."""

    key: Expression  # over the first parameter of the comparator
    descending: bool
    nulls_first: bool | None
    difference: bool = False  # it subtracts keys, and means an order where no difference is too large

    def holds(self, keys: pa.Array) -> bool:
        """Whether the comparator orders these keys."""
        if self.difference and len(keys):
            ends = pc.min_max(keys)
            if ends["max"].is_valid and ends["max"].as_py() - ends["min"].as_py() > 2**31 - 1:
                return False
        return keys.null_count == 0 or self.nulls_first is not None


def sorted_elements(
    split: Elements, keys: pa.Array, *, descending: bool = False, nulls_first: bool = True
) -> Positions:
    """The positions of elements that sort them by keys within their rows; equal ones stay in their order."""
    words = [~word if descending else word for word in exact_words(keys)]
    if keys.null_count:
        missing = keys.is_null().to_numpy(zero_copy_only=False)
        words = [np.where(missing, np.uint64(0), word) for word in words]
        words.insert(0, (missing != nulls_first).astype(np.uint64))
    return np.lexsort((*reversed(words), split.rows))


# ------------------------------------------------------------------ comparators that mean an order


def key_order(comparator: Lambda) -> KeyOrder | None:
    """The order that a comparator means, None if that cannot be told.

    The comparator must be made of comparisons of one key of both elements, and then its answers for lesser, equal, greater and
    missing keys say all about it.
    """
    left, right = comparator.parameters
    keys: set[Expression] = set()
    subtracted = _subtracted(comparator.body, (left, right))
    if subtracted is not None:
        return subtracted
    plain = _over_numbers(comparator.body, (left, right), keys)
    if plain is None or len(keys) != 1:
        return None
    (key,) = keys
    if may_raise(key):
        return None
    signs = [_sign(plain, pair) for pair in ((0, 1), (0, 0), (1, 0), (None, 0), (0, None), (None, None))]
    less, same, more, first, last, both = signs
    if less is None or same != 0 or less == 0 or more is None or less + more != 0:
        return None
    ordered = both == 0 and first is not None and last is not None and first != 0 and first + last == 0
    return KeyOrder(key, less > 0, (first or 0) < 0 if ordered else None)


def _subtracted(body: Expression, parameters: tuple[Parameter, Parameter]) -> KeyOrder | None:
    """The order of a comparator that subtracts a key of one element from that of the other, as whole numbers."""
    if (
        not isinstance(body, Call)
        or body.name != "Subtract"
        or body.type != "int"
        or eval_mode(body) != "ANSI"
    ):
        return None
    keys: set[Expression] = set()
    sides = [_number(item, parameters, keys) for item in body.args]
    places = [item.index for item in sides if isinstance(item, Column)]
    if sorted(places) != [0, 1] or len(keys) != 1 or may_raise(next(iter(keys))):
        return None
    return KeyOrder(keys.pop(), places == [1, 0], None, difference=True)


def _over_numbers(
    body: Expression, parameters: tuple[Parameter, Parameter], keys: set[Expression]
) -> Expression | None:
    """The comparator over two numbers, columns 0 and 1, in the place of the keys of its parameters; None if it reads
    more of them."""
    if isinstance(body, Literal):
        return body
    if not isinstance(body, Call):
        return None
    if body.name in _LOGIC:
        args = [_over_numbers(item, parameters, keys) for item in body.args]
    elif body.name in _COMPARISONS or body.name in _NULL_CHECKS:
        args = [_number(item, parameters, keys) for item in body.args]
        if body.name in _COMPARISONS and {type(item) for item in args} != {Column}:
            return None
    else:
        return None
    parts = tuple(item for item in args if item is not None)
    return replace(body, args=parts) if len(parts) == len(body.args) else None


def _number(
    item: Expression, parameters: tuple[Parameter, Parameter], keys: set[Expression]
) -> Expression | None:
    read = {part.number for part in walk(item) if isinstance(part, Parameter)}
    mine = [place for place, parameter in enumerate(parameters) if read == {parameter.number}]
    if not mine or any(isinstance(part, Lambda) for part in walk(item)):
        return None
    keys.add(_of_first(item, parameters))
    return Column(mine[0], "int")


def _of_first(item: Expression, parameters: tuple[Parameter, Parameter]) -> Expression:
    """The same expression over the first parameter."""
    if isinstance(item, Parameter):
        return parameters[0] if item.number == parameters[1].number else item
    if isinstance(item, Call):
        return replace(item, args=tuple(_of_first(argument, parameters) for argument in item.args))
    return item


def _sign(plain: Expression, pair: tuple[int | None, int | None]) -> int | None:
    """What a comparator over two numbers answers: -1, 0, 1 or NULL."""
    match plain:
        case Literal():
            return None if plain.value is None else _sign_of(plain.value)
        case Column():
            return pair[plain.index]
    assert isinstance(plain, Call)
    return _LOGICAL[plain.name]([_sign(item, pair) for item in plain.args])


def _sign_of(value: Any) -> int:
    return int(value) if isinstance(value, bool) else (value > 0) - (value < 0)


def _case(values: list[int | None]) -> int | None:
    for at in range(0, len(values) - 1, 2):
        if values[at]:
            return values[at + 1]
    return values[-1] if len(values) % 2 else None


def _both(values: list[int | None]) -> int | None:
    return 0 if 0 in values else (None if None in values else 1)


def _either(values: list[int | None]) -> int | None:
    return 1 if 1 in values else (None if None in values else 0)


def _compared(test: Callable[[int, int], bool]) -> Callable[[list[int | None]], int | None]:
    return lambda values: None if values[0] is None or values[1] is None else int(test(values[0], values[1]))


_LOGICAL: dict[str, Callable[[list[int | None]], int | None]] = {
    "If": _case,
    "CaseWhen": _case,
    "And": _both,
    "Or": _either,
    "Not": lambda values: None if values[0] is None else 1 - values[0],
    "Coalesce": lambda values: next((value for value in values if value is not None), None),
    "IsNull": lambda values: int(values[0] is None),
    "IsNotNull": lambda values: int(values[0] is not None),
    "LessThan": _compared(lambda left, right: left < right),
    "LessThanOrEqual": _compared(lambda left, right: left <= right),
    "GreaterThan": _compared(lambda left, right: left > right),
    "GreaterThanOrEqual": _compared(lambda left, right: left >= right),
    "EqualTo": _compared(lambda left, right: left == right),
    "EqualNullSafe": lambda values: int(values[0] == values[1]),
}


# ------------------------------------------------------------------ the function


def with_key(comparator: Expression) -> tuple[Expression, ...]:
    """The lambdas of ARRAY_SORT: the comparator, and the key of the order that it means, if it means one."""
    assert isinstance(comparator, Lambda)
    order = key_order(comparator)
    return (comparator,) if order is None else (comparator, Lambda(comparator.parameters, order.key))


def array_sort(
    call: Call, comparator: Body, key_of: Body | None
) -> Callable[[Sequence[Datum], Columns, int, TickLike], pa.Array]:
    """Prepare ARRAY_SORT with its comparator; `key_of` is the key of the order that the comparator means, if it means one."""
    kind = kernel_type(call.type)
    function = call.args[1]
    assert isinstance(function, Lambda)
    order = key_order(function)

    def run(values: Sequence[Datum], columns: Columns, length: int, tick: TickLike) -> pa.Array:
        split = elements_of(array(values[0], length))
        positions = None
        if order is not None and key_of is not None:
            keys = key_of.over(columns, split.rows, (split.columns[0], split.columns[0]), tick)
            if order.holds(keys):
                positions = sorted_elements(
                    split, keys, descending=order.descending, nulls_first=bool(order.nulls_first)
                )
        if positions is None:
            positions = _side_by_side(call, comparator, split, columns, tick)
        return nested_array(kind, split.counts, (split.columns[0].take(pa.array(positions)),), split.valid)

    return run


def _side_by_side(
    call: Call, comparator: Body, split: Elements, columns: Columns, tick: TickLike
) -> Positions:
    """Sort every array as Java does: each round asks the comparator for the next pair of all arrays that go on."""
    (inside,) = split.columns
    starts = split.starts
    positions = np.arange(len(inside))
    sorts = {int(row): sorted_positions(int(split.counts[row])) for row in np.flatnonzero(split.counts > 1)}
    pairs = {row: next(sort) for row, sort in sorts.items()}
    while pairs:
        rows = np.fromiter(pairs, np.int64, len(pairs))
        chosen = np.array(list(pairs.values()), np.int64) + starts[rows, None]
        signs = _signs(call, comparator, rows, [inside.take(pa.array(at)) for at in chosen.T], columns, tick)
        for row, sign in zip(rows.tolist(), signs, strict=True):
            try:
                pairs[row] = sorts[row].send(sign)
            except StopIteration as done:
                del pairs[row]
                begin = starts[row]
                positions[begin : begin + len(done.value)] = begin + np.array(done.value, np.int64)
            except Contradiction:
                raise _contradiction(call, inside, split, row) from None
    return positions


def _signs(
    call: Call,
    comparator: Body,
    rows: Positions,
    elements: list[pa.Array],
    columns: Columns,
    tick: TickLike,
) -> list[int]:
    results = comparator.over(columns, rows, tuple(elements), tick)
    if results.null_count:
        if not call.option("allowNullComparisonResult", False):
            at = pc.index(results.is_null(), True).as_py()
            raise _no_answer(call, [item[at].as_py() for item in elements])
        results = results.fill_null(0)
    signs: list[int] = results.to_pylist()
    return signs


def _no_answer(call: Call, pair: list[Any]) -> Exception:
    # Spark shows the first element in its message, and fails for another reason if that is NULL.
    code = NULL_COMPARISON if pair[0] is not None else "SQL_SPARK"
    return ansi_error(call, AnsiError("the comparator gives NULL", code), pair)


def _contradiction(call: Call, inside: pa.Array, split: Elements, row: int) -> Exception:
    begin = int(split.starts[row])
    shown = inside.slice(begin, int(split.counts[row])).to_pylist()
    return ansi_error(call, AnsiError("the comparator contradicts itself", "SQL_SPARK"), shown)
