"""What a terminal shows after it has got a text, as far as penstock makes use of it."""

from __future__ import annotations

import re

_PART = re.compile(r"\x1b\[(\d*)([A-Za-z])|([^\x1b]+)|\x1b")


def screen(text: str) -> list[str]:
    """The lines of a terminal that is high enough to keep them all."""
    lines, row, column = [""], 0, 0
    for number, command, plain in _PART.findall(text):
        if command == "F":
            row, column = max(row - int(number or 1), 0), 0
        elif command == "J":
            lines[row:] = [lines[row][:column]]
        elif command == "K":
            lines[row] = lines[row][:column]
        for letter in plain:
            if letter == "\r":
                column = 0
            elif letter == "\n":
                row, column = row + 1, 0
                lines += [""] * (row - len(lines) + 1)
            else:
                lines[row] = lines[row][:column].ljust(column) + letter + lines[row][column + 1 :]
                column += 1
    return lines
