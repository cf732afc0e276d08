"""A growable array with one row per slot, whose changes in a tick can be taken back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]


class Dense:
    """Values by slot; `touch` keeps the old values of the rows that a tick is about to change.

    The array grows in place (the allocator remaps large blocks instead of copying them), by an eighth at a time once it is
    large, so that no tick pays for the whole of it. Nobody may hold a view of `data` across `reserve`.
    """

    __slots__ = ("_undo", "data")

    def __init__(self, dtype: npt.DTypeLike, width: int = 0) -> None:
        self.data: npt.NDArray[Any] = np.zeros((256, width) if width else 256, dtype)
        self._undo: list[tuple[Positions, npt.NDArray[Any]]] = []

    def reserve(self, size: int) -> None:
        """Make room for slots below `size`; new rows are zero."""
        have = len(self.data)
        if size > have:
            room = max(size, have * 2 if have < 1 << 16 else have + have // 8)
            self.data.resize((room, *self.data.shape[1:]), refcheck=False)

    def touch(self, slots: Positions) -> None:
        """Remember the rows at these slots; call it before they change."""
        self._undo.append((slots, self.data[slots]))

    def commit(self) -> None:
        self._undo.clear()

    def rollback(self) -> None:
        while self._undo:
            slots, old = self._undo.pop()
            self.data[slots] = old

    def memory(self) -> int:
        """Bytes held."""
        return int(self.data.nbytes)
