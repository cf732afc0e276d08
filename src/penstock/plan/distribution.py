"""Where the rows of a plan are when the kernel runs in shards, and which of them travel before an operator reads them.

Every shard runs the same operators over its own rows. The rows of a node are **by keys** (on the shard that the hash
of the key columns says, `penstock.data.hashing.shard_of`), **any** (wherever the rows that they come from are), in
**one place** (the home shard, number 0) or **everywhere** (every shard has all of them). An operator whose output is
in one place runs on the home shard only. Rows that an operator must see together meet by an exchange: by keys, to one
place, to every shard, or to the driver.

| node | before it reads its inputs | its rows |
|---|---|---|
| Scan | | where those of the relation are: a source by its primary key, else by the whole row; a static table everywhere |
| Values | | one place: every shard would give them |
| Filter, Project, Expand, Generate | nothing | as the input, by the new positions; any when a key column is lost |
| Union | nothing; of rows that are everywhere the home shard's count | by the keys that all inputs have in common, else any |
| Join on equal keys | by all pairs or by those by which an input is already; an input that is everywhere, or has few rows whatever the data, is read in full where the join allows it | by the keys of the rows it keeps; a full join: any, because a key may be NULL on either side |
| cross and non-equi Join | the other input goes everywhere, the input whose rows are kept stays; a full join in one place | as the input that stays |
| NOT IN (null-aware) | the right input goes everywhere: whether it is empty or has a NULL concerns every left row | as the left input |
| Asof | by its keys; without keys in one place | by the keys; one place |
| Aggregate | by the group keys | by the group keys |
| Aggregate without keys | in one place; its rows travel consolidated, so that equal ones travel as one | one place: there is one row, also over nothing |
| TopK | by the partition; without one each shard's first rows go to one place | by the partition; one place |
| Window | by the partition; without one in one place | by the partition; one place |
| SessionWindow | by its keys; without keys in one place | by the keys; one place |
| Single | in one place; its reader, a cross join, has the row go everywhere | one place |
| Recursive | in one place, with everything that the step reads; with a step that asks Spark to the driver | one place |
| Spark | to the driver, which asks Spark | one place: the driver hands them to the home shard |

An operator over inputs that are everywhere is everywhere, and one over inputs in one place is there: nothing travels.
Rows that are by some of the wanted keys need no exchange, because rows that are equal in all keys are equal in these.
The shard of such a row is that of the keys it is by: the words of an index by all keys do not say it.

A recursion in shards would need, for every level of every tick, an exchange of the level's rows and a count over all
shards: the recursion ends when no shard has a new row, and its limits are on all rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from penstock.data.hashing import canonical_keys, canonical_pairs
from penstock.plan.expression import Column, Expression
from penstock.plan.node import (
    Aggregate,
    Asof,
    Exchange,
    Expand,
    Fields,
    Filter,
    Generate,
    Join,
    JoinKind,
    Node,
    Project,
    Recursive,
    Scan,
    SessionWindow,
    Single,
    Spark,
    TopK,
    Union,
    Values,
    View,
    Window,
    children,
    so_far,
)

Kind = Literal["by", "any", "one place", "everywhere", "driver"]
_NAMES_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Distribution:
    """Where rows are.

    `keys` are the columns of the key in the order in which they are hashed, each as the set of all columns that hold its value:
    behind an inner join these are the keys of both inputs.
    """

    kind: Kind
    keys: tuple[frozenset[int], ...] = ()

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns to hash."""
        return tuple(min(equal) for equal in self.keys)

    def brings_together(self, columns: Iterable[int]) -> bool:
        """Whether rows that are equal in these columns are on the same shard by their keys."""
        wanted = frozenset(columns)
        return self.kind == "by" and all(equal & wanted for equal in self.keys)

    def show(self, fields: Fields) -> str:
        """The distribution in words, for rows with these columns."""
        if self.kind != "by":
            return self.kind
        names = [fields[column].name for column in self.columns]
        if len(names) > _NAMES_SHOWN:
            return (
                f"by {', '.join(names[: _NAMES_SHOWN - 1])} and {len(names) - _NAMES_SHOWN + 1} more columns"
            )
        return f"by {', '.join(names)}"


ANY = Distribution("any")
ONE_PLACE = Distribution("one place")
EVERYWHERE = Distribution("everywhere")
DRIVER = Distribution("driver")  # where an exchange may lead, never where the rows of a node are


@dataclass(frozen=True, slots=True)
class Edge:
    """An input of an operator, and the exchange on the way: None when the rows stay where they are.

    With `partial` each shard has its own first rows of a top-k, and those travel. An exchange of rows that are
    everywhere moves nothing: each shard takes its part of its own copy.
    """

    source: Sharded
    exchange: Distribution | None = None
    partial: bool = False

    @property
    def distribution(self) -> Distribution:
        """Where the rows are when the operator reads them."""
        return self.source.output if self.exchange is None else self.exchange

    def show(self) -> str:
        """The exchange in words, empty when there is none."""
        if self.exchange is None:
            return ""
        what = "exchange of first rows" if self.partial else "exchange"
        match self.exchange.kind:
            case "everywhere":
                return f"{what} to every shard"
            case "driver":
                return f"{what} to the driver"
            case "one place":
                return f"{what} to one place"
            case _:
                return f"{what} {self.exchange.show(self.source.node.fields)}"


@dataclass(frozen=True, slots=True)
class Sharded:
    """A node, where its rows are, and its inputs in the order of `penstock.plan.node.children`."""

    node: Node
    output: Distribution
    inputs: tuple[Edge, ...] = ()


Relations = Mapping[str, Distribution]
_NO_RELATIONS: Relations = MappingProxyType({})


def by(columns: Sequence[int]) -> Distribution:
    """Rows by the hash of these columns, in this order; without any, one place.

    >>> by([2, 0]).columns
    (2, 0)
    """
    return Distribution("by", tuple(frozenset({column}) for column in columns)) if columns else ONE_PLACE


def source_distribution(width: int, primary_key: Sequence[int] | None = None) -> Distribution:
    """Where the rows of a source of so many columns are: by its primary key, else by the whole row."""
    return by(canonical_keys(primary_key or range(width)))


def view_distribution(view: View, relations: Relations = _NO_RELATIONS) -> Distribution:
    """Where the rows of a view are, by the columns that it shows."""
    return _renamed(
        distribute_view(view, relations).output, ((column, column) for column in range(len(view.fields)))
    )


def distribute_view(view: View, relations: Relations = _NO_RELATIONS) -> Sharded:
    """Return the plan of a view in shards; static tables that `relations` does not name are everywhere."""
    return distribute(view.root, {**dict.fromkeys(view.statics, EVERYWHERE), **relations})


def distribute(node: Node, relations: Relations = _NO_RELATIONS) -> Sharded:
    """Return a plan in shards: where the rows of every node are, and what travels between nodes.

    `relations` says where the rows of scanned relations are, by their own columns; those of others are "any".
    """
    match node:
        case Scan():
            columns = ((column, at) for at, column in enumerate(node.columns))
            return Sharded(node, _renamed(relations.get(node.name, ANY), columns))
        case Values():
            return Sharded(node, ONE_PLACE)
        case Spark():
            return Sharded(
                node, ONE_PLACE, tuple(Edge(distribute(child, relations), DRIVER) for child in node.inputs)
            )
        case Recursive():
            return _recursive(node, relations)
        case Exchange():
            raise AssertionError("the plan has its exchanges already")
    inputs = tuple(distribute(child, relations) for child in children(node))
    together = _together(inputs)
    if together is not None:
        return Sharded(node, together, tuple(Edge(source) for source in inputs))
    match node:
        case Union():
            return _union(node, inputs)
        case Join():
            return _join(node, *inputs)
        case Asof():
            return _asof(node, *inputs)
        case _:
            return _of_one_input(node, *inputs)


def _together(inputs: Sequence[Sharded]) -> Distribution | None:
    """Where an operator runs that has all rows of all its inputs on every shard, or on the home shard."""
    kinds = {source.output.kind for source in inputs}
    if kinds == {"everywhere"}:
        return EVERYWHERE
    return ONE_PLACE if kinds <= {"everywhere", "one place"} else None


def _of_one_input(
    node: Filter | Project | Expand | Generate | SessionWindow | Aggregate | TopK | Window | Single,
    source: Sharded,
) -> Sharded:
    edge = Edge(source)
    match node:
        case Filter():
            return Sharded(node, source.output, (edge,))
        case Project():
            return Sharded(node, _renamed(source.output, _copied([node.expressions])), (edge,))
        case Expand():
            return Sharded(node, _renamed(source.output, _copied(node.projections)), (edge,))
        case Generate():
            columns = ((column, at) for at, column in enumerate(node.required))
            return Sharded(node, _renamed(source.output, columns), (edge,))
        case Aggregate():
            edge = _by_keys(source, node.keys)
            columns = ((column, at) for at, column in enumerate(node.keys))
            return Sharded(node, _renamed(edge.distribution, columns), (edge,))
        case TopK():
            edge = _by_keys(source, node.partition, partial=node.limit is not None)
        case Window():
            edge = _by_keys(source, node.partition)
        case SessionWindow():
            edge = _by_keys(source, node.keys)
        case Single():
            edge = _by_keys(source, ())
    return Sharded(node, edge.distribution, (edge,))


def _by_keys(source: Sharded, keys: Sequence[int], *, partial: bool = False) -> Edge:
    """The input of an operator that reads rows of equal keys together; `partial` counts when there are no keys."""
    if source.output.brings_together(keys):
        return Edge(source)
    return Edge(source, by(canonical_keys(keys)), partial=partial and not keys)


def _renamed(distribution: Distribution, columns: Iterable[tuple[int, int]]) -> Distribution:
    """The distribution of rows that have columns at other positions, as (old, new); a key that has none left is lost."""
    if distribution.kind != "by":
        return distribution
    positions: defaultdict[int, set[int]] = defaultdict(set)
    for old, new in columns:
        positions[old].add(new)
    keys = tuple(frozenset[int]().union(*(positions[old] for old in equal)) for equal in distribution.keys)
    return Distribution("by", keys) if all(keys) else ANY


def _copied(projections: Sequence[Sequence[Expression]]) -> Iterable[tuple[int, int]]:
    """The input columns that all projections give unchanged at the same position, as (input, output)."""
    for at, expressions in enumerate(zip(*projections, strict=True)):
        indexes = {expression.index if isinstance(expression, Column) else None for expression in expressions}
        if len(indexes) == 1 and (index := indexes.pop()) is not None:
            yield index, at


def _union(node: Union, inputs: Sequence[Sharded]) -> Sharded:
    edges = tuple(Edge(source, ONE_PLACE if source.output == EVERYWHERE else None) for source in inputs)
    keys = {edge.distribution.keys for edge in edges}
    if len({len(key) for key in keys}) > 1:
        return Sharded(node, ANY, edges)
    common = tuple(frozenset.intersection(*columns) for columns in zip(*keys, strict=True))
    return Sharded(node, Distribution("by", common) if common and all(common) else ANY, edges)


# Joins that a shard can do with some rows of one input and all rows of the other.
_WITH_ALL_RIGHT: frozenset[JoinKind] = frozenset({"inner", "left", "semi", "anti"})
_WITH_ALL_LEFT: frozenset[JoinKind] = frozenset({"inner", "right"})


def _join(node: Join, left: Sharded, right: Sharded) -> Sharded:
    if node.null_aware or not node.left_keys:
        edges = _with_one_everywhere(node.kind, left, right)
    else:
        edges = _on_keys(node.kind, left, right, keys=(node.left_keys, node.right_keys))
    keys = zip(node.left_keys, node.right_keys, strict=True)
    return Sharded(node, _joined(node.kind, *edges, keys=keys), edges)


def _asof(node: Asof, left: Sharded, right: Sharded) -> Sharded:
    if node.left_keys or right.output == EVERYWHERE:
        edges = _on_keys("left", left, right, keys=(node.left_keys, node.right_keys))
    else:
        edges = (_gathered(left), _gathered(right))
    keys = zip(node.left_keys, node.right_keys, strict=True)
    return Sharded(node, _joined("left" if node.outer else "inner", *edges, keys=keys), edges)


def _on_keys(
    kind: JoinKind, left: Sharded, right: Sharded, *, keys: tuple[Sequence[int], Sequence[int]]
) -> tuple[Edge, Edge]:
    """The inputs of an equi-join, with as few exchanges as possible."""
    if right.output == EVERYWHERE and kind in _WITH_ALL_RIGHT:
        return Edge(left), Edge(right)
    if left.output == EVERYWHERE and kind in _WITH_ALL_LEFT:
        return Edge(left), Edge(right)
    pairs = tuple(zip(*keys, strict=True))
    of_left = _partners(left.output, pairs)
    if of_left is not None:
        return Edge(left), Edge(right, None if _matches(right.output, of_left) else by(_firsts(of_left)))
    of_right = _partners(right.output, tuple((right_key, left_key) for left_key, right_key in pairs))
    if of_right is not None:
        return Edge(left, by(_firsts(of_right))), Edge(right)
    if kind in _WITH_ALL_RIGHT and _few_rows(right.node):
        return Edge(left), Edge(right, EVERYWHERE)
    if kind in _WITH_ALL_LEFT and _few_rows(left.node):
        return Edge(left, EVERYWHERE), Edge(right)
    ordered = canonical_pairs(*keys)
    return Edge(left, by(ordered.left)), Edge(right, by(ordered.right))


def _partners(
    distribution: Distribution, pairs: Sequence[tuple[int, int]]
) -> tuple[frozenset[int], ...] | None:
    """Per key of one input of a join, the columns of the other that equal it; None when the join does not compare all keys."""
    if distribution.kind != "by":
        return None
    partners = tuple(frozenset(other for own, other in pairs if own in equal) for equal in distribution.keys)
    return partners if all(partners) else None


def _matches(distribution: Distribution, keys: Sequence[frozenset[int]]) -> bool:
    """Whether rows are by these keys, of each one of some columns."""
    return len(distribution.keys) == len(keys) and all(
        equal & wanted for equal, wanted in zip(distribution.keys, keys, strict=True)
    )


def _firsts(keys: Sequence[frozenset[int]]) -> tuple[int, ...]:
    return tuple(min(equal) for equal in keys)


def _with_one_everywhere(kind: JoinKind, left: Sharded, right: Sharded) -> tuple[Edge, Edge]:
    """The inputs of a join in which any two rows may match: one stays, the other follows it to all of its rows."""
    if kind == "full":
        return _gathered(left), _gathered(right)
    if kind == "right" or (kind == "inner" and _cheap_to_copy(left) and not _cheap_to_copy(right)):
        return _copied_to(left, right)
    copied, stays = _copied_to(right, left)
    return stays, copied


def _copied_to(copied: Sharded, stays: Sharded) -> tuple[Edge, Edge]:
    """Have all rows of one input be wherever rows of the other are; a row of the other must be on one shard only."""
    all_columns = range(len(stays.node.fields))
    stays_edge = Edge(stays, by(all_columns) if stays.output == EVERYWHERE else None)
    target = ONE_PLACE if stays_edge.distribution == ONE_PLACE else EVERYWHERE
    return Edge(copied, None if copied.output in (target, EVERYWHERE) else target), stays_edge


def _gathered(source: Sharded) -> Edge:
    """An input that the home shard reads."""
    return Edge(source, None if source.output in (ONE_PLACE, EVERYWHERE) else ONE_PLACE)


def _joined(kind: JoinKind, left: Edge, right: Edge, *, keys: Iterable[tuple[int, int]]) -> Distribution:
    """Where the rows of a join are."""
    if ONE_PLACE in (left.distribution, right.distribution):
        return ONE_PLACE
    width = len(left.source.node.fields)
    of_right = _renamed(
        right.distribution, ((column, width + column) for column in range(len(right.source.node.fields)))
    )
    match kind:
        case "left" | "semi" | "anti":
            return left.distribution
        case "right":
            return of_right
        case "full":
            return ANY
        case "inner":
            distribution = of_right if left.distribution == EVERYWHERE else left.distribution
            return _with_equals(
                distribution, tuple((left_key, width + right_key) for left_key, right_key in keys)
            )


def _with_equals(distribution: Distribution, pairs: Sequence[tuple[int, int]]) -> Distribution:
    """The same distribution, where the columns of a pair hold the same value."""
    keys = tuple(
        equal | {column for pair in pairs if equal & set(pair) for column in pair}
        for equal in distribution.keys
    )
    return Distribution(distribution.kind, keys)


def _cheap_to_copy(source: Sharded) -> bool:
    return source.output == EVERYWHERE or _few_rows(source.node)


def _few_rows(node: Node) -> bool:
    """Whether a node has a bounded number of rows, whatever the data."""
    match node:
        case Values() | Single():
            return True
        case Aggregate():
            return not node.keys
        case TopK():
            return node.limit is not None and not node.partition
        case Filter() | Project() | Expand() | Union() | Join() | SessionWindow() | Window():
            return all(_few_rows(child) for child in children(node))
        case _:
            return False


def _recursive(node: Recursive, relations: Relations) -> Sharded:
    anchor = distribute(node.anchor, relations)
    names = frozenset({node.name, so_far(node.name)})
    if anchor.output == EVERYWHERE:
        step = distribute(node.step, {**relations, **dict.fromkeys(names, EVERYWHERE)})
        if step.output == EVERYWHERE:
            return Sharded(node, EVERYWHERE, (Edge(anchor), Edge(step)))
    target = DRIVER if has_spark(node) else ONE_PLACE
    step = _inside(node.step, names, relations, target)
    return Sharded(node, ONE_PLACE, (_brought(anchor, target), _step_edge(node.step, step, names, target)))


def _inside(node: Node, names: frozenset[str], relations: Relations, target: Distribution) -> Sharded:
    """A part of a recursion's step: what reads the relations `names` runs where the recursion does, and the rest comes to it."""
    if not _reads(node, names):
        return distribute(node, relations)
    if isinstance(node, Recursive):
        names |= {node.name, so_far(node.name)}
    edges = (
        _step_edge(child, _inside(child, names, relations, target), names, target) for child in children(node)
    )
    return Sharded(node, ONE_PLACE, tuple(edges))


def _step_edge(node: Node, source: Sharded, names: frozenset[str], target: Distribution) -> Edge:
    return Edge(source) if _reads(node, names) else _brought(source, target)


def _brought(source: Sharded, target: Distribution) -> Edge:
    """An input that comes to the home shard, or to the driver."""
    return _gathered(source) if target == ONE_PLACE else Edge(source, target)


def has_spark(node: Node) -> bool:
    """Whether a part of a plan is Spark's."""
    return isinstance(node, Spark) or any(has_spark(child) for child in children(node))


def _reads(node: Node, names: frozenset[str]) -> bool:
    if isinstance(node, Scan):
        return node.name in names
    return any(_reads(child, names) for child in children(node))
