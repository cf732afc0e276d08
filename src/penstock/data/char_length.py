"""Text of a declared length, as Spark writes it into a table: CHAR is padded, what is too long is refused."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import DataError

_SIZED = re.compile(r"(char|varchar)\((\d+)\)")


def is_sized(kind: str) -> bool:
    """Say whether a type is CHAR or VARCHAR."""
    return _SIZED.fullmatch(kind) is not None


def fit_length(column: pa.Array, kind: str, *, name: str, where: str) -> pa.Array:
    """Return a text column as the Spark type `kind` holds it; other types are returned as they are.

    Blanks beyond the length are cut off. Anything else beyond it is an error.
    """
    match = _SIZED.fullmatch(kind)
    if match is None:
        return column
    limit = int(match[2])
    beyond = pc.utf8_rtrim(pc.utf8_slice_codeunits(column, limit), " ")
    wrong = column.filter(pc.not_equal(beyond, pa.scalar("", beyond.type)))
    if len(wrong):
        raise DataError(
            f"column '{name}' holds text longer than {kind.upper()}: {wrong[0].as_py()!r}",
            code="DATA_LENGTH",
            where=where,
            hint="cut the text before it is fed, or declare the column as STRING",
        )
    column = pc.utf8_slice_codeunits(column, 0, limit)
    return pc.utf8_rpad(column, limit, " ") if match[1] == "char" else column
