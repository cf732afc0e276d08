"""Columns between the types in which users hand in and get values, and those in which the kernel holds them.

Most differ in their width alone, which Arrow casts. Those of which Arrow or Python has another idea than Spark are
converted here, at any depth: intervals of years and months, VARIANT, TIME, text of a declared length, text that
stands for an interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from penstock.data import interval, time_of_day, variant
from penstock.data.arrays import Numbers
from penstock.data.char_length import fit_length, is_sized
from penstock.data.schema import to_arrow_type
from penstock.data.types import is_year_month, kernel_type, parse
from penstock.errors import DataError

Convert = Callable[[pa.Array, str], pa.Array]


def to_user(column: pa.Array, kind: str) -> pa.Array:
    """Return a column of the kernel in the Arrow type that users get for the Spark type `kind`."""
    arrow = to_arrow_type(kind)
    if column.type == arrow:
        return column
    return _converted(column, kind, arrow, _leaf_to_user) if _has(kind, _differs) else column.cast(arrow)


def from_user(column: pa.Array, kind: str, *, name: str, where: str) -> pa.Array:
    """Return a column of users as the kernel takes it for the Spark type `kind`, up to what Arrow can cast; DataError
    when it cannot be."""
    if not _has(kind, _is_special):
        return column

    def leaf(values: pa.Array, inner: str) -> pa.Array:
        return _leaf_from_user(values, inner, name=name, where=where)

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return _converted(column, kind, None, leaf)


@lru_cache(maxsize=4096)
def _has(kind: str, test: Callable[[str], bool]) -> bool:
    """Whether a type, or one inside it, passes a test."""
    return test(kind) or any(_has(inner, test) for inner in parse(kind).inner)


def _differs(kind: str) -> bool:
    return is_year_month(kind) or kind == "variant"


def _is_special(kind: str) -> bool:
    return kind.startswith(("interval", "time(", "char(", "varchar(")) or kind == "variant"


def _leaf_to_user(column: pa.Array, kind: str) -> pa.Array:
    if is_year_month(kind):
        return interval.from_months(column)
    arrow = to_arrow_type(kind)
    if kind != "variant":
        return column.cast(arrow)
    # The parts of a NULL are empty, because they may not be NULL themselves.
    parts = [part.cast(pa.binary()).fill_null(b"") for part in column.flatten()]
    return pa.StructArray.from_arrays(parts, fields=list(arrow), mask=column.is_null())


def _leaf_from_user(column: pa.Array, kind: str, *, name: str, where: str) -> pa.Array:
    arrow = column.type
    if pa.types.is_null(arrow):
        return column
    text = pa.types.is_string(arrow) or pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow)
    if kind == "variant":
        if text:
            return variant.from_json(column, name=name, where=where)
        return _variant_parts(column) if pa.types.is_struct(arrow) else column
    if kind.startswith("time("):
        return time_of_day.to_nanos(column, kind, name=name, where=where)
    if is_sized(kind):
        return fit_length(column, kind, name=name, where=where) if text else column
    if kind == "interval":
        return interval.cut_to_micros(column) if pa.types.is_interval(arrow) else column
    if not kind.startswith("interval"):
        return column
    if text:
        return interval.from_text(column, kind, name=name, where=where)
    if is_year_month(kind):
        if not pa.types.is_interval(arrow):
            # A number could be years as well as months.
            raise DataError(
                f"column '{name}' holds {arrow} values that do not fit {kind.upper()}",
                code="DATA_TYPE",
                where=where,
                hint="feed Arrow's month_day_nano_interval, as (months, 0, 0), or text as '1-2'",
            )
        return interval.cut_months(interval.to_months(column, name=name, where=where), kind)
    return interval.cut(column.cast(kernel_type(kind)), kind) if pa.types.is_duration(arrow) else column


def _variant_parts(column: pa.Array) -> pa.Array:
    """The two parts of VARIANTs in the order of the kernel, without the metadata of Arrow."""
    names = [field.name for field in column.type]
    if sorted(names) != ["metadata", "value"]:
        return column
    parts = column.flatten()
    ordered = [parts[names.index(part)].cast(pa.large_binary()) for part in ("value", "metadata")]
    return pa.StructArray.from_arrays(ordered, ["value", "metadata"], mask=column.is_null())


def _converted(column: pa.Array, kind: str, arrow: pa.DataType | None, leaf: Convert) -> pa.Array:
    """A column with the leaves of its type converted; `arrow` is the type that the result has, None for any."""
    parsed = parse(kind)
    if parsed.kind == "struct" and pa.types.is_struct(column.type):
        return _struct(column, parsed.names, parsed.inner, arrow, leaf)
    if parsed.kind == "array" and _is_list(column.type):
        values = column.flatten()
        field = pa.field("element", pa.null()) if arrow is None else arrow.value_field
        items = _converted(values, parsed.inner[0], None if arrow is None else field.type, leaf)
        wide = arrow is None or pa.types.is_large_list(arrow)
        make = pa.large_list if wide else pa.list_
        offsets = _offsets(np.asarray(column.value_lengths().fill_null(0)), wide=wide)
        return _nested(make(field.with_type(items.type)), column, offsets, [items])
    if parsed.kind == "map" and pa.types.is_map(column.type):
        return _map(column, parsed.inner, arrow, leaf)
    return leaf(column, kind)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _struct(
    column: pa.Array, names: Sequence[str], kinds: Sequence[str], arrow: pa.DataType | None, leaf: Convert
) -> pa.Array:
    parts, fields = [], []
    for field, part in zip(column.type, column.flatten(), strict=True):
        if field.name not in names:
            return column
        place = list(names).index(field.name)
        wanted = None if arrow is None else arrow.field(place)
        values = _converted(part, kinds[place], None if wanted is None else wanted.type, leaf)
        parts.append(values)
        fields.append((wanted or pa.field(field.name, values.type)).with_type(values.type))
    return pa.StructArray.from_arrays(parts, fields=fields, mask=column.is_null())


def _map(column: pa.Array, kinds: Sequence[str], arrow: pa.DataType | None, leaf: Convert) -> pa.Array:
    bounds = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    first, last = (int(bounds[0]), int(bounds[-1])) if len(bounds) else (0, 0)
    keys, items = column.keys.slice(first, last - first), column.items.slice(first, last - first)
    keys = _converted(keys, kinds[0], None if arrow is None else arrow.key_type, leaf)
    items = _converted(items, kinds[1], None if arrow is None else arrow.item_type, leaf)
    kind = pa.map_(keys.type, items.type)
    entries = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
    offsets = (bounds - first).astype(np.int32) if len(bounds) else np.zeros(1, np.int32)
    return _nested(kind, column, offsets, [entries])


def _offsets(lengths: Numbers, *, wide: bool) -> Numbers:
    offsets = np.zeros(len(lengths) + 1, np.int64 if wide else np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _nested(kind: pa.DataType, column: pa.Array, offsets: Numbers, children: list[pa.Array]) -> pa.Array:
    """A list or map with the NULLs of a column, and other children."""
    valid = None
    if column.null_count:
        bits = np.packbits(column.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
        valid = pa.py_buffer(bits)
    return pa.Array.from_buffers(kind, len(column), [valid, pa.py_buffer(offsets)], children=children)
