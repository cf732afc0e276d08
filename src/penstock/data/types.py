"""Spark's type names, and the Arrow types in which the kernel holds their values.

>>> kernel_type("decimal(10,2)")
Decimal128Type(decimal128(10, 2))
>>> kernel_type("struct<a:int,b:array<string>>")
StructType(struct<a: int32, b: large_list<item: large_string>>)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from penstock.data.schema import map_type
from penstock.errors import SqlError

_SIMPLE: dict[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.large_string(),
    "binary": pa.large_binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    # Spark's two parts of a value, which nothing but Spark's functions looks into.
    "variant": pa.struct([("value", pa.large_binary()), ("metadata", pa.large_binary())]),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_TEXT = re.compile(r"(?:char|varchar)\(\d+\)")
_TIME = re.compile(r"time\(\d+\)")


@dataclass(frozen=True, slots=True)
class Parsed:
    """A type taken apart: its kind ("array", "map", "struct" or a plain name), the types inside and their names."""

    kind: str
    inner: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


def is_year_month(name: str) -> bool:
    """Say whether a type is an interval of years and months, which the kernel holds as a number of months."""
    return name.lower().startswith(("interval year", "interval month"))


def decimal_parts(name: str) -> tuple[int, int] | None:
    """Return precision and scale of a decimal type, None for another type."""
    match = _DECIMAL.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def _split(text: str) -> list[str]:
    """Split at commas that are not inside brackets."""
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        if char in "<(":
            depth += 1
        elif char in ">)":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]] if text else []


@lru_cache(maxsize=4096)
def parse(name: str) -> Parsed:
    """Take a Spark type name apart, one level deep."""
    text = name.strip()
    for kind in ("array", "map", "struct"):
        if text.startswith(kind + "<") and text.endswith(">"):
            parts = _split(text[len(kind) + 1 : -1])
            if kind != "struct":
                return Parsed(kind, tuple(part.strip() for part in parts))
            pairs = [part.partition(":") for part in parts]
            return Parsed(
                kind,
                tuple(after.strip() for _, _, after in pairs),
                tuple(before.strip() for before, _, _ in pairs),
            )
    return Parsed(text)


@lru_cache(maxsize=4096)
def kernel_type(name: str) -> pa.DataType:
    """Return the Arrow type of a column of a Spark type."""
    text = name.strip()
    simple = _SIMPLE.get(text.lower())
    if simple is not None:
        return simple
    decimal = decimal_parts(text.lower())
    if decimal is not None:
        return pa.decimal128(*decimal)
    if text.lower() == "decimal":
        return pa.decimal128(10, 0)
    if _TEXT.fullmatch(text.lower()) or text.lower().startswith("string collate "):
        return pa.large_string()
    if _TIME.fullmatch(text.lower()):
        return pa.time64("ns")
    if text.lower().startswith("interval"):
        if text.lower() == "interval":
            return pa.month_day_nano_interval()
        return pa.int32() if is_year_month(text) else pa.duration("us")
    parsed = parse(text)
    match parsed.kind:
        case "array":
            return pa.large_list(kernel_type(parsed.inner[0]))
        case "map":
            return map_type(kernel_type(parsed.inner[0]), kernel_type(parsed.inner[1]))
        case "struct":
            return pa.struct(
                [(name, kernel_type(inner)) for name, inner in zip(parsed.names, parsed.inner, strict=True)]
            )
    raise SqlError(
        f"the kernel has no column type for Spark's {name}",
        code="SQL_UNSUPPORTED_TYPE",
        hint="cast the column to a supported type before the view reads it",
    )
