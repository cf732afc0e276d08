"""The first rows of each group by their ids: what a scan of the group in order would find, kept so that it need not be read again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from penstock.data.column_view import Positions
from penstock.data.hashing import expand
from penstock.data.ordering import run_lengths, run_starts
from penstock.state.dense import Dense

Ints = npt.NDArray[np.int64]


class TopIds:
    """Up to `most` ids per slot, in order. It can be made again from the groups at any time."""

    def __init__(self, most: int) -> None:
        self._ids = Dense(np.int64, most)  # id + 1; 0 behind the last one

    def dense(self) -> Iterator[Dense]:
        """What is kept by slot."""
        yield self._ids

    def read(self, slots: Positions) -> tuple[Positions, Ints]:
        """The ids at slots: for each the index of its slot, and the id."""
        held = self._ids.data[slots]
        groups, place = held.nonzero()
        return groups, held[groups, place] - 1

    def put(self, slots: Positions, groups: Positions, ids: Ints) -> None:
        """Replace what is kept at slots by ids in order; `groups` are the ascending indexes of their slots."""
        self._ids.touch(slots)
        self._ids.data[slots] = 0
        place, _ = expand(run_lengths(run_starts(groups), len(groups)))
        self._ids.data[slots[groups], place] = ids + 1
