"""Columns as pipelines declare them: names with the type names of Spark or of Arrow.

    schema: {id: int64, price: "decimal(10,2)", tags: list<string>, customer: {name: string, born: date}}

The types are read by `penstock.data.schema`, as everywhere. Plain ones are known without Arrow, which takes longer to
load than the rest of a validation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from penstock.data.schema import PLAIN_TYPES, to_arrow_schema, to_arrow_type
from penstock.errors import ConfigError
from penstock.options import mistake

_DECIMAL = re.compile(r"(?:decimal|numeric|dec)\(\s*([0-9]+)\s*,\s*([0-9]+)\s*\)", re.IGNORECASE)


def ddl_of(columns: Mapping[str, Any]) -> str:
    """Return the DDL of columns, in the type names that were given; a type that there is not is a ConfigError.

    >>> ddl_of({"id": "int64", "order by": "decimal(10,2)", "customer": {"name": "string"}})
    '`id` int64, `order by` decimal(10,2), `customer` struct<`name`: string>'
    """
    return ", ".join(f"{_quoted(name)} {_type(name, kind)}" for name, kind in columns.items())


def _type(column: str, kind: Any) -> str:
    if isinstance(kind, Mapping):
        fields = (f"{_quoted(name)}: {_type(name, inner)}" for name, inner in kind.items())
        return f"struct<{', '.join(fields)}>"
    if not isinstance(kind, str):
        raise ConfigError(
            f"the type of '{column}' must be a name, got {type(kind).__name__}",
            code="CONFIG_SCHEMA",
            hint="for example int64, string, timestamp, decimal(10,2) or list<string>",
        )
    text = kind.strip()
    if not _is_plain(text):
        to_arrow_type(text)
    return text


def _is_plain(kind: str) -> bool:
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is not None:
        return int(decimal[2]) <= int(decimal[1]) and 1 <= int(decimal[1]) <= 38
    return kind.lower() in PLAIN_TYPES


def _quoted(name: Any) -> str:
    return f"`{str(name).replace('`', '``')}`"


def _as_ddl(value: Any) -> Any:
    if value is None or not isinstance(value, str | Mapping):
        return value
    try:
        if isinstance(value, Mapping):
            return ddl_of(value)
        to_arrow_schema(value)
    except ConfigError as error:
        raise mistake(f"is wrong: {error.message}", hint=error.hint) from None
    return value


Columns = Annotated[
    str,
    BeforeValidator(_as_ddl),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "object", "additionalProperties": {"type": ["string", "object"]}},
                {"type": "string", "examples": ["id BIGINT, amount DECIMAL(10,2)"]},
            ]
        }
    ),
]
"""Columns in a dictionary or in DDL; the value is DDL."""
