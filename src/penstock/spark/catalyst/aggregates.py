"""Aggregates: arguments computed below, expressions over the results above, and by position in between."""

from __future__ import annotations

from typing import Any

from penstock.plan import node as plan
from penstock.plan.expression import Call, Expression, Literal
from penstock.spark.catalyst.expressions import Json, Unresolved, options, references, translate, walk
from penstock.spark.catalyst.placed import (
    Context,
    Key,
    Placed,
    Unsupported,
    attribute_keys,
    fields_of,
    prepare,
    project,
    refuse_random,
    select,
)
from penstock.spark.catalyst.relations import with_columns

# Catalyst's aggregate classes that the kernel keeps, and which of their arguments are constants that become options.
KNOWN: dict[str, tuple[str, ...]] = {
    "Count": (),
    "Sum": (),
    "Average": (),
    "Min": (),
    "Max": (),
    "First": (),
    "Last": (),
    "MinBy": (),
    "MaxBy": (),
    "StddevPop": (),
    "StddevSamp": (),
    "VariancePop": (),
    "VarianceSamp": (),
    "Skewness": (),
    "Kurtosis": (),
    "Corr": (),
    "CovPopulation": (),
    "CovSample": (),
    "BitAndAgg": (),
    "BitOrAgg": (),
    "BitXorAgg": (),
    "CollectList": (),
    "CollectSet": (),
    "Mode": (),
    "Percentile": ("percentageExpression", "frequencyExpression"),
    "PercentileCont": ("percentageExpression",),
    "PercentileDisc": ("percentageExpression",),
    "Median": (),
}
_INTERNAL_OPTIONS = {"mutableAggBufferOffset", "inputAggBufferOffset"}


def aggregate(context: Context, node: Json) -> Placed:
    """One row per group."""
    grouping: list[Json] = [item["e"] for item in node["a"]["groupingExpressions"]]
    results: list[Json] = [item["e"] for item in node["a"]["aggregateExpressions"]]
    calls = [item for result in results for item in walk(result) if item["c"] == "AggregateExpression"]
    foreign = [call for call in calls if call["k"][0]["c"] not in KNOWN]
    calls = [call for call in calls if call["k"][0]["c"] in KNOWN]
    below: set[int] = set().union(*(references(item) for item in (*grouping, *results)))
    inner = [argument for call in calls for argument in (*call["k"][0]["k"], *call["k"][1:])]
    source = context.plan(node["k"][0], None if foreign else below)
    child = prepare(context, source, [*grouping, *inner])
    key_expressions = [translate(item, child.scope) for item in grouping]
    wanted = [normalised(item) for item in key_expressions]
    taken = [_call(call, child, wanted) for call in calls]
    names = [_name(item, index) for index, item in enumerate(grouping)]
    names += [f"argument_{index}" for index in range(len(wanted) - len(names))]
    placed, positions = with_columns(child, wanted, names)
    made = [_place(one, positions) for one in taken]
    unique = list(dict.fromkeys(made))
    keys = tuple(positions[: len(grouping)])
    fields = [
        plan.Field(name, item.type, item.nullable)
        for name, item in zip(names, wanted[: len(grouping)], strict=False)
    ]
    for index, spec in enumerate(unique):
        nullable = spec.function not in {"Count", "CollectList", "CollectSet"}
        fields.append(plan.Field(f"{spec.function.lower()}_{index}", spec.type, nullable))
    whole: plan.Node = plan.Aggregate(tuple(fields), placed.node, keys, tuple(unique))
    slots = {call["at"]: len(keys) + unique.index(one) for call, one in zip(calls, made, strict=True)}
    if foreign:
        whole = _with_foreign(context, node, source, whole, len(keys), foreign, slots)
    above = Placed(whole, tuple(("k", index) for index in range(len(whole.fields))))
    return _results(context, node, results, above, child, key_expressions, slots)


def _with_foreign(
    context: Context,
    node: Json,
    source: Placed,
    known: plan.Node,
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
        (*known.fields[:keys], *fields),
        (select(source, attribute_keys(node["k"][0])).node,),
        (node["at"], *(call["at"] for call in foreign)),
        "Aggregate",
        stateless=False,
        reason=f"the aggregate {', '.join(names)}",
    )
    if len(known.fields) == keys:
        slots.update({call["at"]: keys + index for index, call in enumerate(foreign)})
        return spark
    width = len(known.fields)
    slots.update({call["at"]: width + keys + index for index, call in enumerate(foreign)})
    same = tuple(range(keys))
    return plan.Join((*known.fields, *spark.fields), known, spark, "inner", same, same, (True,) * keys)


def _results(
    context: Context,
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
    name = function["c"]
    arguments = function["k"]
    found = dict(options(function.get("a", {})))
    for internal in _INTERNAL_OPTIONS:
        found.pop(internal, None)
    constants = {
        function["a"][key]["k"]: key
        for key in KNOWN[name]
        if isinstance(function["a"].get(key), dict) and "k" in function["a"][key]
    }
    places: list[int] = []
    scope = child.scope
    for index, argument in enumerate(arguments):
        expression = translate(argument, scope)
        if index in constants:
            if not isinstance(expression, Literal):
                raise Unsupported(f"{name} with a {constants[index]} that is not constant")
            value = expression.value
            found[constants[index].removesuffix("Expression")] = (
                tuple(value) if isinstance(value, list) else value
            )
            continue
        places.append(len(wanted))
        wanted.append(expression)
    if name == "Count":
        if all(_is_constant(wanted[place]) for place in places):
            del wanted[len(wanted) - len(places) :]
            places = []
        found.clear()
    condition = None
    if len(call["k"]) > 1:
        condition = len(wanted)
        wanted.append(translate(call["k"][1], scope))
    return (
        name,
        tuple(places),
        call["t"],
        bool(call["a"]["isDistinct"]),
        condition,
        tuple(sorted(found.items())),
    )


def _is_constant(expression: Expression) -> bool:
    return isinstance(expression, Literal) and expression.value is not None


def _place(spec: Spec, positions: list[int]) -> plan.AggregateCall:
    name, arguments, kind, distinct, condition, found = spec
    return plan.AggregateCall(
        name,
        tuple(positions[index] for index in arguments),
        kind,
        distinct,
        None if condition is None else positions[condition],
        found,
    )
