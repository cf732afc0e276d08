"""Random plans over relations of every distribution, and rows of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from hypothesis import strategies as st

from penstock.plan import node as plan
from penstock.plan.distribution import ANY, EVERYWHERE, ONE_PLACE, by, source_distribution
from penstock.plan.expression import Call, Column, Expression, Literal
from twin.rows import Multiset

RELATIONS = {
    "keyed": source_distribution(3, [0]),
    "keyed by two": source_distribution(3, [2, 0]),
    "plain": source_distribution(3),
    "by the last": by([2]),
    "anywhere": ANY,
    "static": EVERYWHERE,
    "gathered": ONE_PLACE,
    "at most one row": source_distribution(3),
}
VALUES = st.none() | st.integers(0, 2)
JOINS: list[plan.JoinKind] = ["inner", "inner", "left", "right", "full", "semi", "anti"]


def fields(count: int) -> plan.Fields:
    return tuple(plan.Field(f"c{at}", "bigint") for at in range(count))


def width(node: plan.Node) -> int:
    return len(node.fields)


def columns(node: plan.Node) -> st.SearchStrategy[int]:
    return st.integers(0, width(node) - 1)


def several(node: plan.Node, *, least: int = 0) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(columns(node), min_size=least, max_size=2).map(tuple)


def column(index: int) -> Column:
    return Column(index, "bigint")


def plus_one(index: int) -> Call:
    return Call("Add", (column(index), Literal(1, "bigint")), "bigint")


def smaller(left: Expression, right: Expression) -> Call:
    return Call("LessThan", (left, right), "boolean")


def expressions(node: plan.Node) -> st.SearchStrategy[Expression]:
    # Columns more often than anything else, so that keys get through.
    return st.one_of(
        columns(node).map(column),
        columns(node).map(column),
        columns(node).map(plus_one),
        st.just(Literal(None, "bigint")),
    )


def projections(node: plan.Node, count: int) -> st.SearchStrategy[tuple[Expression, ...]]:
    return st.lists(expressions(node), min_size=count, max_size=count).map(tuple)


def scan(draw: st.DrawFn, relations: Sequence[str]) -> plan.Node:
    read = tuple(draw(st.permutations(range(3)))[: draw(st.integers(1, 3))])
    return plan.Scan(fields(len(read)), draw(st.sampled_from(relations)), read)


def values(draw: st.DrawFn) -> plan.Node:
    return plan.Values(fields(2), tuple(draw(st.lists(st.tuples(VALUES, VALUES), max_size=3))))


def narrow(draw: st.DrawFn, node: plan.Node) -> plan.Node:
    """At most three columns, so that plans do not grow with their depth."""
    if width(node) <= 3:
        return node
    count = draw(st.integers(1, 3))
    return plan.Project(fields(count), node, draw(projections(node, count)))


def join(draw: st.DrawFn, left: plan.Node, right: plan.Node) -> plan.Node:
    kind = draw(st.sampled_from(JOINS))
    pairs = draw(st.lists(st.tuples(columns(left), columns(right), st.booleans()), max_size=3))
    null_aware = kind == "anti" and bool(pairs) and draw(st.booleans())
    both = width(left) + width(right)
    residual = None
    if draw(st.booleans()):
        residual = smaller(column(draw(st.integers(0, both - 1))), column(draw(st.integers(0, both - 1))))
    joined = plan.Join(
        fields(width(left) if kind in ("semi", "anti") else both),
        left,
        right,
        kind,
        tuple(pair[0] for pair in pairs),
        tuple(pair[1] for pair in pairs),
        tuple(pair[2] and not null_aware for pair in pairs),
        residual,
        null_aware,
    )
    return narrow(draw, joined)


def asof(draw: st.DrawFn, left: plan.Node, right: plan.Node) -> plan.Node:
    pairs = draw(st.lists(st.tuples(columns(left), columns(right)), max_size=2))
    joined = plan.Asof(
        fields(width(left) + width(right)),
        left,
        right,
        tuple(pair[0] for pair in pairs),
        tuple(pair[1] for pair in pairs),
        draw(columns(left)),
        draw(columns(right)),
        draw(st.sampled_from(["backward", "forward", "nearest"])),
        draw(st.none() | st.integers(0, 1)),
        draw(st.booleans()),
    )
    return narrow(draw, joined)


def aggregate(draw: st.DrawFn, below: plan.Node) -> plan.Aggregate:
    keys = draw(several(below))
    called = draw(st.lists(st.none() | columns(below), min_size=0 if keys else 1, max_size=1))
    calls = tuple(
        plan.AggregateCall("Count", (), "bigint")
        if at is None
        else plan.AggregateCall("Sum", (at,), "bigint")
        for at in called
    )
    return plan.Aggregate(fields(len(keys) + len(calls)), below, keys, calls)


def top(draw: st.DrawFn, below: plan.Node) -> plan.Node:
    ranked = draw(st.booleans())
    order = tuple(plan.SortKey(at, draw(st.booleans())) for at in draw(several(below)))
    limit, offset = draw(st.none() | st.integers(0, 3)), draw(st.integers(0, 1))
    partition = draw(several(below))
    node = plan.TopK(fields(width(below) + ranked), below, partition, order, limit, offset, ranked)
    return narrow(draw, node)


def window(draw: st.DrawFn, below: plan.Node) -> plan.Node:
    call = plan.WindowCall("Count", (), "bigint", plan.Frame("rows", None, None))
    return narrow(draw, plan.Window(fields(width(below) + 1), below, draw(several(below)), (), (call,)))


def session(draw: st.DrawFn, below: plan.Node) -> plan.Node:
    times = draw(columns(below)), draw(columns(below))
    return narrow(draw, plan.SessionWindow(fields(width(below) + 1), below, draw(several(below)), *times))


def single(draw: st.DrawFn, below: plan.Node) -> plan.Node:
    """A scalar subquery beside the rows, as it is planned."""
    call = plan.AggregateCall("Count", (), "bigint")
    value: plan.Node = plan.Aggregate(fields(1), below, (), (call,))
    if draw(st.booleans()):
        value = plan.Scan(fields(1), "at most one row", (1,))
    left = scan(draw, list(RELATIONS))
    joined = plan.Join(fields(width(left) + 1), left, plan.Single(fields(1), value), "inner", (), (), ())
    return narrow(draw, joined)


def recursive(draw: st.DrawFn, anchor: plan.Node, outside: plan.Node) -> plan.Node:
    """Counts up to 2 in the first column, over rows that have a match outside, and are new under UNION."""
    level = plan.Scan(anchor.fields, "loop", tuple(range(width(anchor))))
    kind = draw(st.sampled_from([kind for kind in JOINS if kind in ("inner", "left", "semi")]))
    pairs = draw(st.lists(st.tuples(columns(level), columns(outside)), max_size=1))
    joined = plan.Join(
        fields(width(level) + (width(outside) if kind != "semi" else 0)),
        level,
        outside,
        kind,
        tuple(pair[0] for pair in pairs),
        tuple(pair[1] for pair in pairs),
        (False,) * len(pairs),
        None,
    )
    bounded = plan.Filter(joined.fields, joined, smaller(column(0), Literal(2, "bigint")))
    counted: tuple[Expression, ...] = (plus_one(0), *(column(at) for at in range(1, width(anchor))))
    step: plan.Node = plan.Project(anchor.fields, bounded, counted)
    if width(anchor) == 2 and draw(st.booleans()):
        step = spark(draw, step)
    if draw(st.booleans()):
        step = plan.Aggregate(anchor.fields, step, tuple(range(width(anchor))), ())
        before = plan.Scan(anchor.fields, plan.so_far("loop"), tuple(range(width(anchor))))
        every = tuple(range(width(anchor)))
        step = plan.Join(anchor.fields, step, before, "anti", every, every, (True,) * len(every))
    return plan.Recursive(anchor.fields, "loop", anchor, step)


def spark(draw: st.DrawFn, below: plan.Node) -> plan.Node:
    return plan.Spark(fields(2), (below,), (1,), "Sketch", False, "the function is unknown")


def keeping(draw: st.DrawFn, below: plan.Node) -> plan.Node:
    """An operator that looks at one row at a time."""
    count = draw(st.integers(1, 3))
    match draw(st.sampled_from(["filter", "project", "expand", "generate"])):
        case "filter":
            condition = smaller(draw(expressions(below)), Literal(draw(st.integers(0, 3)), "bigint"))
            return plan.Filter(below.fields, below, condition)
        case "project":
            return plan.Project(fields(count), below, draw(projections(below, count)))
        case "expand":
            first = draw(projections(below, count))
            blanked = (Literal(None, "bigint"), *first[1:])
            return plan.Expand(fields(count), below, (first, draw(st.sampled_from([first, blanked]))))
        case _:
            required = draw(several(below))
            generator = Call("Explode", (column(draw(columns(below))),), "bigint")
            return plan.Generate(fields(len(required) + 1), below, generator, required, draw(st.booleans()))


def union(draw: st.DrawFn, inputs: Sequence[plan.Node]) -> plan.Node:
    count = min(width(node) for node in inputs)
    cut = [plan.Project(fields(count), node, tuple(column(at) for at in range(count))) for node in inputs]
    return plan.Union(fields(count), tuple(cut))


OF_ONE: list[Callable[[st.DrawFn, plan.Node], plan.Node]] = [
    keeping,
    aggregate,
    top,
    window,
    session,
    single,
    spark,
]
KINDS = [*(make.__name__ for make in OF_ONE), "join", "asof", "union", "recursive"]
DEEP = [kind for kind in [*KINDS, "keeping", "aggregate", "join", "join"] if kind != "recursive"]


@st.composite
def plans(draw: st.DrawFn, depth: int, kinds: Sequence[str] = DEEP) -> plan.Node:
    """A plan of some depth, with one of the kinds at its root."""
    if depth == 0:
        return scan(draw, list(RELATIONS)) if draw(st.integers(0, 9)) else values(draw)
    below = st.integers(0, depth - 1).flatmap(plans)
    match draw(st.sampled_from(kinds)):
        case "join":
            return join(draw, draw(below), draw(below))
        case "asof":
            return asof(draw, draw(below), draw(below))
        case "union":
            return union(draw, draw(st.lists(below, min_size=2, max_size=3)))
        case "recursive":
            return recursive(draw, draw(below), draw(below))
        case kind:
            return next(make for make in OF_ONE if make.__name__ == kind)(draw, draw(below))


def tables(seed: int) -> dict[str, Multiset]:
    """Rows of every relation; drawn one by one they would take longer than all the rest."""
    chance = Random(seed)
    sizes = {name: 1 if name == "at most one row" else 7 for name in RELATIONS}
    return {
        name: dict(
            Counter(tuple(chance.choices([None, 0, 1, 2], k=3)) for _ in range(chance.randint(0, size)))
        )
        for name, size in sizes.items()
    }


TABLES = st.integers(0, 2**32).map(tables)
