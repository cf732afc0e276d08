"""Catalyst's optimized plan, as Front.java describes it, to penstock's plan nodes."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import SqlError
from penstock.plan import node as plan
from penstock.spark.catalyst import aggregates, filters, joins, order, recursion, relations, windows
from penstock.spark.catalyst.expressions import Json, is_now, nested, walk
from penstock.spark.catalyst.placed import (
    Context,
    Placed,
    Unsupported,
    attribute_keys,
    fields_of,
    refuse_random,
    select,
    single,
)

# Nodes that change nothing about the rows.
_TRANSPARENT = {
    "SubqueryAlias",
    "View",
    "ResolvedHint",
    "Repartition",
    "RepartitionByExpression",
    "RebalancePartitions",
    "EventTimeWatermark",
    "Sort",
    "LocalLimit",
    "CTERelationDef",
    "CollectMetrics",
}


@dataclass(frozen=True, slots=True)
class Translated:
    """A view's plan, the order in which its rows are read, whether it asks for the time, and how many columns it shows."""

    root: plan.Node
    order: tuple[plan.SortKey, ...]
    uses_time: bool
    visible: int | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the session that a plan does not show, bound when a view is registered: -1 means no bound, None Spark's default."""

    zone: str = "UTC"
    most_levels: int | None = None  # of a recursion
    most_rows: int | None = None


DEFAULTS = Settings()


def translate_plan(root: Json, settings: Settings = DEFAULTS) -> Translated:
    """Translate a whole plan of a session with some settings; what the kernel lacks becomes `node.Spark`, with the reason."""
    context = Context(
        lambda node, needed: _plan(context, node, needed),
        settings.zone,
        settings.most_levels,
        settings.most_rows,
        recursion.pushed_limits(root),
    )
    placed = select(_plan(context, root, None), attribute_keys(root), fields_of(root))
    query = _main(root) if root["c"] == "WithCTE" else root
    shown = order.shown(query)
    hidden = order.carried(context, query) if shown is None else None
    if hidden is not None:
        return Translated(hidden[0].node, hidden[1], context.uses_time, len(root["o"]))
    return Translated(placed.node, shown or (), context.uses_time)


def _plan(context: Context, node: Json, needed: set[int] | None) -> Placed:
    for expression in nested(node["a"]):
        for item in walk(expression):
            refuse_random(item)
    try:
        return _translate(context, node, needed)
    except Unsupported as reason:
        return _recompute(context, node, str(reason))


def _translate(context: Context, node: Json, needed: set[int] | None) -> Placed:
    match node["c"]:
        case "LogicalRDD" if node["o"] and len(node["o"][0]) > 4:
            return relations.scan(node, needed)
        case "LocalRelation":
            return relations.values(node)
        case "OneRowRelation":
            return relations.one_row(node)
        case "Range":
            return relations.number_range(node)
        case "Project":
            return relations.projection(context, node)
        case "Filter":
            return windows.ranked(context, node) or filters.selection(context, node, needed)
        case "Aggregate":
            return aggregates.aggregate(context, node)
        case "Join":
            return joins.join(context, node, needed)
        case "Union":
            return relations.union(context, node)
        case "Expand":
            return relations.expand(context, node)
        case "Generate":
            return relations.generate(context, node)
        case "Window":
            return windows.window(context, node)
        case "GlobalLimit" | "Offset":
            return windows.limited(context, node)
        case "Deduplicate":
            return windows.deduplicate(context, node)
        case "WithCTE":
            for definition in node["k"]:
                if definition["c"] == "CTERelationDef":
                    context.shared[definition["a"]["id"]] = definition
            return _plan(context, _main(node), needed)
        case "CTERelationRef":
            return _shared(context, node)
        case "UnionLoop":
            return recursion.recursive(context, node)
        case "UnionLoopRef":
            return recursion.reference(context, node)
        case name if name in _TRANSPARENT:
            return _plan(context, node["k"][0], needed)
        case "Sample":
            raise SqlError(
                "the view takes a sample, which is another one every time",
                code="SQL_NONDETERMINISTIC",
                hint="filter by a hash of a column, as in WHERE pmod(hash(id), 10) = 0",
            )
        case "DomainJoin" | "LateralJoin":
            raise Unsupported("a correlated subquery that Catalyst could not turn into a join")
        case name:
            raise Unsupported(f"the kernel does not know the operator {name}")


def _main(node: Json) -> Json:
    """The query of a WithCTE, whose other children are definitions."""
    query: Json = next(child for child in node["k"] if child["c"] != "CTERelationDef")
    return query


def _shared(context: Context, node: Json) -> Placed:
    """A reference to a common table expression: its plan again, which the circuit may share."""
    definition = context.shared[node["a"]["cteId"]]
    child = definition["k"][0]
    placed = select(_plan(context, child, None), attribute_keys(child))
    return Placed(placed.node, attribute_keys(node))


def _recompute(context: Context, node: Json, reason: str) -> Placed:
    """The operator on Spark, over all rows of its inputs; scalar subqueries are inputs too, one row each."""
    inputs: list[plan.Node] = [
        select(_plan(context, child, None), attribute_keys(child)).node for child in node["k"]
    ]
    seen: set[int] = set()
    timed = False
    for expression in nested(node["a"]):
        for item in walk(expression):
            if item["c"] != "ScalarSubquery" or item["id"] in seen:
                continue
            seen.add(item["id"])
            if is_now(item):
                context.uses_time = timed = True
            else:
                inputs.append(single(context, item))
    spark = plan.Spark(
        fields_of(node),
        tuple(inputs),
        (node["at"],),
        node["c"],
        stateless=node["c"] == "Generate" and not timed,
        reason=reason,
    )
    return Placed(spark, attribute_keys(node))
