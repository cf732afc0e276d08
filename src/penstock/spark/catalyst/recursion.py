"""WITH RECURSIVE: UnionLoop and its references, and the LIMIT that ends a recursion."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.plan import node as plan
from penstock.spark.catalyst.expressions import Json, nested, walk
from penstock.spark.catalyst.order import LIMITS
from penstock.spark.catalyst.placed import Key, Placed, TranslationContext, attribute_keys, fields_of, select

_LEVEL = "level"
_UNLIMITED = -1


def recursive(context: TranslationContext, node: Json) -> Placed:
    """The anchor's rows, and the step's until there are no new ones; with a limit, the rows of the first levels."""
    loop = _loop(context, node)
    if isinstance(loop.node, plan.Recursive) and loop.node.limit is not None:
        return first_rows(context, node, loop.node.limit, 0)
    return loop


def first_rows(context: TranslationContext, node: Json, limit: int | None, offset: int) -> Placed:
    """Rows of a recursion by their levels: Spark gives those of one level after the other, in no order within a level."""
    loop = _loop(context, node)
    order: tuple[plan.SortKey, ...] = ()
    if _level_key(node) in loop.keys:
        order = (plan.SortKey(loop.keys.index(_level_key(node))),)
    top = plan.TopK(loop.node.fields, loop.node, (), order, limit, offset)
    return select(Placed(top, loop.keys), attribute_keys(node))


def reference(context: TranslationContext, node: Json) -> Placed:
    """The rows that the step reads: those that it made last."""
    fields = fields_of(node)
    name = _loop_name(context, node["a"]["loopId"])
    if node["a"].get("accumulated"):
        name = plan.so_far(name)
    scan = plan.Scan(fields, name, tuple(range(len(fields))))
    return Placed(scan, attribute_keys(node))


def pushed_limits(root: Json) -> dict[int, int]:
    """The place of every UnionLoop that a LIMIT ends, with the limit.

    Spark's optimizer decides which: a limit goes down through projections, unions, offsets and some joins, and not
    through filters, sorts and aggregates. Its rule would also put limits below the unions and joins of views, which
    the kernel does not need.
    """
    return dict(_limits(root, None))


def _limits(node: Json, limit: int | None) -> Iterator[tuple[int, int]]:
    if node["c"] == "UnionLoop" and limit is not None:
        yield node["at"], limit
    for child, below in zip(node["k"], _handed_down(node, limit), strict=True):
        yield from _limits(child, below)
    for expression in nested(node["a"]):
        for item in walk(expression):
            if "plan" in item:
                yield from _limits(item["plan"], None)


def _handed_down(node: Json, limit: int | None) -> list[int | None]:
    """The limit of each child of a node below a limit."""
    children = node["k"]
    if node["c"] in LIMITS:
        count = _constant(node)
        if node["c"] == "Offset":
            return [None if limit is None or count is None else limit + count]
        if count is None:
            return [limit]
        return [count if limit is None else min(limit, count)]
    if node["c"] == "Project" and children[0]["c"] in {"UnionLoop", "Join", "Aggregate", *LIMITS}:
        return [limit]
    if node["c"] == "Union":
        return [limit] * len(children)
    if node["c"] == "Join":
        return _of_join(node, limit)
    if node["c"] == "Aggregate" and limit == 1 and _groups_only(node):
        return [limit]
    return [None] * len(children)


def _of_join(node: Json, limit: int | None) -> list[int | None]:
    kind = node["a"]["joinType"]["p"]
    free = node["a"].get("condition") is None
    if kind in {"LeftSemi", "LeftAnti"}:
        # Whether there is any row is all that matters of the right side.
        return [limit, 1] if free else [None, None]
    if kind == "LeftOuter" and not free:
        return [limit, None]
    if kind == "RightOuter" and not free:
        return [None, limit]
    return [limit, limit] if free else [None, None]


def _groups_only(node: Json) -> bool:
    """Whether an aggregate is a DISTINCT: it shows its keys and nothing else."""
    shown = [item["e"] for item in node["a"]["aggregateExpressions"]]
    return all(item["c"] != "AggregateExpression" for expression in shown for item in walk(expression))


def _constant(node: Json) -> int | None:
    count = node["a"]["offsetExpr" if node["c"] == "Offset" else "limitExpr"]["e"]
    return int(count["v"]) if count["c"] == "Literal" else None


def _loop(context: TranslationContext, node: Json) -> Placed:
    arguments = node["a"]
    fields = fields_of(node)
    anchor, step = (
        select(context.plan(child, None), attribute_keys(child), fields).node for child in node["k"]
    )
    name = _loop_name(context, arguments.get("id", arguments.get("loopId")))
    depth, limit = arguments.get("maxDepth"), context.limits.get(node["at"])
    # LIMIT ALL is a limit of -1 in Catalyst's plan, and a plain LIMIT above it still counts.
    rows = _UNLIMITED if arguments.get("limit") == _UNLIMITED else context.most_rows
    level = () if limit is None else (plan.Field(_LEVEL, "int", nullable=False),)
    loop = plan.Recursive(
        (*fields, *level),
        name,
        anchor,
        step,
        max_depth=depth if isinstance(depth, int) else context.most_levels,
        max_rows=rows,
        limit=limit,
    )
    keys = (*attribute_keys(node), *((_level_key(node),) if level else ()))
    return Placed(loop, keys)


def _level_key(node: Json) -> Key:
    return ("l", node["at"])


def _loop_name(context: TranslationContext, number: int) -> str:
    """The name of a recursion within its view: Catalyst's own numbers differ each time a query is planned."""
    return f"recursion {context.loops.setdefault(number, len(context.loops) + 1)}"
