"""Functions of arrays: searched, compared as sets, cut, joined, sorted and made longer.

Elements are equal as Spark orders them: NaN equals itself, -0.0 equals 0.0, and NULLs inside of structs are equal.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.arrays import Bools, Positions
from penstock.data.equality import equal_rows, group_rows
from penstock.data.hashing import hash_rows
from penstock.data.types import kernel_type, parse
from penstock.functions.scalars import strings
from penstock.functions.scalars.array_sort import sorted_elements
from penstock.functions.scalars.base import (
    FLOATING,
    INDEX,
    INDEX_OF_ZERO,
    AnsiError,
    Build,
    Check,
    Columns,
    Compiled,
    Datum,
    Scalar,
    TickLike,
    array,
    bad_row_error,
    both,
    constant,
    from_numbers,
    literal_args,
    numbers,
    only,
    typed,
    valid_mask,
)
from penstock.functions.scalars.elements import (
    Elements,
    elements_of,
    joint_validity,
    nested_array,
    without_negative_zeros,
)
from penstock.functions.scalars.logic import is_comparable
from penstock.plan.expression import Call

PARAMETER = "DATA_INVALID_PARAMETER_VALUE"
_PARAMETER = "INVALID_PARAMETER_VALUE"
TOO_MANY = "SQL_COLLECTION_SIZE_LIMIT_EXCEEDED"
TOO_MANY_ASKED = "COLLECTION_SIZE_LIMIT_EXCEEDED.PARAMETER"
MOST_ELEMENTS = 2**31 - 16

Work = Callable[[Call, list[Datum], int], pa.Array]


def of_values(work: Work) -> Build:
    """Build a function from what it does with the values of its arguments."""

    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        def run(columns: Columns, length: int, tick: TickLike) -> Datum:
            return work(call, [item(columns, length, tick) for item in args], length)

        return run

    return build


def all_valid(length: int, *values: Datum) -> Bools | None:
    """Where all values are not NULL; None for everywhere."""
    valid = np.logical_and.reduce([valid_mask(value, length) for value in values])
    return None if valid.all() else valid


def _comparable(call: Call) -> str | None:
    parsed = parse(call.args[0].type)
    if parsed.kind == "array" and is_comparable(parsed.inner[0]):
        return None
    return f"{call.name} over {call.args[0].type}"


def _same_elements(call: Call) -> str | None:
    """All arguments have elements of one type."""
    kinds = {argument.type for argument in call.args}
    return f"{call.name} over {' and '.join(sorted(kinds))}" if len(kinds) > 1 else _comparable(call)


def _without_floats(call: Call) -> str | None:
    """No floating numbers, of which Spark finds -0.0 in a set of 0.0 or not, by the type around them."""
    if any(kind in call.args[0].type for kind in FLOATING):
        return f"{call.name} over {call.args[0].type}"
    return _same_elements(call)


# ------------------------------------------------------------------ search


def _hits(split: Elements, wanted: Datum, length: int) -> Bools:
    """Which elements equal the value of their row; NULL equals nothing."""
    inside = split.columns[0]
    values = typed(array(wanted, length), inside.type)
    hits = equal_rows([inside], np.arange(len(inside)), [values], split.rows)
    if inside.null_count:
        hits &= inside.is_valid().to_numpy(zero_copy_only=False)
    return hits


def _marked(split: Elements, hits: Bools) -> Bools:
    """Which rows have an element that is marked."""
    marked: Bools = np.zeros(len(split.counts), np.bool_)
    marked[split.rows[hits]] = True
    return marked


def _null_elements(split: Elements) -> Bools:
    inside = split.columns[0]
    if not inside.null_count:
        return np.zeros(len(split.counts), np.bool_)
    return _marked(split, inside.is_null().to_numpy(zero_copy_only=False))


def _contains(call: Call, values: list[Datum], length: int) -> pa.Array:
    split = elements_of(array(values[0], length))
    there = _marked(split, _hits(split, values[1], length))
    is_certain = there | ~_null_elements(split)
    valid = all_valid(length, *values)
    return from_numbers(there, is_certain if valid is None else is_certain & valid, pa.bool_())


def _position(call: Call, values: list[Datum], length: int) -> pa.Array:
    split = elements_of(array(values[0], length))
    at = np.flatnonzero(_hits(split, values[1], length))[::-1]
    places = np.zeros(length, np.int64)
    places[split.rows[at]] = split.places[at] + 1
    valid = all_valid(length, *values)
    return from_numbers(places, np.ones(length, np.bool_) if valid is None else valid, pa.int64())


def _remove(call: Call, values: list[Datum], length: int) -> pa.Array:
    split = elements_of(array(values[0], length))
    left = ~_hits(split, values[1], length)
    return _filtered(call, split, left, all_valid(length, *values))


def _filtered(call: Call, split: Elements, chosen: Bools, valid: Bools | None) -> pa.Array:
    """The arrays with some of their elements."""
    kind = kernel_type(call.type)
    if valid is not None:
        chosen = chosen & valid[split.rows]
    counts = np.bincount(split.rows[chosen], minlength=len(split.counts))
    return nested_array(kind, counts, (split.columns[0].filter(pa.array(chosen)),), valid)


def _extreme(descending: bool) -> Work:
    def work(call: Call, values: list[Datum], length: int) -> pa.Array:
        split = elements_of(array(values[0], length))
        inside = split.columns[0]
        order = sorted_elements(split, inside, descending=descending, nulls_first=False)
        empty = split.counts == 0
        at = np.where(empty, 0, order[np.minimum(split.starts, len(order) - 1)] if len(order) else 0)
        return inside.take(pa.array(at, mask=empty if empty.any() else None))

    return work


# ------------------------------------------------------------------ sets


def _set_of(value: Datum, length: int) -> Elements:
    """The elements of a set, in which -0.0 is shown as 0.0."""
    return elements_of(without_negative_zeros(array(value, length)))


def _distinct_positions(rows: Positions, elements: pa.Array) -> tuple[Positions, Positions]:
    """For elements of rows: the first one that each equals, and the first ones in ascending order."""
    columns = [pa.array(rows), elements]
    order, starts = group_rows(hash_rows(columns), columns)
    leader = np.empty(len(order), np.int64)
    leader[order] = np.repeat(order[starts], np.diff(np.append(starts, len(order))))
    return leader, np.sort(order[starts])


def _distinct(call: Call, values: list[Datum], length: int) -> pa.Array:
    split = _set_of(values[0], length)
    _, first = _distinct_positions(split.rows, split.columns[0])
    chosen = np.zeros(len(split.columns[0]), np.bool_)
    chosen[first] = True
    return _filtered(call, split, chosen, split.valid)


def _both_sides(values: list[Datum], length: int) -> tuple[Elements, Elements, Positions, Positions]:
    """Two arrays per row, the first element equal to each of all of them, and which of these lead."""
    left, right = (_set_of(value, length) for value in values)
    inside = pa.concat_arrays([left.columns[0], typed(right.columns[0], left.columns[0].type)])
    leader, first = _distinct_positions(np.concatenate([left.rows, right.rows]), inside)
    return left, right, leader, first


def _union(call: Call, values: list[Datum], length: int) -> pa.Array:
    left, right, _, first = _both_sides(values, length)
    valid = joint_validity(left, right)
    rows = np.concatenate([left.rows, right.rows])[first]
    inside = pa.concat_arrays([left.columns[0], typed(right.columns[0], left.columns[0].type)])
    order = np.argsort(rows, kind="stable")
    if valid is not None:
        order = order[valid[rows[order]]]
    counts = np.bincount(rows[order], minlength=length)
    return nested_array(kernel_type(call.type), counts, (inside.take(pa.array(first[order])),), valid)


def _chosen_by_other(there: bool) -> Work:
    """INTERSECT and EXCEPT: the different elements of the first array that the second one has, or has not."""

    def work(call: Call, values: list[Datum], length: int) -> pa.Array:
        left, right, leader, first = _both_sides(values, length)
        count = len(left.columns[0])
        in_other = np.zeros(len(leader), np.bool_)
        in_other[leader[count:]] = True
        chosen = np.zeros(count, np.bool_)
        chosen[first[first < count]] = True
        chosen &= in_other[:count] == there
        return _filtered(call, left, chosen, joint_validity(left, right))

    return work


def _overlap(call: Call, values: list[Datum], length: int) -> pa.Array:
    left, right, leader, _ = _both_sides(values, length)
    count = len(left.columns[0])
    in_first = np.zeros(len(leader), np.bool_)
    in_first[leader[:count]] = True
    common = in_first[leader[count:]]
    if right.columns[0].null_count:
        common &= right.columns[0].is_valid().to_numpy(zero_copy_only=False)
    there = _marked(right, common)
    filled = (left.counts > 0) & (right.counts > 0)
    is_certain = there | ~(filled & (_null_elements(left) | _null_elements(right)))
    valid = joint_validity(left, right)
    return from_numbers(there, is_certain if valid is None else is_certain & valid, pa.bool_())


# ------------------------------------------------------------------ cut and joined


def _gathered(
    kind: pa.DataType, inside: pa.Array, starts: Positions, counts: Positions, valid: Bools | None
) -> pa.Array:
    """Arrays of consecutive elements: where they start and how many they are."""
    counts = counts if valid is None else np.where(valid, counts, 0)
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    at = np.repeat(starts, counts) + within
    return nested_array(kind, counts, (inside.take(pa.array(at)),), valid)


def _refuse(call: Call, values: list[Datum], bad: Bools, error: AnsiError) -> None:
    if bad.any():
        raise bad_row_error(call, values, int(np.argmax(bad)), error)


def _slice(call: Call, values: list[Datum], length: int) -> pa.Array:
    split = elements_of(array(values[0], length))
    start, count = (numbers(value, length).astype(np.int64) for value in values[1:])
    valid = all_valid(length, *values)
    there = np.ones(length, np.bool_) if valid is None else valid
    _refuse(
        call,
        values,
        there & (start == 0),
        AnsiError("a slice starts at 0; the first is 1", PARAMETER, f"{_PARAMETER}.START"),
    )
    _refuse(
        call,
        values,
        there & (count < 0),
        AnsiError("the length of a slice is negative", PARAMETER, f"{_PARAMETER}.LENGTH"),
    )
    begin = np.where(start < 0, start + split.counts, start - 1)
    inside = (begin >= 0) & (begin < split.counts)
    taken = np.where(inside, np.minimum(count, split.counts - begin), 0)
    return _gathered(kernel_type(call.type), split.columns[0], split.starts + begin, taken, valid)


def _reverse(call: Call, values: list[Datum], length: int) -> pa.Array:
    split = elements_of(array(values[0], length))
    at = np.repeat(split.starts + split.counts - 1, split.counts) - split.places
    return nested_array(
        kernel_type(call.type), split.counts, (split.columns[0].take(pa.array(at)),), split.valid
    )


def _concat(call: Call, values: list[Datum], length: int) -> pa.Array:
    kind = kernel_type(call.type)
    parts = [elements_of(array(value, length)) for value in values]
    valid = joint_validity(*parts)
    inside = pa.concat_arrays([typed(part.columns[0], kind.value_type) for part in parts])
    rows = np.concatenate([part.rows for part in parts])
    order = np.argsort(rows, kind="stable")
    if valid is not None:
        order = order[valid[rows[order]]]
    counts = np.bincount(rows[order], minlength=length)
    return nested_array(kind, counts, (inside.take(pa.array(order)),), valid)


def _flatten(call: Call, values: list[Datum], length: int) -> pa.Array:
    outer = elements_of(array(values[0], length))
    inner = elements_of(outer.columns[0])
    valid = ~_null_elements(outer)
    if outer.valid is not None:
        valid &= outer.valid
    bounds = np.concatenate([[0], np.cumsum(inner.counts)])
    starts = bounds[outer.starts]
    counts = bounds[outer.starts + outer.counts] - starts
    return _gathered(kernel_type(call.type), inner.columns[0], starts, counts, None if valid.all() else valid)


def _repeat(call: Call, values: list[Datum], length: int) -> pa.Array:
    times = numbers(values[1], length).astype(np.int64)
    valid = all_valid(length, values[1])
    _refuse(call, values, times > MOST_ELEMENTS, AnsiError("an array would have too many elements", TOO_MANY))
    counts = np.maximum(times, 0)
    if valid is not None:
        counts = np.where(valid, counts, 0)
    rows = np.repeat(np.arange(length), counts)
    inside = array(values[0], length).take(pa.array(rows))
    return nested_array(kernel_type(call.type), counts, (inside,), valid)


def _insert(call: Call, values: list[Datum], length: int) -> pa.Array:
    """One more element; a position beyond an end fills the gap with NULLs, -1 is behind the last element."""
    kind = kernel_type(call.type)
    split = elements_of(array(values[0], length))
    place = numbers(values[1], length).astype(np.int64)
    valid = all_valid(length, values[0], values[1])
    there = np.ones(length, np.bool_) if valid is None else valid
    _refuse(
        call,
        values,
        there & (place == 0),
        AnsiError("positions of elements begin at 1", INDEX, INDEX_OF_ZERO),
    )
    count = split.counts
    legacy = 1 if call.option("legacyNegativeIndex", False) else 0
    before = (place < 0) & (-place > count)
    at = np.where(place > 0, place - 1, np.where(before, 0, place + count + 1 - legacy))
    size = np.where(before, -place + legacy, np.maximum(count + 1, at + 1))
    _refuse(
        call,
        values,
        there & (size > MOST_ELEMENTS),
        AnsiError("an array would have too many elements", TOO_MANY, TOO_MANY_ASKED),
    )
    size = np.where(there, size, 0)
    result = Elements(valid, size, ())
    rows, places = result.rows, result.places
    # Where each element of the result comes from: the new one, an old one (those behind the new one have moved), or nowhere.
    old = np.where(before[rows], places - (size - count)[rows], places - (places > at[rows]))
    is_new = places == at[rows]
    missing = ~is_new & ((old < 0) | (old >= count[rows]))
    inside = pa.concat_arrays(
        [typed(split.columns[0], kind.value_type), typed(array(values[2], length), kind.value_type)]
    )
    source = np.where(is_new, len(split.columns[0]) + rows, split.starts[rows] + old)
    chosen = pa.array(np.where(missing, 0, source), mask=missing if missing.any() else None)
    return nested_array(kind, size, (inside.take(chosen),), valid)


def _zipped(call: Call, values: list[Datum], length: int) -> pa.Array:
    kind = kernel_type(call.type)
    parts = [elements_of(array(value, length)) for value in values]
    valid = joint_validity(*parts)
    counts = np.maximum.reduce([part.counts for part in parts])
    if valid is not None:
        counts = np.where(valid, counts, 0)
    result = Elements(valid, counts, ())
    rows, places = result.rows, result.places
    fields = []
    for part, field in zip(parts, kind.value_type, strict=True):
        outside = places >= part.counts[rows]
        at = np.where(outside, 0, part.starts[rows] + places)
        taken = part.columns[0].take(pa.array(at, mask=outside if outside.any() else None))
        fields.append(typed(taken, field.type))
    return nested_array(
        kind, counts, (pa.StructArray.from_arrays(fields, fields=list(kind.value_type)),), valid
    )


# ------------------------------------------------------------------ order and fields


def _sort(call: Call, values: list[Datum], length: int) -> pa.Array:
    split = elements_of(array(values[0], length))
    ascending = bool(constant(call, 1))
    order = sorted_elements(split, split.columns[0], descending=not ascending, nulls_first=ascending)
    return nested_array(
        kernel_type(call.type), split.counts, (split.columns[0].take(pa.array(order)),), split.valid
    )


def _sort_check(call: Call) -> str | None:
    if call.option("noNulls", False) and any(kind in call.type for kind in FLOATING):
        return "SORT_ARRAY of floats without NULLs, in which Spark may put -0.0 before 0.0"
    return _comparable(call)


def _struct_fields(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    """A field of every struct of an array."""
    kind = kernel_type(call.type)
    (argument,) = args
    ordinal = call.option("ordinal")

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        split = elements_of(array(argument(columns, length, tick), length))
        field = pc.struct_field(split.columns[0], [ordinal])
        return nested_array(kind, split.counts, (field,), split.valid)

    return run


def _by_type(arrays: Work, others: Scalar) -> Scalar:
    """A function that arrays and texts have in common."""

    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        return (of_values(arrays) if call.type.startswith("array") else others.build)(call, args)

    def check(call: Call) -> str | None:
        return None if call.type.startswith("array") else others.check(call)

    return Scalar(build, check)


_ARRAY_FIRST: Check = only("array", first=1)

FUNCTIONS: dict[str, Scalar] = {
    "ArrayContains": Scalar(of_values(_contains), _comparable),
    "ArrayPosition": Scalar(of_values(_position), _comparable),
    "ArrayRemove": Scalar(of_values(_remove), _comparable),
    "ArrayMin": Scalar(of_values(_extreme(False)), _comparable),
    "ArrayMax": Scalar(of_values(_extreme(True)), _comparable),
    "ArrayDistinct": Scalar(of_values(_distinct), _same_elements),
    "ArrayUnion": Scalar(of_values(_union), _same_elements),
    "ArrayIntersect": Scalar(of_values(_chosen_by_other(True)), _same_elements),
    "ArrayExcept": Scalar(of_values(_chosen_by_other(False)), _same_elements),
    "ArraysOverlap": Scalar(of_values(_overlap), _without_floats),
    "Slice": Scalar(of_values(_slice), _ARRAY_FIRST),
    "Flatten": Scalar(of_values(_flatten), _ARRAY_FIRST),
    "ArrayRepeat": Scalar(of_values(_repeat), lambda call: None),
    "ArrayInsert": Scalar(of_values(_insert), _ARRAY_FIRST),
    "ArraysZip": Scalar(of_values(_zipped), only("array")),
    "SortArray": Scalar(of_values(_sort), both(literal_args(1), _sort_check)),
    "GetArrayStructFields": Scalar(_struct_fields, _ARRAY_FIRST),
    "Concat": _by_type(_concat, strings.FUNCTIONS["Concat"]),
    "Reverse": _by_type(_reverse, strings.FUNCTIONS["Reverse"]),
}
