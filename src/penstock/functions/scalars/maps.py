"""Functions of maps: made, taken apart, merged and asked for a key."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.equality import equal_rows
from penstock.data.types import kernel_type, parse
from penstock.functions.scalars.arrays import of_values
from penstock.functions.scalars.base import (
    AnsiError,
    Datum,
    Scalar,
    array,
    bad_row_error,
    constant,
    only,
    typed,
)
from penstock.functions.scalars.elements import built_map, elements_of, joint_validity, nested_array
from penstock.functions.scalars.logic import is_comparable
from penstock.plan.expression import Call, Literal

_SPECIAL = re.compile(r"[\\\[\]{}()*+?.^$|]")  # in regular expressions
LENGTHS_DIFFER = "SQL_SPARK"


def map_value(call: Call, values: list[Datum], length: int) -> pa.Array:
    """The value of a key, the first one if it occurs twice; NULL where there is none."""
    split = elements_of(array(values[0], length))
    keys, items = split.columns
    wanted = typed(array(values[1], length), keys.type)
    rows = split.rows
    hits = np.flatnonzero(equal_rows([keys], np.arange(len(keys)), [wanted], rows))[::-1]
    at = np.full(length, -1, np.int64)
    at[rows[hits]] = hits
    return typed(items.take(pa.array(np.maximum(at, 0), mask=at < 0)), kernel_type(call.type))


def map_value_check(call: Call) -> str | None:
    """A map whose keys the kernel compares."""
    parsed = parse(call.args[0].type)
    is_supported = (
        parsed.kind == "map" and is_comparable(parsed.inner[0]) and call.args[1].type == parsed.inner[0]
    )
    return None if is_supported else f"{call.name} over {call.args[0].type}"


def _makes(call: Call) -> str | None:
    key = parse(call.type).inner[0]
    if call.option("rawKeys", False):
        return f"{call.name} without normal keys"
    return None if is_comparable(key) else f"{call.name} to {call.type}"


def _create(call: Call, values: list[Datum], length: int) -> pa.Array:
    kind = kernel_type(call.type)
    width = len(values) // 2
    # Row by row instead of column by column: entry j of row i is at j * length + i.
    order = pa.array(np.arange(width * length).reshape(width, length).T.ravel())
    keys, items = (
        pa.concat_arrays(
            [pa.array([], inner), *(typed(array(item, length), inner) for item in values[side::2])]
        ).take(order)
        for side, inner in ((0, kind.key_type), (1, kind.item_type))
    )
    return built_map(call, np.full(length, width, np.int64), keys, items, None)


def _from_arrays(call: Call, values: list[Datum], length: int) -> pa.Array:
    keys, items = (elements_of(array(value, length)) for value in values)
    valid = joint_validity(keys, items)
    differ = keys.counts != items.counts
    if valid is not None:
        differ &= valid
        columns = [part.columns[0].filter(pa.array(valid[part.rows])) for part in (keys, items)]
        counts = np.where(valid, keys.counts, 0)
    else:
        columns, counts = [keys.columns[0], items.columns[0]], keys.counts
    if differ.any():
        error = AnsiError("the arrays of keys and of values differ in length", LENGTHS_DIFFER)
        raise bad_row_error(call, values, int(np.argmax(differ)), error)
    return built_map(call, counts, columns[0], columns[1], valid)


def _from_entries(call: Call, values: list[Datum], length: int) -> pa.Array:
    split = elements_of(array(values[0], length))
    (entries,) = split.columns
    valid = np.ones(length, np.bool_) if split.valid is None else split.valid.copy()
    if entries.null_count:
        valid[split.rows[entries.is_null().to_numpy(zero_copy_only=False)]] = False
    entries = entries.filter(pa.array(valid[split.rows]))
    keys, items = entries.flatten()
    counts = np.where(valid, split.counts, 0)
    return built_map(call, counts, keys, items, None if valid.all() else valid, normal=True)


def _concat(call: Call, values: list[Datum], length: int) -> pa.Array:
    kind = kernel_type(call.type)
    if not values:
        return nested_array(
            kind, np.zeros(length, np.int64), (pa.array([], kind.key_type), pa.array([], kind.item_type))
        )
    parts = [elements_of(array(value, length)) for value in values]
    valid = joint_validity(*parts)
    rows = np.concatenate([part.rows for part in parts])
    order = np.argsort(rows, kind="stable")
    if valid is not None:
        order = order[valid[rows[order]]]
    keys, items = (
        pa.concat_arrays([typed(part.columns[side], inner) for part in parts]).take(pa.array(order))
        for side, inner in ((0, kind.key_type), (1, kind.item_type))
    )
    counts = np.bincount(rows[order], minlength=length)
    return built_map(call, counts, keys, items, valid, normal=True)


def _from_text(call: Call, values: list[Datum], length: int) -> pa.Array:
    """Pairs of a text; one without a second delimiter has the value NULL."""
    pair, between = str(constant(call, 1)), str(constant(call, 2))
    text = array(values[0], length)
    pairs = elements_of(pc.split_pattern(text, pair).cast(pa.large_list(pa.large_string())))
    parts = elements_of(
        pc.split_pattern(pairs.columns[0], between, max_splits=1).cast(pa.large_list(pa.large_string()))
    )
    (inside,) = parts.columns
    alone = parts.counts < 2
    keys = inside.take(pa.array(parts.starts))
    items = inside.take(pa.array(np.where(alone, 0, parts.starts + 1), mask=alone))
    return built_map(call, pairs.counts, keys, items, pairs.valid, normal=True)


def _from_text_check(call: Call) -> str | None:
    for position in (1, 2):
        delimiter = call.args[position]
        plain = isinstance(delimiter, Literal) and delimiter.value and not _SPECIAL.search(delimiter.value)
        if not plain:
            return "STR_TO_MAP with a delimiter that is no plain constant"
    return _makes(call)


def _entries(call: Call, values: list[Datum], length: int) -> pa.Array:
    kind = kernel_type(call.type)
    split = elements_of(array(values[0], length))
    parts = [typed(part, field.type) for part, field in zip(split.columns, kind.value_type, strict=True)]
    structs = pa.StructArray.from_arrays(parts, fields=list(kind.value_type))
    return nested_array(kind, split.counts, (structs,), split.valid)


def _keys(call: Call, values: list[Datum], length: int) -> pa.Array:
    split = elements_of(array(values[0], length))
    return nested_array(kernel_type(call.type), split.counts, split.columns[:1], split.valid)


def _items(call: Call, values: list[Datum], length: int) -> pa.Array:
    split = elements_of(array(values[0], length))
    return nested_array(kernel_type(call.type), split.counts, split.columns[1:], split.valid)


FUNCTIONS: dict[str, Scalar] = {
    "GetMapValue": Scalar(of_values(map_value), map_value_check),
    "MapKeys": Scalar(of_values(_keys), only("map")),
    "MapValues": Scalar(of_values(_items), only("map")),
    "MapEntries": Scalar(of_values(_entries), only("map")),
    "CreateMap": Scalar(of_values(_create), _makes),
    "MapFromArrays": Scalar(of_values(_from_arrays), _makes),
    "MapFromEntries": Scalar(of_values(_from_entries), _makes),
    "StringToMap": Scalar(of_values(_from_text), _from_text_check),
    "MapConcat": Scalar(of_values(_concat), _makes),
}
