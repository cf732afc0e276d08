"""Columns that tell the rows of a plan apart, where the plan itself shows it: the keys of groups, as far as they
reach the top."""

from __future__ import annotations

from penstock.plan.expression import Column
from penstock.plan.node import Aggregate, Filter, Node, Project, TopK, Window


def unique_columns(node: Node) -> tuple[int, ...] | None:
    """The columns by which no two rows are alike, by their positions, as `<=>` compares them; none of them for at
    most one row, None when that is not known."""
    if isinstance(node, Aggregate):
        return tuple(range(len(node.keys)))
    if isinstance(node, Filter | TopK | Window):
        below = unique_columns(node.input)
        return below if below is None or all(at < len(node.fields) for at in below) else None
    if isinstance(node, Project):
        below = unique_columns(node.input)
        if below is None:
            return None
        places = {item.index: at for at, item in enumerate(node.expressions) if isinstance(item, Column)}
        return tuple(places[at] for at in below) if all(at in places for at in below) else None
    return None
