"""One line on stderr about something that takes its time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Progress:
    """What is going on, and how far it is when that is known."""

    what: str
    done: int = 0
    total: int = 0
    stage: Literal["begin", "middle", "end"] = "begin"


Report = Callable[[Progress], None]


def show(progress: Progress) -> None:
    """Print progress on stderr: in place on a terminal, otherwise one plain line when it begins."""
    if sys.stderr.isatty():
        end = "\n" if progress.stage == "end" else ""
        sys.stderr.write(f"\r\x1b[2K{_text(progress)}{end}")
        sys.stderr.flush()
    elif progress.stage == "begin":
        print(_text(progress), file=sys.stderr, flush=True)


def quiet(progress: Progress) -> None:
    """Print nothing."""


def _text(progress: Progress) -> str:
    if not progress.total:
        return progress.what
    total = f"{progress.total / 1e6:.1f} MB"
    if progress.stage == "end":
        return f"{progress.what}: {total}, done"
    if progress.stage == "begin":
        return f"{progress.what}: {total}"
    share = min(progress.done / progress.total, 1.0)
    return f"{progress.what}: {min(progress.done, progress.total) / 1e6:.1f} of {total} ({share:.0%})"
