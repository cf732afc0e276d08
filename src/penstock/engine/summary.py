"""What a tick did, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ViewStep:
    """One view in one tick: rows that reached it, rows that it emitted."""

    rows_in: int = 0
    inserted: int = 0
    retracted: int = 0
    skipped: bool = True
    duration_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class StepSummary:
    """One tick: rows applied, rows emitted by all views, each view on its own, and rows set aside because they were late.

    A view whose inputs did not change is `skipped`. Rows are counted with their multiplicity.
    """

    tick: int
    rows_in: int
    rows_out: int
    duration_ms: float
    views: Mapping[str, ViewStep]
    late: int = 0
