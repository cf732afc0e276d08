"""Plans run by plain Python, whole and in shards, over rows of integers and NULLs.

`whole` computes a plan in one piece. `in_shards` lets every shard run the same operators and moves rows as
`penstock.plan.distribution` says; it checks that the rows of each node are where they should be.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any
from zlib import crc32

import pyarrow as pa

from penstock.data.hashing import hash_rows, shard_of
from penstock.plan import node as plan
from penstock.plan.distribution import Distribution, Edge, Sharded
from penstock.plan.expression import Call, Column, Expression, Literal
from twin import asof as asof_twin
from twin import join as join_twin
from twin import session as session_twin
from twin.rows import Multiset, Row

LEVELS = 6


@dataclass(frozen=True)
class Relation:
    """The rows of a relation, and where they are."""

    rows: Multiset
    distribution: Distribution


Relations = Mapping[str, Relation]


def whole(node: plan.Node, relations: Mapping[str, Multiset]) -> Multiset:
    """All rows of a plan."""
    match node:
        case plan.Scan():
            return _selected(relations[node.name], node.columns)
        case plan.Values():
            return _counted(node.rows)
        case plan.Recursive():
            level = whole(node.anchor, relations)
            levels = [level]
            while level:
                assert len(levels) <= LEVELS
                inner = {node.name: level, plan.so_far(node.name): _sum(levels)}
                level = whole(node.step, {**relations, **inner})
                levels.append(level)
            return _sum(levels)
        case _:
            return apply(node, [whole(child, relations) for child in plan.children(node)])


def in_shards(sharded: Sharded, relations: Relations, shards: int) -> list[Multiset]:
    """The rows of a plan on every shard."""
    rows = _in_shards(sharded, relations, shards)
    check(rows, sharded.output, shards)
    return rows


def total(rows: Sequence[Multiset], distribution: Distribution) -> Multiset:
    """The rows of all shards together."""
    return rows[0] if distribution.kind == "everywhere" else _sum(rows)


def check(rows: Sequence[Multiset], distribution: Distribution, shards: int) -> None:
    """Rows are where their distribution says."""
    match distribution.kind:
        case "by":
            # Every column of a key's set must lead to the same shard.
            for columns in product(*distribution.keys):
                for shard, own in enumerate(rows):
                    assert all(shard_by(row, columns, shards) == shard for row in own)
        case "one place":
            assert not any(rows[1:])
        case "everywhere":
            assert all(own == rows[0] for own in rows)


@cache
def _shard(key: Row, shards: int) -> int:
    return int(shard_of(hash_rows([pa.array([value], pa.int64()) for value in key], 1), shards)[0])


def shard_by(row: Row, columns: Sequence[int], shards: int) -> int:
    """The shard of a row by some columns."""
    return _shard(tuple(row[column] for column in columns), shards)


def _in_shards(sharded: Sharded, relations: Relations, shards: int) -> list[Multiset]:
    node = sharded.node
    match node:
        case plan.Scan():
            relation = relations[node.name]
            placed = placement(relation.rows, relation.distribution, shards)
            return [_selected(own, node.columns) for own in placed]
        case plan.Values():
            return _only_home(_counted(node.rows), shards)
        case plan.Recursive():
            return _recursion(node, sharded, relations, shards)
    if any(edge.partial for edge in sharded.inputs):
        return _only_home(_merged(node, sharded.inputs[0], relations, shards), shards)
    inputs = [_read(edge, relations, shards) for edge in sharded.inputs]
    if sharded.output.kind == "one place":
        return _only_home(apply(node, [own[0] for own in inputs]), shards)
    return [apply(node, [own[shard] for own in inputs]) for shard in range(shards)]


def placement(rows: Multiset, distribution: Distribution, shards: int) -> list[Multiset]:
    """Rows put onto shards by a distribution; "any" is some shard that no key explains."""
    match distribution.kind:
        case "by":
            return _routed(rows.items(), lambda row: shard_by(row, distribution.columns, shards), shards)
        case "any":
            return _routed(rows.items(), lambda row: crc32(repr(row).encode()) % shards, shards)
        case "everywhere":
            return [rows] * shards
        case _:
            return _only_home(rows, shards)


def _read(edge: Edge, relations: Relations, shards: int) -> list[Multiset]:
    """An input as the operator reads it."""
    rows = in_shards(edge.source, relations, shards)
    if edge.exchange is None:
        return rows
    return placement(total(rows, edge.source.output), edge.exchange, shards)


def _merged(node: plan.Node, edge: Edge, relations: Relations, shards: int) -> Multiset:
    """What the home shard makes of the first rows of all shards."""
    assert isinstance(node, plan.TopK)
    assert node.limit is not None
    assert edge.exchange is not None
    assert edge.exchange.kind == "one place"
    rows = in_shards(edge.source, relations, shards)
    first = replace(node, limit=node.offset + node.limit, offset=0, rank_field=False)
    return apply(node, [_sum(apply(first, [own]) for own in rows)])


def _recursion(node: plan.Recursive, sharded: Sharded, relations: Relations, shards: int) -> list[Multiset]:
    anchor, step = sharded.inputs
    level = placement(_read(anchor, relations, shards)[0], sharded.output, shards)
    levels = [level]
    while any(level):
        assert len(levels) <= LEVELS
        inner = {
            node.name: Relation(level[0], sharded.output),
            plan.so_far(node.name): Relation(_sum(own[0] for own in levels), sharded.output),
        }
        level = placement(_read(step, {**relations, **inner}, shards)[0], sharded.output, shards)
        levels.append(level)
    return [_sum(own[shard] for own in levels) for shard in range(shards)]


def _routed(rows: Iterable[tuple[Row, int]], shard: Any, shards: int) -> list[Multiset]:
    placed: list[Multiset] = [{} for _ in range(shards)]
    for row, count in rows:
        placed[shard(row)][row] = count
    return placed


def _only_home(rows: Multiset, shards: int) -> list[Multiset]:
    return [rows, *({} for _ in range(shards - 1))]


def apply(node: plan.Node, inputs: Sequence[Multiset]) -> Multiset:
    """What an operator makes of rows."""
    match node:
        case plan.Filter():
            return {row: count for row, count in inputs[0].items() if evaluate(node.condition, row) is True}
        case plan.Project():
            return _weighted(
                (tuple(evaluate(part, row) for part in node.expressions), count)
                for row, count in inputs[0].items()
            )
        case plan.Expand():
            return _weighted(
                (tuple(evaluate(part, row) for part in projection), count)
                for row, count in inputs[0].items()
                for projection in node.projections
            )
        case plan.Generate():
            return _weighted(_generated(node, inputs[0]))
        case plan.Union():
            return _sum(inputs)
        case plan.Join():
            return _join(node, *inputs)
        case plan.Asof():
            return asof_twin.asof(
                *inputs,
                width=len(node.right.fields),
                outer=node.outer,
                keys=tuple(zip(node.left_keys, node.right_keys, strict=True)),
                times=(node.left_time, node.right_time),
                direction=node.direction,
                tolerance=node.tolerance,
            )
        case plan.SessionWindow():
            return session_twin.session_window(inputs[0], keys=node.keys, start=node.start, end=node.end)
        case plan.Aggregate():
            return _aggregate(node, inputs[0])
        case plan.TopK():
            return _top(node, inputs[0])
        case plan.Window():
            sizes = Counter[Row]()
            for row, count in inputs[0].items():
                sizes[_key(row, node.partition)] += count
            return {
                (*row, *(sizes[_key(row, node.partition)] for _ in node.calls)): count
                for row, count in inputs[0].items()
            }
        case plan.Single():
            assert sum(inputs[0].values()) <= 1
            return inputs[0] or {(None,) * len(node.fields): 1}
        case plan.Spark():
            # Something that only sees the right thing when it sees all rows.
            return {(row[0], len(inputs[0])): 1 for row in inputs[0]} if inputs[0] else {}
        case _:
            raise AssertionError(node)


def evaluate(expression: Expression, row: Row) -> Any:
    """A column, a constant, a sum, or whether a value is smaller than another."""
    match expression:
        case Column():
            return row[expression.index]
        case Literal():
            return expression.value
        case Call():
            left, right = (evaluate(argument, row) for argument in expression.args)
            if left is None or right is None:
                return None
            return left + right if expression.name == "Add" else left < right


def _generated(node: plan.Generate, rows: Multiset) -> Iterator[tuple[Row, int]]:
    """The generator counts: 0 .. value - 1."""
    (argument,) = node.generator.args if isinstance(node.generator, Call) else ()
    for row, count in rows.items():
        items: list[int | None] = list(range(evaluate(argument, row) or 0))
        for item in items or ([None] if node.outer else []):
            yield (*(row[column] for column in node.required), item), count


def _join(node: plan.Join, left: Multiset, right: Multiset) -> Multiset:
    keys = tuple(zip(node.left_keys, node.right_keys, strict=True))

    def residual(one: Row, other: Row) -> bool | None:
        condition: bool | None = True if node.residual is None else evaluate(node.residual, (*one, *other))
        return condition

    def match(one: Row, other: Row) -> bool:
        if node.null_aware:
            return join_twin.equal_or_unknown(one, other, keys, residual)
        return join_twin.matches(one, other, keys, node.null_safe, residual)

    widths = (len(node.left.fields), len(node.right.fields))
    return join_twin.join(node.kind, left, right, widths, match)


def _aggregate(node: plan.Aggregate, rows: Multiset) -> Multiset:
    """Every call is COUNT(*) or the sum of its column."""
    groups: defaultdict[Row, list[tuple[Row, int]]] = defaultdict(list)
    if not node.keys:
        groups[()] = []
    for row, count in rows.items():
        groups[_key(row, node.keys)].append((row, count))
    return _counted(
        (*key, *(_called(call, members) for call in node.calls)) for key, members in groups.items()
    )


def _called(call: plan.AggregateCall, members: Sequence[tuple[Row, int]]) -> int | None:
    if not call.args:
        return sum(count for _, count in members)
    values = [row[call.args[0]] * count for row, count in members if row[call.args[0]] is not None]
    return sum(values) if values else None


def _top(node: plan.TopK, rows: Multiset) -> Multiset:
    groups: defaultdict[Row, list[Row]] = defaultdict(list)
    for row, count in rows.items():
        groups[_key(row, node.partition)].extend([row] * count)
    chosen: list[Row] = []
    for members in groups.values():
        members.sort(key=lambda row: (_order(row, node.order), [_rank(value) for value in row]))
        end = None if node.limit is None else node.offset + node.limit
        for place, row in enumerate(members[node.offset : end], node.offset + 1):
            chosen.append((*row, place) if node.rank_field else row)
    return _counted(chosen)


def _order(row: Row, order: Sequence[plan.SortKey]) -> list[tuple[bool, int]]:
    return [
        (row[key.column] is not None, (row[key.column] or 0) * (-1 if key.descending else 1)) for key in order
    ]


def _rank(value: int | None) -> tuple[bool, int]:
    return value is not None, value or 0


def _key(row: Row, columns: Sequence[int]) -> Row:
    return tuple(row[column] for column in columns)


def _selected(rows: Multiset, columns: Sequence[int]) -> Multiset:
    return _weighted((_key(row, columns), count) for row, count in rows.items())


def _weighted(rows: Iterable[tuple[Row, int]]) -> Multiset:
    counts: Counter[Row] = Counter()
    for row, count in rows:
        counts[row] += count
    return dict(counts)


def _counted(rows: Iterable[Row]) -> Multiset:
    return dict(Counter(rows))


def _sum(parts: Iterable[Multiset]) -> Multiset:
    return _weighted(pair for part in parts for pair in part.items())
