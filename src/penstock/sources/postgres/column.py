"""Columns of a table of PostgreSQL, and the types that they have in Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

# PostgreSQL's name of a type -> Spark's. A type that is not here is read as its text.
TYPES: Mapping[str, str] = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "int",
    "int8": "bigint",
    "oid": "bigint",
    "float4": "float",
    "float8": "double",
    "bytea": "binary",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
}
WITHOUT_PRECISION = "decimal(38,18)"
"""Of a column `numeric`, which may have digits without end: a value that does not fit is refused, not rounded."""
_NUMERIC = re.compile(r"decimal\((\d+),(\d+)\)")


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column as the source reads it."""

    name: str
    kind: str
    """As PostgreSQL writes it, numeric(10,2); of a domain, what it is made of."""
    oid: int
    """Of its declared type, as the replication protocol says it."""
    modifier: int
    type: str
    """In Spark."""
    is_large: bool = False
    """Whether values may be stored beside the row (TOAST)."""
    is_generated: bool = False
    is_required: bool = False
    missing: str | None = None
    """The value of rows that are older than the column."""


def spark_type(name: str, modifier: int, *, element: str | None = None) -> str:
    """Return Spark's type for one of PostgreSQL's; `element` is the type of the elements of an array.

    >>> spark_type("numeric", (10 << 16 | 2) + 4), spark_type("int4", -1), spark_type("uuid", -1), spark_type("_int8", -1, element="int8")
    ('decimal(10,2)', 'int', 'string', 'array<bigint>')
    """
    if element is not None:
        return f"array<{spark_type(element, modifier)}>"
    if name == "numeric":
        return _decimal(modifier)
    return TYPES.get(name, "string")


def chosen_type(column: str, own: str, chosen: str) -> str:
    """Return the type that the user has chosen for a column in place of its own, which must hold the same values."""
    wanted = re.sub(r"\s+", "", chosen).lower()
    is_decimal = _NUMERIC.fullmatch(wanted)
    fits = (
        wanted in (own, "string")
        or (_NUMERIC.fullmatch(own) and (wanted == "double" or is_decimal))
        or (own == "string" and is_decimal)
    )
    if not fits or (is_decimal and not int(is_decimal[2]) <= int(is_decimal[1]) <= 38):
        raise ConfigError(
            f"the column '{column}' is {own} and cannot be read as {chosen}",
            code="SOURCE_TYPE",
            hint="a column may be read as string, and a numeric one as decimal(precision,scale) or double too",
        )
    return wanted


def arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type of one of Spark's types above, as Spark takes it."""
    import pyarrow as pa

    if kind.startswith("array<"):
        return pa.list_(arrow_type(kind[6:-1]))
    if (match := _NUMERIC.fullmatch(kind)) is not None:
        return pa.decimal128(int(match[1]), int(match[2]))
    types: dict[str, pa.DataType] = {
        "boolean": pa.bool_(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp_ntz": pa.timestamp("us"),
        "timestamp": pa.timestamp("us", "UTC"),
        "string": pa.string(),
    }
    return types[kind]


def _decimal(modifier: int) -> str:
    if modifier < 4:
        return WITHOUT_PRECISION
    precision = (modifier - 4) >> 16 & 0xFFFF
    scale = ((modifier - 4 & 0x7FF) ^ 1024) - 1024
    # numeric(3,-2) has five digits before the point, numeric(3,5) five behind it.
    precision, scale = max(precision, scale, precision - scale), max(scale, 0)
    return f"decimal({precision},{scale})" if precision <= 38 else "string"
