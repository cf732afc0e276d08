"""Arrays of PostgreSQL as text, `{1,NULL,"a b"}`, as lists of texts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

_ITEM = re.compile(r'"((?:[^"\\]|\\.)*)"|([^",{}]+)', re.DOTALL)
_BOUNDS = re.compile(r"^(?:\[-?\d+:-?\d+\])+=")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def split_arrays(texts: pa.Array) -> pa.Array:
    """Return lists of the elements, as text; an array of several dimensions, which Spark's type does not have, is refused."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # Without quotes, a split by commas does it.
    if pc.any(pc.match_substring_regex(texts, r'["\\\[]|.\{')).as_py():
        return pa.array(
            [None if text is None else _items(text) for text in texts.to_pylist()], pa.list_(pa.string())
        )
    inner = pc.utf8_slice_codeunits(pc.cast(texts, pa.string()), 1, -1)
    lists = pc.split_pattern(inner, ",")
    empty = pc.fill_null(pc.equal(inner, ""), False)
    if pc.any(empty).as_py():
        lists = pc.if_else(empty, pa.scalar([], lists.type), lists)
    offsets = lists.offsets
    values = lists.values
    values = pc.if_else(pc.equal(values, "NULL"), pa.scalar(None, values.type), values)
    return pa.ListArray.from_arrays(offsets, values, mask=lists.is_null())


def _items(text: str) -> list[str | None]:
    body = _BOUNDS.sub("", text)
    inner = body[1:-1]
    if inner.startswith("{"):
        raise DataError(
            f"an array has several dimensions: {text[:80]}",
            code="SOURCE_VALUE",
            hint="read the column as text: types: {NAME: string}",
        )
    return [
        _ESCAPED.sub(r"\1", match[1]) if match[1] is not None else (None if match[2] == "NULL" else match[2])
        for match in _ITEM.finditer(inner)
    ]
