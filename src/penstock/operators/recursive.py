"""WITH RECURSIVE, unrolled: one small circuit per level of the recursion, each fed with the rows of the level below.

Rule: L0 = anchor, L(k+1) = step(Lk, everything up to Lk), result = L0 + L1 + ... A level is an ordinary incremental circuit, so
a delete takes back exactly what it had led to, and a cycle cannot support itself: every row of a level rests on the levels below.

Cost: the delta and what it leads to, per level. Levels come and go with the depth of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat
from penstock.data.tick import Tick
from penstock.errors import SqlError
from penstock.operators.base import Operator
from penstock.state.state import Image, State

# Spark's own limits: spark.sql.cteRecursionLevelLimit and cteRecursionRowLimit.
MOST_LEVELS = 100
MOST_ROWS = 1_000_000


class Level(Protocol):
    """Makes the rows of the next level of those of one level."""

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
    """The levels of a recursion, before and after the tick: levels come and go with the depth of the data."""

    __slots__ = ("_new", "_pending", "_stepped", "committed", "totals")

    def __init__(self, new: Callable[[], Level]) -> None:
        self._new = new
        self.committed: list[Level] = []
        self.totals: list[int] = []  # rows per level
        self._stepped: list[Level] = []
        self._pending: list[int] = []

    def begin(self, rows: int) -> None:
        """A tick begins, which changes the number of rows of the anchor."""
        self._stepped = []
        self._pending = [self._total(0) + rows]

    def ends(self, depth: int) -> bool:
        """Whether there is nothing to do for the rows of a level: it has none, and had none."""
        return depth >= len(self.committed) and not self._pending[depth]

    def level(self, depth: int) -> Level:
        """What makes the rows of the next level, from now on part of the tick."""
        level = self.committed[depth] if depth < len(self.committed) else self._new()
        self._stepped.append(level)
        return level

    def add(self, depth: int, rows: int) -> int:
        """Change the number of rows of a level; return that of all levels."""
        self._pending.append(self._total(depth) + rows)
        return sum(self._pending)

    def _total(self, depth: int) -> int:
        return self.totals[depth] if depth < len(self.totals) else 0

    def commit(self) -> None:
        if not self._pending:
            return
        for level in self._stepped:
            level.commit()
        depth = len(self._pending)
        while depth and not self._pending[depth - 1]:
            depth -= 1
        self.totals = self._pending[:depth]
        self.committed = self._stepped[:depth]
        self._pending = []

    def rollback(self) -> None:
        for level in self._stepped:
            level.rollback()
        self._pending = []

    def maintain(self, fuel: int) -> None:
        for level in self.committed:
            level.maintain(fuel)

    def memory(self) -> int:
        """Bytes of memory."""
        return sum(state.memory() for level in self.committed for _, state in level.states())

    def save(self) -> Image:
        levels = [
            Image(parts={name: state.save() for name, state in level.states()}) for level in self.committed
        ]
        return Image({"totals": self.totals}, parts={str(depth): image for depth, image in enumerate(levels)})

    def load(self, image: Image) -> None:
        self._stepped, self._pending = [], []
        self.totals = list(image.values["totals"])
        self.committed = []
        for depth in range(len(image.parts)):
            level = self._new()
            for name, state in level.states():
                state.load(image.parts[str(depth)].parts[name])
            self.committed.append(level)


class Recursive(Operator):
    """The rows of all levels. The first input is the anchor, the others are what the step reads from outside."""

    def __init__(self, new_level: Callable[[], Level], max_depth: int | None = None) -> None:
        self._most_levels = max_depth or MOST_LEVELS
        self._levels = Levels(new_level)

    def states(self) -> Iterator[tuple[str, State]]:
        yield "levels", self._levels

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        anchor, *outside = inputs
        changes = [consolidate(anchor)]
        self._levels.begin(_count(changes[0]))
        for depth in range(self._most_levels + 1):
            if self._levels.ends(depth):
                break
            if depth == self._most_levels:
                raise self._too_much(f"goes deeper than {self._most_levels} levels")
            level = self._levels.level(depth)
            rows = level.step(changes[-1], consolidate(concat(changes)), outside, tick)
            changes.append(rows)
            if self._levels.add(depth + 1, _count(rows)) > MOST_ROWS:
                raise self._too_much(f"gives more than {MOST_ROWS:,} rows")
        return concat(changes)

    def _too_much(self, what: str) -> SqlError:
        return SqlError(
            f"the recursion {what}",
            code="SQL_RECURSION_LIMIT",
            hint="stop it with a condition in the recursive part; a cycle in the data never ends by itself under UNION ALL",
        )


def _count(rows: Delta) -> int:
    return int(np.sum(rows.weights))
