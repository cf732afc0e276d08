"""Text that is compared by a collation: keys whose bytes are equal exactly when the collation says that the texts are.

Known are the collations of Spark that need no rules of a language: UTF8_LCASE, which lowers every character by
itself, and the ones with RTRIM, which leave blanks at the end out. Those of ICU (UNICODE, languages) are Spark's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

_PREFIX = "string collate "
_LOWER, _TRIMMED = "UTF8_LCASE", "_RTRIM"
_BINARY = "UTF8_BINARY"
# The final sigma is a sigma, and letters that are younger than Python's tables have small ones.
_SMALL = {"ς": "σ", "Ᲊ": "ᲊ", "Ɤ": "ɤ", "Ꟍ": "ꟍ", "Ꟛ": "ꟛ", "Ƛ": "ƛ"}
_SMALL |= {chr(0x10D50 + index): chr(0x10D70 + index) for index in range(22)}

Normalise = Callable[[pa.Array], pa.Array]


def is_collated(kind: str) -> bool:
    """Say whether a type is, or holds, text that is compared by a collation."""
    return "collate" in kind


@lru_cache(maxsize=64)
def normaliser(kind: str) -> Normalise | None:
    """Return what makes keys of text of a type, None when only Spark can.

    >>> normaliser("string collate UTF8_LCASE")(pa.array(["ÄbC", None])).to_pylist()
    ['äbc', None]
    """
    if not kind.lower().startswith(_PREFIX):
        return None
    name = kind[len(_PREFIX) :].strip().upper()
    base = name.removesuffix(_TRIMMED)
    if base not in (_LOWER, _BINARY):
        return None

    def normalise(column: pa.Array) -> pa.Array:
        if name != base:
            column = pc.utf8_rtrim(column, " ")
        return _lowered(column) if base == _LOWER else column

    return normalise


def _lowered(column: pa.Array) -> pa.Array:
    if pc.all(pc.string_is_ascii(column)).as_py() in (True, None):
        return pc.utf8_lower(column)  # ascii_lower misreads an array whose first text does not begin at 0
    texts = [None if text is None else "".join(map(_small, text)) for text in column.to_pylist()]
    return pa.array(texts, column.type)


@lru_cache(maxsize=4096)
def _small(character: str) -> str:
    return _SMALL.get(character) or character.lower()
