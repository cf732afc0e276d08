"""VARIANT values as JSON text, for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.data.schema import is_variant

if TYPE_CHECKING:
    import pyarrow as pa


def holds_variants(kind: pa.DataType) -> bool:
    """Whether a type is a VARIANT, or has one inside."""
    return is_variant(kind) or any(holds_variants(kind.field(index).type) for index in range(kind.num_fields))


def variants_as_text(value: Any, kind: pa.DataType, make: Callable[[str], Any] = str) -> Any:
    """Return a Python value of an Arrow type with its VARIANTs as JSON text, each made into what `make` gives for it."""
    import pyarrow.types as t
    from pyspark.sql.types import VariantVal

    if value is None:
        return None
    if is_variant(kind):
        return make(VariantVal(value["value"], value["metadata"]).toJson())
    if t.is_struct(kind):
        return {field.name: variants_as_text(value[field.name], field.type, make) for field in kind}
    if t.is_map(kind):
        return {key: variants_as_text(item, kind.item_type, make) for key, item in value}
    if t.is_list(kind) or t.is_large_list(kind):
        return [variants_as_text(item, kind.value_type, make) for item in value]
    return value
