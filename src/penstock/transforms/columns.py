"""The columns that a transform gives, as users write them: a dictionary of names and types, or DDL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from penstock.data.schema import is_variant, to_arrow_schema
from penstock.options import mistake

if TYPE_CHECKING:
    import pyarrow as pa


def _as_ddl(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    for name, kind in value.items():
        if not isinstance(kind, str):
            raise mistake(
                f"has no type for the column '{name}'", hint="write columns as in {id: bigint, name: string}"
            )
    return ", ".join(f"`{str(name).replace('`', '``')}` {kind}" for name, kind in value.items())


Columns = Annotated[
    str,
    BeforeValidator(_as_ddl),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "object", "additionalProperties": {"type": "string"}},
                {"type": "string", "examples": ["id BIGINT, amount DECIMAL(10,2)"]},
            ]
        }
    ),
]
"""Columns as `{id: bigint, amount: decimal(10,2)}` or as DDL; its value is DDL, with the type names of Spark or of Arrow."""


def output_columns(ddl: str | None, in_schema: pa.Schema) -> list[pa.Field]:
    """Return the columns that leave a transform: those of its schema, or else those that it takes; all may be NULL,
    and all in them."""
    fields = list(in_schema) if ddl is None else list(to_arrow_schema(ddl))
    return [field.with_type(_nullable(field.type)).with_nullable(True) for field in fields]


def _nullable(kind: pa.DataType) -> pa.DataType:
    """A type whose parts may be NULL."""
    import pyarrow as pa
    import pyarrow.types as t

    if t.is_list(kind) or t.is_large_list(kind):
        item = kind.value_field
        return pa.list_(item.with_type(_nullable(item.type)).with_nullable(True))
    if t.is_map(kind):
        return pa.map_(_nullable(kind.key_type), _nullable(kind.item_type))
    if t.is_struct(kind) and not is_variant(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([field.with_type(_nullable(field.type)).with_nullable(True) for field in fields])
    return kind
