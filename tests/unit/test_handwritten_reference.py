"""What the handwritten pages of the reference list is what there is."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from penstock.cli.main import COMMANDS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def test_the_table_of_commands_is_that_of_the_command_line() -> None:
    page = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[`(\S+)`\]\(#penstock-(\S+)\) \| (.*) \|$", page, re.MULTILINE)
    assert [(name, about) for name, _, about in rows] == [
        (name, command.help) for name, command in COMMANDS.items()
    ]
    assert all(name == anchor and f"\n## `penstock {name}`\n" in page for name, anchor, _ in rows)


def test_an_error_is_explained_once() -> None:
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    first_cells = re.findall(r"^\|([^|]*)\|", page, re.MULTILINE)
    codes = Counter(code for cell in first_cells for code in re.findall(r"`([A-Z][A-Z_]+)`", cell))
    assert codes
    assert [code for code, times in codes.items() if times > 1] == []
