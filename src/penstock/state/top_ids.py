"""The first rows of each group by their ids: a cache of what a scan of the group in order would read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from penstock.data.arrays import Ints, Positions
from penstock.data.hashing import expand
from penstock.data.ordering import run_lengths, run_starts
from penstock.state.slot_array import SlotArray
from penstock.state.state import Composite, State


class TopIds(Composite):
    """Up to `most` ids per slot, in order. A scan of the groups can fill it again at any time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._ids = SlotArray(np.int64, most)  # id + 1; 0 behind the last one

    def states(self) -> Iterator[tuple[str, State]]:
        yield "ids", self._ids

    def reserve(self, size: int) -> None:
        """Make room for slots below `size`."""
        self._ids.reserve(size)

    def read(self, slots: Positions) -> tuple[Positions, Ints]:
        """The ids at slots: for each the index of its slot, and the id."""
        ids = self._ids.data[slots]
        groups, rank = ids.nonzero()
        return groups, ids[groups, rank] - 1

    def put(self, slots: Positions, groups: Positions, ids: Ints) -> None:
        """Replace the ids at slots by others, in order; `groups` are the ascending indexes of their slots."""
        rows = np.zeros((len(slots), self._most), np.int64)
        rank, _ = expand(run_lengths(run_starts(groups), len(groups)))
        rows[groups, rank] = ids + 1
        self._ids.put(slots, rows)
