"""Columns of a query as columns of a ClickHouse table: types, what fits into a table that is there, and how values travel."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import DataError
from penstock.sinks.column import column
from penstock.sinks.errors import require_fit

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

UTC_TIME = "DateTime64(6, 'UTC')"

# Spark's name of a type -> ours there, and others in which all of its values fit without a loss.
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
# Not declared by us, and meant by whoever declared them: a value that does not fit is refused by the server.
MEANT: Mapping[str, tuple[str, ...]] = {
    "tinyint": ("UInt8", "UInt16", "UInt32", "UInt64"),
    "smallint": ("UInt16", "UInt32", "UInt64"),
    "int": ("UInt32", "UInt64"),
    "bigint": ("UInt64", "UInt128", "UInt256"),
    "string": ("FixedString", "UUID", "Enum8", "Enum16", "IPv4", "IPv6", "JSON"),
    "binary": ("FixedString",),
    "date": ("Date",),
}
_NAMED = re.compile(r"\s*(`(?:[^`\\]|\\.)*`|\"[^\"]*\"|\w+)\s+(?=\S)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Existing:
    """A column of a table that is there."""

    name: str
    kind: str
    """As ClickHouse writes it: Nullable(Decimal(10, 2))."""
    default: str = ""
    """Empty, or DEFAULT, MATERIALIZED, ALIAS, EPHEMERAL."""


def declared(kind: DataType, *, name: str, nullable: bool = True) -> str:
    """The type of the column that holds values of a Spark type; arrays, maps and structs are never NULL in ClickHouse."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        return f"Array({declared(kind.elementType, name=name)})"
    if isinstance(kind, MapType):
        key = declared(kind.keyType, name=name, nullable=False)
        return f"Map({key}, {declared(kind.valueType, name=name)})"
    if isinstance(kind, StructType) and kind.fields:
        inner = (f"{quoted(field.name)} {declared(field.dataType, name=name)}" for field in kind)
        return f"Tuple({', '.join(inner)})"
    made = _scalar(kind)
    if made is None:
        raise DataError(
            f"column '{name}' is {kind.simpleString()}, which ClickHouse has no type for",
            code="SINK_TYPE",
            hint="cast it in the query, to a string for example",
        )
    return f"Nullable({made})" if nullable else made


def sent(frame: DataFrame) -> DataFrame:
    """Return the frame with values as ClickHouse has them: no NULL in the place of an array, a map or a struct."""
    return frame.select(
        *[_sent(column(field.name), field.dataType).alias(field.name) for field in frame.schema]
    )


def refuse_misfits(schema: StructType, there: Iterable[Existing], *, where: str, adds: bool) -> list[str]:
    """Return the columns of the query that the table lacks; refuse what cannot be stored, before anything is."""
    known = {each.name: each for each in there}
    wrong = []
    for field in schema:
        found = known.get(field.name)
        if found is None:
            continue
        if found.default in ("MATERIALIZED", "ALIAS"):
            wrong.append(f"'{field.name}' is computed by the table ({found.default})")
        elif not fits(field.dataType, found.kind):
            wrong.append(
                f"'{field.name}' is {field.dataType.simpleString()} in the query and {found.kind} in the table"
            )
    missing = [field.name for field in schema if field.name not in known]
    if missing and not adds:
        wrong.append(f"the table has no column {', '.join(map(repr, missing))}")
    require_fit(wrong, where=where)
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
        inner = [found for each in arguments if (found := _NAMED.fullmatch(each))] if name == "Tuple" else []
        types = {unquoted(each[1]): each[2] for each in inner}
        return len(types) == len(kind.fields) and all(
            field.name in types and fits(field.dataType, types[field.name]) for field in kind
        )
    return _scalar_fits(kind, name, arguments)


def parsed(stored: str) -> tuple[str, list[str]]:
    """The name of a type and its arguments, without the wrappers that only say how it is stored.

    >>> parsed("Nullable(Decimal(10, 2))"), parsed("Map(String, Array(Int64))"), parsed("LowCardinality(String)")
    (('Decimal', ['10', '2']), ('Map', ['String', 'Array(Int64)']), ('String', []))
    """
    name, bracket, rest = stored.strip().partition("(")
    arguments = split_arguments(rest.rpartition(")")[0]) if bracket else []
    if name in ("Nullable", "LowCardinality"):
        return parsed(arguments[0])
    return name, arguments


def split_arguments(text: str) -> list[str]:
    """Split at commas that are not inside brackets or quotes.

    >>> split_arguments("a, f(b, c), `d,e`, 'f,g'")
    ['a', 'f(b, c)', '`d,e`', "'f,g'"]
    """
    parts, depth, quote, start = [], 0, "", 0
    skip = False
    for place, sign in enumerate(text):
        if skip:
            skip = False
        elif quote:
            skip = sign == "\\"
            quote = "" if sign == quote else quote
        elif sign in "'`\"":
            quote = sign
        elif sign in "()":
            depth += 1 if sign == "(" else -1
        elif sign == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def quoted(name: str) -> str:
    """A name for ClickHouse's SQL.

    >>> quoted("a`b")
    '`a\\\\`b`'
    """
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


def unquoted(name: str) -> str:
    """A name out of ClickHouse's SQL.

    >>> unquoted("`a b`"), unquoted("a")
    ('a b', 'a')
    """
    return re.sub(r"\\(.)", r"\1", name[1:-1]) if name[:1] in '`"' and name else name


def text(value: str) -> str:
    """A text for ClickHouse's SQL.

    >>> text("it's")
    "'it\\\\'s'"
    """
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _scalar(kind: DataType) -> str | None:
    from pyspark.sql.types import DecimalType, TimestampNTZType, TimestampType

    if isinstance(kind, DecimalType):
        return f"Decimal({kind.precision}, {kind.scale})"
    if isinstance(kind, TimestampType | TimestampNTZType):
        return UTC_TIME
    found = TYPES.get(_family(kind))
    return found[0] if found else None


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
    return name == ours or name in wider or name in MEANT.get(family, ())


def _family(kind: DataType) -> str:
    name = kind.simpleString()
    return "string" if name.startswith(("varchar", "char", "string")) else re.sub(r"[( ].*", "", name)


def _sent(value: Column, kind: DataType) -> Column:
    from pyspark.sql import functions as F  # as PySpark's users have it
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        inner = kind.elementType
        made = F.transform(value, lambda each: _sent(each, inner)) if _changes(inner) else value
        return F.coalesce(made, F.array().cast(made_type(kind)))
    if isinstance(kind, MapType):
        inner = kind.valueType
        made = F.transform_values(value, lambda _, each: _sent(each, inner)) if _changes(inner) else value
        return F.coalesce(made, F.create_map().cast(made_type(kind)))
    if isinstance(kind, StructType):
        return F.struct(
            *[_sent(value.getField(field.name), field.dataType).alias(field.name) for field in kind]
        )
    match _family(kind):
        case "void" | "time":
            return value.cast("string")
        case "variant":
            return F.to_json(value)
        case _:
            return value


def made_type(kind: DataType) -> DataType:
    """The type of values as they are sent."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

    if isinstance(kind, ArrayType):
        return ArrayType(made_type(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(made_type(kind.keyType), made_type(kind.valueType))
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, made_type(field.dataType)) for field in kind])
    return StringType() if _family(kind) in ("void", "time", "variant") else kind


def _changes(kind: DataType) -> bool:
    """Whether values of a type are sent in another form."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    return isinstance(kind, ArrayType | MapType | StructType) or _family(kind) in ("void", "time", "variant")
