"""WITH RECURSIVE, unrolled: one small circuit per level of the recursion, each fed with the rows of the level below.

Rule: L0 = anchor, L(k+1) = step(Lk, everything found up to Lk), result = L0 + L1 + ... A level is an ordinary incremental circuit, so
a delete takes back exactly what it had led to, and a cycle cannot support itself: every row of a level rests on the levels below.
What the step reads from outside is arranged once, in the outer circuit, and shared by all levels.

Cost: the delta and what it leads to, per level. Levels come and go with the depth of the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.circuit.circuit import Circuit
from penstock.circuit.compile import Compiler, Shared, types_of
from penstock.circuit.recompute import Feed
from penstock.circuit.time import depends_on_time
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat, empty
from penstock.data.tick import Tick
from penstock.errors import SqlError
from penstock.operators.base import Operator
from penstock.plan import node as plan
from penstock.state.arrangement import Arrangement

# Spark's own limits: spark.sql.cteRecursionLevelLimit and cteRecursionRowLimit.
MOST_LEVELS = 100
MOST_ROWS = 1_000_000


@dataclass(slots=True)
class Level:
    """The circuit that makes the next level's rows, and where it is fed."""

    circuit: Circuit
    rows: int
    so_far: int
    outside: dict[int, int]  # place in the outer circuit -> place that stands for it here
    root: int


class Recursive(Operator):
    """The rows of all levels."""

    def __init__(self, compiler: Compiler, node: plan.Recursive) -> None:
        self._node = node
        self._types = types_of(node.fields)
        self._outer = _Outer(compiler)
        self._most_levels = node.max_depth or MOST_LEVELS
        self._levels: list[Level] = []
        self._totals: list[int] = []  # rows per level
        self._stepped: list[Level] = []
        self._pending: list[int] = []
        # Compiling one level now brings what the step reads from outside into the outer circuit.
        self.outside = tuple(self._level().outside)

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        changes = {place: delta for place, delta in zip(self.outside, inputs[1:], strict=True) if len(delta)}
        rows = consolidate(inputs[0])
        found = [rows]
        self._pending = [self._total(0) + _count(rows)]
        for depth in range(self._most_levels + 1):
            if depth >= len(self._levels) and not self._pending[depth]:
                break
            if depth == self._most_levels:
                raise self._too_much(f"goes deeper than {self._most_levels} levels")
            level = self._levels[depth] if depth < len(self._levels) else self._level()
            rows = self._next(level, changes, found, tick)
            found.append(rows)
            self._pending.append(self._total(depth + 1) + _count(rows))
            if sum(self._pending) > MOST_ROWS:
                raise self._too_much(f"gives more than {MOST_ROWS:,} rows")
        return concat(found)

    def _next(self, level: Level, changes: dict[int, Delta], found: Sequence[Delta], tick: Tick) -> Delta:
        feeds = {level.outside[place]: delta for place, delta in changes.items()}
        if len(found[-1]):
            feeds[level.rows] = found[-1]
        so_far = consolidate(concat(found))
        if len(so_far):
            feeds[level.so_far] = so_far
        self._stepped.append(level)
        stepped = level.circuit.step(feeds, tick)
        return consolidate(stepped.outputs.get(level.root) or empty(self._types))

    def commit(self) -> None:
        for level in self._stepped:
            level.circuit.commit()
        depth = len(self._pending)
        while depth and not self._pending[depth - 1]:
            depth -= 1
        self._totals = self._pending[:depth]
        self._levels, self._stepped, self._pending = self._stepped[:depth], [], []

    def rollback(self) -> None:
        for level in self._stepped:
            level.circuit.rollback()
        self._stepped, self._pending = [], []

    def memory(self) -> int:
        return sum(level.circuit.memory() for level in self._levels)

    def _total(self, depth: int) -> int:
        return self._totals[depth] if depth < len(self._totals) else 0

    def _level(self) -> Level:
        compiler = _LevelCompiler(
            Circuit(),
            {},
            Shared(),
            self._outer.compiler.owner,
            self._outer.compiler.fragment,
            outer=self._outer,
        )
        compiler.recursion = frozenset({self._node.name, plan.so_far(self._node.name)})
        rows, so_far = (compiler.add(Feed(), (), self._node.fields) for _ in range(2))
        compiler.relations = {self._node.name: rows, plan.so_far(self._node.name): so_far}
        root = compiler.compile(self._node.step)
        return Level(compiler.circuit, rows, so_far, compiler.outside, root)

    def _too_much(self, what: str) -> SqlError:
        return SqlError(
            f"the recursion {what}",
            code="SQL_RECURSION_LIMIT",
            hint="stop it with a condition in the recursive part; a cycle in the data never ends by itself under UNION ALL",
        )


@dataclass(slots=True)
class _Outer:
    """What the step reads from outside: the places that the first level found, also when later views compile the same nodes again."""

    compiler: Compiler
    places: dict[plan.Node, int] = field(default_factory=dict)
    arrangements: dict[tuple[plan.Node, tuple[int, ...]], tuple[int, Arrangement]] = field(
        default_factory=dict
    )

    def compile(self, node: plan.Node) -> int:
        if node not in self.places:
            self.places[node] = self.compiler.compile(node)
        return self.places[node]

    def arrange(self, node: plan.Node, keys: tuple[int, ...]) -> tuple[int, Arrangement]:
        if (node, keys) not in self.arrangements:
            self.arrangements[(node, keys)] = self.compiler.arrange(node, keys)
        return self.arrangements[(node, keys)]


@dataclass(slots=True)
class _LevelCompiler(Compiler):
    """Compiles the step for one level; what does not depend on the recursion belongs to the outer circuit."""

    outer: _Outer = field(kw_only=True)
    recursion: frozenset[str] = frozenset()
    outside: dict[int, int] = field(default_factory=dict)

    def compile(self, node: plan.Node) -> int:
        if self._recurs(node):
            return Compiler.compile(self, node)
        return self._stand_in(self.outer.compile(node), node.fields)

    def arrange(self, node: plan.Node, keys: tuple[int, ...]) -> tuple[int, Arrangement]:
        if self._recurs(node):
            return Compiler.arrange(self, node, keys)
        place, arrangement = self.outer.arrange(node, keys)
        return self._stand_in(place, node.fields), arrangement

    def _stand_in(self, place: int, fields: plan.Fields) -> int:
        if place not in self.outside:
            self.outside[place] = self.add(Feed(), (), fields)
        return self.outside[place]

    def _recurs(self, node: plan.Node) -> bool:
        if isinstance(node, plan.Scan):
            return node.name in self.recursion
        return any(self._recurs(child) for child in plan.children(node))


def compile_recursive(compiler: Compiler, node: plan.Recursive) -> int:
    """Put a recursion into the circuit."""
    operator = Recursive(compiler, node)
    anchor = compiler.compile(node.anchor)
    return compiler.add(operator, (anchor, *operator.outside), node.fields, timed=depends_on_time(node.step))


def _count(rows: Delta) -> int:
    return int(np.sum(rows.weights))
