"""How a script fails as a whole: it cannot be loaded, or its process ends in the middle of a batch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from penstock.errors import ConfigError

Cause = Literal["time", "memory", "ended"]


@dataclass(frozen=True, slots=True)
class Ended(Exception):
    """The process of a script was ended, or ended by itself, before it had answered."""

    cause: Cause
    text: str
    row: int | None = None
    """The row that it was at, where it reported one."""


def not_loaded(output: str, file: str) -> ConfigError:
    """Return the error for a script that Deno does not load, from what Deno wrote.

    >>> error = not_loaded("error: Uncaught TypeError: no\\n    at file:///tmp/x/script/a.js:2:5\\n", "a.js")
    >>> error.message, error.where
    ('the script cannot be loaded: TypeError: no (a.js:2:5)', 'a.js:2:5')
    """
    lines = [line for line in output.splitlines() if line.strip()]
    first = next((line for line in lines if line.startswith("error:")), lines[0] if lines else "Deno ended")
    text = re.sub(r"^error: (Uncaught )?(\(in promise\) )?(SyntaxError: (?=The module))?", "", first)
    if "'invoke' is not defined" in text or "invoke is not a function" in text:
        return ConfigError(
            "the script has no function invoke",
            code="SCRIPT_INVALID",
            where=file,
            hint="write function invoke(row) { return row; }",
        )
    position = re.search(rf"/{re.escape(file)}:(\d+:\d+)", output)
    shown = [line[4:] for line in lines if re.match(r"\d+ \| ", line)]
    code = f"\n      {shown[0].strip()}" if shown else ""
    where = f"{file}:{position[1]}" if position else file
    return ConfigError(
        f"the script cannot be loaded: {without_paths(text)} ({where})",
        code="SCRIPT_INVALID",
        where=where + code,
    )


def without_paths(text: str) -> str:
    """Return a text of Deno without the folder in which the script lies.

    >>> without_paths("not found: file:///tmp/abc/script/a.ts:1:2")
    'not found: a.ts:1:2'
    """
    return re.sub(r"(file://)?/[^\s'\"]*/(script|deno-[^/\s]*)/(?=[^/\s'\"]+)", "", text)
