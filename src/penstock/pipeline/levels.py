"""Which nodes of a group are views, and the order of their flows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.pipeline.transforms.sql import SqlNode
from penstock.pipeline.view_node import ViewInput, ViewTransformNode

if TYPE_CHECKING:
    from penstock.pipeline.spec import NodeSpec


@dataclass(frozen=True, slots=True)
class ViewLevels:
    """Which nodes of a group are views, and in which order the flows of views run: a flow per level."""

    level: Mapping[str, int]
    """Of every node; a view of level n reads nodes of levels below n, and views of its own level."""
    views: frozenset[str]

    def of(self, level: int, nodes: Sequence[NodeSpec]) -> list[NodeSpec]:
        """The views of a level, in order."""
        return [node for node in nodes if node.name in self.views and self.level[node.name] == level]


def levels(nodes: Sequence[NodeSpec], inputs: Mapping[str, Sequence[str]]) -> ViewLevels:
    """Return the levels of nodes, which come in order.

    A `sql` node that reads only views is a view too: it sees all of their rows, so a row that its filter drops is
    deleted downstream. With `on_error` it is none: it leaves out changes for which its query fails.
    """
    level: dict[str, int] = {}
    views: set[str] = set()
    for node in nodes:
        above = inputs[node.name]
        model = node.model
        # A view cannot leave rows out for which its query fails.
        may_be_view = isinstance(model, SqlNode) and model.on_error == "fail"
        only_views = may_be_view and bool(above) and set(above) <= views
        if not (isinstance(model, ViewTransformNode) or only_views):
            level[node.name] = max((level[name] for name in above), default=0)
            continue
        logs = {
            read.node for read in reads_of(node, views, {name.lower(): name for name in level}) if read.log
        }
        views.add(node.name)
        level[node.name] = max(
            1,
            *(level[name] if name in views and name not in logs else level[name] + 1 for name in above),
        )
    return ViewLevels(level, frozenset(views))


def reads_of(node: NodeSpec, operations: Collection[str], names: Mapping[str, str]) -> tuple[ViewInput, ...]:
    """The relations that a view reads."""
    model = node.model
    if isinstance(model, ViewTransformNode):
        return model.reads(names, operations)
    assert isinstance(model, SqlNode)
    return tuple(ViewInput(name, name) for name in model.inputs(names))
