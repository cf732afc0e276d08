"""One shard and many shards give the same rows: random plans, run in shards as their distribution says.

Rows that an operator must see together (those of a join key, a group, a partition, everything) are on one shard, or the results would
differ; and the rows of every node are where its distribution says.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.plan import node as plan
from penstock.plan.distribution import Distribution, Edge, Sharded, distribute
from penstock.plan.exchange import Exchanged, exchanged
from penstock.plan.explain import explain
from penstock.plan.expression import Literal
from twin.plans import KINDS, RELATIONS, TABLES, plans
from twin.rows import Multiset, examples
from twin.shards import Relation, in_shards, total, whole

MOST_ROWS = 200


def check(node: plan.Node, rows: dict[str, Multiset], shards: int) -> None:
    expected = whole(node, rows)
    assume(sum(expected.values()) < MOST_ROWS)
    sharded = distribute(node, RELATIONS)
    placed = {name: Relation(rows[name], RELATIONS[name]) for name in RELATIONS}
    assert total(in_shards(sharded, placed, shards), sharded.output) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_shards_together_have_the_rows_of_an_operator(kind: str) -> None:
    @examples(1_500 if kind == "join" else 300)
    @given(plans(1, [kind]), TABLES, st.sampled_from([2, 3, 8]))
    def same(node: plan.Node, rows: dict[str, Multiset], shards: int) -> None:
        check(node, rows, shards)

    same()


@examples(500)
@given(st.integers(2, 3).flatmap(plans), TABLES, st.sampled_from([1, 2, 3, 8]))
def test_shards_together_have_the_rows_of_a_plan(
    node: plan.Node, rows: dict[str, Multiset], shards: int
) -> None:
    check(node, rows, shards)


@pytest.mark.parametrize("kind", [*KINDS, "plan"])
def test_the_exchanges_that_explain_shows_are_those_of_the_plan(kind: str) -> None:
    @examples(300)
    @given(st.integers(2, 3).flatmap(plans) if kind == "plan" else plans(1, [kind]))
    def same(node: plan.Node) -> None:
        view = plan.View("v", "", node)
        shown = explain(view, cost=lambda call: "delta", relations=RELATIONS).operators
        assert sorted(line.exchange for line in shown if line.exchange) == sorted(
            made(exchanged(view, RELATIONS))
        )

    same()


def made(plan_in_shards: Exchanged) -> Iterator[str]:
    """The exchanges of a plan in shards, in the words of `explain`, but for those that bring back what the driver has computed."""
    places = dict(plan_in_shards.places)

    def below(node: plan.Node) -> Iterator[str]:
        for child in plan.children(node):
            if isinstance(child, plan.Exchange) and places.get(child.input) != "driver":
                target = Distribution(child.target, tuple(frozenset({key}) for key in child.keys))
                source = Sharded(child.input, target)
                yield Edge(source, target, partial=is_first(child.input, node)).show()
            yield from below(child)

    yield from below(
        plan.Filter(plan_in_shards.view.fields, plan_in_shards.view.root, Literal(True, "boolean"))
    )


def is_first(node: plan.Node, reader: plan.Node) -> bool:
    """Whether an operator takes the first rows of a shard for a top-k."""
    if not isinstance(node, plan.TopK) or not isinstance(reader, plan.TopK) or reader.limit is None:
        return False
    first = (reader.partition, reader.order, reader.limit + reader.offset, 0, False)
    return first == (node.partition, node.order, node.limit, node.offset, node.rank_field)
