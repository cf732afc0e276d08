"""An excerpt of a query around a position, for errors: the line, the column, the text and a caret under it."""

from __future__ import annotations

import unicodedata

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


def _cells(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
