"""What a tick did, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.plan.suspension import Suspension


@dataclass(frozen=True, slots=True)
class ViewStep:
    """One view in one tick: rows that reached it, rows that it emitted; or why the tick went on without it."""

    rows_in: int = 0
    inserted: int = 0
    retracted: int = 0
    skipped: bool = True
    duration_ms: float = 0.0
    suspended: Suspension | None = None


@dataclass(frozen=True, slots=True)
class StepSummary:
    """One tick: rows applied, rows emitted by all views, each view on its own, and rows in the quarantine because they were late.

    A view whose inputs did not change is `skipped`, and so is one that is `suspended`. Rows are counted with their multiplicity.
    """

    tick: int
    rows_in: int
    rows_out: int
    duration_ms: float
    views: Mapping[str, ViewStep]
    late: int = 0

    def __str__(self) -> str:
        """A line for the tick and one for each view that changed or is suspended.

        >>> print(StepSummary(7, 2, 3, 1.25, {"totals": ViewStep(2, 2, 1, False, 0.8), "top": ViewStep()}))
        tick 7: 2 rows in, 3 out, 1.2 ms (1 of 2 views skipped)
          totals  +2 -1  0.8 ms
        """
        suspended = {name: view for name, view in self.views.items() if view.suspended is not None}
        skipped = sum(view.skipped for view in self.views.values()) - len(suspended)
        rest = f" ({skipped} of {len(self.views)} views skipped)" if skipped else ""
        late = f"{self.late:,} late, " if self.late else ""
        lines = [
            f"tick {self.tick}: {self.rows_in:,} rows in, {late}{self.rows_out:,} out, {self.duration_ms:.1f} ms{rest}"
        ]
        stepped = {name: view for name, view in self.views.items() if not view.skipped}
        width = max(map(len, (*stepped, *suspended)), default=0)
        for name, view in stepped.items():
            lines.append(
                f"  {name:{width}}  +{view.inserted:,} -{view.retracted:,}  {view.duration_ms:.1f} ms"
            )
        lines += [f"  {name:{width}}  {view.suspended}" for name, view in suspended.items()]
        return "\n".join(lines)
