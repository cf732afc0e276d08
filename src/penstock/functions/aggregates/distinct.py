"""DISTINCT inside a call: every distinct combination of a group's arguments counts once.

State: an index of (group, arguments) with a count. Cost: delta.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Positions
from penstock.data.column_view import gather
from penstock.errors import DataError
from penstock.functions.aggregates.base import Rows
from penstock.state.slot_array import SlotArray
from penstock.state.slots import Slots
from penstock.state.state import Composite, State


class DistinctRows(Composite):
    """Turns rows into the appearances and disappearances of distinct arguments."""

    def __init__(self, kinds: Sequence[pa.DataType]) -> None:
        self._index = Slots([pa.int64(), *kinds])
        self._counts = SlotArray(np.int64)

    def states(self) -> Iterator[tuple[str, State]]:
        yield "index", self._index
        yield "counts", self._counts

    def change(self, rows: Rows) -> Rows:
        """Return +1 for arguments that a group did not have before, -1 for those that it has no longer."""
        resolved = self._index.resolve([pa.array(rows.slots), *rows.columns], len(rows.weights))
        self._counts.reserve(self._index.size)
        before, after = self._counts.add(resolved.touched, resolved.groups, rows.weights)
        if (after < 0).any():
            raise DataError(
                "a value is retracted more often than it was inserted", code="DATA_NEGATIVE_COUNT"
            )
        self._index.release(resolved.touched[after == 0])
        weights = (after > 0).astype(np.int64) - (before > 0)
        changed = np.flatnonzero(weights)
        entries = resolved.touched[changed]
        # Stored arguments, not those of this delta: 0.0 and -0.0 are one value and must come and go as the same one.
        columns = tuple(self._index.key(at, entries) for at in range(1, 1 + len(rows.columns)))
        return Rows(rows.touched, rows.groups.take(resolved.leaders[changed]), weights[changed], columns)

    def entries(self, slots: Positions, others: Positions) -> Rows:
        """All arguments of the groups at `others` with their counts, as rows of the groups at `slots`, pairwise: what
        a merge takes in."""
        live = self._index.live()
        owners, *columns = self._index.keys(live)
        order = np.argsort(others)
        at = order[others[order].searchsorted(owners.to_numpy()).clip(max=len(others) - 1)]
        chosen = (others[at] == owners.to_numpy()).nonzero()[0]
        return Rows(slots, at[chosen], self._counts.data[live[chosen]], gather(columns, chosen))
