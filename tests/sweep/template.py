"""How a function is called: templates out of the examples in Spark's own documentation, with columns where constants stood."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MARK = re.compile(r"<<(\d+)>>")
_QUOTES = "'\"`"
_ENDS = (" GROUP BY ", " ORDER BY ", " WHERE ", " HAVING ", " LIMIT ")


@dataclass(frozen=True, slots=True)
class Slot:
    """A place of a template where a column goes: its Spark type, and SQL texts of values that the examples have there."""

    type: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Template:
    """The text of a call; `<<n>>` stands for the column of the n-th slot."""

    text: str
    slots: tuple[Slot, ...]

    def filled(self, columns: list[str]) -> str:
        """Return the call with the given texts in its slots."""
        return MARK.sub(lambda found: columns[int(found[1])], self.text)


def statements(examples: str) -> Iterator[str]:
    """Yield the SQL statements among the examples of a function."""
    open_lines: list[str] = []
    for line in examples.splitlines():
        text = line.strip()
        if text.startswith("> "):
            open_lines = [text[2:]]
        elif open_lines:
            open_lines.append(text)
        if open_lines and text.endswith(";"):
            yield " ".join(open_lines)[:-1].strip()
            open_lines = []


def parts(statement: str) -> tuple[list[str], str]:
    """Return the items of the SELECT list of an example, and the table it reads ("" for none)."""
    if not statement.upper().startswith("SELECT "):
        return [], ""
    body = statement[len("SELECT ") :]
    at = find(body.upper(), " FROM ")
    items, table = (body, "") if at < 0 else (body[:at], body[at + len(" FROM ") :])
    for word in _ENDS:
        end = find(table.upper(), word)
        table = table if end < 0 else table[:end]
    return [_without_alias(item.strip()) for item in split(items)], table.strip()


def _without_alias(item: str) -> str:
    at = find(item.upper(), " AS ")
    return item if at < 0 else item[:at]


def split(text: str) -> list[str]:
    """Split at commas outside of brackets and quotes."""
    found, start = [], 0
    for at in _outside(text):
        if text[at] == ",":
            found.append(text[start:at])
            start = at + 1
    return [*found, text[start:]]


def find(text: str, word: str) -> int:
    """The first place of a word outside of brackets and quotes, -1 when there is none."""
    return next((at for at in _outside(text) if text.startswith(word, at)), -1)


def _outside(text: str) -> Iterator[int]:
    depth, quote, skip = 0, "", False
    for at, char in enumerate(text):
        if skip:
            skip = False
        elif quote:
            skip = char == "\\"
            quote = "" if char == quote else quote
        elif char in _QUOTES:
            quote = char
        elif char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif depth == 0:
            yield at


def call_of(text: str, name: str) -> tuple[int, int] | None:
    """Where the arguments of the first call of a function begin and end in a text."""
    found = re.search(rf"(?<![\w.]){re.escape(name)}\s*\(", text, re.IGNORECASE)
    if found is None:
        return None
    depth, quote, skip = 1, "", False
    for at in range(found.end(), len(text)):
        char = text[at]
        if skip:
            skip = False
        elif quote:
            skip = char == "\\"
            quote = "" if char == quote else quote
        elif char in _QUOTES:
            quote = char
        else:
            depth += (char == "(") - (char == ")")
            if depth == 0:
                return found.end(), at
    return None


def with_columns(text: str, names: list[str]) -> str:
    """Put marks where the columns of an example's table are named, outside of quotes."""
    places = {name.lower(): index for index, name in enumerate(names)}
    pieces = re.split(r"('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")", text)
    word = re.compile(r"(?<![\w.<])[A-Za-z_]\w*(?!\w|\()")
    return "".join(
        piece
        if index % 2
        else word.sub(
            lambda found: f"<<{places[found[0].lower()]}>>" if found[0].lower() in places else found[0], piece
        )
        for index, piece in enumerate(pieces)
    )
