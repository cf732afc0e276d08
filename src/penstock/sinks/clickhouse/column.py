"""Columns of a query as columns of a ClickHouse table: their types, whether they fit a table, and how values are encoded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import DataError
from penstock.sinks.column import column
from penstock.sinks.errors import require_fit
from penstock.sources.clickhouse.type_name import NAMED
from penstock.sources.clickhouse.type_name import parsed as parsed
from penstock.sources.clickhouse.type_name import quoted as quoted
from penstock.sources.clickhouse.type_name import split_arguments as split_arguments
from penstock.sources.clickhouse.type_name import text as text
from penstock.sources.clickhouse.type_name import unquoted as unquoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

UTC_TIME = "DateTime64(6, 'UTC')"

# Spark's name of a type -> the type of a column that the sink creates, and other types that hold its values without a loss.
TYPES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "boolean": ("Bool", ("UInt8", "Int8", "Int16", "Int32", "Int64")),
    "tinyint": ("Int8", ("Int16", "Int32", "Int64", "Int128", "Int256", "Float32", "Float64")),
    "smallint": ("Int16", ("Int32", "Int64", "Int128", "Int256", "Float32", "Float64")),
    "int": ("Int32", ("Int64", "Int128", "Int256", "Float64")),
    "bigint": ("Int64", ("Int128", "Int256")),
    "float": ("Float32", ("Float64",)),
    "double": ("Float64", ()),
    "string": ("String", ()),
    "void": ("String", ()),
    "binary": ("String", ()),
    "date": ("Date32", ()),
    "time": ("String", ()),
    "variant": ("String", ()),
}
# Types that only a user declares, on purpose: the server refuses a value that does not fit.
DECLARED_BY_USERS: Mapping[str, tuple[str, ...]] = {
    "tinyint": ("UInt8", "UInt16", "UInt32", "UInt64"),
    "smallint": ("UInt16", "UInt32", "UInt64"),
    "int": ("UInt32", "UInt64"),
    "bigint": ("UInt64", "UInt128", "UInt256"),
    "string": ("FixedString", "UUID", "Enum8", "Enum16", "IPv4", "IPv6", "JSON"),
    "binary": ("FixedString",),
    "date": ("Date",),
}


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table in the server."""

    name: str
    kind: str
    """As ClickHouse writes it: Nullable(Decimal(10, 2))."""
    default: str = ""
    """Empty, or DEFAULT, MATERIALIZED, ALIAS, EPHEMERAL."""


def column_type(kind: DataType, *, name: str, nullable: bool = True) -> str:
    """The type of the column that holds values of a Spark type; arrays, maps and structs are never NULL in ClickHouse."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        return f"Array({column_type(kind.elementType, name=name)})"
    if isinstance(kind, MapType):
        key = column_type(kind.keyType, name=name, nullable=False)
        return f"Map({key}, {column_type(kind.valueType, name=name)})"
    if isinstance(kind, StructType) and kind.fields:
        inner = (f"{quoted(field.name)} {column_type(field.dataType, name=name)}" for field in kind)
        return f"Tuple({', '.join(inner)})"
    scalar = _scalar(kind)
    if scalar is None:
        raise DataError(
            f"column '{name}' is {kind.simpleString()}, which ClickHouse has no type for",
            code="SINK_TYPE",
            hint="cast it in the query, to a string for example",
        )
    return f"Nullable({scalar})" if nullable else scalar


def encode(frame: DataFrame) -> DataFrame:
    """Return the frame with values as ClickHouse has them: no NULL in the place of an array, a map or a struct."""
    return frame.select(
        *[_encoded(column(field.name), field.dataType).alias(field.name) for field in frame.schema]
    )


def check_columns(
    schema: StructType, existing: Iterable[TableColumn], *, where: str, adds: bool
) -> list[str]:
    """Return the columns of the query that the table lacks; refuse those that it cannot store, before anything is written."""
    columns = {column.name: column for column in existing}
    misfits = []
    for field in schema:
        column = columns.get(field.name)
        if column is None:
            continue
        if column.default in ("MATERIALIZED", "ALIAS"):
            misfits.append(f"'{field.name}' is computed by the table ({column.default})")
        elif not fits(field.dataType, column.kind):
            misfits.append(
                f"'{field.name}' is {field.dataType.simpleString()} in the query and {column.kind} in the table"
            )
    missing = [field.name for field in schema if field.name not in columns]
    if missing and not adds:
        misfits.append(f"the table has no column {', '.join(map(repr, missing))}")
    require_fit(misfits, where=where)
    return missing


def fits(kind: DataType, stored: str) -> bool:
    """Whether values of a Spark type fit into a column of a ClickHouse type."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    name, arguments = parsed(stored)
    if isinstance(kind, ArrayType):
        return name == "Array" and fits(kind.elementType, arguments[0])
    if isinstance(kind, MapType):
        return name == "Map" and fits(kind.keyType, arguments[0]) and fits(kind.valueType, arguments[1])
    if isinstance(kind, StructType):
        inner = [match for part in arguments if (match := NAMED.fullmatch(part))] if name == "Tuple" else []
        types = {unquoted(match[1]): match[2] for match in inner}
        return len(types) == len(kind.fields) and all(
            field.name in types and fits(field.dataType, types[field.name]) for field in kind
        )
    return _scalar_fits(kind, name, arguments)


def _scalar(kind: DataType) -> str | None:
    from pyspark.sql.types import DecimalType, TimestampNTZType, TimestampType

    if isinstance(kind, DecimalType):
        return f"Decimal({kind.precision}, {kind.scale})"
    if isinstance(kind, TimestampType | TimestampNTZType):
        return UTC_TIME
    types = TYPES.get(_family(kind))
    return types[0] if types else None


def _scalar_fits(kind: DataType, name: str, arguments: list[str]) -> bool:
    from pyspark.sql.types import DecimalType, TimestampNTZType, TimestampType

    if isinstance(kind, DecimalType):
        if name != "Decimal":
            return False
        precision, scale = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0
        return scale >= kind.scale and precision - scale >= kind.precision - kind.scale
    if isinstance(kind, TimestampType | TimestampNTZType):
        if name not in ("DateTime64", "DateTime"):
            return False
        # A time without a zone is that of a clock: it must read the same in the table.
        return isinstance(kind, TimestampType) or arguments[-1:] == ["'UTC'"]
    family = _family(kind)
    if family not in TYPES:
        return False
    ours, wider = TYPES[family]
    return name == ours or name in wider or name in DECLARED_BY_USERS.get(family, ())


def _family(kind: DataType) -> str:
    name = kind.simpleString()
    return "string" if name.startswith(("varchar", "char", "string")) else re.sub(r"[( ].*", "", name)


def _encoded(value: Column, kind: DataType) -> Column:
    from pyspark.sql import functions as F  # as PySpark's users have it
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        inner = kind.elementType
        array = F.transform(value, lambda item: _encoded(item, inner)) if _changes(inner) else value
        return F.coalesce(array, F.array().cast(_encoded_type(kind)))
    if isinstance(kind, MapType):
        inner = kind.valueType
        items = F.transform_values(value, lambda _, item: _encoded(item, inner)) if _changes(inner) else value
        return F.coalesce(items, F.create_map().cast(_encoded_type(kind)))
    if isinstance(kind, StructType):
        return F.struct(
            *[_encoded(value.getField(field.name), field.dataType).alias(field.name) for field in kind]
        )
    match _family(kind):
        case "void" | "time":
            return value.cast("string")
        case "variant":
            return F.to_json(value)
        case _:
            return value


def _encoded_type(kind: DataType) -> DataType:
    """The type of encoded values."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

    if isinstance(kind, ArrayType):
        return ArrayType(_encoded_type(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(_encoded_type(kind.keyType), _encoded_type(kind.valueType))
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _encoded_type(field.dataType)) for field in kind])
    return StringType() if _family(kind) in ("void", "time", "variant") else kind


def _changes(kind: DataType) -> bool:
    """Whether encoding changes values of a type."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    return isinstance(kind, ArrayType | MapType | StructType) or _family(kind) in ("void", "time", "variant")
