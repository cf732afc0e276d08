"""Higher-order functions: a lambda applied to the elements of arrays and maps.

A body is evaluated on all elements of all rows at once, with the columns of the row taken by its number. What depends on the
element before (AGGREGATE, and EXISTS where an element raises) goes through the places of the arrays instead, each for all rows
at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.arrays import Bools, Positions
from penstock.data.equality import group_rows
from penstock.data.hashing import hash_rows
from penstock.data.types import kernel_type
from penstock.functions.scalars.array_sort import array_sort
from penstock.functions.scalars.base import (
    Columns,
    Compiled,
    Datum,
    Scalar,
    TickLike,
    accept,
    array,
)
from penstock.functions.scalars.elements import (
    Body,
    Elements,
    body_of,
    built_map,
    elements_of,
    is_true,
    joint_validity,
    nested_array,
    without_negative_zeros,
)
from penstock.plan.expression import Call, Lambda

# The values of the arguments that are no lambdas, the columns of the row, and how many rows.
Applied = Callable[[Sequence[Datum], Columns, int, TickLike], pa.Array]
Make = Callable[[Call, tuple[Body, ...]], Applied]


def _split(column: Datum, length: int) -> Elements:
    return elements_of(array(column, length))


def _parameters(body: Lambda, elements: Elements) -> tuple[pa.Array, ...]:
    """What a lambda over an array gets: the element and, if it asks for it, its place."""
    if len(body.parameters) == 1:
        return elements.columns
    return (*elements.columns, pa.array(elements.places, pa.int32()))


def _function(call: Call) -> Lambda:
    function = call.args[-1]
    assert isinstance(function, Lambda)
    return function


# ------------------------------------------------------------------ arrays


def _transform(call: Call, bodies: tuple[Body, ...]) -> Applied:
    kind, (body,), function = kernel_type(call.type), bodies, _function(call)

    def run(values: Sequence[Datum], columns: Columns, length: int, tick: TickLike) -> pa.Array:
        split = _split(values[0], length)
        results = body.over(columns, split.rows, _parameters(function, split), tick)
        return nested_array(kind, split.counts, (results,), split.valid)

    return run


def _filter(call: Call, bodies: tuple[Body, ...]) -> Applied:
    """FILTER over arrays and over maps: what is not TRUE goes."""
    kind, (body,), function = kernel_type(call.type), bodies, _function(call)

    def run(values: Sequence[Datum], columns: Columns, length: int, tick: TickLike) -> pa.Array:
        split = _split(values[0], length)
        is_map = len(split.columns) == 2
        parameters = split.columns if is_map else _parameters(function, split)
        rows = split.rows
        passing = is_true(body.over(columns, rows, parameters, tick), len(rows))
        counts = np.bincount(rows[passing], minlength=length)
        mask = pa.array(passing)
        return nested_array(kind, counts, tuple(item.filter(mask) for item in split.columns), split.valid)

    return run


def _any(rows: Positions, hits: Bools, length: int) -> Bools:
    has_hit: Bools = np.zeros(length, np.bool_)
    has_hit[rows[hits]] = True
    return has_hit


def _quantified(deciding: bool) -> Make:
    """EXISTS, which TRUE decides, and FORALL, which FALSE decides; without one, NULL for an element makes it unknown."""

    def make(call: Call, bodies: tuple[Body, ...]) -> Applied:
        (body,) = bodies
        unknown = bool(call.option("followThreeValuedLogic", True))

        def run(values: Sequence[Datum], columns: Columns, length: int, tick: TickLike) -> pa.Array:
            split = _split(values[0], length)
            rows = split.rows
            results = body.over(columns, rows, split.columns, tick)
            hits = results if deciding else pc.invert(results)
            decided = _any(rows, is_true(hits, len(rows)), length)
            nulls = results.is_null().to_numpy(zero_copy_only=False)
            return _verdict(decided, _any(rows, nulls, length) & unknown, split.valid)

        def step_by_step(values: Sequence[Datum], columns: Columns, length: int, tick: TickLike) -> pa.Array:
            split = _split(values[0], length)
            decided, doubtful = np.zeros(length, np.bool_), np.zeros(length, np.bool_)
            for place in range(int(split.counts.max(initial=0))):
                rows = np.flatnonzero((split.counts > place) & ~decided)
                element = split.columns[0].take(pa.array(split.starts[rows] + place))
                results = body.over(columns, rows, (element,), tick)
                hits = results if deciding else pc.invert(results)
                decided[rows] = is_true(hits, len(rows))
                doubtful[rows] |= results.is_null().to_numpy(zero_copy_only=False)
            return _verdict(decided, doubtful & unknown, split.valid)

        def _verdict(decided: Bools, doubtful: Bools, valid: Bools | None) -> pa.Array:
            missing = doubtful & ~decided
            if valid is not None:
                missing |= ~valid
            return pa.array(decided == deciding, mask=missing if missing.any() else None)

        return step_by_step if body.one_by_one else run

    return make


def _aggregate(call: Call, bodies: tuple[Body, ...]) -> Applied:
    """AGGREGATE and REDUCE: the elements at one place of all arrays are merged into the states at once."""
    merge, finish = bodies
    kind = kernel_type(call.type)

    def run(values: Sequence[Datum], columns: Columns, length: int, tick: TickLike) -> pa.Array:
        split = _split(values[0], length)
        (inside,) = split.columns
        # Rows with the longest arrays first, so that those that go on are always the first ones.
        rows = np.argsort(-split.counts, kind="stable")
        if split.valid is not None:
            rows = rows[split.valid[rows]]
        states = array(values[1], length).take(pa.array(rows))
        begins, done = split.starts[rows], []
        going = len(rows)
        for place in range(int(split.counts.max(initial=0))):
            more = int(np.searchsorted(-split.counts[rows[:going]], -place, "left"))
            if more < going:
                done.append(states.slice(more))
                states, going = states.slice(0, more), more
            elements = inside.take(pa.array(begins[:going] + place))
            states = merge.over(columns, rows[:going], (states, elements), tick)
        states = pa.concat_arrays([states, *reversed(done)])
        results = finish.over(columns, rows, (states,), tick)
        places = np.zeros(length, np.int64)
        places[rows] = np.arange(len(rows))
        mask = None if split.valid is None else ~split.valid
        return results.take(pa.array(places, mask=mask)).cast(kind)

    return run


def _aggregate_check(call: Call) -> str | None:
    zero, merge = call.args[1], call.args[2]
    if zero.type == merge.type and not call.option("losesNulls", False):
        return None
    return f"AGGREGATE whose state ({zero.type}) is declared without NULLs inside and may get some"


def _zip_with(call: Call, bodies: tuple[Body, ...]) -> Applied:
    kind, (body,) = kernel_type(call.type), bodies

    def run(values: Sequence[Datum], columns: Columns, length: int, tick: TickLike) -> pa.Array:
        sides = [_split(value, length) for value in values]
        valid = joint_validity(*sides)
        counts = np.maximum(sides[0].counts, sides[1].counts)
        if valid is not None:
            counts = np.where(valid, counts, 0)
        merged = Elements(valid, counts, ())
        rows, places = merged.rows, merged.places
        padded = tuple(_at_places(side, rows, places) for side in sides)
        return nested_array(kind, counts, (body.over(columns, rows, padded, tick),), valid)

    return run


def _at_places(side: Elements, rows: Positions, places: Positions) -> pa.Array:
    """The elements at places of rows, NULL beyond the end."""
    outside = places >= side.counts[rows]
    at = np.where(outside, 0, side.starts[rows] + places)
    return side.columns[0].take(pa.array(at, mask=outside if outside.any() else None))


# ------------------------------------------------------------------ maps


def _transform_values(call: Call, bodies: tuple[Body, ...]) -> Applied:
    kind, (body,) = kernel_type(call.type), bodies

    def run(values: Sequence[Datum], columns: Columns, length: int, tick: TickLike) -> pa.Array:
        split = _split(values[0], length)
        results = body.over(columns, split.rows, split.columns, tick)
        return nested_array(kind, split.counts, (split.columns[0], results), split.valid)

    return run


def _transform_keys(call: Call, bodies: tuple[Body, ...]) -> Applied:
    (body,) = bodies

    def run(values: Sequence[Datum], columns: Columns, length: int, tick: TickLike) -> pa.Array:
        split = _split(values[0], length)
        keys = body.over(columns, split.rows, split.columns, tick)
        return built_map(call, split.counts, keys, split.columns[1], split.valid)

    return run


def _map_zip_with(call: Call, bodies: tuple[Body, ...]) -> Applied:
    """The keys of the first map, then those that only the second one has; of a key that occurs twice, the first."""
    kind, (body,) = kernel_type(call.type), bodies

    def run(values: Sequence[Datum], columns: Columns, length: int, tick: TickLike) -> pa.Array:
        sides = [_split(value, length) for value in values]
        valid = joint_validity(*sides)
        rows = np.concatenate([side.rows for side in sides])
        second = np.arange(len(rows)) >= len(sides[0].rows)
        keys = pa.concat_arrays([side.columns[0] for side in sides])
        keyed = [pa.array(rows), keys]
        order, starts = group_rows(hash_rows(keyed), keyed)
        first = order[starts]
        # The positions of a group ascend, so that its first entry of the second map is the first behind those of the first map.
        group = np.empty(len(rows), np.int64)
        group[order] = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(order))))
        ends = [np.full(len(starts), len(rows), np.int64) for _ in sides]
        for index, side in enumerate((~second, second)):
            at = np.flatnonzero(side)[::-1]
            ends[index][group[at]] = at
        chosen = np.lexsort((first, second[first], rows[first]))
        if valid is not None:
            chosen = chosen[valid[rows[first[chosen]]]]
        owner = rows[first[chosen]]
        own_keys = keys.take(pa.array(first[chosen]))
        if pa.types.is_floating(own_keys.type):
            own_keys = without_negative_zeros(own_keys)
        items = [
            _or_null(side.columns[1], ends[index][chosen] - (len(sides[0].rows) if index else 0), beyond)
            for index, side in enumerate(sides)
            for beyond in (ends[index][chosen] == len(rows),)
        ]
        results = body.over(columns, owner, (own_keys, *items), tick)
        return nested_array(kind, np.bincount(owner, minlength=length), (own_keys, results), valid)

    return run


def _or_null(items: pa.Array, at: Positions, beyond: Bools) -> pa.Array:
    return items.take(pa.array(np.where(beyond, 0, at), mask=beyond if beyond.any() else None))


# ------------------------------------------------------------------ the table


def _array_sort(call: Call, bodies: tuple[Body, ...]) -> Applied:
    return array_sort(call, bodies[0], bodies[1] if len(bodies) > 1 else None)


_HIGHER_ORDER: dict[str, Make] = {
    "ArrayTransform": _transform,
    "ArrayFilter": _filter,
    "ArrayExists": _quantified(True),
    "ArrayForAll": _quantified(False),
    "ArrayAggregate": _aggregate,
    "ArraySort": _array_sort,
    "ZipWith": _zip_with,
    "MapFilter": _filter,
    "TransformKeys": _transform_keys,
    "TransformValues": _transform_values,
    "MapZipWith": _map_zip_with,
}


def applied(call: Call, compiled: Sequence[Compiled], *, one_by_one: bool = False) -> Applied:
    """Prepare a higher-order function from its compiled arguments: what it does with the values of those that are no lambdas."""
    bodies = tuple(
        body_of(item, run, one_by_one=one_by_one)
        for item, run in zip(call.args, compiled, strict=True)
        if isinstance(item, Lambda)
    )
    return _HIGHER_ORDER[call.name](call, bodies)


def _build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    run_applied = applied(call, args)
    plain = [run for item, run in zip(call.args, args, strict=True) if not isinstance(item, Lambda)]

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        return run_applied([item(columns, length, tick) for item in plain], columns, length, tick)

    return run


FUNCTIONS: dict[str, Scalar] = {
    name: Scalar(_build, _aggregate_check if name == "ArrayAggregate" else accept) for name in _HIGHER_ORDER
}
