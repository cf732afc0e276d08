"""WITH RECURSIVE, unrolled: one small circuit per level of the recursion, each fed with the rows of the level below.

Rule: L0 = anchor, L(k+1) = step(Lk, everything found up to Lk), result = L0 + L1 + ... A level is an ordinary incremental circuit, so
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


class Recursive(Operator):
    """The rows of all levels. The first input is the anchor, the others are what the step reads from outside."""

    fixed = False

    def __init__(self, new_level: Callable[[], Level], max_depth: int | None = None) -> None:
        self._new_level = new_level
        self._most_levels = max_depth or MOST_LEVELS
        self._levels: list[Level] = []
        self._totals: list[int] = []  # rows per level
        self._stepped: list[Level] = []
        self._pending: list[int] = []

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        anchor, *outside = inputs
        self._stepped = []
        changes = [consolidate(anchor)]
        self._pending = [self._total(0) + _count(changes[0])]
        for depth in range(self._most_levels + 1):
            if depth >= len(self._levels) and not self._pending[depth]:
                break
            if depth == self._most_levels:
                raise self._too_much(f"goes deeper than {self._most_levels} levels")
            level = self._levels[depth] if depth < len(self._levels) else self._new_level()
            self._stepped.append(level)
            rows = level.step(changes[-1], consolidate(concat(changes)), outside, tick)
            changes.append(rows)
            self._pending.append(self._total(depth + 1) + _count(rows))
            if sum(self._pending) > MOST_ROWS:
                raise self._too_much(f"gives more than {MOST_ROWS:,} rows")
        return concat(changes)

    def commit(self) -> None:
        if not self._pending:
            return
        for level in self._stepped:
            level.commit()
        depth = len(self._pending)
        while depth and not self._pending[depth - 1]:
            depth -= 1
        self._totals = self._pending[:depth]
        self._levels = self._stepped[:depth]
        self._pending = []

    def rollback(self) -> None:
        for level in self._stepped:
            level.rollback()
        self._pending = []

    def maintain(self, fuel: int) -> None:
        for level in self._levels:
            level.maintain(fuel)

    def states(self) -> Iterator[tuple[str, State]]:
        """The states of all levels."""
        for depth, level in enumerate(self._levels):
            for name, state in level.states():
                yield f"level-{depth}.{name}", state

    def save(self) -> Image:
        return Image({"totals": self._totals}, parts=super().save().parts)

    def load(self, image: Image) -> None:
        self._totals = list(image.values["totals"])
        self._levels = [self._new_level() for _ in self._totals]
        self._pending, self._stepped = [], []
        super().load(image)

    def _total(self, depth: int) -> int:
        return self._totals[depth] if depth < len(self._totals) else 0

    def _too_much(self, what: str) -> SqlError:
        return SqlError(
            f"the recursion {what}",
            code="SQL_RECURSION_LIMIT",
            hint="stop it with a condition in the recursive part; a cycle in the data never ends by itself under UNION ALL",
        )


def _count(rows: Delta) -> int:
    return int(np.sum(rows.weights))
