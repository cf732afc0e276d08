"""Rows as an aligned table that fits the terminal, or as one record per block when there are too many columns."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from penstock.cli.value import NULL, table_text

NARROWEST = 8
"""A column is not cut below this, unless all of its values are shorter."""

DIM, PLAIN = "\033[2m", "\033[0m"


@dataclass(frozen=True, slots=True)
class TableLayout:
    """How a table looks: the width of each column, on which side it is aligned, and what the terminal allows."""

    names: tuple[str, ...]
    widths: tuple[int, ...]
    right: tuple[bool, ...]
    terminal: int | None = None
    color: bool = False
    vertical: bool = False

    def head(self) -> Iterator[str]:
        """The lines above the rows."""
        if self.vertical or not self.names:
            return
        cells = (_fit(name, width) for name, width in zip(self.names, self.widths, strict=True))
        yield (
            " "
            + " │ ".join(_pad(*cell) for cell in zip(cells, self.widths, self.right, strict=True)).rstrip()
        )
        yield "┼".join("─" * (width + 2) for width in self.widths)

    def lines(self, row: Sequence[Any], number: int) -> Iterator[str]:
        """The lines of one row."""
        if self.vertical:
            yield from self._record(row, number)
            return
        cells = [
            self._cell(value, width, right)
            for value, width, right in zip(row, self.widths, self.right, strict=True)
        ]
        yield (" " + " │ ".join(cells)).rstrip()

    def _cell(self, value: Any, width: int, right: bool) -> str:
        text = table_text(value)
        if self.terminal is not None:
            text = _fit(text, width)
        padded = _pad(text, width, right)
        return padded.replace(NULL, f"{DIM}{NULL}{PLAIN}") if value is None and self.color else padded

    def _record(self, row: Sequence[Any], number: int) -> Iterator[str]:
        label = min(max(map(display_width, self.names)), max(NARROWEST, (self.terminal or 80) // 3))
        room = max(NARROWEST, (self.terminal or 80) - label - 3)
        yield f"─[ row {number} ]".ljust(min(self.terminal or 80, label + 20), "─")
        for name, value in zip(self.names, row, strict=True):
            cell = self._cell(value, room, False).rstrip()
            yield f"{_pad(_fit(name, label), label, False)} │ {cell}".rstrip()


def plan(
    names: Sequence[str], rows: Sequence[Sequence[Any]], *, terminal: int | None = None, color: bool = False
) -> TableLayout:
    """Choose the layout from the first rows; without a terminal nothing is cut."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    natural = [
        max(display_width(table_text(name)), *(display_width(table_text(value)) for value in column), 1)
        for name, column in zip(names, columns, strict=True)
    ]
    right = tuple(_numeric(column) for column in columns)
    shown = tuple(table_text(name) for name in names)
    widths, vertical = natural, False
    if terminal is not None and natural:
        room = terminal - 3 * (len(natural) - 1) - 2
        widths = shrink(natural, room)
        vertical = sum(widths) > room
    return TableLayout(shown, tuple(widths), right, terminal, color, vertical)


def shrink(widths: Sequence[int], room: int) -> list[int]:
    """Cut the widest columns, evenly, until the row fits or all are at the narrowest.

    >>> shrink([4, 50, 30], 40)
    [4, 18, 18]
    """
    if sum(widths) <= room:
        return list(widths)
    low, high = NARROWEST, max(NARROWEST, *widths)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(width, middle) for width in widths) <= room:
            low = middle
        else:
            high = middle - 1
    return [min(width, low) for width in widths]


def display_width(text: str) -> int:
    """How many terminal cells a text takes: wide characters take two, combining ones none.

    >>> display_width("数据"), display_width("e\\u0301")
    (4, 1)
    """
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def _cells(char: str) -> int:
    if char.isascii():
        return 1
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _fit(text: str, width: int) -> str:
    if display_width(text) <= width:
        return text
    chars, used = [], 0
    for char in text:
        used += _cells(char)
        if used > width - 1:
            break
        chars.append(char)
    return "".join(chars) + "…"


def _pad(text: str, width: int, right: bool) -> str:
    space = " " * max(0, width - display_width(text))
    return space + text if right else text + space


def _numeric(column: Sequence[Any]) -> bool:
    """Whether a column holds numbers, which are aligned on the right."""
    present = [value for value in column if value is not None]
    return bool(present) and all(
        isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in present
    )
