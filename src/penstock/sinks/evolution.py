"""Whether rows of a changed query can go where older rows are."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from penstock.errors import DataError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def refuse_incompatible(
    old: StructType, new: StructType, *, where: str, fixed: bool = False, apart: Collection[str] = ()
) -> None:
    """Refuse a schema whose rows would not be readable together with those that are there.

    A column may be added or be left out; a type may not change. In a format without names per file (`fixed`) nothing may.
    """
    there = {field.name: field.dataType.simpleString() for field in old if field.name not in apart}
    comes = {field.name: field.dataType.simpleString() for field in new if field.name not in apart}
    wrong = [
        f"'{name}' was {there[name]} and is {kind} now"
        for name, kind in comes.items()
        if name in there and there[name] != kind
    ]
    if fixed and list(there) != list(comes):
        wrong.append(f"the columns were {', '.join(there)} and are {', '.join(comes)} now")
    if wrong:
        raise DataError(
            f"the query's rows do not fit what is there: {'; '.join(wrong)}",
            code="STREAM_SCHEMA_CHANGED",
            where=where,
            hint="cast the columns to the old types, or write to another place",
        )
