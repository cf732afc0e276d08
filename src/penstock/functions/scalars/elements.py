"""The elements of arrays and maps laid end to end, and arrays and maps made of elements again.

A function over elements so costs a few passes over all of them, whatever the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.arrays import Bools, Positions
from penstock.data.equality import group_rows
from penstock.data.hashing import expand, hash_rows
from penstock.data.types import kernel_type
from penstock.errors import DataError
from penstock.functions.scalars.base import (
    AnsiError,
    Columns,
    Compiled,
    Datum,
    TickLike,
    ansi_error,
    array,
    typed,
)
from penstock.plan.expression import Call, Column, Expression, Lambda, Parameter, walk

# The codes that batch queries give to the same mistakes.
DUPLICATE_KEY = "SQL_DUPLICATED_MAP_KEY"
NULL_KEY = "DATA_NULL_MAP_KEY"


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of a column of arrays or maps: how many each row has (none for NULL), and the columns inside, end to end."""

    valid: Bools | None  # which rows are not NULL; None when all are
    counts: Positions
    columns: tuple[pa.Array, ...]  # the elements; keys and values of maps

    @property
    def rows(self) -> Positions:
        """The row of every element."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def starts(self) -> Positions:
        """Where the elements of every row begin."""
        starts: Positions = np.cumsum(self.counts) - self.counts
        return starts

    @property
    def places(self) -> Positions:
        """The place of every element in its array, from 0."""
        return np.arange(int(self.counts.sum())) - np.repeat(self.starts, self.counts)


def elements_of(column: pa.Array) -> Elements:
    """Take arrays or maps apart."""
    offsets = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    counts = offsets[1:] - offsets[:-1]
    first, last = (int(offsets[0]), int(offsets[-1])) if len(column) else (0, 0)
    valid: Bools | None = None
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        counts = np.where(valid, counts, 0)
    inside = column.values.slice(first, last - first)
    if len(inside) > counts.sum():
        # Some NULLs have elements that nobody may see.
        at, _ = expand(counts)
        inside = column.values.take(pa.array(at + np.repeat(offsets[:-1], counts)))
    columns = tuple(inside.flatten()) if pa.types.is_map(column.type) else (inside,)
    return Elements(valid, counts, columns)


def nested_array(
    kind: pa.DataType, counts: Positions, columns: tuple[pa.Array, ...], valid: Bools | None = None
) -> pa.Array:
    """Make arrays, or maps of keys and values, of elements that lie end to end."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    mask = None if valid is None or valid.all() else pa.array(~valid)
    if pa.types.is_map(kind):
        keys, items = typed(columns[0], kind.key_type), typed(columns[1], kind.item_type)
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, type=kind, mask=mask)
    values = typed(columns[0], kind.value_type)
    return pa.LargeListArray.from_arrays(pa.array(offsets), values, type=kind, mask=mask)


def joint_validity(*parts: Elements) -> Bools | None:
    """Where all of several columns are not NULL."""
    masks = [part.valid for part in parts if part.valid is not None]
    return np.logical_and.reduce(masks) if masks else None


def without_negative_zeros(column: pa.Array) -> pa.Array:
    """A column in which every -0.0 is 0.0, also inside of structs, arrays and the values of maps."""
    kind = column.type
    if pa.types.is_floating(kind):
        # Adding zero leaves every other number, NaN and NULL as they are.
        return pc.add(column, pa.scalar(0.0, kind))
    if pa.types.is_struct(kind):
        fields = [without_negative_zeros(field) for field in column.flatten()]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=mask)
    if pa.types.is_large_list(kind) or pa.types.is_map(kind):
        split = elements_of(column)
        *keys, items = split.columns
        return nested_array(kind, split.counts, (*keys, without_negative_zeros(items)), split.valid)
    return column


def built_map(
    call: Call,
    counts: Positions,
    keys: pa.Array,
    items: pa.Array,
    valid: Bools | None,
    *,
    normal: bool = False,
) -> pa.Array:
    """Make maps as Spark's map builder does: no key is NULL, and none occurs twice, unless the last one wins.

    `normal` says that a map has -0.0 as 0.0 even if no key occurs twice.
    """
    kind = kernel_type(call.type)
    keys, items = typed(keys, kind.key_type), typed(items, kind.item_type)
    rows = np.repeat(np.arange(len(counts)), counts)
    columns = [pa.array(rows), keys]
    order, starts = group_rows(hash_rows(columns), columns)
    repeated = len(starts) < len(order)
    last_wins = call.option("mapKeyDedupPolicy", "EXCEPTION") == "LAST_WIN"
    _check_keys(call, keys, order, starts, last_wins)
    if repeated:
        first = np.sort(order[starts])
        last = np.empty(len(order), np.int64)
        last[order[starts]] = order[np.append(starts[1:], len(order)) - 1]
        keys, items = keys.take(pa.array(first)), items.take(pa.array(last[first]))
        counts = np.bincount(rows[first], minlength=len(counts))
    if (repeated or normal) and pa.types.is_floating(kind.key_type):
        keys = without_negative_zeros(keys)
    return nested_array(kind, counts, (keys, items), valid)


def _check_keys(call: Call, keys: pa.Array, order: Positions, starts: Positions, last_wins: bool) -> None:
    """Refuse the first key that is NULL or was there before."""
    bad = []
    if keys.null_count:
        at = int(np.argmax(keys.is_null().to_numpy(zero_copy_only=False)))
        bad.append((at, AnsiError("a map has NULL as a key", NULL_KEY)))
    if len(starts) < len(order) and not last_wins:
        again = np.ones(len(order), np.bool_)
        again[starts] = False
        at = int(order[again].min())
        bad.append((at, AnsiError("a map has the same key twice", DUPLICATE_KEY)))
    if bad:
        at, error = min(bad, key=lambda item: item[0])
        raise ansi_error(call, error, [keys[at].as_py()])


# ------------------------------------------------------------------ lambdas


def parameter_place(parameter: Parameter) -> int:
    """Where the columns of a lambda's body have a parameter: behind those of the row, the outermost one last."""
    return -1 - parameter.number


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a lambda, applied to many elements at once: rows of the input by number, and a column for each parameter."""

    run: Compiled
    kind: pa.DataType
    reads: frozenset[int]  # places of columns; those of outer parameters count from the end
    outer: int  # the number of parameters of the lambdas around it
    one_by_one: bool = False  # whether an error must be that of the first element that raises

    def over(
        self, columns: Columns, rows: Positions, parameters: tuple[pa.Array, ...], tick: TickLike
    ) -> pa.Array:
        """The value for every element."""
        count = len(rows)
        if count == 0:
            return pa.array([], self.kind)
        try:
            return self._over(columns, rows, parameters, tick)
        except DataError:
            if not self.one_by_one or count == 1:
                raise
        half = count // 2
        first = self.over(columns, rows[:half], tuple(item.slice(0, half) for item in parameters), tick)
        second = self.over(columns, rows[half:], tuple(item.slice(half) for item in parameters), tick)
        return pa.concat_arrays([first, second])

    def _over(
        self, columns: Columns, rows: Positions, parameters: tuple[pa.Array, ...], tick: TickLike
    ) -> pa.Array:
        width = len(columns)
        chosen = pa.array(rows)
        taken = [
            columns[place].take(chosen) if place in self.reads or place - width in self.reads else None
            for place in range(width)
        ]
        own = width - self.outer
        inside = [*taken[:own], *reversed(parameters), *taken[own:]]
        return typed(array(self.run(inside, len(rows), tick), len(rows)), self.kind)


def body_of(function: Lambda, run: Compiled, *, one_by_one: bool = False) -> Body:
    """A lambda with its compiled body."""
    outer = function.parameters[0].number
    return Body(run, kernel_type(function.type), reads(function), outer, one_by_one)


def reads(expression: Expression) -> frozenset[int]:
    """The places of the columns that an expression reads, those of parameters of lambdas around it from the end."""
    parts = list(walk(expression))
    own = {item.number for part in parts if isinstance(part, Lambda) for item in part.parameters}
    return frozenset(
        item.index if isinstance(item, Column) else parameter_place(item)
        for item in parts
        if isinstance(item, Column) or (isinstance(item, Parameter) and item.number not in own)
    )


def is_true(value: Datum, length: int) -> Bools:
    """Which rows have TRUE, neither FALSE nor NULL."""
    mask: Bools = array(value, length).fill_null(False).to_numpy(zero_copy_only=False)
    return mask
