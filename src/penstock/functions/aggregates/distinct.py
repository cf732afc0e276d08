"""DISTINCT inside a call: every distinct combination of a group's arguments counts once.

State: an index of (group, arguments) with a count. Cost: delta.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.errors import DataError
from penstock.functions.aggregates.base import Rows
from penstock.state.dense import Dense
from penstock.state.slots import Slots


class DistinctRows:
    """Turns rows into the appearances and disappearances of distinct arguments."""

    def __init__(self, kinds: Sequence[pa.DataType]) -> None:
        self._index = Slots([pa.int64(), *kinds])
        self._counts = Dense(np.int64)

    def change(self, rows: Rows) -> Rows:
        """Return +1 for arguments that a group did not have before, -1 for those that it has no longer."""
        found = self._index.resolve([pa.array(rows.slots), *rows.columns], len(rows.slots))
        self._counts.reserve(self._index.size)
        self._counts.touch(found.touched)
        before = self._counts.data[found.touched]
        np.add.at(self._counts.data, found.slots, rows.weights)
        after = self._counts.data[found.touched]
        if (after < 0).any():
            raise DataError(
                "a value is retracted more often than it was inserted", code="DATA_NEGATIVE_COUNT"
            )
        self._index.release(found.touched[after == 0])
        weights = (after > 0).astype(np.int64) - (before > 0)
        changed = np.flatnonzero(weights)
        entries = found.touched[changed]
        # Stored arguments, not those of this delta: 0.0 and -0.0 are one value and must come and go as the same one.
        slots, *columns = self._index.keys(entries)
        owners = slots.to_numpy()
        return Rows(owners, np.unique(owners), weights[changed], tuple(columns))

    def commit(self) -> None:
        self._counts.commit()
        self._index.commit()

    def rollback(self) -> None:
        self._counts.rollback()
        self._index.rollback()

    def memory(self) -> int:
        return self._counts.memory() + self._index.memory()
