"""Whether rows of a changed query can be stored beside older rows."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from penstock.errors import DataError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def refuse_incompatible(
    old: StructType, new: StructType, *, where: str, fixed: bool = False, apart: Collection[str] = ()
) -> None:
    """Refuse a schema whose rows could not be read together with the old ones; columns `apart` are not compared.

    A column may be added or left out; a type may not change. In a format whose files have no names of columns
    (`fixed`) nothing may.
    """
    old_types = {field.name: field.dataType.simpleString() for field in old if field.name not in apart}
    new_types = {field.name: field.dataType.simpleString() for field in new if field.name not in apart}
    misfits = [
        f"'{name}' was {old_types[name]} and is {kind} now"
        for name, kind in new_types.items()
        if name in old_types and old_types[name] != kind
    ]
    if fixed and list(old_types) != list(new_types):
        misfits.append(f"the columns were {', '.join(old_types)} and are {', '.join(new_types)} now")
    if misfits:
        raise DataError(
            f"the query's rows do not fit what is there: {'; '.join(misfits)}",
            code="STREAM_SCHEMA_CHANGED",
            where=where,
            hint="cast the columns to the old types, or write to another place",
        )
