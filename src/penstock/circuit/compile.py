"""From a plan to operators: one case per node kind, and arrangements shared by all who join on the same key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

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
from penstock.operators.join import Join
from penstock.operators.linear import Expand, Generate, Select, Union, Values
from penstock.operators.semijoin import SemiJoin, not_in
from penstock.operators.session import SessionWindow
from penstock.operators.single import Single
from penstock.operators.source import Source
from penstock.operators.topk import TopK
from penstock.operators.window import Window
from penstock.plan import node as plan
from penstock.plan.expression import Expression, Literal
from penstock.state.arrangement import Arrangement, Selected

# Makes the operator for what only Spark can do, and says whether it must step in every tick; the engine passes it in.
Fragment = Callable[[plan.Spark], tuple[Operator, bool]]


@dataclass(slots=True)
class Shared:
    """What later views may use again: the place of every compiled node, and of every arrangement of a place by keys."""

    nodes: dict[plan.Node, int] = field(default_factory=dict)
    arrangements: dict[tuple[int, tuple[int, ...]], tuple[int, Arrangement]] = field(default_factory=dict)

    def forget(self, places: Iterable[int]) -> None:
        """Forget places that were taken out of the circuit."""
        gone = frozenset(places)
        self.nodes = {node: place for node, place in self.nodes.items() if place not in gone}
        self.arrangements = {
            (below, keys): (place, arrangement)
            for (below, keys), (place, arrangement) in self.arrangements.items()
            if place not in gone and below not in gone
        }


@dataclass(slots=True)
class Compiler(ABC):
    """Compiles the plan of one view into a circuit; `added` are the places that are new."""

    circuit: Circuit
    relations: Mapping[str, int]
    shared: Shared
    fragment: Fragment
    added: list[int] = field(default_factory=list)
    # Relations that keep only some of their columns: which, in the order in which they give them.
    narrowed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def compile(self, node: plan.Node) -> int:
        """Return the place that gives the rows of a node."""
        compiled = self.shared.nodes.get(node)
        if compiled is not None and self._reusable(compiled):
            return compiled
        place = self._place(node)
        self.shared.nodes[node] = place
        return place

    def add(
        self,
        operator: Operator,
        inputs: Sequence[int],
        fields: plan.Fields,
        *,
        meaning: Meaning | None = None,
        timed: bool = False,
        contents: Callable[[], Delta] | None = None,
    ) -> int:
        """Put an operator into the circuit."""
        place = self.circuit.add(
            operator, inputs, types_of(fields), meaning=meaning, timed=timed, contents=contents
        )
        self.added.append(place)
        return place

    def arrange(self, node: plan.Node, keys: tuple[int, ...]) -> tuple[int, Arrangement]:
        """Return the place and the arrangement of a node's rows by keys."""
        below = self.compile(node)
        shared = self.shared.arrangements.get((below, keys))
        if shared is not None:
            return shared
        source = self._source_by(node, keys)
        if source is not None:
            self.shared.arrangements[(below, keys)] = (below, source)
            return below, source
        arrangement = Arrangement(types_of(node.fields), keys)
        place = self.add(
            Arrange(arrangement),
            (below,),
            node.fields,
            meaning=Meaning(node, keys),
            contents=lambda: arrangement.before().rows(),
        )
        self.shared.arrangements[(below, keys)] = (place, arrangement)
        return place, arrangement

    def _source_by(self, node: plan.Node, keys: tuple[int, ...]) -> Arrangement | None:
        """The rows of a scanned source by keys, when the source keeps them so itself."""
        if not isinstance(node, plan.Scan) or not keys or node.name not in self.relations:
            return None
        operator = self.circuit.places[self.relations[node.name]].operator
        if not isinstance(operator, Source):
            return None
        arrangement = operator.indexed_by([node.columns[key] for key in keys])
        return None if arrangement is None else Selected(arrangement, node.columns)

    def _reusable(self, place: int) -> bool:
        """Whether a new reader can have all rows of a place: it keeps them, or is new too, or has never given any."""
        entry = self.circuit.places[place]
        return place in self.added or not entry.gave or entry.contents is not None

    def _place(self, node: plan.Node) -> int:
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
                operator = SessionWindow(types_of(node.input.fields), keys, start=node.start, end=node.end)
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

    def _operator(
        self,
        node: plan.Node,
        operator: Operator,
        inputs: Sequence[int],
        *,
        timed: bool = False,
        contents: Callable[[], Delta] | None = None,
    ) -> int:
        """Put the one operator of a node into the circuit."""
        return self.add(operator, inputs, node.fields, meaning=Meaning(node), timed=timed, contents=contents)

    def _scan(self, node: plan.Scan) -> int:
        """A relation, with the columns that are read."""
        place = self.relations[node.name]
        retained = self.narrowed.get(node.name)
        if retained is not None:
            return self._select([retained.index(column) for column in node.columns], place, node.fields)
        width = len(self.circuit.places[place].nothing.columns)
        if node.columns == tuple(range(width)):
            return place
        return self._select(node.columns, place, node.fields)

    def _select(self, columns: Sequence[int], place: int, fields: plan.Fields) -> int:
        select = Select(columns)
        return self.add(select, (place,), fields, contents=self._through(select, place))

    def _through(self, operator: Operator, below: int) -> Callable[[], Delta] | None:
        """All rows of an operator that makes one row of each, where those below it are known."""
        if self.circuit.places[below].contents is None:
            return None

        def contents() -> Delta:
            rows = self.circuit.places[below].contents
            assert rows is not None
            return operator.step([rows()], Tick(0, 0))

        return contents

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
        operator = Aggregate(types_of(node.input.fields), node.keys, node.calls, names=names)
        return self._operator(node, operator, (self.compile(node.input),), contents=operator.contents)

    def _topk(self, node: plan.TopK) -> int:
        operator = TopK(
            types_of(node.input.fields),
            node.partition,
            node.order,
            node.limit,
            offset=node.offset,
            rank_field=node.rank_field,
        )
        return self._operator(node, operator, (self.compile(node.input),), contents=operator.contents)

    def _window(self, node: plan.Window) -> int:
        partition = canonical_keys(node.partition)
        below, arrangement = self.arrange(node.input, partition)
        operator = Window(
            types_of(node.input.fields),
            partition,
            node.order,
            node.calls,
            arrangement,
            names=[field.name for field in node.input.fields],
        )
        return self._operator(node, operator, (below,), contents=operator.contents)

    def _join(self, node: plan.Join) -> int:
        pairs = canonical_pairs(node.left_keys, node.right_keys, node.null_safe)
        left, by_left = self.arrange(node.left, pairs.left)
        right, by_right = self.arrange(node.right, pairs.right)
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
        )
        return self._operator(node, operator, (self.compile(node.left), self.compile(node.right)))

    def _filter(self, node: plan.Filter) -> int:
        """Conditions on the row first, then those on the time, each with an index of its own where it can have one."""
        place = self.compile(node.input)
        operators = filter_operators(node.condition, types_of(node.input.fields))
        for part, (operator, timed) in enumerate(operators):
            place = self.add(operator, (place,), node.fields, meaning=Meaning(node, part=part), timed=timed)
        return place


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
