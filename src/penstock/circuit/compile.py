"""From a plan to operators: one case per node kind, and arrangements shared by all who join on the same key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.circuit.circuit import Circuit
from penstock.circuit.state_key import Meaning
from penstock.circuit.time import filter_operators, project_operator
from penstock.data.delta import Delta
from penstock.data.hashing import canonical_keys, canonical_pairs
from penstock.data.tick import Tick
from penstock.data.types import kernel_type
from penstock.functions import evaluate
from penstock.functions.generate import compile_generator
from penstock.operators.aggregate import Aggregate
from penstock.operators.arrange import Arrange
from penstock.operators.asof import Asof
from penstock.operators.base import Operator
from penstock.operators.closing import Bound, Closing
from penstock.operators.contents import Contents, of_arrangement, of_operator, through
from penstock.operators.join import Join
from penstock.operators.linear import Expand, Generate, Select, Union, Values
from penstock.operators.open_rows import ArrangeOpen
from penstock.operators.semijoin import SemiJoin, not_in
from penstock.operators.session import SessionWindow
from penstock.operators.single import Single
from penstock.operators.source import Source
from penstock.operators.topk import TopK
from penstock.operators.window import Window
from penstock.plan import node as plan
from penstock.plan.event_time import Times
from penstock.plan.expiry import (
    Expiry,
    asof_times,
    closing_key,
    join_expiry,
    session_key,
    session_time,
    window_expiry,
)
from penstock.plan.expression import Expression, Literal
from penstock.state.arrangement import Arrangement, Selected

# Makes the operator for what only Spark can do, and says whether it must step in every tick; the engine passes it in.
Fragment = Callable[[plan.Spark], tuple[Operator, bool]]


@dataclass(slots=True)
class Shared:
    """What later views may use again: the vertex of every compiled node, and of every arrangement of a vertex's rows by keys."""

    nodes: dict[plan.Node, int] = field(default_factory=dict)
    arrangements: dict[tuple[int, tuple[int, ...]], tuple[int, Arrangement]] = field(default_factory=dict)

    def forget(self, vertex_ids: Iterable[int]) -> None:
        """Forget vertices that were taken out of the circuit."""
        gone = frozenset(vertex_ids)
        self.nodes = {node: vertex_id for node, vertex_id in self.nodes.items() if vertex_id not in gone}
        self.arrangements = {
            (below, keys): (vertex_id, arrangement)
            for (below, keys), (vertex_id, arrangement) in self.arrangements.items()
            if vertex_id not in gone and below not in gone
        }

    def keep(self, vertex_ids: Collection[int]) -> None:
        """Forget all other vertices."""
        shared = {*self.nodes.values(), *(below for below, _ in self.arrangements)}
        shared |= {index for index, _ in self.arrangements.values()}
        self.forget(shared.difference(vertex_ids))

    def forget_nodes(self, vertex_ids: Iterable[int]) -> None:
        """Let no later view read the rows of these vertices; look-ups in them go on."""
        hidden = frozenset(vertex_ids)
        self.nodes = {node: vertex_id for node, vertex_id in self.nodes.items() if vertex_id not in hidden}


@dataclass(slots=True)
class Compiler(ABC):
    """Compiles the plan of one view into a circuit; `added` are the vertices that are new."""

    circuit: Circuit
    relations: Mapping[str, int]
    shared: Shared
    fragment: Fragment
    added: list[int] = field(default_factory=list)
    # Relations that keep only some of their columns: which, in the order in which they give them.
    narrowed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    times: Mapping[str, Times] = field(default_factory=dict)  # columns that follow the event time of a source
    _open: dict[tuple[int, tuple[int, ...], Expiry], tuple[int, Arrangement]] = field(default_factory=dict)

    def compile(self, node: plan.Node) -> int:
        """Return the vertex that gives the rows of a node."""
        compiled = self.shared.nodes.get(node)
        if compiled is not None and self._reusable(compiled):
            return compiled
        vertex_id = self._add_node(node)
        self.shared.nodes[node] = vertex_id
        return vertex_id

    def add(
        self,
        operator: Operator,
        inputs: Sequence[int],
        fields: plan.Fields,
        *,
        meaning: Meaning | None = None,
        timed: bool = False,
        contents: Contents | None = None,
    ) -> int:
        """Put an operator into the circuit."""
        vertex_id = self.circuit.add(
            operator, inputs, types_of(fields), meaning=meaning, timed=timed, contents=contents
        )
        self.added.append(vertex_id)
        return vertex_id

    def arrange(self, node: plan.Node, keys: tuple[int, ...]) -> tuple[int, Arrangement]:
        """Return the vertex and the arrangement of a node's rows by keys."""
        below = self.compile(node)
        shared = self.shared.arrangements.get((below, keys))
        if shared is not None:
            return shared
        source = self._source_by(node, keys)
        if source is not None:
            self.shared.arrangements[(below, keys)] = (below, source)
            return below, source
        arrangement = Arrangement(types_of(node.fields), keys)
        vertex_id = self.add(
            Arrange(arrangement),
            (below,),
            node.fields,
            meaning=Meaning(node, keys),
            contents=of_arrangement(arrangement),
        )
        self.shared.arrangements[(below, keys)] = (vertex_id, arrangement)
        return vertex_id, arrangement

    def _arrange_open(
        self, node: plan.Node, keys: tuple[int, ...], expiry: Expiry | None
    ) -> tuple[int, Arrangement, bool]:
        """The same with only those rows that changes to come may reach, and whether others leave it.

        It is not shared with later views, which need all rows, nor with other readers of this one that need rows for
        longer. Rows that a source keeps in this order are read there.
        """
        if expiry is None or self._source_by(node, keys) is not None:
            return *self.arrange(node, keys), False
        below = self.compile(node)
        if (below, keys, expiry) not in self._open:
            operator = ArrangeOpen(types_of(node.fields), keys, expiry)
            vertex_id = self.add(operator, (below,), node.fields, meaning=Meaning(node, keys))
            self._open[below, keys, expiry] = vertex_id, operator.arrangement
        return *self._open[below, keys, expiry], True

    def _source_by(self, node: plan.Node, keys: tuple[int, ...]) -> Arrangement | None:
        """The rows of a scanned source by keys, when the source keeps them so itself."""
        if not isinstance(node, plan.Scan) or not keys or node.name not in self.relations:
            return None
        operator = self.circuit.vertices[self.relations[node.name]].operator
        if not isinstance(operator, Source):
            return None
        arrangement = operator.indexed_by([node.columns[key] for key in keys])
        return None if arrangement is None else Selected(arrangement, node.columns)

    def _reusable(self, vertex_id: int) -> bool:
        """Whether a new reader can have all rows of a vertex: it keeps them, or is new too, or has never given any."""
        vertex = self.circuit.vertices[vertex_id]
        return vertex_id in self.added or not vertex.gave or vertex.contents is not None

    def _add_node(self, node: plan.Node) -> int:
        match node:
            case plan.Scan():
                return self._scan(node)
            case plan.Values():
                return self._operator(node, Values(constant_rows(node)), ())
            case plan.Filter():
                return self._filter(node)
            case plan.Project():
                return self._project(node)
            case plan.Union():
                return self._operator(node, Union(), [self.compile(child) for child in node.inputs])
            case plan.Expand():
                projections = [[evaluate.compile(item) for item in row] for row in node.projections]
                return self._operator(node, Expand(projections), (self.compile(node.input),))
            case plan.Generate():
                return self._generate(node)
            case plan.Join():
                return self._join(node)
            case plan.Asof():
                return self._asof(node)
            case plan.SessionWindow():
                keys = canonical_keys(node.keys)
                operator = SessionWindow(
                    types_of(node.input.fields),
                    keys,
                    start=node.start,
                    end=node.end,
                    time=session_time(node, self.times),
                )
                return self._operator(node, operator, (self.compile(node.input),))
            case plan.Aggregate():
                return self._aggregate(node)
            case plan.TopK():
                return self._topk(node)
            case plan.Window():
                return self._window(node)
            case plan.Single():
                return self._operator(node, Single(types_of(node.fields)), (self.compile(node.input),))
            case plan.Recursive():
                return self._recursive(node)
            case plan.Spark():
                fragment, timed = self.fragment(node)
                inputs = [self.compile(child) for child in node.inputs]
                return self._operator(node, fragment, inputs, timed=timed)
            case plan.Exchange():
                return self._exchange(node)

    def _operator(
        self,
        node: plan.Node,
        operator: Operator,
        inputs: Sequence[int],
        *,
        timed: bool = False,
        contents: Contents | None = None,
    ) -> int:
        """Put the one operator of a node into the circuit."""
        return self.add(operator, inputs, node.fields, meaning=Meaning(node), timed=timed, contents=contents)

    def _scan(self, node: plan.Scan) -> int:
        """A relation, with the columns that are read."""
        vertex_id = self.relations[node.name]
        retained = self.narrowed.get(node.name)
        if retained is not None:
            return self._select([retained.index(column) for column in node.columns], vertex_id, node.fields)
        width = len(self.circuit.vertices[vertex_id].nothing.columns)
        if node.columns == tuple(range(width)):
            return vertex_id
        return self._select(node.columns, vertex_id, node.fields)

    def _select(self, columns: Sequence[int], vertex_id: int, fields: plan.Fields) -> int:
        select = Select(columns)
        return self.add(select, (vertex_id,), fields, contents=self._through(select, vertex_id))

    def _through(self, operator: Operator, below: int) -> Contents | None:
        """All rows of an operator that makes one row of each, where the operator below it keeps its rows for good."""
        vertex = self.circuit.vertices[below]
        if vertex.contents is None or (isinstance(vertex.operator, Source) and vertex.operator.frees):
            return None

        def contents() -> Contents:
            rows = self.circuit.vertices[below].contents
            assert rows is not None
            return rows

        return through(operator, contents)

    def _exchange(self, node: plan.Exchange) -> int:
        """Put an exchange between shards into the circuit."""
        raise AssertionError("an exchange in a kernel that does not run in shards")

    @abstractmethod
    def _recursive(self, node: plan.Recursive) -> int:
        """Put a recursion into the circuit, whose levels are circuits of their own."""

    def _project(self, node: plan.Project) -> int:
        project, timed = project_operator(node.expressions, types_of(node.input.fields))
        below = self.compile(node.input)
        contents = None if timed else self._through(project, below)
        return self._operator(node, project, (below,), timed=timed, contents=contents)

    def _generate(self, node: plan.Generate) -> int:
        generated = types_of(node.fields[len(node.required) :])
        generator = compile_generator(node.generator, generated, outer=node.outer)
        return self._operator(node, Generate(generator, node.required), (self.compile(node.input),))

    def _aggregate(self, node: plan.Aggregate) -> int:
        names = [field.name for field in node.input.fields]
        make = partial(Aggregate, types_of(node.input.fields), node.keys, node.calls, names=names)
        below = self.compile(node.input)
        closing: tuple[int, Bound] | None = closing_key(node, self.times)
        sessions = self.circuit.vertices[below].operator
        start = session_key(node, self.times)
        if closing is None and start is not None and isinstance(sessions, SessionWindow):
            closing = start, sessions
        make_any: Callable[[], Aggregate | Closing] = (
            make if closing is None else partial(Closing, make, *closing)
        )
        operator = make_any()
        contents = of_operator(operator, make_any)
        return self._operator(node, operator, (below,), contents=contents)

    def _topk(self, node: plan.TopK) -> int:
        make = partial(
            TopK,
            types_of(node.input.fields),
            node.partition,
            node.order,
            node.limit,
            offset=node.offset,
            rank_field=node.rank_field,
        )
        closing = closing_key(node, self.times)
        make_any: Callable[[], TopK | Closing] = make if closing is None else partial(Closing, make, *closing)
        operator = make_any()
        contents = of_operator(operator, make_any)
        return self._operator(node, operator, (self.compile(node.input),), contents=contents)

    def _window(self, node: plan.Window) -> int:
        partition = canonical_keys(node.partition)
        expiry = window_expiry(node, self.times)
        below, arrangement, frees = self._arrange_open(node.input, partition, expiry)
        operator = Window(
            types_of(node.input.fields),
            partition,
            node.order,
            node.calls,
            arrangement,
            names=[field.name for field in node.input.fields],
        )
        return self._operator(node, operator, (below,), contents=None if frees else operator.contents())

    def _join(self, node: plan.Join) -> int:
        pairs = canonical_pairs(node.left_keys, node.right_keys, node.null_safe)
        expiry = join_expiry(node, self.times)
        left, by_left, _ = self._arrange_open(node.left, pairs.left, expiry[0])
        right, by_right, _ = self._arrange_open(node.right, pairs.right, expiry[1])
        residual = None if node.residual is None else residual_of(node.residual)
        operator: Operator
        if node.null_aware:
            operator = not_in(by_left, by_right, residual=residual)
        elif node.kind == "semi" or node.kind == "anti":
            operator = SemiJoin(node.kind, by_left, by_right, null_safe=pairs.null_safe, residual=residual)
        else:
            operator = Join(node.kind, by_left, by_right, null_safe=pairs.null_safe, residual=residual)
        return self._operator(node, operator, (left, right))

    def _asof(self, node: plan.Asof) -> int:
        pairs = canonical_pairs(node.left_keys, node.right_keys)
        operator = Asof(
            types_of(node.left.fields),
            types_of(node.right.fields),
            left_keys=pairs.left,
            right_keys=pairs.right,
            left_time=node.left_time,
            right_time=node.right_time,
            direction=node.direction,
            tolerance=node.tolerance,
            outer=node.outer,
            times=asof_times(node, self.times),
        )
        return self._operator(node, operator, (self.compile(node.left), self.compile(node.right)))

    def _filter(self, node: plan.Filter) -> int:
        """Conditions on the row first, then those on the time, each with an index of its own where it can have one."""
        vertex_id = self.compile(node.input)
        operators = filter_operators(node.condition, types_of(node.input.fields))
        for part, (operator, timed) in enumerate(operators):
            vertex_id = self.add(
                operator, (vertex_id,), node.fields, meaning=Meaning(node, part=part), timed=timed
            )
        return vertex_id


def types_of(fields: plan.Fields) -> tuple[pa.DataType, ...]:
    """The kernel's column types of some fields."""
    return tuple(kernel_type(field.type) for field in fields)


def constant_rows(node: plan.Values) -> Delta:
    """The rows of VALUES as columns."""
    columns = tuple(
        pa.concat_arrays(
            [pa.array([], kernel_type(field.type))]
            + [
                pa.array([evaluate.literal(Literal(row[index], field.type)).as_py()], kernel_type(field.type))
                for row in node.rows
            ]
        )
        for index, field in enumerate(node.fields)
    )
    return Delta(columns, np.ones(len(node.rows), np.int64))


def residual_of(condition: Expression) -> Callable[[Sequence[pa.Array], Tick], pa.Array]:
    """The condition of a join over pairs of rows."""
    test = evaluate.compile(condition)
    return lambda columns, tick: test(columns, len(columns[0]), tick)
