"""Frozen plan nodes: about a dozen kinds, each with the fields of the rows it gives.

Only Filter, Project, Expand, Generate and the residual of Join hold expressions. Everything else names columns of its input
by position, because the front puts a Project below it. So stateful operators never evaluate anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from penstock.plan.expression import Expression, WithOptions


@dataclass(frozen=True, slots=True)
class Field:
    """One output column: name, Spark type, nullability."""

    name: str
    type: str
    nullable: bool = True


Fields = tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """All rows of a source, a static table or another view of the flow."""

    fields: Fields
    name: str
    columns: tuple[int, ...]  # positions in the relation's own schema


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """Constant rows; two are equal when their rows are written alike, as constants are."""

    fields: Fields
    rows: tuple[tuple[Any, ...], ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Values) and (self.fields, repr(self.rows)) == (
            other.fields,
            repr(other.rows),
        )

    def __hash__(self) -> int:
        return hash((self.fields, repr(self.rows)))


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows for which the condition is TRUE."""

    fields: Fields
    input: Node
    condition: Expression


@dataclass(frozen=True, slots=True)
class Project:
    """One expression per output column."""

    fields: Fields
    input: Node
    expressions: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Union:
    """All rows of all inputs."""

    fields: Fields
    inputs: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Expand:
    """Every input row once per projection (grouping sets)."""

    fields: Fields
    input: Node
    projections: tuple[tuple[Expression, ...], ...]


@dataclass(frozen=True, slots=True)
class Generate:
    """Every input row (its `required` columns) once per element of the generator; `outer` keeps rows without elements."""

    fields: Fields
    input: Node
    generator: Expression  # Explode, PosExplode, Inline, Stack, ReplicateRows: over the input's columns
    required: tuple[int, ...]
    outer: bool


JoinKind = Literal["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True, slots=True)
class Join:
    """A join on equal keys (none: a cross or non-equi join) and a residual condition over left then right columns.

    `null_safe[i]` says that the i-th key pair matches as `<=>` does. `null_aware` is the anti join of NOT IN.
    Output: left then right columns; semi and anti give left columns only.
    """

    fields: Fields
    left: Node
    right: Node
    kind: JoinKind
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    null_safe: tuple[bool, ...]
    residual: Expression | None = None
    null_aware: bool = False


@dataclass(frozen=True, slots=True)
class Asof:
    """Each left row with the one right row of equal keys that is nearest in time, within `tolerance` units of the time column.

    Output: left then right columns; with `outer` left rows without a match are kept, with NULLs.
    """

    fields: Fields
    left: Node
    right: Node
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    left_time: int
    right_time: int
    direction: Literal["backward", "forward", "nearest"] = "backward"
    tolerance: int | None = None
    outer: bool = True


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """The input columns, then the start of the session of each row.

    A row lasts from its `start` to its `end`, which is not before it. Rows of equal keys whose times meet, or touch, are in one
    session, which begins with the first of them; it ends with the last end, which an Aggregate above finds out. A row without a
    start or an end is in no session: NULL.
    """

    fields: Fields
    input: Node
    keys: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class AggregateCall(WithOptions):
    """One aggregate function, by its Catalyst name ("Sum", "Count", "Min", "CollectList"), over columns by position.

    A Count without arguments is COUNT(*). `filter` is a boolean column; `options` hold what changes the meaning (evalMode,
    percentage, ignoreNulls, order, ...).
    """

    function: str
    args: tuple[int, ...]
    type: str
    distinct: bool = False
    filter: int | None = None
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One row per group: the keys, then the aggregates. Without keys there is always one row; without calls it is DISTINCT."""

    fields: Fields
    input: Node
    keys: tuple[int, ...]
    calls: tuple[AggregateCall, ...]


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column to order by."""

    column: int
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class TopK:
    """Rows `offset` .. `offset + limit` of each partition in the given order, the whole row breaking ties.

    A plain LIMIT has no order keys. `limit` None means all (an ORDER BY without LIMIT is a property of the view, not a node).
    `rank_field` says that the rows' row_number (counted from 1) is the last output column.
    """

    fields: Fields
    input: Node
    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    limit: int | None
    offset: int = 0
    rank_field: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """A window frame: "rows" or "range", bounds relative to the current row (None: unbounded, 0: current row)."""

    unit: Literal["rows", "range"]
    lower: Any
    upper: Any


@dataclass(frozen=True, slots=True)
class WindowCall(WithOptions):
    """One window function: a ranking ("RowNumber"), offset ("Lag") or aggregate function over columns by position."""

    function: str
    args: tuple[int, ...]
    type: str
    frame: Frame
    distinct: bool = False
    filter: int | None = None
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Window:
    """The input columns, then one column per call."""

    fields: Fields
    input: Node
    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    calls: tuple[WindowCall, ...]


@dataclass(frozen=True, slots=True)
class Single:
    """Exactly one row: the input's, or all NULL when it is empty; more than one is an error (a scalar subquery)."""

    fields: Fields
    input: Node


@dataclass(frozen=True, slots=True)
class Recursive:
    """The rows of `anchor`, then those that `step` makes of the rows it made last, until there are none.

    `step` reads the last rows through a Scan named `name`, and all rows found so far through one named `so_far(name)`, as UNION
    (without ALL) needs it. More than `max_depth` levels, or `max_rows` rows, are an error; None stands for Spark's
    defaults, -1 for no bound. With a `limit`, it ends with the level up to which there are so many rows, and the
    level of a row is the last column.
    """

    fields: Fields
    name: str
    anchor: Node
    step: Node
    max_depth: int | None = None
    max_rows: int | None = None
    limit: int | None = None

    @property
    def own_fields(self) -> Fields:
        """The columns of anchor and step, without the level."""
        return self.fields if self.limit is None else self.fields[:-1]


def so_far(recursion: str) -> str:
    """The name of the relation of all rows that a recursion has found so far."""
    return f"{recursion} so far"


@dataclass(frozen=True, slots=True)
class Spark:
    """What the kernel lacks, kept as a position in the Catalyst plan and run by Spark.

    A `stateless` one with bindings gives its input's columns and then one column per expression of Spark's, over the delta
    only (tier `spark`); a stateless one without is an operator that looks at one row at a time. The others are
    recomputed over the inputs that the kernel keeps and diffed (tier `recompute`); inputs beyond the operator's
    children are the one-row plans of its scalar subqueries. `path` holds positions in the optimized plan, as
    `Front.java` numbers plan nodes and expressions: the operator's, then those of the aggregate calls that are wanted
    when it is not all of them; or one per expression. `bindings` has, per expression, the positions inside it that
    are input columns, with the column (-1 is the tick's time). `where` has, per expression, the boolean input column
    on whose TRUE rows alone it counts, or None: it must not raise on others. `cut` has the positions of the plans
    that the inputs stand for, when these are not the operator's own children: what sorts and places the rows of an
    operator that sees their order is run with it. `meaning` is a digest of what Spark computes: positions in the
    plans of two views may be the same for different things.
    """

    fields: Fields
    inputs: tuple[Node, ...]
    path: tuple[int, ...]
    operator: str
    stateless: bool
    reason: str
    bindings: tuple[tuple[tuple[int, int], ...], ...] = ()
    where: tuple[int | None, ...] = ()
    cut: tuple[int, ...] = ()
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class KernelFirst(Spark):
    """Expressions of the kernel's own that some rows are beyond, as those with a regular expression of Java's alone:
    Spark is asked for a delta with such rows.

    `expressions` has, per expression of Spark's, the same one over the columns of the input.
    """

    expressions: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Exchange:
    """The input's rows in another place, when the kernel runs in shards: `penstock.plan.exchange` puts it between operators.

    Rows go to the shard that the hash of `keys` says ("by"), to the home shard, to every shard, or to the driver.
    Every shard has all rows of an input that is `copied`, and takes its part of them. The `name` is the same for
    equal exchanges and different for others.
    """

    fields: Fields
    input: Node
    target: Literal["by", "one place", "everywhere", "driver"]
    keys: tuple[int, ...]
    copied: bool
    name: str


Node = (
    Scan
    | Values
    | Filter
    | Project
    | Union
    | Expand
    | Generate
    | Join
    | Asof
    | SessionWindow
    | Aggregate
    | TopK
    | Window
    | Single
    | Recursive
    | Spark
    | Exchange
)


def children(node: Node) -> tuple[Node, ...]:
    """The inputs of a node, left to right."""
    match node:
        case Scan() | Values():
            return ()
        case Union() | Spark():
            return node.inputs
        case Join() | Asof():
            return (node.left, node.right)
        case Recursive():
            return (node.anchor, node.step)
        case _:
            return (node.input,)


def scanned(root: Node) -> frozenset[str]:
    """The relations that a plan scans, without its own recursions."""
    names: set[str] = set()

    def visit(node: Node, recursions: frozenset[str]) -> None:
        if isinstance(node, Scan) and node.name not in recursions:
            names.add(node.name)
        inner = recursions | {node.name, so_far(node.name)} if isinstance(node, Recursive) else recursions
        for child in children(node):
            visit(child, inner)

    visit(root, frozenset())
    return frozenset(names)


@dataclass(frozen=True, slots=True)
class Variable:
    """A session variable that a view has read: its type and its value then, as SQL."""

    name: str
    type: str
    value: str


@dataclass(frozen=True, slots=True)
class View:
    """A compiled view: its plan, and the order in which people read its rows.

    When the ORDER BY reads columns that the query does not show, the plan gives them behind the `visible` ones.
    """

    name: str
    sql: str
    root: Node
    order: tuple[SortKey, ...] = ()
    uses_time: bool = False
    statics: tuple[str, ...] = ()  # names of the scans that are tables of the session
    # Rules of the time zones that it names: `functions.scalars.zone_ids.learn` before it is compiled.
    zones: tuple[tuple[str, tuple[int, ...]], ...] = ()
    visible: int | None = None  # how many columns of the root are the view's own; None means all
    variables: tuple[Variable, ...] = ()  # bound when the view was registered
    # Catalyst's metadata of each column, as JSON, in the order of the fields; nothing when there is none.
    metadata: tuple[str, ...] = ()
    # The rules of all time zones, when rows may name any.
    zone_table: str = ""

    @property
    def fields(self) -> Fields:
        """The columns of the view."""
        return self.root.fields[: self.visible]
