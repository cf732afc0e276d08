"""Why a view stands still."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Suspension:
    """The first tick that went on without a view, and the error.

    `because` is the view whose error it is, when that is another one, which this view reads.

    >>> print(Suspension(7, "DATA_OVERFLOW", "bigint overflow", "view 'totals', aggregate"))
    suspended since tick 7: DATA_OVERFLOW: bigint overflow (view 'totals', aggregate)
    >>> print(Suspension(7, "DATA_OVERFLOW", "bigint overflow", because="totals"))
    suspended since tick 7 with view 'totals': DATA_OVERFLOW: bigint overflow
    """

    tick: int
    code: str
    message: str
    where: str | None = None
    because: str | None = None

    def __str__(self) -> str:
        cause = f" with view '{self.because}'" if self.because else ""
        where = f" ({self.where})" if self.where else ""
        return f"suspended since tick {self.tick}{cause}: {self.code}: {self.message}{where}"
