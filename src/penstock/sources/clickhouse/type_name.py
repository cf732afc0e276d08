"""ClickHouse's type names taken apart, and names and texts as its SQL has them."""

from __future__ import annotations

import re

NAMED = re.compile(r"\s*(`(?:[^`\\]|\\.)*`|\"[^\"]*\"|\w+)\s+(?=\S)(.*)", re.DOTALL)
"""A field of a tuple: its name and its type."""


def parsed(stored: str) -> tuple[str, list[str]]:
    """The name of a type and its arguments, without the wrappers that only say how it is stored.

    >>> parsed("Nullable(Decimal(10, 2))"), parsed("Map(String, Array(Int64))"), parsed("LowCardinality(String)")
    (('Decimal', ['10', '2']), ('Map', ['String', 'Array(Int64)']), ('String', []))
    """
    name, arguments = outer(stored)
    if name in ("Nullable", "LowCardinality"):
        return parsed(arguments[0])
    return name, arguments


def outer(stored: str) -> tuple[str, list[str]]:
    """The name of a type and its arguments, wrappers too.

    >>> outer("Nullable(Decimal(10, 2))")
    ('Nullable', ['Decimal(10, 2)'])
    """
    name, bracket, rest = stored.strip().partition("(")
    return name, split_arguments(rest.rpartition(")")[0]) if bracket else []


def split_arguments(text: str) -> list[str]:
    """Split at commas that are not inside brackets or quotes.

    >>> split_arguments("a, f(b, c), `d,e`, 'f,g'")
    ['a', 'f(b, c)', '`d,e`', "'f,g'"]
    """
    parts, depth, quote, start = [], 0, "", 0
    skip = False
    for position, sign in enumerate(text):
        if skip:
            skip = False
        elif quote:
            skip = sign == "\\"
            quote = "" if sign == quote else quote
        elif sign in "'`\"":
            quote = sign
        elif sign in "()":
            depth += 1 if sign == "(" else -1
        elif sign == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def quoted(name: str) -> str:
    """A name for ClickHouse's SQL.

    >>> quoted("a`b")
    '`a\\\\`b`'
    """
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


def unquoted(name: str) -> str:
    """A name out of ClickHouse's SQL.

    >>> unquoted("`a b`"), unquoted("a")
    ('a b', 'a')
    """
    return re.sub(r"\\(.)", r"\1", name[1:-1]) if name[:1] in '`"' and name else name


def text(value: str) -> str:
    """A text for ClickHouse's SQL.

    >>> text("it's")
    "'it\\\\'s'"
    """
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
