"""What a view costs, where it runs and where its rows are in shards, operator by operator, before the first tick."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from penstock.plan.distribution import Distribution, Edge, distribute_view
from penstock.plan.event_time import Times
from penstock.plan.expiry import describe_state
from penstock.plan.expression import conjuncts, show, time_bound, uses_time
from penstock.plan.node import (
    Aggregate,
    AggregateCall,
    Asof,
    Exchange,
    Expand,
    Filter,
    Generate,
    Join,
    KernelFirst,
    Node,
    Project,
    Recursive,
    Scan,
    SessionWindow,
    Single,
    SortKey,
    Spark,
    TopK,
    Union,
    Values,
    Variable,
    View,
    Window,
)
from penstock.plan.suspension import Suspension

Tier = Literal["kernel", "spark", "recompute"]
TIERS: tuple[Tier, ...] = ("kernel", "spark", "recompute")


@dataclass(frozen=True, slots=True)
class OperatorLine:
    """One operator of a view: what it does, who runs it, what a tick costs, and why when that is not the best.

    `distribution` is where its rows are when the view runs in shards ("by customer_id", "any", "one place",
    "everywhere"), and `exchange` how they travel to the operator that reads them ("exchange by customer_id"); it is
    empty when they stay. `state` says, over a source with a lateness, whether the operator frees state behind the
    watermark.
    """

    depth: int
    operator: str
    detail: str
    tier: Tier
    cost: str
    reason: str = ""
    distribution: str = ""
    exchange: str = ""
    state: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The operators of a view from the result down to its inputs; `tier` is the worst of them.

    `suspended` says since when and why ticks go on without the view, None when they do not.
    `variables` are the session variables that the view has read: it keeps the values that they had when it was registered.
    `durability` is that of its flow.
    """

    view: str
    operators: tuple[OperatorLine, ...]
    suspended: Suspension | None = None
    variables: tuple[Variable, ...] = ()
    sinks: tuple[str, ...] = ()
    """What follows the view, and how far it is."""
    durability: str = "memory"

    @property
    def tier(self) -> Tier:
        return max((line.tier for line in self.operators), key=TIERS.index)

    def __str__(self) -> str:
        labels = [
            "  " * (line.depth + 1) + f"{line.operator} {line.detail}".rstrip() for line in self.operators
        ]
        rows = [", ".join(filter(None, (line.distribution, line.exchange))) for line in self.operators]
        width = min(max(map(len, labels), default=0), 88)
        row_width = min(max(map(len, rows), default=0), 60)
        lasts = "" if self.durability == "memory" else f", durability {self.durability}"
        lines = [
            f"{self.view}: {self.tier}{lasts}",
            *([] if self.suspended is None else [f"  {self.suspended}"]),
        ]
        for label, row, line in zip(labels, rows, self.operators, strict=True):
            reason = f"  ({line.reason})" if line.reason else ""
            state = f"  state: {line.state}" if line.state else ""
            lines.append(
                f"{label:<{width}}  {line.tier:<9}  rows: {row:<{row_width}}  cost: {line.cost}{reason}{state}"
            )
        if self.variables:
            values = ", ".join(f"{variable.name} = {variable.value}" for variable in self.variables)
            lines.append(f"variables: {values} (bound at registration)")
        lines += self.sinks
        return "\n".join(lines)


def explain(
    view: View,
    *,
    cost: Callable[[AggregateCall], str],
    relations: Mapping[str, Distribution] = MappingProxyType({}),
    times: Mapping[str, Times] = MappingProxyType({}),
    suspended: Suspension | None = None,
    durability: str = "memory",
) -> Explanation:
    """Return the operators of a view with tier, cost, reason and distribution.

    `cost` says what an aggregate function costs per tick, `relations` where the rows of sources and other views are,
    and `times` which columns of those that read a source with a lateness follow its event time.
    """
    root = Edge(distribute_view(view, relations))
    lines = tuple(_lines(root, 0, frozenset(view.statics), cost, times))
    return Explanation(view.name, lines, suspended, view.variables, durability=durability)


def _lines(
    edge: Edge,
    depth: int,
    static: frozenset[str],
    cost: Callable[[AggregateCall], str],
    times: Mapping[str, Times],
) -> Iterator[OperatorLine]:
    node = edge.source.node
    tier: Tier = "kernel"
    reason = ""
    detail, price = _describe(node, static, cost)
    if isinstance(node, KernelFirst):
        reason = f"Spark, for a delta with {node.reason}"
    elif isinstance(node, Spark):
        tier = "spark" if node.stateless else "recompute"
        reason = node.reason
    elif _timed(node):
        reason = "depends on the time of the tick"
    name = node.operator if isinstance(node, Spark) else type(node).__name__
    distribution = edge.source.output.show(node.fields)
    state = describe_state(node, times)
    yield OperatorLine(depth, name, detail, tier, price, reason, distribution, edge.show(), state)
    for below in edge.source.inputs:
        yield from _lines(below, depth + 1, static, cost, times)


def _describe(node: Node, static: frozenset[str], cost: Callable[[AggregateCall], str]) -> tuple[str, str]:
    """What an operator does, in words, and what a tick costs it."""
    match node:
        case Scan():
            kind = " (static)" if node.name in static else ""
            return f"{node.name}{kind}", "delta"
        case Values():
            return f"{len(node.rows)} rows", "none after the first tick"
        case Filter():
            return show(node.condition, _columns(node.input)), _filter_cost(node)
        case Project():
            return ", ".join(field.name for field in node.fields), "data" if _timed(node) else "delta"
        case Union():
            return f"of {len(node.inputs)}", "delta"
        case Expand():
            return f"into {len(node.projections)} grouping sets", "delta"
        case Generate():
            return show(node.generator, _columns(node.input)), "delta"
        case Join():
            return _describe_join(node)
        case Asof():
            return _describe_asof(node)
        case SessionWindow():
            times = f"{node.input.fields[node.start].name} to {node.input.fields[node.end].name}"
            by = f" by {_names(node.input, node.keys)}" if node.keys else ""
            return f"of {times}{by}", "delta, and the rows of sessions that begin elsewhere or lose rows"
        case Aggregate():
            return _describe_aggregate(node, cost)
        case TopK():
            limit = "all rows" if node.limit is None else f"{node.limit} rows"
            within = f" per {_names(node.input, node.partition)}" if node.partition else ""
            offset = f" after {node.offset}" if node.offset else ""
            return f"{limit}{offset}{within} by {_order(node.input, node.order)}", "delta"
        case Window():
            by = _names(node.input, node.partition) or "one partition"
            return f"{', '.join(call.function for call in node.calls)} over {by}", "touched partitions"
        case Single():
            return "at most one row", "delta"
        case Recursive():
            until = "" if node.limit is None else f" until there are {node.limit} rows"
            return f"{node.name}{until}", "delta per level of the recursion"
        case Spark():
            count = len(node.bindings)
            expressions = "" if count == 0 else "1 expression" if count == 1 else f"{count} expressions"
            return expressions, "delta" if node.stateless else "data"
        case Exchange():
            raise AssertionError("the plan of a shard is not shown")


def _filter_cost(node: Filter) -> str:
    timed = [part for part in conjuncts(node.condition) if uses_time(part)]
    if not timed:
        return "delta"
    return (
        "data"
        if any(time_bound(part) is None for part in timed)
        else "delta, and the rows that enter or leave"
    )


def _describe_join(node: Join) -> tuple[str, str]:
    pairs = [
        f"{node.left.fields[left].name} {'<=>' if safe else '='} {node.right.fields[right].name}"
        for left, right, safe in zip(node.left_keys, node.right_keys, node.null_safe, strict=True)
    ]
    if node.residual is not None:
        pairs.append(show(node.residual, _columns(node.left, node.right)))
    kind = "null-aware anti" if node.null_aware else node.kind
    if node.left_keys:
        return f"{kind} on {' and '.join(pairs)}", "delta"
    single = isinstance(node.left, Single) or isinstance(node.right, Single)
    price = "delta, and data when the single row changes" if single else "delta x data (no equal keys)"
    return f"{kind} {'on ' + ' and '.join(pairs) if pairs else '(cross)'}", price


def _describe_asof(node: Asof) -> tuple[str, str]:
    pairs = [
        f"{node.left.fields[left].name} = {node.right.fields[right].name}"
        for left, right in zip(node.left_keys, node.right_keys, strict=True)
    ]
    times = f"{node.left.fields[node.left_time].name}, {node.right.fields[node.right_time].name}"
    by = f" by {' and '.join(pairs)}" if pairs else ""
    kind = "left" if node.outer else "inner"
    return (
        f"{kind} {node.direction} on {times}{by}",
        "delta, and the left rows between a changed right row and its neighbour",
    )


def _describe_aggregate(node: Aggregate, cost: Callable[[AggregateCall], str]) -> tuple[str, str]:
    by = _names(node.input, node.keys)
    if not node.calls:
        return f"distinct {by}", "delta"
    calls = ", ".join(
        f"{call.function.lower()}({'distinct ' if call.distinct else ''}{_names(node.input, call.args) or '*'})"
        for call in node.calls
    )
    reads_groups = any(cost(call) == "touched groups" for call in node.calls)
    return f"{calls}{f' by {by}' if by else ''}", "touched groups" if reads_groups else "delta"


def _columns(*inputs: Node) -> list[str]:
    return [field.name for node in inputs for field in node.fields]


def _names(node: Node, columns: tuple[int, ...]) -> str:
    return ", ".join(node.fields[column].name for column in columns)


def _order(node: Node, order: tuple[SortKey, ...]) -> str:
    keys = [f"{node.fields[key.column].name}{' desc' if key.descending else ''}" for key in order]
    return ", ".join(keys) or "the whole row"


def _timed(node: Node) -> bool:
    match node:
        case Filter():
            return uses_time(node.condition)
        case Project():
            return any(uses_time(expression) for expression in node.expressions)
        case _:
            return False
