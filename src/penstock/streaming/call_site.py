"""The line of the user's program that a query or an error belongs to."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

_OWN_FILES = str(Path(__file__).parents[1])


def calling_line() -> str | None:
    """Return the innermost line outside penstock that led here."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN_FILES):
        frame = frame.f_back
    return None if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
