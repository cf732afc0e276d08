"""Rows of texts as a table, as `DataFrame.show` of Spark draws it."""

from __future__ import annotations

import re
from collections.abc import Sequence

NARROWEST = 3
_WIDE = re.compile(
    "[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]"
)
"""Letters that take two places."""
_ESCAPED = str.maketrans(
    {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", "\b": "\\b", "\v": "\\v", "\a": "\\a"}
)


def text_table(names: Sequence[str], columns: Sequence[Sequence[str]], *, longest: int | None = None) -> str:
    """Return columns of texts under their names; those of more than `longest` letters are cut, and all stand on the right then.

    >>> print(text_table(["id", "name"], [["1", "22"], ["anna", "bartholomew"]], longest=8))
    +---+--------+
    | id|    name|
    +---+--------+
    |  1|    anna|
    | 22|barth...|
    +---+--------+
    <BLANKLINE>
    """
    drawn = [_column([name, *values], longest) for name, values in zip(names, columns, strict=True)]
    line = f"+{'+'.join('-' * _width(column[0]) for column in drawn)}+"
    head, *rows = (f"|{'|'.join(row)}|" for row in zip(*drawn, strict=True))
    return "\n".join([line, head, line, *rows, line, ""])


def _column(texts: Sequence[str], longest: int | None) -> list[str]:
    """The name and the values of a column, cut and padded to one width."""
    name, *values = (text.translate(_ESCAPED) for text in texts)
    cells = [name, *(value if longest is None else _cut(value, longest) for value in values)]
    width = max(NARROWEST, *map(_width, cells))
    pads = [" " * (width - _width(cell)) for cell in cells]
    return [cell + pad if longest is None else pad + cell for cell, pad in zip(cells, pads, strict=True)]


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _width(text: str) -> int:
    beyond = sum(letter > "\uffff" for letter in text)  # such as emoji
    return len(text) + beyond + len(_WIDE.findall(text))
