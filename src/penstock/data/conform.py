"""Rows as they come, cast to a declared schema without losing anything.

Widening is fine (INT into BIGINT, BIGINT into DECIMAL), and so is narrowing when every value fits. Text becomes a date or a
timestamp, because JSON and YAML have no other way to write one. Anything else is refused with the column and a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.types import kernel_type
from penstock.data.user_types import from_user
from penstock.errors import DataError, suggest


def conform_to(
    table: pa.Table, fields: Sequence[tuple[str, str, bool]], *, where: str
) -> tuple[pa.Array, ...]:
    """Return the columns named by `fields` (name, Spark's type, nullable), as the kernel holds them."""
    kinds = {name: kind for name, kind, _ in fields}

    def convert(column: pa.Array, name: str) -> pa.Array:
        return from_user(column, kinds[name], name=name, where=where)

    wanted = [(name, kernel_type(kind), nullable) for name, kind, nullable in fields]
    return conform(table, wanted, where=where, convert=convert)


def conform(
    table: pa.Table,
    fields: Sequence[tuple[str, pa.DataType, bool]],
    *,
    where: str,
    convert: Callable[[pa.Array, str], pa.Array] | None = None,
) -> tuple[pa.Array, ...]:
    """Return the columns named by `fields` (name, type, nullable), in that order, contiguous and of that type.

    `convert` is asked first, for what Arrow does not cast.
    """
    names = [name for name, _, _ in fields]
    table = _as_declared(table, names)
    actual = table.schema.names
    unknown = [name for name in actual if name not in names]
    if unknown:
        raise DataError(
            f"unknown column '{unknown[0]}'",
            code="DATA_UNKNOWN_COLUMN",
            where=where,
            hint=suggest(unknown[0], names, what="column"),
        )
    columns = []
    for name, kind, nullable in fields:
        if name not in actual:
            raise DataError(
                f"column '{name}' is missing",
                code="DATA_MISSING_COLUMN",
                where=where,
                hint=f"the rows have {', '.join(actual) or 'no columns'}; needed are {', '.join(names)}",
            )
        column = _contiguous(table.column(name))
        column = column if convert is None else convert(column, name)
        columns.append(_cast(column, kind, name, where) if column.type != kind else column)
        if not nullable and column.null_count:
            raise DataError(
                f"column '{name}' is NOT NULL and has {column.null_count} NULLs",
                code="DATA_NULL",
                where=where,
            )
    return tuple(columns)


def _as_declared(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Spell columns as they were declared, where only the case differs and leaves no doubt."""
    actual = table.schema.names
    if all(name in names for name in actual):
        return table
    folded: dict[str, list[str]] = {}
    for name in names:
        folded.setdefault(name.casefold(), []).append(name)

    same = [name.casefold() for name in actual]

    def spelled(name: str) -> str:
        meant = folded.get(name.casefold(), [])
        return meant[0] if len(meant) == 1 and same.count(name.casefold()) == 1 else name

    return table.rename_columns([spelled(name) for name in actual])


def _contiguous(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    if column.num_chunks == 0:
        return pa.array([], column.type)
    return pa.concat_arrays(column.chunks)


def _cast(column: pa.Array, kind: pa.DataType, name: str, where: str) -> pa.Array:
    try:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_floating(column.type) and pa.types.is_decimal(kind):
            return _decimals(column, kind)
        if not _compatible(column.type, kind):
            raise pa.ArrowInvalid(f"{column.type} is not {kind}")
        if pa.types.is_integer(column.type) and pa.types.is_decimal(kind):
            # Arrow asks for room for the widest integer; what counts is whether these values fit.
            column = pc.cast(column, pa.decimal128(20, 0))
        result = pc.cast(column, kind, safe=True)
        if pa.types.is_integer(column.type) and pa.types.is_floating(kind):
            # Arrow checks the range of exact integers for some widths only.
            back = pc.cast(result, column.type, safe=False)
            if not pc.all(pc.equal(back, column)).as_py() and column.null_count < len(column):
                raise pa.ArrowInvalid("an integer is too large for a float")
        return result
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, InvalidOperation) as error:
        raise DataError(
            f"column '{name}' holds {column.type} values that do not fit {kind}: {_sample(column, kind)}",
            code="DATA_TYPE",
            where=where,
            hint=_hint(column.type, kind),
        ) from error


def _hint(actual: pa.DataType, wanted: pa.DataType) -> str:
    if pa.types.is_timestamp(actual) and pa.types.is_timestamp(wanted) and bool(actual.tz) != bool(wanted.tz):
        if wanted.tz:
            return "give the times a zone, as datetime(..., tzinfo=timezone.utc), or declare the column as TIMESTAMP_NTZ"
        return "declare the column as TIMESTAMP, or feed times without a zone"
    return "cast the column before feeding it, or declare the source with the type of the data"


def _compatible(actual: pa.DataType, wanted: pa.DataType) -> bool:
    kinds = pa.types
    if kinds.is_null(actual) or actual == wanted:
        return True
    if kinds.is_nested(actual) or kinds.is_nested(wanted):
        return _nested_compatible(actual, wanted)
    if kinds.is_integer(wanted):
        return bool(kinds.is_integer(actual) or kinds.is_decimal(actual))
    if kinds.is_floating(wanted):
        return bool(kinds.is_integer(actual) or kinds.is_floating(actual))
    if kinds.is_decimal(wanted):
        return bool(kinds.is_integer(actual) or kinds.is_decimal(actual))
    if kinds.is_timestamp(wanted):
        if kinds.is_timestamp(actual):
            # A wall-clock time is not a moment: which zone would it be in?
            return (actual.tz is None) == (wanted.tz is None)
        return _is_text(actual)
    if kinds.is_date(wanted):
        return bool(kinds.is_date(actual)) or _is_text(actual)
    if _is_text(wanted):
        return _is_text(actual)
    if _is_bytes(wanted):
        return _is_bytes(actual)
    if kinds.is_duration(wanted):
        return bool(kinds.is_duration(actual))
    if kinds.is_time(wanted):
        return bool(kinds.is_time(actual))
    return False


def _nested_compatible(actual: pa.DataType, wanted: pa.DataType) -> bool:
    kinds = pa.types
    if _is_list(actual) and _is_list(wanted):
        return _compatible(actual.value_type, wanted.value_type)
    if kinds.is_map(actual) and kinds.is_map(wanted):
        return _compatible(actual.key_type, wanted.key_type) and _compatible(
            actual.item_type, wanted.item_type
        )
    if kinds.is_struct(actual) and kinds.is_struct(wanted):
        actual_fields = {
            actual.field(index).name: actual.field(index).type for index in range(actual.num_fields)
        }
        return actual_fields.keys() == {field.name for field in wanted} and all(
            _compatible(actual_fields[field.name], field.type) for field in wanted
        )
    return False


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _decimals(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Floats as people write them: 0.1 is the decimal 0.1, not the binary fraction nearest to it."""
    values = [None if value is None else Decimal(repr(value)) for value in column.to_pylist()]
    return pa.array(values, kind)


def _sample(column: pa.Array, kind: pa.DataType) -> str:
    """Up to three values that do not fit; one at a time is fast enough on the error path."""
    misfits: list[Any] = []
    for value in column.slice(0, 10_000):
        if len(misfits) == 3:
            break
        if not value.is_valid:
            continue
        try:
            single = pa.array([value.as_py()], column.type)
            if not _compatible(column.type, kind) or pc.cast(single, kind, safe=True).null_count:
                misfits.append(value.as_py())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            misfits.append(value.as_py())
    return ", ".join(repr(value) for value in misfits)
