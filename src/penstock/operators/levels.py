"""The levels of a recursion: the circuit that makes the next level of each, how many rows each has, and these rows
where they are needed again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.state.scratch import Piece
from penstock.state.spine import Spine
from penstock.state.state import Image, State


class Level(Protocol):
    """Makes the rows of the next level of those of one level."""

    def fill(self, rows: Delta, so_far: Delta, outside: Sequence[Delta], tick: Tick) -> Delta:
        """The rows of the next level for all rows of this one: the first step of a new level."""

    def step(self, rows: Delta, so_far: Delta, outside: Sequence[Delta], tick: Tick) -> Delta:
        """The change of the next level for the changes of this one, of all levels up to it, and of what is read from outside."""

    def commit(self) -> None:
        """Make the last step final."""

    def rollback(self) -> None:
        """Forget the last step."""

    def maintain(self, fuel: int) -> None:
        """Merge and compact."""

    def states(self) -> Iterator[tuple[str, State]]:
        """The states of the level's operators by a name that is unique in the level."""


class Levels:
    """The levels before and after the tick: they come and go with the depth of the data.

    With `keeps_rows` a tick may end before the last level: those behind are dropped, and made again of the rows of
    the one before. Without, a level that has lost its rows is stepped all the same, and takes back what it had made
    of them.
    """

    __slots__ = (
        "_keeps_rows",
        "_new",
        "_pending",
        "_staged",
        "_stepped",
        "_types",
        "committed",
        "rows",
        "totals",
    )

    def __init__(self, new: Callable[[], Level], types: Sequence[pa.DataType], *, keeps_rows: bool) -> None:
        self._new = new
        self._types = tuple(types)
        self._keeps_rows = keeps_rows
        self.committed: list[Level] = []
        self.totals: list[int] = []  # rows per level
        self.rows: list[Spine] = []  # of each level, if they are kept
        self._stepped: list[Level] = []
        self._pending: list[int] = []
        self._staged: list[Spine] = []

    def begin(self) -> None:
        """A tick begins."""
        self._stepped, self._pending, self._staged = [], [], []

    def change(self, rows: Delta) -> int:
        """Change the rows of the next level in order; return how many it has then."""
        depth = len(self._pending)
        before = self.totals[depth] if depth < len(self.totals) else 0
        if self._keeps_rows:
            spine = self.rows[depth] if depth < len(self.rows) else Spine(self._types)
            self._staged.append(spine)  # first, so that a rollback finds it
            spine.stage(rows)
        self._pending.append(before + int(np.sum(rows.weights)))
        return self._pending[depth]

    def ends(self) -> bool:
        """Whether the last level that changed is the last one: it has no rows, and those behind need no step."""
        return not self._pending[-1] and (self._keeps_rows or len(self._pending) > len(self.committed))

    def following(self, change: Delta, so_far: Delta, outside: Sequence[Delta], tick: Tick) -> Delta:
        """The change of the level behind the last one that changed."""
        depth = len(self._stepped)
        if depth < len(self.committed):
            level = self.committed[depth]
            self._stepped.append(level)
            return level.step(change, so_far, outside, tick)
        level = self._new()
        self._stepped.append(level)
        # A level without rows that are kept is new because it had none.
        rows = self._staged[depth].after().rows() if self._keeps_rows else change
        return level.fill(rows, so_far, outside, tick)

    def dropped(self) -> Iterator[tuple[int, Delta]]:
        """The depth and the rows of the levels that the tick has not come to any more."""
        for depth in range(len(self._pending), len(self.rows)):
            yield depth, self.rows[depth].before().rows()

    def commit(self) -> None:
        if not self._pending:
            return
        for level in self._stepped:
            level.commit()
        for spine in self._staged:
            spine.commit()
        depth = len(self._pending)
        while depth and not self._pending[depth - 1]:
            depth -= 1
        self.totals = self._pending[:depth]
        self.committed = self._stepped[:depth]
        self.rows = self._staged[:depth]
        self._pending = []

    def rollback(self) -> None:
        for level in self._stepped:
            level.rollback()
        for spine in self._staged:
            spine.rollback()
        self._pending = []

    def maintain(self, fuel: int) -> None:
        for level in self.committed:
            level.maintain(fuel)
        for spine in self.rows:
            spine.maintain(fuel)

    def memory(self) -> int:
        """Bytes of memory, with those that lie in files."""
        return sum(state.memory() for state in self._states())

    def mapped(self) -> int:
        return sum(state.mapped() for state in self._states())

    def pieces(self) -> Iterator[Piece]:
        for state in self._states():
            yield from state.pieces()

    def _states(self) -> Iterator[State]:
        for level in self.committed:
            for _, state in level.states():
                yield state
        yield from self.rows

    def save(self) -> Image:
        parts = {
            str(depth): Image(parts={name: state.save() for name, state in level.states()})
            for depth, level in enumerate(self.committed)
        }
        parts |= {f"rows of {depth}": spine.save() for depth, spine in enumerate(self.rows)}
        return Image({"totals": self.totals, "levels": len(self.committed)}, parts=parts)

    def load(self, image: Image) -> None:
        self.begin()
        self.totals = list(image.values["totals"])
        self.committed, self.rows = [], []
        for depth in range(image.values["levels"]):
            level = self._new()
            for name, state in level.states():
                state.load(image.parts[str(depth)].parts[name])
            self.committed.append(level)
        for depth in range(len(self.totals) if self._keeps_rows else 0):
            spine = Spine(self._types)
            spine.load(image.parts[f"rows of {depth}"])
            self.rows.append(spine)
