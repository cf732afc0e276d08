"""Window functions and everything that keeps the first rows of an order."""

from __future__ import annotations

from typing import Any

from penstock.functions import windows as window_functions
from penstock.functions.scalars import zones
from penstock.plan import node as plan
from penstock.plan.expression import Call, Expression, Literal, conjunction
from penstock.spark.catalyst import recursion, sessions
from penstock.spark.catalyst.aggregates import arguments, inputs, is_known, normalised
from penstock.spark.catalyst.expressions import Json, conjuncts, translate, walk
from penstock.spark.catalyst.order import bounds, order_json, ordered, sort_keys, sorted_below
from penstock.spark.catalyst.placed import (
    Placed,
    TranslationContext,
    Unsupported,
    attribute_keys,
    prepare,
    project,
    refuse_collated,
    select,
)
from penstock.spark.catalyst.relations import columns_of, with_columns

RANKING = {"RowNumber", "Rank", "DenseRank", "PercentRank", "CumeDist", "NTile"}
OFFSET = {"Lag", "Lead", "NthValue"}
_DAY = 86_400_000_000  # microseconds


def limited(context: TranslationContext, node: Json) -> Placed:
    """LIMIT and OFFSET, with the ORDER BY below them, as one top-k."""
    limit, offset, below = bounds(node)
    return _first_rows(context, below, limit, offset)


def _first_rows(context: TranslationContext, node: Json, limit: int | None, offset: int) -> Placed:
    if node["c"] == "UnionLoop":
        return recursion.first_rows(context, node, limit, offset)
    if node["c"] == "Project" and _ordered_below(node):
        below = _first_rows(context, node["k"][0], limit, offset)
        wanted = [item["e"] for item in node["a"]["projectList"]]
        below = prepare(context, below, wanted)
        return project(below, columns_of(node, wanted, below))
    if node["c"] == "Sort" and node["a"]["global"]:
        child = context.plan(node["k"][0], None)
        ready, keys = ordered(context, child, order_json(node))
        top = plan.TopK(ready.node.fields, ready.node, (), keys, limit, offset)
        return select(Placed(top, ready.keys), child.keys)
    child = context.plan(node, None)
    rows = child if child.keys else _with_constant(child)
    top = plan.TopK(rows.node.fields, rows.node, (), (), limit, offset)
    return select(Placed(top, rows.keys), child.keys)


def _with_constant(child: Placed) -> Placed:
    """Rows without columns, as those that are only counted, with one."""
    return project(child, [(("c", 0), plan.Field("row", "int", nullable=False), Literal(1, "int"))])


def _ordered_below(node: Json) -> bool:
    """Whether the rows below projections have an order: that of an ORDER BY, or of the levels of a recursion."""
    while node["c"] == "Project":
        node = node["k"][0]
    return node["c"] in {"Sort", "UnionLoop"}


def deduplicate(context: TranslationContext, node: Json) -> Placed:
    """One whole row per combination of keys."""
    child = context.plan(node["k"][0], None)
    keys = [item["e"] for item in node["a"]["keys"]]
    refuse_collated(keys, "DISTINCT")
    expressions = [normalised(translate(item, child.scope)) for item in keys]
    ready, positions = with_columns(child, expressions, [item["name"] for item in keys])
    session = sessions.session_key(keys)
    if session is not None:
        ready = sessions.updated(ready, positions, session)
    top = plan.TopK(ready.node.fields, ready.node, tuple(positions), (), 1)
    return select(Placed(top, ready.keys), attribute_keys(node))


def window(context: TranslationContext, node: Json) -> Placed:
    """The input columns, then one column per window function."""
    expressions = [item["e"] for item in node["a"]["windowExpressions"]]
    calls = [_window_expression(item) for item in expressions]
    partition = [item["e"] for item in node["a"]["partitionSpec"]]
    orders = [item["e"] for item in node["a"]["orderSpec"]]
    # Without an order of its own, a window takes the rows in the order of the query below, as in LATERAL (... ORDER
    # BY ... LIMIT 1).
    below = None if orders else sorted_below(context, node["k"][0])
    child = below[0] if below else context.plan(node["k"][0], None)
    arguments = [argument for call in calls for argument in _arguments(call["k"][0])]
    ready = prepare(context, child, [*partition, *(item["k"][0] for item in orders), *arguments])
    scope = ready.scope
    wanted = [normalised(translate(item, scope)) for item in partition]
    wanted += [translate(item["k"][0], scope) for item in orders]
    by = wanted[len(partition) :]
    specs = [_window_call(call, ready, wanted, _frame(call["k"][1], by, context.zone)) for call in calls]
    names = [f"window_{index}" for index in range(len(wanted))]
    ready, positions = with_columns(ready, wanted, names)
    partition_columns = tuple(positions[: len(partition)])
    order = below[1] if below else sort_keys(orders, positions[len(partition) : len(partition) + len(orders)])
    placed_calls = tuple(
        plan.WindowCall(
            name,
            tuple(positions[index] for index in indexes),
            kind,
            frame,
            distinct,
            None if condition is None else positions[condition],
            call_options,
        )
        for name, indexes, kind, frame, distinct, condition, call_options in specs
    )
    for call in placed_calls:
        why = window_functions.unsupported(call)
        if why is not None:
            raise Unsupported(why)
    fields = [plan.Field(item["name"], item["t"], item.get("n", True)) for item in expressions]
    windowed = plan.Window((*ready.node.fields, *fields), ready.node, partition_columns, order, placed_calls)
    keys = (*ready.keys, *(("a", item["id"]) for item in expressions))
    own = attribute_keys(node["k"][0]) if below else child.keys
    return select(Placed(windowed, keys), [*own, *(("a", item["id"]) for item in expressions)])


def _window_expression(item: Json) -> Json:
    while item["c"] == "Alias":
        item = item["k"][0]
    if item["c"] != "WindowExpression":
        raise Unsupported("an expression around a window function")
    expression: Json = item
    return expression


def _arguments(function: Json) -> list[Json]:
    if function["c"] == "AggregateExpression":
        return inputs(function)
    if function["c"] in {"Lag", "Lead"}:
        return [function["k"][0], function["k"][2]]
    if function["c"] == "NthValue":
        return [function["k"][0]]
    return []


def _window_call(call: Json, placed: Placed, wanted: list[Expression], frame: plan.Frame) -> tuple[Any, ...]:
    function = call["k"][0]
    scope = placed.scope

    def put(item: Json) -> int:
        wanted.append(translate(item, scope))
        return len(wanted) - 1

    name = function["c"]
    if name == "AggregateExpression":
        inner = function["k"][0]
        if not is_known(inner):
            raise Unsupported(f"the window function {inner['c']}")
        indexes, call_options = arguments(inner, placed, wanted)
        condition = put(function["k"][1]) if len(function["k"]) > 1 else None
        distinct = bool(function["a"]["isDistinct"])
        return inner["c"], indexes, call["t"], frame, distinct, condition, call_options
    if name in RANKING:
        extra: tuple[tuple[str, Any], ...] = ()
        if name == "NTile":
            extra = (("buckets", _constant(function["k"][0], "NTILE")),)
        return name, (), call["t"], frame, False, None, extra
    if name in OFFSET:
        taken = [put(function["k"][0])]
        offset_options = {"offset": _constant(function["k"][1], name)}
        ignore = (function.get("a") or {}).get("ignoreNulls", False)
        offset_options["ignoreNulls"] = bool(ignore)
        if name in {"Lag", "Lead"}:
            default = function["k"][2]
            if not (default["c"] == "Literal" and default["v"] is None):
                taken.append(put(default))
        return name, tuple(taken), call["t"], frame, False, None, tuple(sorted(offset_options.items()))
    raise Unsupported(f"the kernel does not know the window function {name}")


def _constant(item: Json, name: str) -> int:
    if item["c"] == "UnaryMinus":
        return -_constant(item["k"][0], name)
    if item["c"] != "Literal":
        raise Unsupported(f"{name} with an offset that is not constant")
    return int(item["v"])


def _frame(spec: Json, orders: list[Expression], zone: str) -> plan.Frame:
    inner = next(item for item in walk(spec) if item["c"].endswith("WindowFrame") or "Frame" in item["c"])
    if inner["c"] != "SpecifiedWindowFrame":
        raise Unsupported(f"a window frame of the kind {inner['c']}")
    unit = "rows" if inner["a"]["frameType"]["p"] == "RowFrame" else "range"
    lower, upper = (_bound(item, orders, zone) for item in inner["k"])
    return plan.Frame("rows" if unit == "rows" else "range", lower, upper)


def _bound(item: Json, orders: list[Expression], zone: str) -> Any:
    if item["c"] in {"UnboundedPreceding$", "UnboundedFollowing$"}:
        return None
    if item["c"] == "CurrentRow$":
        return 0
    bound = translate(item, {})
    sign = 1
    while isinstance(bound, Call) and bound.name == "UnaryMinus":
        sign, bound = -sign, bound.args[0]
    if not isinstance(bound, Literal):
        raise Unsupported("a window bound that is not constant")
    if bound.type.startswith("interval"):
        return sign * _length(bound, orders[0].type, zone)
    return sign * bound.value


def _length(bound: Literal, order: str, zone: str) -> int:
    """An interval in the unit of the column that it is added to: days of a date, microseconds of a timestamp."""
    months, days, micros = 0, 0, 0
    if isinstance(bound.value, tuple):
        months, days, micros = bound.value
    elif "month" in bound.type or "year" in bound.type:
        months = bound.value
    else:
        micros = bound.value
    length = days * _DAY + micros
    if months:
        raise Unsupported("a window frame of months, which are not all of one length")
    if order == "date":
        return length // _DAY
    if order == "timestamp" and abs(length) >= _DAY and zones.fixed_offset(zone) is None:
        raise Unsupported(f"a window frame of days, which in {zone} are not all of one length")
    return length


def ranked(context: TranslationContext, node: Json) -> Placed | None:
    """`row_number() <= k` over a window as a top-k per partition; None when a filter is something else."""
    below = node["k"][0]
    if below["c"] != "Window":
        return None
    expressions = [item["e"] for item in below["a"]["windowExpressions"]]
    if len(expressions) != 1 or _window_expression(expressions[0])["k"][0]["c"] != "RowNumber":
        return None
    rank = expressions[0]["id"]
    parts = conjuncts(node["a"]["condition"]["e"])
    limits = [(_at_most(part, rank), part) for part in parts]
    bounds = [limit for limit, _ in limits if limit is not None]
    if not bounds:
        return None
    limit = max(min(bounds), 0)
    windowed = window(context, below)
    rest = [part for bound, part in limits if bound is None or (part["c"] == "EqualTo" and limit > 1)]
    top = _replace_window(windowed, limit)
    if rest:
        ready = prepare(context, top, rest)
        test = conjunction([translate(part, ready.scope) for part in rest])
        top = select(Placed(plan.Filter(ready.node.fields, ready.node, test), ready.keys), top.keys)
    return top


def _replace_window(placed: Placed, limit: int) -> Placed:
    """The same plan with the row_number window as a TopK that gives the rank."""
    node = placed.node
    if isinstance(node, plan.Window):
        top = plan.TopK(node.fields, node.input, node.partition, node.order, limit, rank_field=True)
        return Placed(top, placed.keys)
    assert isinstance(node, plan.Project)
    inner = _replace_window(Placed(node.input, ()), limit)
    return Placed(plan.Project(node.fields, inner.node, node.expressions), placed.keys)


def _at_most(part: Json, rank: int) -> int | None:
    """The largest row number that a condition lets through, None when it is no such bound."""
    if part["c"] not in {"LessThan", "LessThanOrEqual", "EqualTo", "GreaterThan", "GreaterThanOrEqual"}:
        return None
    column, bound = part["k"]
    name = part["c"]
    if column["c"] == "Literal":
        column, bound = bound, column
        name = {"GreaterThan": "LessThan", "GreaterThanOrEqual": "LessThanOrEqual", "EqualTo": "EqualTo"}.get(
            name, ""
        )
    if (
        column["c"] != "AttributeReference"
        or column["id"] != rank
        or bound["c"] != "Literal"
        or bound["v"] is None
    ):
        return None
    if name in {"LessThanOrEqual", "EqualTo"}:
        return int(bound["v"])
    return int(bound["v"]) - 1 if name == "LessThan" else None
