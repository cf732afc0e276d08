"""Decimal numbers in text with more digits than their column has: Spark would round them, and change a record silently."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

SHORT, LONG = 18, 38
"""Up to 18 digits Spark computes with decimals as with whole numbers."""


def wide_scale(precision: int, scale: int) -> tuple[int, int]:
    """Return precision and scale in which a decimal shows whether it had more digits than its own type has.

    What is left of a binary fraction, as in 59.970000000000006, is beyond them for decimals of up to 16 digits.

    >>> wide_scale(10, 2), wide_scale(20, 2)
    ((18, 10), (38, 20))
    """
    digits = SHORT if precision <= SHORT - 2 else LONG
    return digits, max(scale, digits - (precision - scale))


def widened(schema: StructType) -> StructType:
    """Return a schema whose decimals have room for every digit that a number of the same size can have."""
    from pyspark.sql.types import StructField, StructType

    return StructType(
        [
            StructField(field.name, _widened(field.dataType), field.nullable, field.metadata)
            for field in schema.fields
        ]
    )


def narrowed(parsed: Column, schema: StructType) -> dict[str, Column]:
    """Return the fields of a struct that was read with a widened schema, by name, in their own types."""
    return {
        field.name: parsed.getField(field.name).try_cast(field.dataType)
        if _widened(field.dataType) != field.dataType
        else parsed.getField(field.name)
        for field in schema.fields
    }


def lossy(parsed: Column, schema: StructType) -> Column | None:
    """Return whether a number loses digits in its own type; None when no column has a type that could lose any."""
    loses: Column | None = None
    for field in schema.fields:
        wide = _widened(field.dataType)
        if wide == field.dataType:
            continue
        value = parsed.getField(field.name)
        differs = ~value.try_cast(field.dataType).try_cast(wide).eqNullSafe(value)
        loses = differs if loses is None else loses | differs
    return loses


def _widened(kind: DataType) -> DataType:
    from pyspark.sql.types import ArrayType, DecimalType, StructType

    if isinstance(kind, DecimalType):
        return DecimalType(*wide_scale(kind.precision, kind.scale))
    if isinstance(kind, StructType):
        return widened(kind)
    if isinstance(kind, ArrayType):
        return ArrayType(_widened(kind.elementType), kind.containsNull)
    return kind  # maps cannot be compared, and keep Spark's rounding
