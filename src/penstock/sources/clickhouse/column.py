"""Columns of ClickHouse as columns of Spark: what the server casts values to, so that its Arrow types are those of Spark.

Integers without a sign become the next wider ones, those of 128 and 256 bits and decimals of more than 38 digits
text; enums, addresses, UUIDs and JSON are text, times have microseconds, and a FixedString is binary.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import DataError
from penstock.sources.clickhouse.type_name import NAMED, outer, quoted, unquoted

MOST_DIGITS = 38
UTC_TIME = "DateTime64(6, 'UTC')"
_TEXT = ("String", "string")

# ClickHouse's type -> what the server casts it to, and Spark's type of that.
SCALARS: Mapping[str, tuple[str, str]] = {
    "Bool": ("Bool", "boolean"),
    "Int8": ("Int8", "tinyint"),
    "Int16": ("Int16", "smallint"),
    "Int32": ("Int32", "int"),
    "Int64": ("Int64", "bigint"),
    "UInt8": ("Int16", "smallint"),
    "UInt16": ("Int32", "int"),
    "UInt32": ("Int64", "bigint"),
    "UInt64": ("Decimal(20, 0)", "decimal(20,0)"),
    "BFloat16": ("Float32", "float"),
    "Float32": ("Float32", "float"),
    "Float64": ("Float64", "double"),
    "Date": ("Date32", "date"),
    "Date32": ("Date32", "date"),
    "DateTime": (UTC_TIME, "timestamp"),
    "DateTime64": (UTC_TIME, "timestamp"),
    **dict.fromkeys(("String", "Enum8", "Enum16", "IPv4", "IPv6", "UUID", "Time", "Time64", "JSON"), _TEXT),
    **dict.fromkeys(("Int128", "Int256", "UInt128", "UInt256", "Variant", "Dynamic"), _TEXT),
}
# Shapes are names for tuples and arrays.
SHAPES: Mapping[str, str] = {
    "Point": "Tuple(Float64, Float64)",
    "Ring": "Array(Point)",
    "LineString": "Array(Point)",
    "Polygon": "Array(Ring)",
    "MultiLineString": "Array(LineString)",
    "MultiPolygon": "Array(Polygon)",
}


@dataclass(frozen=True, slots=True)
class ReadColumn:
    """A column as it is read."""

    name: str
    expression: str
    """In ClickHouse's SQL."""
    kind: str
    """Spark's type."""


def read_column(name: str, stored: str, *, where: str) -> ReadColumn:
    """Return how a column of a ClickHouse type is read; one that Spark has no type for is refused.

    >>> read_column("n", "Nullable(UInt8)", where="t").expression, read_column("n", "Array(String)", where="t").kind
    ('CAST(`n` AS Nullable(Int16)) AS `n`', 'array<string>')
    """
    types = _types(stored)
    if types is None:
        raise DataError(
            f"the column '{name}' is {_on_a_line(stored)}, which Spark has no type for",
            code="SOURCE_TYPE",
            where=where,
            hint="leave it out: columns has the names of those that are read",
        )
    target, kind = types
    column = quoted(name)
    expression = column if target == _on_a_line(stored) else f"CAST({column} AS {target}) AS {column}"
    return ReadColumn(name, expression, kind)


def _types(stored: str) -> tuple[str, str] | None:
    """What a type is cast to, and Spark's type of it; None when there is none."""
    name, arguments = outer(stored)
    match name:
        case "Nullable":
            inner = _types(arguments[0])
            return inner and (f"Nullable({inner[0]})", inner[1])
        case "LowCardinality":
            return _types(arguments[0])
        case "SimpleAggregateFunction":
            return _types(arguments[1])
        case "Array":
            inner = _types(arguments[0])
            return inner and (f"Array({inner[0]})", f"array<{inner[1]}>")
        case "Map":
            key, value = _types(arguments[0]), _types(arguments[1])
            return key and value and (f"Map({key[0]}, {value[0]})", f"map<{key[1]},{value[1]}>")
        case "Nested":
            return _types(f"Array(Tuple({', '.join(arguments)}))")
        case "Tuple":
            return _tuple(arguments)
        case "Decimal":
            precision, scale = int(arguments[0]), int(arguments[1])
            fits = precision <= MOST_DIGITS
            return (f"Decimal({precision}, {scale})", f"decimal({precision},{scale})") if fits else _TEXT
        case "FixedString":
            return f"FixedString({arguments[0]})", "binary"
        case _:
            return _types(SHAPES[name]) if name in SHAPES else SCALARS.get(name)


def _tuple(arguments: list[str]) -> tuple[str, str] | None:
    names, types = [], []
    for position, argument in enumerate(arguments, 1):
        named = NAMED.fullmatch(argument)
        inner = _types(named[2] if named else argument)
        if inner is None:
            return None
        names.append(unquoted(named[1]) if named else f"_{position}")
        types.append(inner)
    there = ", ".join(f"{quoted(name)} {target}" for name, (target, _) in zip(names, types, strict=True))
    here = ",".join(
        f"`{name.replace('`', '``')}`:{kind}" for name, (_, kind) in zip(names, types, strict=True)
    )
    return f"Tuple({there})", f"struct<{here}>"


def _on_a_line(stored: str) -> str:
    return re.sub(r"\s+", " ", stored.strip())
