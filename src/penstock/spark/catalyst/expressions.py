"""Catalyst's expressions, as Front.java describes them, to penstock's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.functions.scalars import array_sort, zones
from penstock.plan.expression import Call, Column, Expression, Lambda, Literal, Parameter
from penstock.plan.node import Field
from penstock.spark.catalyst.bridge import NOW
from penstock.spark.catalyst.literals import decode

Json = Mapping[str, Any]
_DAY = 86_400_000_000  # microseconds

# What an expression may refer to: ("a", exprId) an attribute, ("s", exprId) a scalar subquery's value,
# ("x", place) an expression that Spark evaluates -> the column's position and field; ("l", exprId) a parameter of a
# lambda -> its number.
Scope = Mapping[tuple[str, int], tuple[int, Field]]

# Wrappers that say something to Spark's planner and nothing about the value.
_TRANSPARENT = {
    "Alias",
    "KnownFloatingPointNormalized",
    "KnownNotContainsNull",
    "KnownNotNull",
    "KnownNullable",
    "TempResolvedColumn",
}


class Unresolved(Exception):
    """An expression refers to a column that is not in scope."""


def translate(node: Json, scope: Scope) -> Expression:
    """Return the expression over the positions of the scope."""
    name = node["c"]
    if ("x", node["at"]) in scope:
        return _column(scope, ("x", node["at"]))
    if name == "AttributeReference":
        return _column(scope, ("a", node["id"]))
    if name == "Literal":
        return Literal(decode(node["v"], node["t"]), node["t"])
    if name in _TRANSPARENT:
        return translate(node["k"][0], scope)
    if name == "ScalarSubquery":
        if is_now(node):
            return Call("CurrentTimestamp", (), "timestamp", nullable=False)
        return _column(scope, ("s", node["id"]))
    if name == "NamedLambdaVariable":
        number, field = _bound(scope, ("l", node["id"]))
        return Parameter(number, field.type, field.nullable, field.name)
    if name == "LambdaFunction":
        return _lambda(node, scope)
    args = tuple(translate(child, scope) for child in node.get("k", ()))
    if name == "TimestampAddInterval":
        args = (args[0], _day_time(args[1], zone=node["a"].get("timeZoneId")))
    if name == "ArraySort":
        args = (args[0], *array_sort.with_key(args[1]))
    return Call(name, args, node.get("t", ""), node.get("n", True), options(node.get("a", {})))


def _day_time(interval: Expression, *, zone: str | None) -> Expression:
    """A constant calendar interval that adds to a timestamp what a day-time interval adds, as that; others as they are."""
    if interval.type != "interval" or not isinstance(interval, Literal) or interval.value is None:
        return interval
    months, days, micros = interval.value
    # A day-time interval has its whole days added in local time, a calendar interval the days that it names.
    same = abs(micros) < _DAY and days * micros >= 0
    if months or not (same or zones.fixed_offset(zone) is not None):
        return interval
    return Literal(days * _DAY + micros, "interval day to second")


def _lambda(node: Json, scope: Scope) -> Lambda:
    """A lambda: its parameters are numbered behind those of the lambdas around it."""
    first = sum(key[0] == "l" for key in scope)
    body, *variables = node["k"]
    parameters = tuple(
        Parameter(number, item["t"], item["n"], _shown(item["name"]))
        for number, item in enumerate(variables, first)
    )
    bound = {
        ("l", item["id"]): (parameter.number, Field(parameter.name, parameter.type, parameter.nullable))
        for item, parameter in zip(variables, parameters, strict=True)
    }
    return Lambda(parameters, translate(body, {**scope, **bound}))


def _shown(name: str) -> str:
    """The name of a parameter; those of DataFrames have a number that differs in every process."""
    return re.sub(r"_\d+$", "", name)


def _column(scope: Scope, key: tuple[str, int]) -> Column:
    index, field = _bound(scope, key)
    return Column(index, field.type, field.nullable, field.name)


def _bound(scope: Scope, key: tuple[str, int]) -> tuple[int, Field]:
    if key not in scope:
        raise Unresolved(f"{key}")
    return scope[key]


def options(arguments: Json) -> tuple[tuple[str, Any], ...]:
    """Return the constructor arguments that are not children: modes, formats, zones."""
    values: dict[str, Any] = {}
    for name, value in arguments.items():
        if name == "evalContext" and isinstance(value, dict):
            values["evalMode"] = value.get("evalMode")
        elif isinstance(value, str | int | bool) and value is not None:
            values[name] = value
        elif isinstance(value, list) and value and all(isinstance(item, str | int | bool) for item in value):
            values[name] = tuple(value)
        elif name == "defaultValueOutOfBound" and value is not None:
            # What split_part gives beyond the last part; it is no child of the call.
            values[name] = value["e"]["v"]
    return tuple(sorted(values.items()))


def is_now(node: Json) -> bool:
    """Say whether a subquery stands for the tick's time."""
    if node["c"] != "ScalarSubquery" or not node["plan"]["o"]:
        return False
    leaf = node["plan"]
    while leaf["k"]:
        leaf = leaf["k"][0]
    return bool(leaf["o"]) and leaf["c"] == "LogicalRDD" and leaf["o"][0][4] == NOW


def reads_time(node: Json) -> bool:
    """Say whether an expression asks for the tick's time."""
    return any(item["c"] == "ScalarSubquery" and is_now(item) for item in walk(node))


def walk(node: Json) -> Iterator[Json]:
    """Yield an expression and everything below it, in the order of Front.java's places."""
    yield node
    for child in node.get("k", ()):
        yield from walk(child)


def nested(value: Any) -> Iterator[Json]:
    """Yield the expressions inside a plan node's arguments, the outermost ones."""
    if isinstance(value, dict):
        if "e" in value:
            yield value["e"]
        elif "plan" not in value:
            for item in value.values():
                yield from nested(item)
    elif isinstance(value, list):
        for item in value:
            yield from nested(item)


def references(node: Json) -> set[int]:
    """The ids of the attributes that an expression reads."""
    return {item["id"] for item in walk(node) if item["c"] == "AttributeReference"}


def conjuncts(node: Json) -> list[Json]:
    """Split a condition at its ANDs."""
    if node["c"] == "And":
        return [part for child in node["k"] for part in conjuncts(child)]
    return [node]
