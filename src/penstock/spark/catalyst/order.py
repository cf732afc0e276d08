"""Orders: sort keys, limits, and columns that are there for an order only.

The ORDER BY of the outermost query is a property of the view, and may read columns that the view does not show.
"""

from __future__ import annotations

from penstock.plan import node as plan
from penstock.spark.catalyst.expressions import Json, translate
from penstock.spark.catalyst.placed import (
    Key,
    Placed,
    TranslationContext,
    Unsupported,
    attribute_keys,
    column,
    fields_of,
    prepare,
    project,
    select,
)
from penstock.spark.catalyst.relations import columns_of, with_columns

LIMITS = {"GlobalLimit", "LocalLimit", "Offset"}
_CARRIED = "o"  # the kind of key that a column has which is there for the order only

Ordered = tuple[Placed, tuple[plan.SortKey, ...]]


def order_json(node: Json) -> list[Json]:
    """The SortOrder expressions of a Sort."""
    return [item["e"] for item in node["a"]["order"]]


def sort_keys(orders: list[Json], positions: list[int]) -> tuple[plan.SortKey, ...]:
    """Sort keys for orders whose expressions are columns at the given positions."""
    return tuple(
        plan.SortKey(
            position,
            order["a"]["direction"]["p"] == "Descending",
            order["a"]["nullOrdering"]["p"] == "NullsFirst",
        )
        for order, position in zip(orders, positions, strict=True)
    )


def ordered(
    context: TranslationContext, placed: Placed, orders: list[Json]
) -> tuple[Placed, tuple[plan.SortKey, ...]]:
    """Make the sort expressions columns."""
    inner = [order["k"][0] for order in orders]
    ready = prepare(context, placed, inner)
    expressions = [translate(item, ready.scope) for item in inner]
    ready, positions = with_columns(ready, expressions, [f"order_{index}" for index in range(len(inner))])
    return ready, sort_keys(orders, positions)


def bounds(node: Json) -> tuple[int | None, int, Json]:
    """LIMIT and OFFSET of the limits on top of a plan, and what is below them."""
    limit: int | None = None
    offset = 0
    current = node
    while current["c"] in LIMITS:
        name = "offsetExpr" if current["c"] == "Offset" else "limitExpr"
        count = current["a"][name]["e"]
        if count["c"] != "Literal":
            raise Unsupported(f"a {current['c']} that is not constant")
        if current["c"] == "Offset":
            if offset == 0:
                offset = int(count["v"])
            else:
                break
        elif offset:
            # A limit below an offset bounds both together.
            bound = max(int(count["v"]) - offset, 0)
            limit = bound if limit is None else min(limit, bound)
        else:
            limit = int(count["v"]) if limit is None else min(limit, int(count["v"]))
        current = current["k"][0]
    return limit, offset, current


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


def carried(context: TranslationContext, root: Json) -> Ordered | None:
    """A query with its columns, then one for each sort key, and the order over those; None when that cannot be had."""
    try:
        ordered = _carry(context, root, None, 0)
    except Unsupported:
        return None
    if ordered is None:
        return None
    placed, orders = ordered
    extra = carried_keys(orders)
    fields = (*fields_of(root), *(placed.scope[key][1] for key in extra))
    selected = select(placed, (*attribute_keys(root), *extra), fields)
    return selected, sort_keys(orders, list(range(len(root["o"]), len(fields))))


def sorted_below(context: TranslationContext, node: Json) -> Ordered | None:
    """A sorted query with the columns that order it behind its own, and the order; None when it is not sorted."""
    below = node
    while below["c"] in {"Project", "SubqueryAlias"}:
        below = below["k"][0]
    if below["c"] != "Sort" or not below["a"]["global"]:
        return None
    ordered = _carry(context, node, None, 0)
    if ordered is None:
        return None
    placed, orders = ordered
    return placed, sort_keys(orders, [placed.keys.index(key) for key in carried_keys(orders)])


def carried_keys(orders: list[Json]) -> list[Key]:
    """What the columns are called that are there for an order only."""
    return [(_CARRIED, index) for index in range(len(orders))]


def _carry(
    context: TranslationContext, node: Json, limit: int | None, offset: int
) -> tuple[Placed, list[Json]] | None:
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
    ordered = _carry(context, node["k"][0], limit, offset)
    if ordered is None or node["c"] == "SubqueryAlias":
        return ordered
    wanted = [item["e"] for item in node["a"]["projectList"]]
    child = prepare(context, ordered[0], wanted)
    handed_on = [
        (key, child.node.fields[index], column(child, index))
        for index, key in enumerate(child.keys)
        if key[0] == _CARRIED
    ]
    return project(child, [*columns_of(node, wanted, child), *handed_on]), ordered[1]


def _sorted(
    context: TranslationContext, node: Json, limit: int | None, offset: int
) -> tuple[Placed, list[Json]]:
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
