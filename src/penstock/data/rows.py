"""Rows as users have them (Arrow, Polars, pandas, PySpark, dicts) as one thing: a `pyarrow.Table`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from penstock.data.schema import to_arrow_schema
from penstock.errors import DataError, suggest

if TYPE_CHECKING:
    import pyarrow as pa

TAKEN = (
    "an Arrow table or batch, a Polars, pandas or PySpark DataFrame, "
    "anything with __arrow_c_stream__, or a list of dicts"
)


def to_arrow(rows: Any, schema: Any = None) -> pa.Table:
    """Return rows as an Arrow table, in `schema` when there is one.

    With a schema, columns go by name: a missing column is NULL, an unknown one is refused, and values are cast when nothing
    is lost. Naive times in a zoned column count as UTC. Dictionary and view columns become plain ones.

    >>> to_arrow([{"id": 1}, {"id": 2, "name": "b"}]).to_pylist()
    [{'id': 1, 'name': None}, {'id': 2, 'name': 'b'}]
    """
    wanted = None if schema is None else to_arrow_schema(schema)
    if _is_dicts(rows):
        return _from_dicts(_as_dicts(rows), wanted)
    table = _plain(_table(rows))
    return table if wanted is None else _fit(table, wanted)


def _table(rows: Any) -> pa.Table:
    import pyarrow as pa

    home = type(rows).__module__.partition(".")[0]
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, pa.RecordBatchReader):
        return rows.read_all()
    if home == "polars":
        frame = rows.collect() if hasattr(rows, "collect") else rows
        return (frame.to_frame() if hasattr(frame, "to_frame") else frame).to_arrow()
    if home == "pandas" and hasattr(rows, "columns"):
        return _from_pandas(rows)
    if home == "pyspark" and hasattr(rows, "toArrow"):
        return rows.toArrow()
    if hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
        return pa.table(rows)
    if isinstance(rows, Mapping):
        return _converted(lambda: pa.table(dict(rows)))
    if (
        isinstance(rows, Sequence)
        and rows
        and all(isinstance(part, pa.RecordBatch | pa.Table) for part in rows)
    ):
        return pa.concat_tables([_table(part) for part in rows])
    raise DataError(f"rows cannot be made from {type(rows).__name__}", code="DATA_ROWS", hint=f"pass {TAKEN}")


def _from_pandas(frame: Any) -> pa.Table:
    import pyarrow as pa

    return _converted(lambda: pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None))


def _converted(make: Any) -> pa.Table:
    import pyarrow as pa

    try:
        return make()
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"the rows do not fit into columns: {error}", code="DATA_TYPE") from error


def _is_dicts(rows: Any) -> bool:
    if isinstance(rows, str | bytes | Mapping) or hasattr(rows, "__arrow_c_stream__"):
        return False
    if isinstance(rows, Sequence):
        return all(isinstance(row, Mapping) or hasattr(row, "asDict") for row in rows)
    return isinstance(rows, Iterable) and not hasattr(rows, "columns") and not hasattr(rows, "schema")


def _as_dicts(rows: Iterable[Any]) -> list[Mapping[str, Any]]:
    dicts: list[Mapping[str, Any]] = []
    for row in rows:
        # PySpark's Row is a tuple that knows its names.
        record = row.asDict(recursive=True) if hasattr(row, "asDict") else row
        if not isinstance(record, Mapping):
            raise DataError(
                f"row {len(dicts) + 1} is {type(row).__name__}, not a dict",
                code="DATA_ROWS",
                hint=f"pass {TAKEN}",
            )
        dicts.append(record)
    return dicts


def _from_dicts(rows: list[Mapping[str, Any]], wanted: pa.Schema | None) -> pa.Table:
    import pyarrow as pa

    names = list(dict.fromkeys(name for row in rows for name in row))
    if wanted is None:
        if not rows:
            raise DataError(
                "an empty list has no columns",
                code="DATA_EMPTY",
                hint="pass a schema, or an empty Arrow table that has one",
            )
        columns = [_column(name, [row.get(name) for row in rows], None) for name in names]
        return pa.table(columns, names=names)
    _refuse_unknown(names, wanted)
    columns = [_column(field.name, [row.get(field.name) for row in rows], field.type) for field in wanted]
    return _checked(pa.table(columns, names=wanted.names), wanted)


def _column(name: str, values: list[Any], kind: pa.DataType | None) -> pa.Array:
    import pyarrow as pa

    values = _without_variants(values)
    try:
        return pa.array(values, type=kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        first = error
    if kind is not None:
        # Values of another Python type, such as text for a timestamp: Arrow's casts know more than its constructors.
        try:
            return _cast(pa.array(values), kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            first = error
    expected = f" as {kind}" if kind is not None else " as one type"
    raise DataError(
        f"column '{name}' cannot be read{expected}: {first}", code="DATA_TYPE", where=_first_bad(values, kind)
    ) from first


def _without_variants(values: list[Any]) -> list[Any]:
    """PySpark's VariantVal as the struct that Arrow has for it."""
    if not any(type(value).__name__ == "VariantVal" for value in values):
        return values
    return [
        {"value": value.value, "metadata": value.metadata} if type(value).__name__ == "VariantVal" else value
        for value in values
    ]


def _cast(values: Any, kind: pa.DataType) -> Any:
    import pyarrow as pa
    import pyarrow.types as t

    if t.is_timestamp(kind) and kind.tz and t.is_string(values.type):
        # Arrow wants a zone in every text; one without is UTC here, as a naive datetime is.
        try:
            return values.cast(kind)
        except pa.ArrowInvalid:
            return values.cast(pa.timestamp("us")).cast(kind)
    return values.cast(kind)


def _first_bad(values: list[Any], kind: pa.DataType | None) -> str | None:
    import pyarrow as pa

    if kind is None:
        kinds = [type(value).__name__ for value in values if value is not None]
        other = next((index for index, name in enumerate(kinds) if name != kinds[0]), None)
        return None if other is None else f"{kinds[0]}, then {kinds[other]}"
    for number, value in enumerate(values, start=1):
        try:
            pa.array([value], type=kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            try:
                _cast(pa.array([value]), kind)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                return f"row {number}, value {value!r}"
    return None


def _fit(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    import pyarrow as pa

    _refuse_unknown(table.column_names, wanted)
    columns = []
    for field in wanted:
        if field.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        column = table.column(field.name)
        try:
            columns.append(column if column.type == field.type else _cast(column, field.type))
        except pa.ArrowException as error:
            raise DataError(
                f"column '{field.name}' is {column.type} and cannot become {field.type}: {error}",
                code="DATA_TYPE",
            ) from error
    return _checked(pa.table(columns, names=wanted.names), wanted)


def _checked(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    for field in wanted:
        if not field.nullable and table.column(field.name).null_count:
            raise DataError(
                f"column '{field.name}' is NOT NULL but has {table.column(field.name).null_count} NULL",
                code="DATA_NULL",
            )
    return table.cast(wanted)


def _refuse_unknown(names: Iterable[str], wanted: pa.Schema) -> None:
    for name in names:
        if name not in wanted.names:
            raise DataError(
                f"unknown column '{name}'",
                code="DATA_UNKNOWN_COLUMN",
                hint=suggest(name, wanted.names, what="column"),
            )


def _plain(table: pa.Table) -> pa.Table:
    """Dictionary, view and 64-bit-offset columns as plain ones, which is what Spark and the kernel know."""
    import pyarrow as pa

    if _is_plain(table.schema):
        return table if table.schema.metadata is None else table.replace_schema_metadata(None)
    columns = []
    for field, column in zip(table.schema, table.columns, strict=True):
        kind = _plain_type(field.type)
        # A chunk beyond 2 GiB needs its 64-bit offsets.
        wide = any(chunk.nbytes >= 2**31 for chunk in column.chunks)
        columns.append(column if kind == field.type or wide else column.cast(kind))
    fields = [field.with_type(column.type) for field, column in zip(table.schema, columns, strict=True)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


@lru_cache(maxsize=256)
def _is_plain(schema: pa.Schema) -> bool:
    """Whether no column needs another type; a flow asks this for every change that it is fed."""
    return all(_plain_type(field.type) == field.type for field in schema)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa
    import pyarrow.types as t

    if t.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if t.is_string_view(kind) or t.is_large_string(kind):
        return pa.string()
    if t.is_binary_view(kind) or t.is_large_binary(kind):
        return pa.binary()
    if t.is_list(kind) or t.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    if t.is_struct(kind):
        fields = (kind.field(index) for index in range(kind.num_fields))
        return pa.struct([field.with_type(_plain_type(field.type)) for field in fields])
    return kind
