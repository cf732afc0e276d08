"""Catalyst's optimized plan, as Front.java describes it, to penstock's plan nodes."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import SqlError
from penstock.plan import node as plan
from penstock.spark.catalyst import aggregates, filters, joins, meaning, order, recursion, relations, windows
from penstock.spark.catalyst.expressions import Json, is_now, nested, walk
from penstock.spark.catalyst.placed import (
    Placed,
    TranslationContext,
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
# Operators that see in which order rows come, and which of them one task of Spark has.
_SEQUENTIAL = {"ScriptTransformation", "MapInPandas", "MapInArrow"}
# What puts rows in an order, or together.
_PLACING = {"Sort", "Repartition", "RepartitionByExpression", "RebalancePartitions"}


@dataclass(frozen=True, slots=True)
class Translated:
    """A view's plan, the order in which its rows are read, whether it asks for the time, and how many columns it shows."""

    root: plan.Node
    order: tuple[plan.SortKey, ...]
    uses_time: bool
    visible: int | None = None


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """Settings of the session that a plan does not show, bound when a view is registered: -1 means no bound, None
    Spark's default."""

    zone: str = "UTC"
    most_levels: int | None = None  # of a recursion
    most_rows: int | None = None
    has_code: bool = False  # the query is a DataFrame


DEFAULTS = PlanSettings()


def translate_plan(root: Json, settings: PlanSettings = DEFAULTS) -> Translated:
    """Translate a whole plan of a session with some settings; what the kernel lacks becomes `node.Spark`, with the reason."""
    context = TranslationContext(
        lambda node, needed: _plan(context, node, needed),
        settings.zone,
        settings.most_levels,
        settings.most_rows,
        recursion.pushed_limits(root),
        settings.has_code,
    )
    placed = select(_plan(context, root, None), attribute_keys(root), fields_of(root))
    query = _main(root) if root["c"] == "WithCTE" else root
    shown = order.shown(query)
    hidden = order.carried(context, query) if shown is None else None
    if hidden is not None:
        return Translated(hidden[0].node, hidden[1], context.uses_time, len(root["o"]))
    return Translated(placed.node, shown or (), context.uses_time)


def _plan(context: TranslationContext, node: Json, needed: set[int] | None) -> Placed:
    _refuse_random_parts(node)
    try:
        return _translate(context, node, needed)
    except Unsupported as reason:
        return _recompute(context, node, str(reason))


def _refuse_random_parts(node: Json) -> None:
    for expression in nested(node["a"]):
        for item in walk(expression):
            refuse_random(item)


def _translate(context: TranslationContext, node: Json, needed: set[int] | None) -> Placed:
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
        case "Sample" if _takes_all(node):
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


def _takes_all(node: Json) -> bool:
    """Whether a sample is of all rows, each once, as TABLESAMPLE (100 PERCENT) is."""
    bounds = node["a"]
    lower, upper = float(bounds["lowerBound"]), float(bounds["upperBound"])
    return not bounds["withReplacement"] and lower <= 0 and upper >= 1


def _main(node: Json) -> Json:
    """The query of a WithCTE, whose other children are definitions."""
    query: Json = next(child for child in node["k"] if child["c"] != "CTERelationDef")
    return query


def _shared(context: TranslationContext, node: Json) -> Placed:
    """A reference to a common table expression: its plan again, which the circuit may share."""
    definition = context.shared[node["a"]["cteId"]]
    child = definition["k"][0]
    placed = select(_plan(context, child, None), attribute_keys(child))
    return Placed(placed.node, attribute_keys(node))


def _recompute(context: TranslationContext, node: Json, reason: str) -> Placed:
    """The operator on Spark, over all rows of its inputs; scalar subqueries are inputs too, one row each."""
    run = [node, *_placing_below(node)]
    for operator in run[1:]:
        _refuse_random_parts(operator)
    children = run[-1]["k"]
    inputs: list[plan.Node] = [
        select(_plan(context, child, None), attribute_keys(child)).node for child in children
    ]
    subqueries = _subqueries(run)
    if any(item["c"] != "ScalarSubquery" for item in subqueries):
        # Spark would read the relations of the flow inside it, which have no rows there.
        raise SqlError(
            "the view has a subquery that Spark's optimizer has not turned into a join",
            code="SQL_SUBQUERY",
            hint="write it as a join",
        )
    timed = any(is_now(item) for item in subqueries)
    context.uses_time |= timed
    inputs += [single(context, item) for item in subqueries if not is_now(item)]
    recomputed = plan.Spark(
        fields_of(node),
        tuple(inputs),
        (node["at"],),
        node["c"],
        stateless=node["c"] == "Generate" and not _is_table_function(node) and not timed,
        reason=reason,
        cut=tuple(child["at"] for child in children) if len(run) > 1 else (),
        meaning=meaning.of_operators(run, (), code=context.has_code),
    )
    return Placed(recomputed, attribute_keys(node))


def _subqueries(operators: list[Json]) -> list[Json]:
    """The subqueries in the expressions of operators, each once."""
    by_id: dict[int, Json] = {}
    for operator in operators:
        for expression in nested(operator["a"]):
            for item in walk(expression):
                if "plan" in item:
                    by_id.setdefault(item["id"], item)
    return list(by_id.values())


def _is_table_function(node: Json) -> bool:
    """Whether a node is a table function in Python: one object gets all rows of a partition, and gives rows at the end, too."""
    return bool(node["c"] == "Generate" and node["a"]["generator"]["e"]["c"] == "PythonUDTF")


def _placing_below(node: Json) -> list[Json]:
    """What puts the rows of an operator in order and together, when it sees that, with the projections in between."""
    if node["c"] not in _SEQUENTIAL and not _is_table_function(node):
        return []
    below: list[Json] = []
    child = node["k"][0]
    while child["c"] in _PLACING or child["c"] == "Project":
        below.append(child)
        child = child["k"][0]
    while below and below[-1]["c"] == "Project":
        below.pop()
    return below
