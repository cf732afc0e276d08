"""Arrays and structs made and taken apart, elements by position or key, and sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.types import kernel_type
from penstock.functions.scalars.arrays import of_values
from penstock.functions.scalars.base import (
    INDEX,
    INDEX_OF_ZERO,
    LEAST_INT,
    SPARK,
    AnsiError,
    Columns,
    Compiled,
    Datum,
    Scalar,
    TickLike,
    accept,
    ansi_error,
    array,
    literal_args,
    only,
    typed,
)
from penstock.functions.scalars.maps import map_value, map_value_check
from penstock.plan.expression import Call


def _create_array(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    kind = kernel_type(call.type)
    inner = kind.value_type
    count = len(args)

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        if count == 0:
            return pa.array([[]] * length, kind)
        parts = [typed(array(item(columns, length, tick), length), inner) for item in args]
        # Row by row instead of column by column: element j of row i is at j * length + i.
        order = np.arange(count * length).reshape(count, length).T.ravel()
        values = pa.concat_arrays(parts).take(pa.array(order))
        offsets = pa.array(np.arange(0, count * length + 1, count), pa.int64())
        return pa.LargeListArray.from_arrays(offsets, values, type=kind)

    return run


def _create_struct(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    kind = kernel_type(call.type)
    values = args[1::2]

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        parts = [
            typed(array(item(columns, length, tick), length), kind.field(index).type)
            for index, item in enumerate(values)
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind))

    return run


def _struct_field(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    (argument,) = args
    ordinal = call.option("ordinal")
    # By position: two fields of a struct may have the same name.
    return lambda columns, length, tick: pc.struct_field(argument(columns, length, tick), [ordinal])


def _size(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    (argument,) = args
    legacy = call.option("legacySizeOfNull", False)
    unknown = pa.scalar(-1, pa.int32())

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        value = array(argument(columns, length, tick), length)
        if pa.types.is_map(value.type):
            offsets = value.offsets.to_numpy()
            sizes = pc.if_else(
                pc.is_valid(value), pa.array(np.diff(offsets), pa.int32()), pa.scalar(None, pa.int32())
            )
        else:
            sizes = pc.cast(pc.list_value_length(value), pa.int32())
        return pc.fill_null(sizes, unknown) if legacy else sizes

    return run


def _pick(call: Call, args: tuple[Compiled, ...], *, one_based: bool) -> Compiled:
    """An element by position; beyond the ends it is a default, an ANSI error or NULL."""
    kind = kernel_type(call.type)
    default = call.option("defaultValueOutOfBound", None)
    fails = bool(call.option("failOnError", True)) and default is None
    list_of, index_of = args

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        lists = array(list_of(columns, length, tick), length)
        wanted = pc.cast(array(index_of(columns, length, tick), length), pa.int64())
        starts = lists.offsets.to_numpy()[:-1]
        sizes = np.diff(lists.offsets.to_numpy())
        valid = lists.is_valid().to_numpy(zero_copy_only=False) & wanted.is_valid().to_numpy(
            zero_copy_only=False
        )
        index = wanted.fill_null(0).to_numpy()
        if one_based:
            if (bad := valid & (index == 0)).any():
                raise _out(call, lists, wanted, bad, condition=INDEX_OF_ZERO)
            if (bad := valid & (index == LEAST_INT)).any():
                raise _out(call, lists, wanted, bad, SPARK)
            index = np.where(index < 0, index + sizes, index - 1)
        outside = valid & ((index < 0) | (index >= sizes))
        if outside.any() and fails:
            raise _out(call, lists, wanted, outside)
        inside = valid & ~outside
        positions = pa.array(np.where(inside, starts + index, 0), mask=~inside)
        elements = typed(lists.values.take(positions), kind)
        if default is None or not outside.any():
            return elements
        return pc.if_else(pa.array(outside), pa.scalar(default, kind), elements)

    return run


def _out(
    call: Call,
    lists: pa.Array,
    wanted: pa.Array,
    bad: Any,
    code: str = INDEX,
    *,
    condition: str | None = None,
) -> Exception:
    row = int(np.argmax(bad))
    values = (lists[row].as_py(), wanted[row].as_py())
    return ansi_error(call, AnsiError(f"there is no element {values[1]}", code, condition), values)


def _array_item(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    return _pick(call, args, one_based=False)


def _element_at(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    if call.args[0].type.startswith("map"):
        return of_values(map_value)(call, args)
    return _pick(call, args, one_based=True)


def _element_check(call: Call) -> str | None:
    if call.args[0].type.startswith("map"):
        return map_value_check(call)
    return None if call.args[0].type.startswith("array") else f"{call.name} over {call.args[0].type}"


FUNCTIONS: dict[str, Scalar] = {
    "CreateArray": Scalar(_create_array, accept),
    "CreateNamedStruct": Scalar(_create_struct, literal_args()),
    "GetStructField": Scalar(_struct_field, only("struct")),
    "Size": Scalar(_size, only("array", "map")),
    "GetArrayItem": Scalar(_array_item, only("array", first=1)),
    "ElementAt": Scalar(_element_at, _element_check),
}
