"""Where the rows of every kind of node are in shards, and which exchanges it needs."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.plan import node as plan
from penstock.plan.distribution import (
    ANY,
    DRIVER,
    EVERYWHERE,
    ONE_PLACE,
    Distribution,
    Sharded,
    by,
    distribute,
    distribute_view,
    source_distribution,
    view_distribution,
)
from penstock.plan.expression import Call, Column, Expression, Literal

RELATIONS = {
    "orders": source_distribution(4, [0]),
    "lines": source_distribution(3),
    "by customer": by([1]),
    "countries": EVERYWHERE,
    "gathered": ONE_PLACE,
}
COUNT = plan.AggregateCall("Count", (), "bigint")


def fields(*names: str) -> plan.Fields:
    return tuple(plan.Field(name, "bigint") for name in names)


def scan(name: str, *columns: int) -> plan.Scan:
    names = ("id", "customer", "amount", "day")
    read = columns or (0, 1, 2)
    return plan.Scan(fields(*(names[column] for column in read)), name, read)


def project(below: plan.Node, *expressions: int | Expression) -> plan.Project:
    parts = tuple(Column(one, "bigint") if isinstance(one, int) else one for one in expressions)
    return plan.Project(fields(*(f"c{at}" for at in range(len(parts)))), below, parts)


def join(
    left: plan.Node,
    right: plan.Node,
    *pairs: tuple[int, int],
    kind: Any = "inner",
    null_aware: bool = False,
) -> plan.Join:
    shown = left.fields if kind in ("semi", "anti") else (*left.fields, *right.fields)
    keys = (tuple(one for one, _ in pairs), tuple(other for _, other in pairs))
    return plan.Join(shown, left, right, kind, *keys, (False,) * len(pairs), null_aware=null_aware)


def asof(left: plan.Node, right: plan.Node, *pairs: tuple[int, int], outer: bool = True) -> plan.Asof:
    keys = (tuple(one for one, _ in pairs), tuple(other for _, other in pairs))
    return plan.Asof((*left.fields, *right.fields), left, right, *keys, 2, 2, outer=outer)


def aggregate(below: plan.Node, *keys: int) -> plan.Aggregate:
    names = [below.fields[key].name for key in keys]
    return plan.Aggregate(fields(*names, "n"), below, keys, (COUNT,))


def top(below: plan.Node, *partition: int, limit: int | None = 3) -> plan.TopK:
    return plan.TopK(below.fields, below, partition, (plan.SortKey(0),), limit)


def session(below: plan.Node, *keys: int) -> plan.SessionWindow:
    return plan.SessionWindow((*below.fields, *fields("start")), below, keys, 1, 2)


def window(below: plan.Node, *partition: int) -> plan.Window:
    call = plan.WindowCall("RowNumber", (), "int", plan.Frame("rows", None, 0))
    return plan.Window((*below.fields, *fields("place")), below, partition, (), (call,))


def values(*rows: int) -> plan.Values:
    return plan.Values(fields("value"), tuple((row,) for row in rows))


def single(below: plan.Node) -> plan.Single:
    return plan.Single(below.fields, below)


def sharded(node: plan.Node) -> Sharded:
    return distribute(node, RELATIONS)


def output(node: plan.Node) -> Distribution:
    return sharded(node).output


def exchanges(node: plan.Node) -> list[Distribution | None]:
    return [edge.exchange for edge in sharded(node).inputs]


def keys(*columns: set[int]) -> Distribution:
    return Distribution("by", tuple(frozenset(equal) for equal in columns))


ORDERS, LINES, BY_CUSTOMER = scan("orders"), scan("lines"), scan("by customer")
COUNTRIES, GATHERED, UNKNOWN = scan("countries"), scan("gathered"), scan("unknown")


class TestRelations:
    def test_a_source_is_by_its_primary_key_or_by_the_whole_row(self) -> None:
        assert source_distribution(4, [2, 0]) == by([0, 2])
        assert source_distribution(3) == by([0, 1, 2])
        assert source_distribution(3, []) == by([0, 1, 2])

    def test_a_scan_knows_the_key_by_its_own_columns(self) -> None:
        assert output(ORDERS) == by([0])
        assert output(scan("orders", 2, 0)) == by([1])
        assert output(LINES) == by([0, 1, 2])

    def test_a_scan_without_a_column_of_the_key_is_any(self) -> None:
        assert output(scan("orders", 1, 2)) == ANY
        assert output(scan("lines", 0, 1)) == ANY

    def test_a_column_that_is_read_twice_is_the_key_twice(self) -> None:
        assert output(plan.Scan(fields("a", "b"), "orders", (0, 0))) == keys({0, 1})

    def test_other_relations(self) -> None:
        assert output(COUNTRIES) == EVERYWHERE
        assert output(GATHERED) == ONE_PLACE
        assert output(UNKNOWN) == ANY
        assert exchanges(UNKNOWN) == []

    def test_values_are_in_one_place(self) -> None:
        assert output(values(1, 2)) == ONE_PLACE


class TestOneRowAtATime:
    def test_a_filter_keeps_rows_where_they_are(self) -> None:
        condition = Literal(True, "boolean")
        for below in (ORDERS, COUNTRIES, GATHERED, UNKNOWN):
            node = plan.Filter(below.fields, below, condition)
            assert output(node) == output(below)
            assert exchanges(node) == [None]

    def test_a_projection_renames_and_loses_keys(self) -> None:
        plus = Call("Add", (Column(0, "bigint"), Literal(1, "bigint")), "bigint")
        assert output(project(ORDERS, 2, 0)) == by([1])
        assert output(project(ORDERS, 0, 1, 0)) == keys({0, 2})
        assert output(project(ORDERS, 1, plus)) == ANY
        assert output(project(LINES, 0, 1)) == ANY
        assert output(project(GATHERED, plus)) == ONE_PLACE
        assert output(project(COUNTRIES, plus)) == EVERYWHERE

    def test_grouping_sets_keep_a_key_that_all_of_them_have(self) -> None:
        null = Literal(None, "bigint")
        first, second = Column(0, "bigint"), Column(1, "bigint")
        blanked = plan.Expand(fields("a", "b"), ORDERS, ((first, second), (first, null)))
        assert output(blanked) == by([0])
        lost = plan.Expand(fields("a", "b"), ORDERS, ((first, second), (null, second)))
        assert output(lost) == ANY
        swapped = plan.Expand(fields("a", "b"), ORDERS, ((first, second), (second, first)))
        assert output(swapped) == ANY

    def test_a_generator_keeps_the_required_columns(self) -> None:
        explode = Call("Explode", (Column(2, "array<bigint>"),), "")
        kept = plan.Generate(fields("b", "a", "item"), ORDERS, explode, (1, 0), outer=False)
        assert output(kept) == by([1])
        assert output(plan.Generate(fields("b", "item"), ORDERS, explode, (1,), outer=False)) == ANY


class TestUnion:
    def test_common_keys_stay(self) -> None:
        assert output(plan.Union(ORDERS.fields, (ORDERS, ORDERS))) == by([0])
        joined = project(join(ORDERS, scan("orders"), (0, 0)), 0, 1, 2)
        assert output(plan.Union(ORDERS.fields, (ORDERS, joined))) == by([0])

    def test_other_keys_are_any(self) -> None:
        node = plan.Union(ORDERS.fields, (ORDERS, BY_CUSTOMER, UNKNOWN))
        assert output(node) == ANY
        assert exchanges(node) == [None, None, None]
        assert output(plan.Union(ORDERS.fields, (ORDERS, LINES))) == ANY
        assert output(plan.Union(ORDERS.fields, (UNKNOWN, UNKNOWN))) == ANY

    def test_rows_that_are_everywhere_count_once(self) -> None:
        node = plan.Union(ORDERS.fields, (ORDERS, COUNTRIES, GATHERED))
        assert output(node) == ANY
        assert exchanges(node) == [None, ONE_PLACE, None]

    def test_in_one_place_or_everywhere(self) -> None:
        assert output(plan.Union(ORDERS.fields, (COUNTRIES, COUNTRIES))) == EVERYWHERE
        node = plan.Union(ORDERS.fields, (COUNTRIES, GATHERED))
        assert output(node) == ONE_PLACE
        assert exchanges(node) == [None, None]


class TestJoin:
    def test_both_inputs_go_by_the_keys_in_canonical_order(self) -> None:
        node = join(UNKNOWN, UNKNOWN, (2, 0), (1, 2))
        assert exchanges(node) == [by([1, 2]), by([2, 0])]
        assert output(node) == keys({1, 5}, {2, 3})

    def test_an_input_that_is_by_some_of_the_keys_stays(self) -> None:
        assert exchanges(join(ORDERS, UNKNOWN, (1, 2), (0, 1))) == [None, by([1])]
        assert exchanges(join(UNKNOWN, ORDERS, (1, 2), (2, 0))) == [by([2]), None]
        assert output(join(UNKNOWN, ORDERS, (1, 2), (2, 0))) == keys({2, 3})

    def test_inputs_that_fit_stay(self) -> None:
        assert exchanges(join(ORDERS, ORDERS, (0, 0))) == [None, None]
        assert exchanges(join(ORDERS, BY_CUSTOMER, (0, 1), (2, 2))) == [None, None]
        assert exchanges(join(LINES, LINES, (0, 0), (1, 1), (2, 2))) == [None, None]

    def test_the_same_columns_in_another_order_do_not_fit(self) -> None:
        node = join(LINES, LINES, (0, 1), (1, 0), (2, 2))
        assert exchanges(node) == [None, by([1, 0, 2])]

    def test_keys_of_other_columns_do_not_fit(self) -> None:
        assert exchanges(join(ORDERS, ORDERS, (1, 1))) == [by([1]), by([1])]
        assert exchanges(join(LINES, UNKNOWN, (0, 0))) == [by([0]), by([0])]

    @pytest.mark.parametrize(
        ("kind", "expected"),
        [
            ("inner", keys({0, 3})),
            ("left", by([0])),
            ("right", by([3])),
            ("full", ANY),
            ("semi", by([0])),
            ("anti", by([0])),
        ],
    )
    def test_the_rows_are_by_the_keys_that_are_never_padded(self, kind: str, expected: Distribution) -> None:
        assert output(join(ORDERS, ORDERS, (0, 0), kind=kind)) == expected

    def test_a_key_of_both_inputs_is_enough_for_the_next_operator(self) -> None:
        joined = join(UNKNOWN, UNKNOWN, (1, 2))
        assert exchanges(aggregate(joined, 5)) == [None]
        assert exchanges(aggregate(project(joined, 5, 0), 0)) == [None]
        assert exchanges(join(joined, UNKNOWN, (5, 0))) == [None, by([0])]
        outer = join(UNKNOWN, UNKNOWN, (1, 2), kind="left")
        assert exchanges(aggregate(outer, 5)) == [by([5])]

    @pytest.mark.parametrize("kind", ["inner", "left", "semi", "anti"])
    def test_a_right_input_that_is_everywhere_is_read_where_the_left_rows_are(self, kind: str) -> None:
        node = join(ORDERS, COUNTRIES, (1, 0), kind=kind)
        assert exchanges(node) == [None, None]
        assert output(node) == by([0])

    @pytest.mark.parametrize("kind", ["inner", "right"])
    def test_a_left_input_that_is_everywhere_is_read_where_the_right_rows_are(self, kind: str) -> None:
        node = join(COUNTRIES, ORDERS, (1, 2), kind=kind)
        assert exchanges(node) == [None, None]
        assert output(node) == by([3])

    def test_rows_that_a_join_pads_must_not_be_everywhere(self) -> None:
        assert exchanges(join(ORDERS, COUNTRIES, (0, 1), kind="right")) == [None, by([1])]
        assert exchanges(join(COUNTRIES, ORDERS, (1, 0), kind="left")) == [by([1]), None]
        assert exchanges(join(COUNTRIES, UNKNOWN, (1, 0), kind="semi")) == [by([1]), by([0])]
        assert exchanges(join(UNKNOWN, COUNTRIES, (1, 0), kind="full")) == [by([1]), by([0])]

    def test_a_few_rows_go_everywhere_when_the_others_are_not_by_the_keys(self) -> None:
        assert exchanges(join(UNKNOWN, values(1), (1, 0))) == [None, EVERYWHERE]
        assert exchanges(join(values(1), UNKNOWN, (0, 1))) == [EVERYWHERE, None]
        assert exchanges(join(ORDERS, values(1), (0, 0))) == [None, by([0])]
        assert exchanges(join(UNKNOWN, values(1), (1, 0), kind="full")) == [by([1]), by([0])]
        assert exchanges(join(UNKNOWN, GATHERED, (1, 0))) == [by([1]), by([0])]

    def test_in_one_place_or_everywhere(self) -> None:
        assert output(join(GATHERED, COUNTRIES, (0, 0), kind="full")) == ONE_PLACE
        assert output(join(COUNTRIES, COUNTRIES, (0, 0), kind="full")) == EVERYWHERE
        assert exchanges(join(COUNTRIES, GATHERED, (0, 0), kind="left")) == [None, None]


class TestJoinWithoutKeys:
    @pytest.mark.parametrize("kind", ["inner", "left", "semi", "anti"])
    def test_the_right_input_goes_everywhere(self, kind: str) -> None:
        node = join(ORDERS, UNKNOWN, kind=kind)
        assert exchanges(node) == [None, EVERYWHERE]
        assert output(node) == by([0])

    def test_the_left_input_of_a_right_join_goes_everywhere(self) -> None:
        node = join(UNKNOWN, ORDERS, kind="right")
        assert exchanges(node) == [EVERYWHERE, None]
        assert output(node) == by([3])

    def test_of_a_cross_join_the_few_rows_go_everywhere(self) -> None:
        assert exchanges(join(values(1), ORDERS)) == [EVERYWHERE, None]
        assert exchanges(join(aggregate(UNKNOWN), ORDERS)) == [EVERYWHERE, None]
        assert exchanges(join(top(UNKNOWN), ORDERS)) == [EVERYWHERE, None]
        assert exchanges(join(COUNTRIES, ORDERS)) == [None, None]
        assert exchanges(join(ORDERS, COUNTRIES)) == [None, None]
        assert exchanges(join(project(values(1), 0), ORDERS)) == [EVERYWHERE, None]

    def test_a_full_join_is_in_one_place(self) -> None:
        node = join(ORDERS, UNKNOWN, kind="full")
        assert exchanges(node) == [ONE_PLACE, ONE_PLACE]
        assert output(node) == ONE_PLACE
        assert exchanges(join(COUNTRIES, UNKNOWN, kind="full")) == [None, ONE_PLACE]
        assert output(join(COUNTRIES, UNKNOWN, kind="full")) == ONE_PLACE

    def test_rows_in_one_place_have_the_others_come(self) -> None:
        node = join(GATHERED, ORDERS, kind="left")
        assert exchanges(node) == [None, ONE_PLACE]
        assert output(node) == ONE_PLACE

    def test_rows_that_are_kept_are_on_one_shard_each(self) -> None:
        node = join(COUNTRIES, ORDERS, kind="left")
        assert exchanges(node) == [by([0, 1, 2]), EVERYWHERE]
        assert output(node) == by([0, 1, 2])

    def test_not_in_reads_all_of_the_right_input(self) -> None:
        node = join(ORDERS, ORDERS, (0, 0), kind="anti", null_aware=True)
        assert exchanges(node) == [None, EVERYWHERE]
        assert output(node) == by([0])
        assert exchanges(join(ORDERS, COUNTRIES, (0, 0), kind="anti", null_aware=True)) == [None, None]


class TestSessionWindow:
    def test_by_its_keys(self) -> None:
        assert exchanges(session(UNKNOWN, 1)) == [by([1])]
        assert output(session(UNKNOWN, 1)) == by([1])
        assert exchanges(session(ORDERS, 0, 1)) == [None]
        assert output(session(ORDERS, 0, 1)) == by([0])

    def test_groups_by_session_are_where_the_rows_are(self) -> None:
        node = aggregate(session(UNKNOWN, 1), 1, 3)
        assert exchanges(node) == [None]

    def test_without_keys_in_one_place(self) -> None:
        assert exchanges(session(ORDERS)) == [ONE_PLACE]
        assert output(session(ORDERS)) == ONE_PLACE


class TestAsof:
    def test_by_its_keys(self) -> None:
        node = asof(UNKNOWN, ORDERS, (1, 0))
        assert exchanges(node) == [by([1]), None]
        assert output(node) == by([1])
        assert output(asof(UNKNOWN, ORDERS, (1, 0), outer=False)) == keys({1, 3})

    def test_without_keys_in_one_place(self) -> None:
        node = asof(ORDERS, UNKNOWN)
        assert exchanges(node) == [ONE_PLACE, ONE_PLACE]
        assert output(node) == ONE_PLACE
        assert exchanges(asof(GATHERED, UNKNOWN)) == [None, ONE_PLACE]
        assert exchanges(asof(COUNTRIES, UNKNOWN)) == [None, ONE_PLACE]
        assert output(asof(COUNTRIES, UNKNOWN)) == ONE_PLACE

    def test_right_rows_that_are_everywhere_are_read_where_the_left_rows_are(self) -> None:
        for node in (asof(ORDERS, COUNTRIES), asof(ORDERS, COUNTRIES, (1, 1))):
            assert exchanges(node) == [None, None]
            assert output(node) == by([0])


class TestGroups:
    def test_an_aggregate_is_by_its_groups(self) -> None:
        node = aggregate(UNKNOWN, 2, 1)
        assert exchanges(node) == [by([1, 2])]
        assert output(node) == by([1, 0])

    def test_rows_by_some_of_the_group_keys_stay(self) -> None:
        node = aggregate(ORDERS, 1, 0)
        assert exchanges(node) == [None]
        assert output(node) == by([1])
        assert exchanges(aggregate(LINES, 0, 1)) == [by([0, 1])]
        assert exchanges(plan.Aggregate(LINES.fields, LINES, (2, 1, 0), ())) == [None]

    def test_a_group_key_that_is_there_twice(self) -> None:
        assert output(aggregate(UNKNOWN, 1, 1)) == keys({0, 1})

    def test_an_aggregate_without_keys_is_in_one_place(self) -> None:
        node = aggregate(UNKNOWN)
        (edge,) = sharded(node).inputs
        assert (edge.exchange, edge.partial) == (ONE_PLACE, False)
        assert output(node) == ONE_PLACE
        (edge,) = sharded(aggregate(GATHERED)).inputs
        assert (edge.exchange, edge.partial) == (None, False)
        assert output(aggregate(COUNTRIES)) == EVERYWHERE

    def test_top_k_is_by_its_partition(self) -> None:
        assert exchanges(top(UNKNOWN, 2, 1)) == [by([1, 2])]
        assert output(top(UNKNOWN, 2, 1)) == by([1, 2])
        assert exchanges(top(ORDERS, 0)) == [None]

    def test_top_k_of_everything_takes_the_first_rows_of_each_shard(self) -> None:
        (edge,) = sharded(top(UNKNOWN)).inputs
        assert (edge.exchange, edge.partial) == (ONE_PLACE, True)
        (edge,) = sharded(top(UNKNOWN, limit=None)).inputs
        assert (edge.exchange, edge.partial) == (ONE_PLACE, False)
        assert output(top(UNKNOWN)) == ONE_PLACE

    def test_a_window_is_by_its_partition(self) -> None:
        assert exchanges(window(UNKNOWN, 1)) == [by([1])]
        assert output(window(UNKNOWN, 1)) == by([1])
        assert exchanges(window(ORDERS, 1, 0)) == [None]
        assert exchanges(window(ORDERS)) == [ONE_PLACE]
        assert output(window(ORDERS)) == ONE_PLACE


class TestOnePlace:
    def test_a_single_row_is_in_one_place_and_then_everywhere(self) -> None:
        assert exchanges(single(ORDERS)) == [ONE_PLACE]
        assert output(single(ORDERS)) == ONE_PLACE
        assert output(single(COUNTRIES)) == EVERYWHERE
        assert exchanges(join(ORDERS, single(aggregate(ORDERS)))) == [None, EVERYWHERE]
        assert exchanges(join(single(aggregate(ORDERS)), ORDERS)) == [EVERYWHERE, None]

    def test_spark_runs_on_the_driver(self) -> None:
        for below in (ORDERS, COUNTRIES, GATHERED):
            for stateless in (True, False):
                node = plan.Spark(fields("a"), (below,), (1,), "Project", stateless, "unknown")
                assert exchanges(node) == [DRIVER]
                assert output(node) == ONE_PLACE


class TestRecursion:
    def loop(self, anchor: plan.Node, outside: plan.Node) -> plan.Recursive:
        step = project(join(scan("loop"), outside, (1, 0)), 3, 4, 5)
        return plan.Recursive(anchor.fields, "loop", anchor, step)

    def test_everything_comes_to_one_place(self) -> None:
        found = sharded(self.loop(ORDERS, aggregate(UNKNOWN, 0, 1)))
        assert found.output == ONE_PLACE
        anchor, step = found.inputs
        assert anchor.exchange == ONE_PLACE
        assert (step.exchange, step.source.output) == (None, ONE_PLACE)
        (joined,) = step.source.inputs
        level, outside = joined.source.inputs
        assert (joined.source.output, level.exchange, outside.exchange) == (ONE_PLACE, None, ONE_PLACE)
        assert level.source.output == ONE_PLACE
        # What does not depend on the recursion is distributed as anywhere else.
        assert outside.source.output == by([0, 1])
        assert outside.source.inputs[0].exchange == by([0, 1])

    def test_over_static_tables_it_is_everywhere(self) -> None:
        assert output(self.loop(COUNTRIES, COUNTRIES)) == EVERYWHERE
        assert output(self.loop(COUNTRIES, ORDERS)) == ONE_PLACE
        assert exchanges(self.loop(COUNTRIES, ORDERS)) == [None, None]

    def test_a_recursion_whose_step_asks_spark_runs_in_the_driver(self) -> None:
        joined = project(join(scan("loop"), LINES, (0, 0)), 0, 1, 2)
        step = plan.Spark(ORDERS.fields, (joined,), (1,), "Project", True, "unknown")
        found = sharded(plan.Recursive(ORDERS.fields, "loop", ORDERS, step))
        assert [edge.exchange for edge in found.inputs] == [DRIVER, None]
        (asked,) = found.inputs[1].source.inputs
        assert asked.exchange is None
        level, outside = asked.source.inputs[0].source.inputs
        assert (level.exchange, outside.exchange) == (None, DRIVER)

    def test_a_step_that_does_not_read_the_recursion(self) -> None:
        found = sharded(plan.Recursive(ORDERS.fields, "loop", ORDERS, UNKNOWN))
        assert [edge.exchange for edge in found.inputs] == [ONE_PLACE, ONE_PLACE]

    def test_a_recursion_inside_a_step(self) -> None:
        inner = plan.Recursive(ORDERS.fields, "inner", scan("loop"), project(scan("inner"), 0, 1, 2))
        found = sharded(plan.Recursive(ORDERS.fields, "loop", ORDERS, inner))
        nested = found.inputs[1].source
        assert (nested.output, nested.inputs[1].source.output) == (ONE_PLACE, ONE_PLACE)


class TestViews:
    def test_static_tables_are_everywhere_unless_said_otherwise(self) -> None:
        view = plan.View("v", "", join(ORDERS, scan("codes"), (1, 0)), statics=("codes",))
        assert [edge.exchange for edge in distribute_view(view, RELATIONS).inputs] == [None, None]
        by_key = distribute_view(view, {**RELATIONS, "codes": by([0])})
        assert [edge.exchange for edge in by_key.inputs] == [by([1]), None]

    def test_a_view_is_a_relation_of_others(self) -> None:
        totals = plan.View("totals", "", aggregate(ORDERS, 1))
        assert view_distribution(totals, RELATIONS) == by([0])
        others = {**RELATIONS, "totals": view_distribution(totals, RELATIONS)}
        reader = plan.Scan(fields("customer", "n"), "totals", (0, 1))
        assert distribute(join(reader, BY_CUSTOMER, (0, 1)), others).output == keys({0, 3})

    def test_a_column_that_a_view_does_not_show_is_no_key(self) -> None:
        hidden = plan.View("v", "", project(ORDERS, 1, 0), visible=1)
        assert view_distribution(hidden, RELATIONS) == ANY
        assert view_distribution(plan.View("v", "", project(ORDERS, 1, 0)), RELATIONS) == by([1])


def test_words() -> None:
    assert by([1, 0]).show(ORDERS.fields) == "by customer, id"
    assert by([]).show(ORDERS.fields) == "one place"
    assert [one.show(()) for one in (ANY, EVERYWHERE)] == ["any", "everywhere"]
    wide = fields("a", "b", "c", "d", "e", "f")
    assert by(range(4)).show(wide) == "by a, b, c, d"
    assert by(range(6)).show(wide) == "by a, b, c and 3 more columns"


def test_words_of_exchanges() -> None:
    spark = plan.Spark(fields("a"), (ORDERS,), (1,), "Project", True, "unknown")
    shown = {
        edge.show()
        for node in (aggregate(ORDERS, 1), top(ORDERS), window(ORDERS), join(ORDERS, UNKNOWN), spark)
        for edge in sharded(node).inputs
    }
    assert shown == {
        "",
        "exchange by customer",
        "exchange of first rows to one place",
        "exchange to one place",
        "exchange to every shard",
        "exchange to the driver",
    }
