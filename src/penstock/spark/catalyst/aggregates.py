"""Aggregates: arguments computed below, expressions over the results above, and by position in between."""

from __future__ import annotations

from typing import Any

from penstock.functions.aggregates import AGGREGATES, unsupported
from penstock.functions.argument_order import FILTER_ARGUMENT, FILTER_CONDITION, may_raise
from penstock.functions.scalars.digests import hashable
from penstock.plan import node as plan
from penstock.plan.expression import Call, Expression, Literal, conjunction
from penstock.spark.catalyst import meaning, sessions
from penstock.spark.catalyst.expressions import Json, Unresolved, options, references, translate, walk
from penstock.spark.catalyst.literals import decode
from penstock.spark.catalyst.placed import (
    Key,
    Placed,
    TranslationContext,
    Unsupported,
    asks_spark,
    attribute_keys,
    fields_of,
    prepare,
    project,
    refuse_collated,
    refuse_random,
    select,
)
from penstock.spark.catalyst.relations import with_columns

# The arguments of aggregates that are constants, and become options of the call.
_CONSTANTS: dict[str, tuple[str, ...]] = {
    "ListAgg": ("delimiter",),
    "Percentile": ("percentageExpression", "frequencyExpression"),
    "PercentileCont": ("percentageExpression",),
    "PercentileDisc": ("percentageExpression",),
}
_INTERNAL_OPTIONS = {"mutableAggBufferOffset", "inputAggBufferOffset"}


def aggregate(context: TranslationContext, node: Json) -> Placed:
    """One row per group."""
    grouping: list[Json] = [item["e"] for item in node["a"]["groupingExpressions"]]
    results: list[Json] = [item["e"] for item in node["a"]["aggregateExpressions"]]
    refuse_collated(grouping, "GROUP BY")
    calls = [item for result in results for item in walk(result) if item["c"] == "AggregateExpression"]
    foreign = [call for call in calls if not is_known(call["k"][0])]
    calls = [call for call in calls if is_known(call["k"][0])]
    below: set[int] = set().union(*(references(item) for item in (*grouping, *results)))
    source = context.plan(node["k"][0], None if foreign else below)
    session = sessions.session_key(grouping)
    if session is not None and any(call["k"][0]["c"] == "PivotFirst" for call in calls):
        # Sessions of several pivot values are merged again, and then one of several rows counts.
        raise Unsupported("PIVOT of session windows")
    merged = source
    if session is not None and _reads_merged(grouping[session], [*calls, *foreign]):
        merged, session = _with_merged(prepare(context, source, grouping), grouping, session), None
    child = _with_inputs(context, merged, grouping, calls)
    key_expressions = [translate(item, child.scope) for item in grouping]
    wanted = [normalised(item) for item in key_expressions]
    specs = [_call(call, child, wanted) for call in calls]
    names = [_name(item, index) for index, item in enumerate(grouping)]
    names += [f"argument_{index}" for index in range(len(wanted) - len(names))]
    placed, positions = with_columns(child, wanted, names)
    aggregate_calls = [_aggregate_call(spec, positions) for spec in specs]
    unique = list(dict.fromkeys(aggregate_calls))
    keys = tuple(positions[: len(grouping)])
    fields = [
        plan.Field(name, item.type, item.nullable)
        for name, item in zip(names, wanted[: len(grouping)], strict=False)
    ]
    for index, call in enumerate(unique):
        nullable = call.function not in {"Count", "CollectList", "CollectSet", "HyperLogLogPlusPlus"}
        fields.append(plan.Field(f"{call.function.lower()}_{index}", call.type, nullable))
    groups: plan.Node = plan.Aggregate(tuple(fields), placed.node, keys, tuple(unique))
    if session is not None:
        groups = sessions.groups(placed.node, keys, session, tuple(fields), unique)
    slots = {
        call["at"]: len(keys) + unique.index(aggregate_call)
        for call, aggregate_call in zip(calls, aggregate_calls, strict=True)
    }
    if foreign:
        groups = _with_foreign(context, node, source, groups, len(keys), foreign, slots)
    above = Placed(groups, tuple(("k", index) for index in range(len(groups.fields))))
    return _results(context, node, results, above, child, key_expressions, slots)


def _with_inputs(
    context: TranslationContext, source: Placed, grouping: list[Json], calls: list[Json]
) -> Placed:
    """Add the columns that keys and arguments need; an argument counts on the rows that pass the FILTER of its call."""
    filters = {call["at"]: call["k"][1] for call in calls if len(call["k"]) > 1}
    read = [(part, call["at"]) for call in calls for part in inputs(call)[: len(call["k"][0]["k"])]]
    placed, passes = source, {}
    if asks_spark(source, prepare(context, source, [part for part, at in read if at in filters])):
        placed = prepare(context, source, filters.values())
        conditions = [_condition(translate(item, placed.scope)) for item in filters.values()]
        placed, positions = with_columns(placed, conditions, [f"passes_{at}" for at in filters])
        passes = dict(zip(filters, positions, strict=True))
    expressions = [*grouping, *filters.values(), *(part for part, _ in read)]
    where = [None] * (len(grouping) + len(filters)) + [passes.get(at) for _, at in read]
    return prepare(context, placed, expressions, where=where)


def _reads_merged(session: Json, calls: list[Json]) -> bool:
    """Whether arguments see merged sessions: with a DISTINCT Spark merges them before it aggregates, else while it does."""
    read = set().union(*(references(argument) for call in calls for argument in inputs(call)))
    return session["id"] in read and any(call["a"]["isDistinct"] for call in calls)


def _with_merged(child: Placed, grouping: list[Json], session: int) -> Placed:
    """The rows with merged sessions."""
    wanted = [normalised(translate(item, child.scope)) for item in grouping]
    names = [_name(item, index) for index, item in enumerate(grouping)]
    placed, positions = with_columns(child, wanted, names)
    return sessions.updated(placed, positions, session)


def is_known(function: Json) -> bool:
    """Say whether the kernel keeps an aggregate function: its options must be constant, and its text be compared by bytes."""
    return (
        function["c"] in AGGREGATES.builtin
        and all(function["k"][place]["c"] == "Literal" for place in constants(function))
        and not any("collate" in argument.get("t", "") for argument in function["k"])
        and (function["c"] != "HyperLogLogPlusPlus" or hashable(function["k"][0]["t"]))
    )


def constants(function: Json) -> dict[int, str]:
    """The positions of an aggregate's constant arguments, and the names of the options that they become."""
    places = ((name, function["a"].get(name)) for name in _CONSTANTS.get(function["c"], ()))
    return {
        place["k"]: name.removesuffix("Expression")
        for name, place in places
        if isinstance(place, dict) and "k" in place
    }


def inputs(call: Json) -> list[Json]:
    """The expressions that an aggregate call reads: arguments, what orders them, the filter."""
    parts = [*call["k"][0]["k"], *call["k"][1:]]
    return [part["k"][0] if part["c"] == "SortOrder" else part for part in parts]


def _with_foreign(
    context: TranslationContext,
    node: Json,
    source: Placed,
    groups: plan.Node,
    keys: int,
    foreign: list[Json],
    slots: dict[int, int],
) -> plan.Node:
    """Spark's groups with the calls that the kernel lacks, next to the kernel's own groups."""
    if any(item["c"] == "ScalarSubquery" for call in foreign for item in walk(call)):
        raise Unsupported(f"the aggregate {foreign[0]['k'][0]['c']} over a scalar subquery")
    for call in foreign:
        for item in walk(call):
            refuse_random(item)
    fields = tuple(plan.Field(f"spark_{call['at']}", call["t"], call.get("n", True)) for call in foreign)
    names = dict.fromkeys(call["k"][0]["c"] for call in foreign)
    spark = plan.Spark(
        (*groups.fields[:keys], *fields),
        (select(source, attribute_keys(node["k"][0])).node,),
        (node["at"], *(call["at"] for call in foreign)),
        "Aggregate",
        stateless=False,
        reason=f"the aggregate {', '.join(names)}",
        meaning=meaning.of_operators([node], foreign, code=context.has_code),
    )
    if len(groups.fields) == keys:
        slots.update({call["at"]: keys + index for index, call in enumerate(foreign)})
        return spark
    width = len(groups.fields)
    slots.update({call["at"]: width + keys + index for index, call in enumerate(foreign)})
    same = tuple(range(keys))
    return plan.Join((*groups.fields, *spark.fields), groups, spark, "inner", same, same, (True,) * keys)


def _results(
    context: TranslationContext,
    node: Json,
    results: list[Json],
    above: Placed,
    child: Placed,
    keys: list[Expression],
    slots: dict[int, int],
) -> Placed:
    """The output columns: grouping keys and aggregates are columns now, and expressions over them are computed."""
    rewritten = [_rewrite(item, child, keys, slots) for item in results]
    # The rewritten results refer to keys and aggregates as attributes of their own, so they are prepared like any projection.
    ready = Placed(above.node, tuple(("a", -1 - index) for index in range(len(above.keys))))
    ready = prepare(context, ready, rewritten)
    scope = ready.scope
    chosen: list[tuple[Key, plan.Field, Expression]] = [
        (key, item, translate(result, scope))
        for key, item, result in zip(attribute_keys(node), fields_of(node), rewritten, strict=True)
    ]
    return project(ready, chosen)


def _rewrite(item: Json, child: Placed, keys: list[Expression], slots: dict[int, int]) -> Json:
    """Replace grouping expressions and aggregates by references to the aggregate's output (ids below zero)."""
    if item["at"] in slots:
        return {**item, "c": "AttributeReference", "id": -1 - slots[item["at"]], "k": []}
    try:
        own = translate(item, child.scope)
    except Unresolved:
        own = None
    if own is not None and not isinstance(own, Literal) and own in keys and item["c"] != "Alias":
        return {**item, "c": "AttributeReference", "id": -1 - keys.index(own), "k": []}
    if not item.get("k"):
        if own is not None and own in keys and item["c"] != "Literal":
            return {**item, "c": "AttributeReference", "id": -1 - keys.index(own)}
        return item
    return {**item, "k": [_rewrite(part, child, keys, slots) for part in item["k"]]}


def normalised(expression: Expression) -> Expression:
    """A grouping key as Spark groups by it: one NaN, no negative zero."""
    if "float" in expression.type or "double" in expression.type:
        return Call("NormalizeNaNAndZero", (expression,), expression.type, expression.nullable)
    return expression


def _name(item: Json, index: int) -> str:
    name = item.get("name")
    return name if isinstance(name, str) else f"key_{index}"


Spec = tuple[str, tuple[int, ...], str, bool, int | None, tuple[tuple[str, Any], ...]]


def _call(call: Json, child: Placed, wanted: list[Expression]) -> Spec:
    """One aggregate call; its arguments are appended to the columns wanted below."""
    function = call["k"][0]
    passes = translate(call["k"][1], child.scope) if len(call["k"]) > 1 else None
    indexes, call_options = arguments(function, child, wanted, passes)
    condition = None
    if passes is not None:
        condition = len(wanted)
        wanted.append(_condition(passes))
    return function["c"], indexes, call["t"], bool(call["a"]["isDistinct"]), condition, call_options


def arguments(
    function: Json, child: Placed, wanted: list[Expression], passes: Expression | None = None
) -> tuple[tuple[int, ...], tuple[tuple[str, Any], ...]]:
    """The columns that an aggregate function reads, by their index in `wanted`, and its options.

    `passes` is the condition of the rows that it reads.
    """
    scope = child.scope
    call_options = {
        key: value for key, value in options(function.get("a", {})) if key not in _INTERNAL_OPTIONS
    }
    if function["c"] == "PivotFirst":
        kind = function["k"][0]["t"]
        listed = function["a"]["pivotColumnValues"]["values"]
        call_options["pivotColumnValues"] = tuple(Literal(decode(value, kind), kind) for value in listed)
    named = constants(function)
    taken: list[Expression] = []
    order: list[tuple[int, bool, bool]] = []
    for index, argument in enumerate(function["k"]):
        if index in named:
            value = translate(argument, scope)
            assert isinstance(value, Literal)
            plain = tuple(value.value) if isinstance(value.value, list) else value.value
            call_options[named[index]] = plain
        elif argument["c"] == "SortOrder":
            order.append(
                (
                    len(taken),
                    argument["a"]["direction"]["p"] == "Descending",
                    argument["a"]["nullOrdering"]["p"] == "NullsFirst",
                )
            )
            taken.append(translate(argument["k"][0], scope))
        else:
            taken.append(translate(argument, scope))
    if order:
        call_options["order"] = tuple(order)
    if function["c"] == "Count":
        # COUNT(1) and COUNT(*) count rows.
        taken = [] if all(_is_constant(item) for item in taken) else taken
        call_options.clear()
    taken = [_where_read(function["c"], taken[:index], item, passes) for index, item in enumerate(taken)]
    indexes = tuple(range(len(wanted), len(wanted) + len(taken)))
    wanted.extend(taken)
    return indexes, tuple(sorted(call_options.items()))


def _condition(passes: Expression) -> Expression:
    """The condition of a FILTER, of which a row that one part refuses does not reach the next."""
    if not may_raise(passes):
        return passes
    return Call(FILTER_CONDITION, (passes,), "boolean", passes.nullable)


def _where_read(
    function: str, before: list[Expression], argument: Expression, passes: Expression | None
) -> Expression:
    """An argument that must not raise for a row that the FILTER refuses, or that COUNT leaves out for a NULL before it."""
    conditions = [] if passes is None else [passes]
    if function == "Count":
        conditions += [Call("IsNotNull", (item,), "boolean", nullable=False) for item in before]
    if not conditions or not may_raise(argument):
        return argument
    return Call(FILTER_ARGUMENT, (argument, conjunction(conditions)), argument.type, argument.nullable)


def _is_constant(expression: Expression) -> bool:
    return isinstance(expression, Literal) and expression.value is not None


def _aggregate_call(spec: Spec, positions: list[int]) -> plan.AggregateCall:
    name, indexes, kind, distinct, condition, call_options = spec
    call = plan.AggregateCall(
        name,
        tuple(positions[index] for index in indexes),
        kind,
        distinct,
        None if condition is None else positions[condition],
        call_options,
    )
    why = unsupported(call)
    if why is not None:
        raise Unsupported(why)
    return call
