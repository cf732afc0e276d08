"""Which transactions a snapshot sees: those are in its rows already, and their changes must not come again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

XIDS = 1 << 32
"""After so many transactions the numbers in rows and messages begin again."""


@dataclass(frozen=True, slots=True)
class Visibility:
    """A snapshot: transactions before `low` have ended, those from `high` on have not begun, and of those between
    some were running."""

    low: int
    high: int
    running: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> Visibility:
        """Read what `pg_current_snapshot` returns.

        >>> Visibility.of("10:20:12,15")
        Visibility(low=10, high=20, running=(12, 15))
        """
        low, high, running = text.split(":")
        return cls(int(low), int(high), tuple(int(xid) for xid in running.split(",") if xid))

    def sees(self, xids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which transactions are seen; numbers have 32 bits and begin again after the last."""
        import numpy as np

        running = np.array(self.running, np.int64) % XIDS
        before = _distance(xids, self.low) < 0
        begun = _distance(xids, self.high) < 0
        return np.asarray(before | (begun & ~np.isin(xids, running)))


def _distance(xids: NDArray[np.int64], other: int) -> NDArray[np.int64]:
    half = XIDS // 2
    return (xids - other % XIDS + half) % XIDS - half
