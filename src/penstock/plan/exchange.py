"""The plan of a view in shards: exchanges put in where `penstock.plan.distribution` has rows travel, and where each
operator runs.

Operators run on every shard, on the home shard ("home"), or in the driver: what only Spark can compute, and a
recursion with such a part. A top-k without a partition runs twice: each shard has its own first rows, and those meet
on the home shard. The rows of an aggregate without keys travel consolidated, so that equal ones travel as one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from penstock.plan import node as plan
from penstock.plan.distribution import (
    DRIVER,
    EVERYWHERE,
    ONE_PLACE,
    Distribution,
    Edge,
    Relations,
    Sharded,
    distribute,
    distribute_view,
    has_spark,
)

RunsOn = Literal["home", "driver"]
"""Where an operator runs that does not run on every shard."""


@dataclass(frozen=True, slots=True)
class Exchanged:
    """A view with its exchanges, the operators that do not run on every shard with their places, and where its rows are."""

    view: plan.View
    places: tuple[tuple[plan.Node, RunsOn], ...]
    output: Distribution


def exchanged(view: plan.View, relations: Relations) -> Exchanged:
    """Return the plan of a view in shards; `relations` says where the rows of those are that it reads."""
    sharded = distribute_view(view, relations)
    distributions = {**dict.fromkeys(view.statics, EVERYWHERE), **relations}
    rewrite = _Rewrite(distributions)
    root = rewrite.node(sharded)
    return Exchanged(replace(view, root=root), tuple(rewrite.places.items()), sharded.output)


@dataclass(slots=True)
class _Rewrite:
    relations: Mapping[str, Distribution]
    places: dict[plan.Node, RunsOn] = field(default_factory=dict)

    def node(self, sharded: Sharded) -> plan.Node:
        """A node with exchanges below it, and above it when it runs in the driver."""
        node = sharded.node
        if isinstance(node, plan.Recursive):
            return self._recursive(sharded)
        if isinstance(node, plan.Spark):
            inputs = [self._edge(edge) for edge in sharded.inputs]
            return self._from_driver(with_inputs(node, inputs))
        inputs = [self._input(node, edge) for edge in sharded.inputs]
        return self._placed(with_inputs(node, inputs) if inputs else node, sharded.output)

    def _placed(self, node: plan.Node, output: Distribution) -> plan.Node:
        if output == ONE_PLACE and not isinstance(node, plan.Scan):
            self.places[node] = "home"
        return node

    def _from_driver(self, node: plan.Node) -> plan.Node:
        """What the driver computes, on the home shard."""
        self.places[node] = "driver"
        return _exchange(node, ONE_PLACE, copied=False)

    def _input(self, node: plan.Node, edge: Edge) -> plan.Node:
        if not edge.partial:
            return self._edge(edge)
        assert isinstance(node, plan.TopK)
        assert node.limit is not None
        assert edge.exchange is not None
        below = self.node(edge.source)
        first = replace(
            node,
            fields=node.input.fields,
            input=below,
            limit=node.offset + node.limit,
            offset=0,
            rank_field=False,
        )
        return _exchange(first, edge.exchange, copied=False)

    def _edge(self, edge: Edge) -> plan.Node:
        return self._moved(self.node(edge.source), edge.source.output, edge.exchange)

    def _moved(self, node: plan.Node, output: Distribution, target: Distribution | None) -> plan.Node:
        if target is None or target == output:
            return node
        return _exchange(node, target, copied=output == EVERYWHERE)

    def _recursive(self, sharded: Sharded) -> plan.Node:
        node = sharded.node
        assert isinstance(node, plan.Recursive)
        if sharded.output == EVERYWHERE:
            anchor, step = (self._edge(edge) for edge in sharded.inputs)
            return replace(node, anchor=anchor, step=step)
        target = DRIVER if has_spark(node) else ONE_PLACE
        anchor = self._outside(node.anchor, target)
        step = self._inside(node.step, frozenset({node.name, plan.so_far(node.name)}), target)
        moved = replace(node, anchor=anchor, step=step)
        return self._from_driver(moved) if target == DRIVER else self._placed(moved, ONE_PLACE)

    def _inside(self, node: plan.Node, names: frozenset[str], target: Distribution) -> plan.Node:
        """A part of a recursion's step: what reads the recursion stays as it is, and everything else comes to it."""
        if not _reads(node, names):
            return self._outside(node, target)
        if isinstance(node, plan.Recursive):
            names |= {node.name, plan.so_far(node.name)}
        inputs = [self._inside(child, names, target) for child in plan.children(node)]
        return with_inputs(node, inputs) if inputs else node

    def _outside(self, node: plan.Node, target: Distribution) -> plan.Node:
        sharded = distribute(node, self.relations)
        if target == ONE_PLACE and sharded.output in (ONE_PLACE, EVERYWHERE):
            return self.node(sharded)
        return self._moved(self.node(sharded), sharded.output, target)


def with_inputs(node: plan.Node, inputs: Iterable[plan.Node]) -> plan.Node:
    """The same node over other inputs."""
    children = tuple(inputs)
    match node:
        case plan.Union() | plan.Spark():
            return replace(node, inputs=children)
        case plan.Join() | plan.Asof():
            return replace(node, left=children[0], right=children[1])
        case plan.Recursive():
            return replace(node, anchor=children[0], step=children[1])
        case plan.Scan() | plan.Values():
            raise AssertionError(f"{type(node).__name__} has no inputs to replace")
        case _:
            return replace(node, input=children[0])


def _exchange(node: plan.Node, target: Distribution, *, copied: bool) -> plan.Exchange:
    assert target.kind != "any"
    # The text of a plan is the same in every process.
    text = repr((node, target.kind, target.columns, copied))
    name = hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
    return plan.Exchange(node.fields, node, target.kind, target.columns, copied, name)


def _reads(node: plan.Node, names: frozenset[str]) -> bool:
    if isinstance(node, plan.Scan):
        return node.name in names
    return any(_reads(child, names) for child in plan.children(node))
