"""Views that fail on some rows: alone, beside others, and on each other."""

from __future__ import annotations

from penstock.plan import node as plan
from penstock.plan.expression import Call, Column, Expression, Literal
from penstock.plan.node import Field
from twin.flows import FIELDS, LARGE, PAIR, SUM, V, join, view_scan

ANSI = (("evalMode", "ANSI"),)
QUOTIENT = (FIELDS[0], Field("d", "double"))


def inverse(below: plan.Node, of: Expression = V) -> plan.Node:
    """1 / v of every row, which fails where v is 0."""
    number = Call("Cast", (of,), "double", True)
    quotient = Call("Divide", (Literal(1.0, "double"), number), "double", True, ANSI)
    return plan.Project(QUOTIENT, below, (Column(0, "bigint"), quotient))


def huge(below: plan.Node) -> plan.Node:
    """v * 2^61 by k, whose sum fails when the sum of v is above 3."""
    product = Call("Multiply", (V, Literal(2**61, "bigint")), "bigint", True, ANSI)
    products = plan.Project(FIELDS[:2], below, (Column(0, "bigint"), product))
    return plan.Aggregate(FIELDS[:2], products, (0,), (SUM,))


TWO_LESS = Call("Subtract", (V, Literal(2, "bigint")), "bigint", True, ANSI)
COUNT = plan.AggregateCall("Count", (), "bigint")
# Alone, behind operators and arrangements that views without an error share, on other views, and on each other.
FAILING: dict[str, plan.Node] = {
    "inverse": inverse(PAIR),
    "inverse_large": inverse(LARGE, TWO_LESS),
    "inverse_totals": inverse(view_scan("totals", FIELDS[:2])),
    "inverse_named": inverse(join("left", PAIR)),
    "huge": huge(PAIR),
    "huge_large": huge(LARGE),
    "top_inverse": plan.TopK(QUOTIENT, inverse(PAIR), (), (plan.SortKey(1, True, False),), 2),
    "inverse_count": plan.Aggregate((Field("n", "bigint"),), view_scan("inverse", QUOTIENT), (), (COUNT,)),
    "inverse_huge": plan.Join(
        (*QUOTIENT, Field("key", "bigint"), FIELDS[1]),
        view_scan("inverse", QUOTIENT),
        view_scan("huge", FIELDS[:2]),
        "inner",
        (0,),
        (0,),
        (False,),
    ),
    "huge_inverse": inverse(view_scan("huge", FIELDS[:2])),
}
READS = {
    "total_names": ("totals",),
    "top_total": ("totals",),
    "inverse_totals": ("totals",),
    "inverse_count": ("inverse",),
    "inverse_huge": ("inverse", "huge"),
    "huge_inverse": ("huge",),
}
