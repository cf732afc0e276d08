"""The ORDER BY of the outermost query: a property of the view, which may read columns that the view does not show."""

from __future__ import annotations

from penstock.plan import node as plan
from penstock.spark.catalyst.expressions import Json
from penstock.spark.catalyst.placed import (
    Context,
    Key,
    Placed,
    Unsupported,
    attribute_keys,
    column,
    fields_of,
    prepare,
    project,
    select,
)
from penstock.spark.catalyst.relations import columns_of
from penstock.spark.catalyst.windows import LIMITS, bounds, order_json, ordered, sort_keys

_CARRIED = "o"  # the kind of key that a column has which is there for the order only

Ordered = tuple[Placed, tuple[plan.SortKey, ...]]


def shown(root: Json) -> tuple[plan.SortKey, ...] | None:
    """The order over the columns that a query shows: empty when it has none, None when it reads other columns too."""
    node = root
    renamed = {item[0]: index for index, item in enumerate(root["o"])}
    while node["c"] in LIMITS | {"SubqueryAlias", "Project"}:
        if node["c"] == "Project":
            below: dict[int, int] = {}
            for item in node["a"]["projectList"]:
                inner = item["e"]["k"][0] if item["e"]["c"] == "Alias" else item["e"]
                if inner["c"] == "AttributeReference" and item["e"]["id"] in renamed:
                    below.setdefault(inner["id"], renamed[item["e"]["id"]])
            renamed = below
        node = node["k"][0]
    if node["c"] != "Sort" or not node["a"]["global"]:
        return ()
    orders = order_json(node)
    wanted = [order["k"][0] for order in orders]
    if any(key["c"] != "AttributeReference" or key["id"] not in renamed for key in wanted):
        return None
    return sort_keys(orders, [renamed[key["id"]] for key in wanted])


def carried(context: Context, root: Json) -> Ordered | None:
    """A query with its columns, then one for each sort key, and the order over those; None when that cannot be had."""
    try:
        found = _carry(context, root, None, 0)
    except Unsupported:
        return None
    if found is None:
        return None
    placed, orders = found
    extra: list[Key] = [(_CARRIED, index) for index in range(len(orders))]
    fields = (*fields_of(root), *(placed.scope[key][1] for key in extra))
    whole = select(placed, (*attribute_keys(root), *extra), fields)
    return whole, sort_keys(orders, list(range(len(root["o"]), len(fields))))


def _carry(context: Context, node: Json, limit: int | None, offset: int) -> tuple[Placed, list[Json]] | None:
    """The rows of a plan with the columns that order them, which every projection above the ORDER BY hands on."""
    if node["c"] in LIMITS:
        if limit is not None or offset:
            return None
        limit, offset, below = bounds(node)
        return _carry(context, below, limit, offset)
    if node["c"] == "Sort" and node["a"]["global"]:
        return _sorted(context, node, limit, offset)
    if node["c"] not in {"Project", "SubqueryAlias"}:
        return None
    found = _carry(context, node["k"][0], limit, offset)
    if found is None or node["c"] == "SubqueryAlias":
        return found
    wanted = [item["e"] for item in node["a"]["projectList"]]
    child = prepare(context, found[0], wanted)
    handed_on = [
        (key, child.node.fields[index], column(child, index))
        for index, key in enumerate(child.keys)
        if key[0] == _CARRIED
    ]
    return project(child, [*columns_of(node, wanted, child), *handed_on]), found[1]


def _sorted(context: Context, node: Json, limit: int | None, offset: int) -> tuple[Placed, list[Json]]:
    orders = order_json(node)
    child = context.plan(node["k"][0], None)
    ready, keys = ordered(context, child, orders)
    if limit is not None or offset:
        ready = Placed(plan.TopK(ready.node.fields, ready.node, (), keys, limit, offset), ready.keys)
    own = [
        (key, ready.node.fields[index], column(ready, index))
        for index, key in enumerate(ready.keys)
        if key in child.keys
    ]
    extra = [
        ((_CARRIED, index), ready.node.fields[key.column], column(ready, key.column))
        for index, key in enumerate(keys)
    ]
    return project(ready, [*own, *extra]), orders
