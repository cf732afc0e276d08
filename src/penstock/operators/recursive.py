"""WITH RECURSIVE, unrolled: one small circuit per level of the recursion, each fed with the rows of the level below.

Rule: L0 = anchor, L(k+1) = step(Lk, everything up to Lk), result = L0 + L1 + ... A level is an ordinary incremental circuit, so
a delete takes back exactly what it had led to, and a cycle cannot support itself: every row of a level rests on the levels below.
With a limit, the last level is the first one up to which there are so many rows; every row has its level as the last
column, so that a top-k by it takes the rows of the first levels, as Spark does.

Cost: the delta and what it leads to, per level. Levels come and go with the depth of the data; with a limit also the
rows of the levels that come or go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat
from penstock.data.tick import Tick
from penstock.errors import SqlError
from penstock.operators.base import Operator
from penstock.operators.levels import Level, Levels
from penstock.state.state import State

# Spark's own limits: the defaults of spark.sql.cteRecursionLevelLimit and cteRecursionRowLimit.
MOST_LEVELS = 100
MOST_ROWS = 1_000_000
UNLIMITED = -1


class Recursive(Operator):
    """The rows of all levels. The first input is the anchor, the others are what the step reads from outside.

    A `strict` step makes nothing of nothing; one that is not (it has a UNION ALL with other rows) is not asked when a
    level is empty.
    """

    def __init__(
        self,
        new_level: Callable[[], Level],
        types: Sequence[pa.DataType],
        *,
        max_depth: int | None = None,
        max_rows: int | None = None,
        limit: int | None = None,
        strict: bool = True,
    ) -> None:
        self._most_levels = MOST_LEVELS if max_depth is None else max_depth
        self._most_rows = MOST_ROWS if max_rows is None else max_rows
        self._limit = limit
        self._levels = Levels(new_level, types, keeps_rows=limit is not None or not strict)

    def states(self) -> Iterator[tuple[str, State]]:
        yield "levels", self._levels

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        anchor, *outside = inputs
        levels = self._levels
        levels.begin()
        changes = [consolidate(anchor)]
        total = 0
        while True:
            rows = levels.change(changes[-1])
            total += rows
            if rows:
                self._check(len(changes), total)
            if levels.ends() or (self._limit is not None and total >= self._limit):
                break
            changes.append(levels.following(changes[-1], consolidate(concat(changes)), outside, tick))
        parts = [*enumerate(changes), *((depth, -rows) for depth, rows in levels.dropped())]
        return concat([rows if self._limit is None else _with_level(rows, depth) for depth, rows in parts])

    def _check(self, levels: int, total: int) -> None:
        """Refuse what Spark refuses: a level too deep, and as many rows as the limit, unless a LIMIT says how many."""
        if UNLIMITED != self._most_levels < levels:
            raise SqlError(
                f"the recursion goes deeper than {self._most_levels} levels",
                code="SQL_RECURSION_LIMIT",
                condition="RECURSION_LEVEL_LIMIT_EXCEEDED",
                hint="stop it with a condition in the recursive part, or let it go deeper: WITH RECURSIVE "
                "name MAX RECURSION LEVEL n AS ...; "
                "a cycle in the data never ends by itself under UNION ALL",
            )
        if self._limit is None and UNLIMITED != self._most_rows <= total:
            raise SqlError(
                f"the recursion gives {self._most_rows:,} rows or more",
                code="SQL_RECURSION_LIMIT",
                condition="RECURSION_ROW_LIMIT_EXCEEDED",
                hint="stop it with a condition in the recursive part, or allow more: SELECT ... LIMIT ALL, "
                "or spark.sql.cteRecursionRowLimit",
            )


def _with_level(rows: Delta, depth: int) -> Delta:
    return Delta((*rows.columns, pa.array(np.full(len(rows), depth, np.int32))), rows.weights)
