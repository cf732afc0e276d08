"""The rows of any part of a view, computed from what the kernel keeps and restricted by keys as far down as they are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from penstock.circuit.compile import constant_rows
from penstock.circuit.recompute import recompute
from penstock.circuit.relations import Relations, ViewVertex
from penstock.circuit.restriction import Restriction, pushed, restriction
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.plan import node as plan
from penstock.state.arrangement import Arrangement


@dataclass(slots=True)
class PlanContents:
    """Reads the committed rows of plan nodes. Indexes that are there are used, and none is made.

    `scanned` has, of every relation that was read as a whole, how many rows were read.
    """

    relations: Relations
    tick: Tick
    scanned: dict[str, int] = field(default_factory=dict)

    def relation(self, name: str, wanted: Restriction | None) -> Delta:
        """The rows of a source, in the order of its schema, or of a view with its hidden columns."""
        arrangement = None if wanted is None else self._index_of_relation(name, wanted)
        if arrangement is not None and wanted is not None:
            return _look_up(arrangement, wanted)
        view = self.relations.views.get(name)
        if view is not None:
            rows = view.output.all_rows()
        else:
            source = self.relations.sources[name]
            columns = source.columns
            rows = source.operator.rows().select([columns.index(at) for at in range(len(columns))])
        self.scanned[name] = self.scanned.get(name, 0) + len(rows)
        return rows if wanted is None else wanted.of(rows)

    def node(self, view: ViewVertex, node: plan.Node, wanted: Restriction | None) -> Delta:
        """The rows of a part of a view. Cost: the rows that are wanted where an index or a key leads to them, else data."""
        stored = self._stored_rows(node, wanted)
        if stored is not None:
            return stored
        match node:
            case plan.Scan():
                own = None if wanted is None else wanted.over(dict(enumerate(node.columns)))
                return consolidate(self.relation(node.name, own).select(node.columns))
            case plan.Values():
                rows = consolidate(constant_rows(node))
            case plan.Recursive():
                inputs = {name: self.relation(name, None) for name in plan.scanned(node)}
                rows = recompute(plan.View(view.name, "", node), inputs, view.fragment, self.tick, {})
            case plan.Join():
                rows = self.evaluate(view, node, self._join_inputs(view, node, wanted))
            case plan.Asof():
                left = self.node(view, node.left, _of_left(node, wanted))
                right = self.node(view, node.right, _matching(node.right_keys, left, node.left_keys))
                rows = self.evaluate(view, node, (left, right))
            case _:
                below = plan.children(node)
                parts = [None] * len(below) if wanted is None else pushed(node, wanted)
                children = [self.node(view, child, part) for child, part in zip(below, parts, strict=True)]
                rows = self.evaluate(view, node, children)
        return rows if wanted is None else wanted.of(rows)

    def evaluate(self, view: ViewVertex, node: plan.Node, inputs: Sequence[Delta]) -> Delta:
        """The rows of a node over these rows of its inputs."""
        names = [f"input {at}" for at in range(len(inputs))]
        scans = [
            plan.Scan(child.fields, name, tuple(range(len(child.fields))))
            for child, name in zip(plan.children(node), names, strict=True)
        ]
        over = plan.View(view.name, "", _with_inputs(node, scans))
        return recompute(over, dict(zip(names, inputs, strict=True)), view.fragment, self.tick, {})

    def _join_inputs(
        self, view: ViewVertex, node: plan.Join, wanted: Restriction | None
    ) -> tuple[Delta, Delta]:
        """The rows of both inputs: those that are wanted of one, and those with their keys of the other, where no
        others count."""
        of_left, of_right = _of_left(node, wanted), _of_right(node, wanted)
        if of_left is not None and node.kind in ("inner", "left", "semi", "anti") and not node.null_aware:
            left = self.node(view, node.left, of_left)
            return left, self.node(view, node.right, _matching(node.right_keys, left, node.left_keys))
        if of_right is not None and node.kind in ("inner", "right"):
            right = self.node(view, node.right, of_right)
            return self.node(view, node.left, _matching(node.left_keys, right, node.right_keys)), right
        return self.node(view, node.left, None), self.node(view, node.right, None)

    def _stored_rows(self, node: plan.Node, wanted: Restriction | None) -> Delta | None:
        """The rows of a node that an operator keeps by the wanted columns, or as a whole; None when none does."""
        vertex_id = self.relations.shared.nodes.get(node)
        if vertex_id is None or (isinstance(node, plan.Scan) and node.name in self.relations.narrowed()):
            return None
        if wanted is None:
            vertex = self.relations.circuit.vertices[vertex_id]
            if vertex.contents is None or isinstance(node, plan.Scan):
                return None
            return consolidate(vertex.contents.now()) if vertex.gave else vertex.nothing
        arrangement = self._index(vertex_id, wanted)
        return None if arrangement is None else _look_up(arrangement, wanted)

    def _index_of_relation(self, name: str, wanted: Restriction) -> Arrangement | None:
        """An index of whole rows by some of the wanted columns."""
        view = self.relations.views.get(name)
        if view is not None:
            return None if view.view.visible is not None else self._index(view.vertex_id, wanted)
        source = self.relations.sources[name]
        if source.source.retain == "used":
            return None
        own = source.operator.arrangement
        if own.keys and set(own.keys) <= set(wanted.columns):
            return own
        return self._index(source.vertex_id, wanted)

    def _index(self, vertex_id: int, wanted: Restriction) -> Arrangement | None:
        indexes = [
            arrangement
            for (below, keys), (_, arrangement) in self.relations.shared.arrangements.items()
            if below == vertex_id and keys and set(keys) <= set(wanted.columns)
        ]
        return max(indexes, key=lambda index: len(index.key_columns), default=None)


def _look_up(arrangement: Arrangement, wanted: Restriction) -> Delta:
    """The wanted rows of an index by some of their columns."""
    at = [wanted.columns.index(key) for key in arrangement.key_columns]
    keys = restriction(arrangement.key_columns, wanted.values.select(at)).values
    rows = arrangement.before().lookup(keys.columns, len(keys))[1]
    return wanted.of(consolidate(rows))


def _of_left(node: plan.Join | plan.Asof, wanted: Restriction | None) -> Restriction | None:
    width = len(node.left.fields)
    return None if wanted is None else wanted.over({at: at for at in range(width)})


def _of_right(node: plan.Join, wanted: Restriction | None) -> Restriction | None:
    if wanted is None:
        return None
    width = len(node.left.fields)
    return wanted.over({width + at: at for at in range(len(node.right.fields))})


def _matching(keys: Sequence[int], rows: Delta, own: Sequence[int]) -> Restriction | None:
    """What rows of one input ask of the other: rows with their keys."""
    return restriction(keys, rows.select(own)) if keys else None


def _with_inputs(node: plan.Node, inputs: Sequence[plan.Node]) -> plan.Node:
    match node:
        case plan.Union() | plan.Spark():
            return replace(node, inputs=tuple(inputs))
        case plan.Join() | plan.Asof():
            return replace(node, left=inputs[0], right=inputs[1])
        case plan.Scan() | plan.Values() | plan.Recursive():
            raise AssertionError(f"{type(node).__name__} has no inputs to replace")
        case _:
            return replace(node, input=inputs[0])
