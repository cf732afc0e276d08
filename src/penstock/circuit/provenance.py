"""Which source rows are behind rows of a view: from the view down, each node says which rows of its inputs its own
rows come from.

    filter, top-k without offset or number     the rows themselves
    project, expand, generate, union           the input rows that become them
    join                                       the two parts of a pair; a row that an outer join has padded comes from
    one input alone semi join                                  the left rows, and all right rows that match them anti
    join                                  the left rows: that nothing matches them has no rows aggregate, distinct
    all rows of their groups window, top-k with offset or number        all rows of their partitions session window
    all rows of their sessions

Rows of inputs are read by `penstock.circuit.contents`. Cost: the rows behind, and what is read to find them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from penstock.circuit.compile import types_of
from penstock.circuit.contents import PlanContents
from penstock.circuit.kernel import Traced
from penstock.circuit.relations import ViewVertex
from penstock.circuit.restriction import distinct, is_null_row, members, pushed, restriction
from penstock.data.arrays import Bools
from penstock.data.delta import Delta, concat
from penstock.errors import StateError
from penstock.functions import evaluate
from penstock.functions.generate import compile_generator
from penstock.plan import node as plan
from penstock.plan.expression import Expression


@dataclass(slots=True)
class Tracer:
    """Follows rows of one view down to its sources."""

    contents: PlanContents
    _rows: dict[str, list[Delta]] = field(default_factory=dict)

    def trace(self, view: str, rows: Delta) -> Traced:
        """The source rows behind rows of a view, hidden columns included."""
        entry = self.contents.relations.views[view]
        self._node(entry, entry.view.root, rows)
        merged = {name: distinct(concat(parts)) for name, parts in self._rows.items()}
        return Traced(merged, self.contents.scanned)

    def _node(self, view: ViewVertex, node: plan.Node, rows: Delta) -> None:
        if not len(rows):
            return
        match node:
            case plan.Scan():
                self._scan(node, rows)
            case plan.Values():
                pass
            case plan.Filter():
                self._node(view, node.input, rows)
            case plan.Project():
                self._rows_that_become(view, node, [node.expressions], rows)
            case plan.Expand():
                self._rows_that_become(view, node, node.projections, rows)
            case plan.Generate():
                self._generate(view, node, rows)
            case plan.Union():
                for child in node.inputs:
                    self._node(view, child, self._there(view, child, rows))
            case plan.Join():
                self._join(view, node, rows)
            case plan.Asof():
                width = len(node.left.fields)
                self._node(view, node.left, _part(rows, 0, width))
                matched = np.flatnonzero(rows.columns[width + node.right_time].is_valid())
                self._node(view, node.right, _part(rows.take(matched), width))
            case plan.SessionWindow():
                self._session(view, node, rows)
            case plan.Single():
                self._node(view, node.input, self._there(view, node.input, rows))
            case plan.TopK() if not node.offset and not node.rank_field:
                self._node(view, node.input, rows)
            case plan.Aggregate() | plan.TopK() | plan.Window():
                wanted = pushed(node, restriction(range(len(node.fields)), rows))[0]
                self._node(view, node.input, self.contents.node(view, node.input, wanted))
            case plan.Spark() if node.stateless and node.bindings:
                (below,) = node.inputs
                self._node(view, below, _part(rows, 0, len(below.fields)))
            case plan.Recursive():
                raise _refused(view, "it is recursive, and a row may be there for any number of reasons")
            case plan.Spark():
                raise _refused(view, f"Spark computes its {node.operator} as a whole: {node.reason}")

    def _scan(self, node: plan.Scan, rows: Delta) -> None:
        wanted = restriction(node.columns, rows)
        relation = self.contents.relation(node.name, wanted)
        relation = relation.take(np.flatnonzero(members(relation.select(node.columns), rows, as_rows=True)))
        view = self.contents.relations.views.get(node.name)
        if view is not None:
            self._node(view, view.view.root, relation)
        elif len(relation):
            self._rows.setdefault(node.name, []).append(relation)

    def _there(self, view: ViewVertex, node: plan.Node, rows: Delta) -> Delta:
        """Those of some rows that a node gives."""
        wanted = restriction(range(len(node.fields)), rows) if node.fields else None
        candidates = self.contents.node(view, node, wanted)
        return candidates.take(np.flatnonzero(members(candidates, rows, as_rows=True)))

    def _rows_that_become(
        self,
        view: ViewVertex,
        node: plan.Project | plan.Expand,
        projections: tuple[tuple[Expression, ...], ...] | list[tuple[Expression, ...]],
        rows: Delta,
    ) -> None:
        wanted = pushed(node, restriction(range(len(node.fields)), rows))[0] if node.fields else None
        candidates = self.contents.node(view, node.input, wanted)
        become = np.zeros(len(candidates), np.bool_)
        for projection in projections:
            columns = tuple(
                evaluate.compile(expression)(candidates.columns, len(candidates), self.contents.tick)
                for expression in projection
            )
            become |= members(Delta(columns, candidates.weights), rows, as_rows=True)
        self._node(view, node.input, candidates.take(np.flatnonzero(become)))

    def _generate(self, view: ViewVertex, node: plan.Generate, rows: Delta) -> None:
        wanted = pushed(node, restriction(range(len(node.fields)), rows))[0]
        candidates = self.contents.node(view, node.input, wanted)
        types = types_of(node.fields[len(node.required) :])
        generate = compile_generator(node.generator, types, outer=node.outer)
        parents, generated = generate(candidates.columns, len(candidates), self.contents.tick)
        required = candidates.select(node.required).take(parents)
        become = members(Delta((*required.columns, *generated), required.weights), rows, as_rows=True)
        self._node(view, node.input, candidates.take(np.unique(parents[become])))

    def _join(self, view: ViewVertex, node: plan.Join, rows: Delta) -> None:
        width = len(node.left.fields)
        if node.kind in ("semi", "anti"):
            self._node(view, node.left, rows)
            if node.kind == "semi":
                wanted = restriction(node.right_keys, rows.select(node.left_keys)) if node.left_keys else None
                pairs = self._pairs(view, node, rows, self.contents.node(view, node.right, wanted))
                self._node(view, node.right, distinct(_part(pairs, width)))
            return
        # Rows that may have come from one input alone.
        left_alone = is_null_row(rows.columns[width:], len(rows)) & (node.kind in ("left", "full"))
        right_alone = is_null_row(rows.columns[:width], len(rows)) & (node.kind in ("right", "full"))
        if (left_alone | right_alone).any():
            unmatched = self._unmatched(view, node, rows, left_alone | right_alone)
            left_alone, right_alone = left_alone & unmatched, right_alone & unmatched
        matched = rows.take(np.flatnonzero(~(left_alone | right_alone)))
        left, right = rows.take(np.flatnonzero(left_alone)), rows.take(np.flatnonzero(right_alone))
        self._side(view, node.left, _part(matched, 0, width), _part(left, 0, width))
        self._side(view, node.right, _part(matched, width), _part(right, width))

    def _side(self, view: ViewVertex, node: plan.Node, matched: Delta, alone: Delta) -> None:
        """Follow the rows of one input of a join: those with a match, and those without one, if they are from this input."""
        if len(alone):
            matched = distinct(concat([matched, self._there(view, node, alone)]))
        self._node(view, node, matched)

    def _unmatched(self, view: ViewVertex, node: plan.Join, rows: Delta, padded: Bools) -> Bools:
        """Which rows are no pairs, of those with NULLs in place of an input: a row of nothing but NULLs may match, too."""
        width = len(node.left.fields)
        likely = rows.take(np.flatnonzero(padded))
        left = self._there(view, node.left, _part(likely, 0, width))
        right = self._there(view, node.right, _part(likely, width))
        return ~members(rows, self._pairs(view, node, left, right), as_rows=True)

    def _pairs(self, view: ViewVertex, node: plan.Join, left: Delta, right: Delta) -> Delta:
        """The pairs of some rows of both inputs that match."""
        inner = plan.Join(
            (*node.left.fields, *node.right.fields),
            node.left,
            node.right,
            "inner",
            node.left_keys,
            node.right_keys,
            node.null_safe,
            node.residual,
        )
        return self.contents.evaluate(view, inner, (left, right))

    def _session(self, view: ViewVertex, node: plan.SessionWindow, rows: Delta) -> None:
        width = len(node.input.fields)
        has_session = rows.columns[width].is_valid().to_numpy(zero_copy_only=False)
        self._node(view, node.input, _part(rows.take(np.flatnonzero(~has_session)), 0, width))
        inside = rows.take(np.flatnonzero(has_session))
        if len(inside):
            wanted = pushed(node, restriction(range(width + 1), inside))[0]
            of_keys = self.contents.evaluate(view, node, [self.contents.node(view, node.input, wanted)])
            session = [*node.keys, width]
            same = members(of_keys.select(session), inside.select(session))
            self._node(view, node.input, _part(of_keys.take(np.flatnonzero(same)), 0, width))


def _part(rows: Delta, begin: int, end: int | None = None) -> Delta:
    """Some columns of rows, each row once."""
    return distinct(Delta(rows.columns[begin:end], rows.weights))


def _refused(view: ViewVertex, why: str) -> StateError:
    return StateError(
        f"the rows behind a row of view '{view.name}' are not known: {why}",
        code="FLOW_WHY",
        hint="flow.explain(view) shows its operators; ask for a row of a view below it",
        where=f"view '{view.name}'",
    )
