"""Leaves and the operators that look at one row at a time: scans, values, projections, filters, unions, generators."""

from __future__ import annotations

from typing import Any

from penstock.functions import evaluate
from penstock.functions.generate import GENERATORS
from penstock.plan import node as plan
from penstock.plan.expression import Call, Column, Expression, Literal
from penstock.spark.catalyst import literals
from penstock.spark.catalyst.expressions import Json, options, reads_time, references, translate
from penstock.spark.catalyst.placed import (
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

_MOST_VALUES = 100_000


def scan(node: Json, needed: set[int] | None) -> Placed:
    """A relation of the flow, with the columns that are read."""
    attributes = [item for item in node["o"] if needed is None or item[0] in needed]
    fields = tuple(plan.Field(item[1], item[2], item[3]) for item in attributes)
    scanned = plan.Scan(fields, node["o"][0][4], tuple(item[5] for item in attributes))
    return Placed(scanned, tuple(("a", item[0]) for item in attributes))


def values(node: Json) -> Placed:
    """Constant rows."""
    fields = fields_of(node)
    rows = literals.rows(node["a"]["rows"], [item.type for item in fields])
    return Placed(plan.Values(fields, rows), attribute_keys(node))


def one_row(node: Json) -> Placed:
    """The row without columns that SELECT without FROM reads."""
    return Placed(plan.Values((), ((),)), ())


def number_range(node: Json) -> Placed:
    """range(start, end, step) as constant rows."""
    numbers = range(int(node["a"]["start"]), int(node["a"]["end"]), int(node["a"]["step"]))
    if len(numbers) > _MOST_VALUES:
        raise Unsupported(f"a range of {len(numbers)} rows is kept by Spark")
    return Placed(plan.Values(fields_of(node), tuple((number,) for number in numbers)), attribute_keys(node))


def projection(context: TranslationContext, node: Json) -> Placed:
    """One expression per output column."""
    wanted: list[Json] = [item["e"] for item in node["a"]["projectList"]]
    below = set().union(*(references(item) for item in wanted)) if wanted else set()
    child = prepare(context, context.plan(node["k"][0], below), wanted)
    return project(child, columns_of(node, wanted, child))


def columns_of(node: Json, wanted: list[Json], child: Placed) -> list[tuple[Any, plan.Field, Expression]]:
    """The output columns of a Catalyst node, computed over a child."""
    scope = child.scope
    return [
        (key, item, translate(expression, scope))
        for key, item, expression in zip(attribute_keys(node), fields_of(node), wanted, strict=True)
    ]


def union(context: TranslationContext, node: Json) -> Placed:
    """All rows of all children, by position."""
    fields = fields_of(node)
    inputs = []
    for child in node["k"]:
        placed = select(context.plan(child, None), attribute_keys(child), fields)
        inputs.append(placed.node)
    return Placed(plan.Union(fields, tuple(inputs)), attribute_keys(node))


def expand(context: TranslationContext, node: Json) -> Placed:
    """Every row once per grouping set."""
    projections = [[item["e"] for item in row] for row in node["a"]["projections"]]
    flat = [item for row in projections for item in row]
    if any(reads_time(item) for item in flat):
        raise Unsupported("grouping sets over the time of the tick")
    child = prepare(context, context.plan(node["k"][0], None), flat)
    scope = child.scope
    translated = tuple(tuple(translate(item, scope) for item in row) for row in projections)
    return Placed(plan.Expand(fields_of(node), child.node, translated), attribute_keys(node))


def generate(context: TranslationContext, node: Json) -> Placed:
    """Every row once per element."""
    arguments = node["a"]
    generator = arguments["generator"]["e"]
    outer = bool(arguments["outer"])
    if generator["c"] == "GeneratorOuter":
        generator, outer = generator["k"][0], True
    if generator["c"] not in GENERATORS:
        raise Unsupported(f"the kernel does not know the generator {generator['c']}")
    child = prepare(context, context.plan(node["k"][0], None), generator["k"])
    scope = child.scope
    generated = len(arguments["generatorOutput"])
    attributes = node["o"][: len(node["o"]) - generated]
    required = tuple(scope[("a", item[0])][0] for item in attributes)
    elements = [translate(item, scope) for item in generator["k"]]
    timed = [index for index, item in enumerate(generator["k"]) if reads_time(item)]
    if timed:
        # Only a projection knows what to do when time moves.
        names = [f"element_{index}" for index in timed]
        child, positions = with_columns(child, [elements[index] for index in timed], names)
        for index, position in zip(timed, positions, strict=True):
            elements[index] = column(child, position)
    call = Call(
        generator["c"], tuple(elements), generator.get("t", ""), options=options(generator.get("a", {}))
    )
    return Placed(
        plan.Generate(fields_of(node), child.node, call, required, outer),
        attribute_keys(node),
    )


def with_columns(placed: Placed, wanted: list[Expression], names: list[str]) -> tuple[Placed, list[int]]:
    """Make expressions columns: those that are columns already keep their place, the others are appended."""
    positions: list[int] = []
    added: list[tuple[Any, plan.Field, Expression]] = []
    width = len(placed.node.fields)
    for expression, name in zip(wanted, names, strict=True):
        if isinstance(expression, Column):
            positions.append(expression.index)
            continue
        for index, (_, _, seen) in enumerate(added):
            if seen == expression and type(seen) is type(expression):
                positions.append(width + index)
                break
        else:
            positions.append(width + len(added))
            field = plan.Field(name, expression.type, expression.nullable)
            added.append((("c", width + len(added)), field, expression))
    if not added:
        return placed, positions
    own = [
        (key, item, column(placed, index))
        for index, (key, item) in enumerate(zip(placed.keys, placed.node.fields, strict=True))
    ]
    return project(placed, [*own, *added]), positions


def is_true(expression: Expression) -> bool:
    """Say whether a condition is the constant TRUE."""
    return isinstance(expression, Literal) and expression.value is True


def known_or_raise(expression: Expression, what: str) -> None:
    """Refuse to place an expression that the kernel cannot evaluate."""
    why = evaluate.unsupported(expression)
    if why is not None:
        raise Unsupported(f"{what}: {why}")
