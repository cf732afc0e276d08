"""One shard and many shards give the same rows: random plans, run in shards as their distribution says.

Rows that an operator must see together (those of a join key, a group, a partition, everything) are on one shard, or the results would
differ; and the rows of every node are where its distribution says.
"""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.plan import node as plan
from penstock.plan.distribution import distribute
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
