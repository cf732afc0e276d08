"""An excerpt of a query around a position, for errors: the line, the column, the text and a caret under it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from penstock.sql.lexer import line_and_column

WIDTH = 100
"""Longer lines are cut around the position."""


def excerpt(query: str, offset: int, length: int = 1) -> str:
    """Return the excerpt as an error's `where`.

    >>> print(excerpt("SELECT *\\nFORM orders", 9, 4))
    line 2, column 1
        FORM orders
        ^^^^
    """
    line, column = line_and_column(query, offset)
    text = query.split("\n")[line - 1].rstrip("\r").replace("\t", " ")
    start = min(column - 1, len(text))
    cut = max(0, start - WIDTH // 2) if len(text) > WIDTH else 0
    shown = ("…" if cut else "") + text[cut : cut + WIDTH] + ("…" if len(text) > cut + WIDTH else "")
    lead = ("…" if cut else "") + text[cut:start]
    marked = text[start : start + max(1, length)]
    # Wide characters take two cells of the line above, so they must below too.
    return (
        f"line {line}, column {column}\n    {shown}\n    {' ' * _cells(lead)}{'^' * max(1, _cells(marked))}"
    )


_PLACE = re.compile(r"line (\d+), column (\d+)\n.*\n *(\^+)")


def moved(where: str | None, seen: str, text: str, original: Callable[[int], int]) -> str | None:
    """An error's `where` in the text that was run, as one in the text that the user wrote.

    `original` gives the offset in `text` of one in `seen`. A `where` without an excerpt stays as it is.

    >>> print(moved(excerpt("SELECT x", 7), "SELECT x", "INSERT INTO t SELECT x", lambda offset: offset + 14))
    line 1, column 22
        INSERT INTO t SELECT x
                             ^
    """
    match = _PLACE.search(where or "")
    if where is None or match is None:
        return where
    lines = seen.split("\n")
    offset = sum(len(line) + 1 for line in lines[: int(match[1]) - 1]) + int(match[2]) - 1
    start = original(offset)
    length = max(1, min(len(match[3]), len(text) - start))
    return where[: match.start()] + excerpt(text, start, length) + where[match.end() :]


def _cells(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
