"""What explain says of a view: its operators with tier, cost, reason and where their rows are in shards."""

from __future__ import annotations

from penstock.plan import node as plan
from penstock.plan.distribution import by
from penstock.plan.explain import Explanation, explain
from penstock.plan.expression import Call, Column, Literal

ORDERS = plan.Scan(
    (plan.Field("id", "bigint"), plan.Field("customer", "bigint"), plan.Field("amount", "double")),
    "orders",
    (0, 1, 2),
)
COUNTRIES = plan.Scan((plan.Field("code", "bigint"),), "countries", (0,))


def explained(root: plan.Node) -> Explanation:
    view = plan.View("totals", "", root, statics=("countries",))
    return explain(view, cost=lambda call: "delta", relations={"orders": by([0])})


def total(below: plan.Node, *keys: int) -> plan.Aggregate:
    call = plan.AggregateCall("Sum", (2,), "double")
    fields = (*(below.fields[key] for key in keys), plan.Field("total", "double"))
    return plan.Aggregate(fields, below, keys, (call,))


def test_the_text_has_a_line_per_operator() -> None:
    joined = plan.Join((*ORDERS.fields, *COUNTRIES.fields), ORDERS, COUNTRIES, "inner", (1,), (0,), (False,))
    assert str(explained(total(joined, 1))).splitlines() == [
        "totals: kernel",
        "  Aggregate sum(amount) by customer  kernel     rows: by customer                  cost: delta",
        "    Join inner on customer = code    kernel     rows: by id, exchange by customer  cost: delta",
        "      Scan orders                    kernel     rows: by id                        cost: delta",
        "      Scan countries (static)        kernel     rows: everywhere                   cost: delta",
    ]


def test_sessions_say_what_they_are_of_and_what_they_cost() -> None:
    times = (*ORDERS.fields, plan.Field("start", "timestamp"))
    session, _ = explained(plan.SessionWindow(times, ORDERS, (1,), start=0, end=2)).operators
    assert (session.operator, session.detail) == ("SessionWindow", "of id to amount by customer")
    assert session.cost == "delta, and the rows of sessions that begin elsewhere or lose rows"
    assert session.distribution == "by customer"


def test_programs_read_distribution_and_exchange() -> None:
    aggregate, scan = explained(total(ORDERS)).operators
    assert (aggregate.distribution, aggregate.exchange) == ("one place", "")
    assert (scan.distribution, scan.exchange) == ("by id", "exchange to one place")


def test_the_rows_of_unknown_relations_are_any() -> None:
    view = plan.View("totals", "", total(ORDERS, 1))
    aggregate, scan = explain(view, cost=lambda call: "delta").operators
    assert (aggregate.distribution, scan.distribution, scan.exchange) == (
        "by customer",
        "any",
        "exchange by customer",
    )


def test_tier_and_reason_of_what_spark_computes() -> None:
    sketched = plan.Spark(COUNTRIES.fields, (ORDERS,), (1,), "Aggregate", False, "the function is unknown")
    counted = plan.Filter(sketched.fields, sketched, Literal(True, "boolean"))
    explanation = explained(counted)
    assert explanation.tier == "recompute"
    assert [line.distribution for line in explanation.operators] == ["one place", "one place", "by id"]
    assert explanation.operators[2].exchange == "exchange to the driver"
    assert "(the function is unknown)" in str(explanation)


def test_what_is_the_kernels_but_for_some_rows_says_so() -> None:
    split = Call("StringSplit", (Column(0, "string"), Column(1, "string")), "array<string>")
    fields = (*ORDERS.fields, plan.Field("spark_1", "array<string>"))
    shared = plan.KernelFirst(
        fields, (ORDERS,), (1,), "Project", True, "odd patterns", (((1, 0),),), expressions=(split,)
    )
    explanation = explained(shared)
    assert explanation.tier == "kernel"
    assert explanation.operators[0].operator == "Project"
    assert "(Spark, for a delta with odd patterns)" in str(explanation)


def test_operators_of_a_recursion_come_in_the_order_of_the_plan() -> None:
    level = plan.Scan(ORDERS.fields, "loop", (0, 1, 2))
    step = plan.Project(
        ORDERS.fields, level, tuple(Column(at, field.type) for at, field in enumerate(ORDERS.fields))
    )
    lines = explained(plan.Recursive(ORDERS.fields, "loop", ORDERS, step)).operators
    assert [(line.depth, line.operator, line.detail) for line in lines] == [
        (0, "Recursive", "loop"),
        (1, "Scan", "orders"),
        (1, "Project", "id, customer, amount"),
        (2, "Scan", "loop"),
    ]
    assert [line.exchange for line in lines] == ["", "exchange to one place", "", ""]


def test_a_recursion_that_a_limit_ends_says_so() -> None:
    level = plan.Field("level", "int", nullable=False)
    loop = plan.Recursive((*ORDERS.fields, level), "loop", ORDERS, ORDERS, limit=7)
    assert explained(loop).operators[0].detail == "loop until there are 7 rows"
    assert loop.own_fields == ORDERS.fields


def test_variables_are_the_last_line() -> None:
    variables = (plan.Variable("most", "INT", "5"), plan.Variable("name", "STRING", "'a'"))
    explanation = explain(
        plan.View("totals", "", ORDERS, variables=variables), cost=lambda call: "delta", relations={}
    )
    assert explanation.variables == variables
    assert str(explanation).splitlines()[-1] == "variables: most = 5, name = 'a' (bound at registration)"
