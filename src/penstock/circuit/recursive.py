"""Compiles WITH RECURSIVE: the step once per level, and what it reads from outside once, in the outer circuit, for all levels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from penstock.circuit.circuit import Circuit, SteppedCircuit
from penstock.circuit.compile import Compiler, Shared, types_of
from penstock.circuit.state_key import Meaning, StateNames
from penstock.circuit.time import depends_on_time
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, empty
from penstock.data.tick import Tick
from penstock.operators.linear import Feed
from penstock.operators.recursive import Recursive
from penstock.plan import node as plan
from penstock.state.arrangement import Arrangement
from penstock.state.state import State


@dataclass(slots=True)
class ViewCompiler(Compiler):
    """Compiles the plan of a view, recursions too."""

    def _recursive(self, node: plan.Recursive) -> int:
        outer = _Outer(self)
        # Compiling one level now brings what the step reads from outside into the outer circuit.
        first = _compile_level(outer, node)
        operator = Recursive(
            lambda: _compile_level(outer, node),
            types_of(node.own_fields),
            max_depth=node.max_depth,
            max_rows=node.max_rows,
            limit=node.limit,
            strict=not first.unjoined,
        )
        anchor = self.compile(node.anchor)
        return self.add(
            operator,
            (anchor, *first.outside),
            node.fields,
            meaning=Meaning(node),
            timed=depends_on_time(node.step),
        )


@dataclass(frozen=True, slots=True)
class CircuitLevel:
    """The circuit that makes the next level's rows, and where it is fed."""

    circuit: Circuit
    rows: int
    so_far: int
    outside: dict[int, int]  # vertex of the outer circuit -> vertex that stands for it here
    unjoined: dict[int, Arrangement]  # such vertices that are read row by row -> all rows from outside
    root: int
    nothing: Delta

    def fill(self, rows: Delta, so_far: Delta, outside: Sequence[Delta], tick: Tick) -> Delta:
        feeds = dict(zip(self.outside.values(), outside, strict=True))
        feeds |= {vertex_id: arrangement.after().rows() for vertex_id, arrangement in self.unjoined.items()}
        feeds |= {self.rows: rows, self.so_far: so_far}
        return self._result(self.circuit.fill(list(self.circuit.vertices), feeds, tick))

    def step(self, rows: Delta, so_far: Delta, outside: Sequence[Delta], tick: Tick) -> Delta:
        feeds = dict(zip(self.outside.values(), outside, strict=True))
        feeds |= {self.rows: rows, self.so_far: so_far}
        changes = {vertex_id: delta for vertex_id, delta in feeds.items() if len(delta)}
        return self._result(self.circuit.step(changes, tick))

    def _result(self, stepped: SteppedCircuit) -> Delta:
        return consolidate(stepped.outputs.get(self.root) or self.nothing)

    def commit(self) -> None:
        self.circuit.commit()

    def rollback(self) -> None:
        self.circuit.rollback()

    def maintain(self, fuel: int) -> None:
        self.circuit.maintain(fuel)

    def states(self) -> Iterator[tuple[str, State]]:
        names = StateNames({})
        for vertex in self.circuit.vertices.values():
            for role, state in vertex.operator.states():
                assert vertex.meaning is not None, "a state without a name"
                yield str(names.key(vertex.meaning, role)), state


def _compile_level(outer: _Outer, node: plan.Recursive) -> CircuitLevel:
    compiler = _LevelCompiler(Circuit(), {}, Shared(), outer.compiler.fragment, outer=outer)
    compiler.recursion = frozenset({node.name, plan.so_far(node.name)})
    rows, so_far = (compiler.add(Feed(), (), node.own_fields) for _ in range(2))
    compiler.relations = {node.name: rows, plan.so_far(node.name): so_far}
    root = compiler.compile(node.step)
    nothing = empty(types_of(node.own_fields))
    return CircuitLevel(compiler.circuit, rows, so_far, compiler.outside, compiler.unjoined, root, nothing)


@dataclass(frozen=True, slots=True)
class _Outer:
    """What the step reads from outside: the vertices that the first level asked for, also when later views compile
    the same nodes again."""

    compiler: Compiler
    arrangements: dict[tuple[plan.Node, tuple[int, ...]], tuple[int, Arrangement]] = field(
        default_factory=dict
    )

    def arrange(self, node: plan.Node, keys: tuple[int, ...]) -> tuple[int, Arrangement]:
        if (node, keys) not in self.arrangements:
            self.arrangements[(node, keys)] = self.compiler.arrange(node, keys)
        return self.arrangements[(node, keys)]


@dataclass(slots=True)
class _LevelCompiler(ViewCompiler):
    """Compiles the step for one level; what does not depend on the recursion belongs to the outer circuit."""

    outer: _Outer = field(kw_only=True)
    recursion: frozenset[str] = frozenset()
    outside: dict[int, int] = field(default_factory=dict)
    unjoined: dict[int, Arrangement] = field(default_factory=dict)

    def compile(self, node: plan.Node) -> int:
        if self._recurs(node):
            return ViewCompiler.compile(self, node)
        # A level that is made later reads all rows, not only their change: the outer circuit keeps them.
        below, arrangement = self.outer.arrange(node, ())
        vertex_id = self._stand_in(below, node.fields)
        self.unjoined[vertex_id] = arrangement
        return vertex_id

    def arrange(self, node: plan.Node, keys: tuple[int, ...]) -> tuple[int, Arrangement]:
        if self._recurs(node):
            return ViewCompiler.arrange(self, node, keys)
        vertex_id, arrangement = self.outer.arrange(node, keys)
        return self._stand_in(vertex_id, node.fields), arrangement

    def _stand_in(self, vertex_id: int, fields: plan.Fields) -> int:
        if vertex_id not in self.outside:
            self.outside[vertex_id] = self.add(Feed(), (), fields)
        return self.outside[vertex_id]

    def _recurs(self, node: plan.Node) -> bool:
        if isinstance(node, plan.Scan):
            return node.name in self.recursion
        return any(self._recurs(child) for child in plan.children(node))
