"""Filters: the parts of a condition in an order in which none raises for a row that Spark does not ask it about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from penstock.functions import argument_order
from penstock.functions.argument_order import DIVISIONS, NEVER_RAISE, NULL_INTOLERANT, widens
from penstock.plan import node as plan
from penstock.plan.expression import Column, conjunction
from penstock.spark.catalyst.expressions import Json, conjuncts, references, translate, walk
from penstock.spark.catalyst.placed import Key, Placed, TranslationContext, asks_spark, prepare, select

_LEAVES = frozenset({"AttributeReference", "Literal", "ScalarSubquery"})
_NOWHERE = -1  # the place of an expression that Catalyst's plan does not have


def selection(context: TranslationContext, node: Json, needed: set[int] | None) -> Placed:
    """Rows for which the condition is TRUE."""
    condition = node["a"]["condition"]["e"]
    below = None if needed is None else needed | references(condition)
    child = context.plan(node["k"][0], below)
    parts = conjuncts(condition)
    if any(may_raise(part) for part in parts):
        parts = [*_inferred(parts), *parts]
    return filtered(context, child, parts)


def _inferred(parts: Sequence[Json]) -> list[Json]:
    """IS NOT NULL of the columns without which some part is NULL: Spark asks it before all parts that may raise."""
    checked = {part["k"][0]["id"] for part in parts if is_null_check(part)}
    columns = {
        column["id"]: column
        for part in parts
        for column in decisive(part["k"][0] if part["c"] == "IsNotNull" else part)
        if column.get("n", True) and column["id"] not in checked
    }
    return [
        {"c": "IsNotNull", "k": [column], "t": "boolean", "n": False, "a": {}, "at": _NOWHERE, "sql": ""}
        for column in columns.values()
    ]


def decisive(item: Json) -> Iterator[Json]:
    """The columns that make an expression NULL when they are."""
    if item["c"] == "AttributeReference":
        yield item
    elif item["c"] in NULL_INTOLERANT or item["c"] in DIVISIONS:
        for child in item.get("k", ()):
            yield from decisive(child)


def filtered(context: TranslationContext, child: Placed, parts: Sequence[Json]) -> Placed:
    """Rows for which all parts of a condition are TRUE."""
    child, parts = _below(context, child, parts)
    result = child
    for group in _groups(context, child, parts):
        ready = prepare(context, result, group)
        test = conjunction([translate(part, ready.scope) for part in group])
        passed = Placed(plan.Filter(ready.node.fields, ready.node, test), ready.keys)
        result = select(passed, child.keys)
    return result


def _groups(context: TranslationContext, child: Placed, parts: Sequence[Json]) -> list[list[Json]]:
    """The parts of one filter after the other.

    What the kernel knows is asked first, unless one part may raise for a row that the other refuses: then their order decides. A
    function of Spark's that may raise sees only the rows that the parts before it have passed.
    """
    if prepare(context, child, parts) is child:
        return [list(parts)] if parts else []
    first: list[Json] = []
    later: list[list[Json]] = []
    later_raises = False
    for part in _asked(parts):
        ready = prepare(context, child, [part])
        of_spark, raises = asks_spark(child, ready), may_raise(part)
        if ready is child and not (later and (raises or later_raises)):
            first.append(part)
            continue
        if not later or (of_spark and raises):
            later.append([part])
        else:
            later[-1].append(part)
        later_raises = later_raises or raises
    return [first, *later] if first else later


def _asked(parts: Sequence[Json]) -> Iterator[Json]:
    """The parts as Spark asks them: IS NOT NULL of a column just before the first part that reads it."""
    checks = [part for part in parts if is_null_check(part)]
    asked: list[Json] = []
    for part in parts:
        if part not in checks:
            due = [check for check in checks if check not in asked and references(check) <= references(part)]
            asked += due
            yield from (*due, part)
    yield from (check for check in checks if check not in asked)


def is_null_check(part: Json) -> bool:
    """Whether a condition is IS NOT NULL of a column."""
    return bool(part["c"] == "IsNotNull" and part["k"][0]["c"] == "AttributeReference")


def may_raise(part: Json) -> bool:
    """Whether there may be a row for which a condition raises."""
    return any(item["c"] not in _LEAVES and not _never_raises(item) for item in walk(part))


def _never_raises(item: Json) -> bool:
    if item["c"] == "Cast":
        return widens(item["k"][0]["t"], item["t"])
    return item["c"] in NEVER_RAISE


def _below(
    context: TranslationContext, child: Placed, parts: Sequence[Json]
) -> tuple[Placed, Sequence[Json]]:
    """Filter below expressions that may raise, by the parts that come before any that reads them: Spark computes them
    behind the filter.

    `sum(a) / sum(b) ... HAVING sum(b) <> 0` is such a case. Returns what is left to filter by.
    """
    node = child.node
    if isinstance(node, plan.Project) and (
        _is_stateless(node.input)
        or any(argument_order.may_raise(expression) for expression in node.expressions)
    ):
        below: plan.Node = node.input
        copies: dict[int, Key] = {}
        for key, expression in zip(child.keys, node.expressions, strict=True):
            if isinstance(expression, Column):
                copies.setdefault(expression.index, key)
        keys = tuple(copies.get(index, ("below", index)) for index in range(len(below.fields)))
    elif isinstance(node, plan.Spark) and _is_stateless(node):
        below = node.inputs[0]
        keys = child.keys[: len(below.fields)]
    else:
        return child, parts
    readable = {number for kind, number in keys if kind == "a"}
    ahead = list(takewhile(lambda part: _reads_only(part, readable), _asked(parts)))
    if not ahead:
        return child, parts
    passed = filtered(context, Placed(below, keys), ahead).node
    moved = replace(node, input=passed) if isinstance(node, plan.Project) else replace(node, inputs=(passed,))
    return Placed(moved, child.keys), [part for part in parts if part not in ahead]


def _is_stateless(node: plan.Node) -> bool:
    """Whether a node adds expressions of Spark's to the columns of its input."""
    return isinstance(node, plan.Spark) and node.stateless and bool(node.bindings)


def _reads_only(part: Json, readable: set[int]) -> bool:
    return references(part) <= readable and all(item["c"] != "ScalarSubquery" for item in walk(part))
