"""What a changed definition means for the state of a stage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.pipeline.stage_plan import (
    SavedInput,
    SavedStage,
    SavedStageView,
    StageInput,
    StagePlan,
    StageView,
    compare,
)

ORDERS = StageInput("orders", "id BIGINT, customer INT, amount INT, _op STRING", ("id",), operations=True)
CLICKS = StageInput("clicks", "page STRING")
INPUTS = (ORDERS, CLICKS)
TOTALS = StageView(
    "totals", "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer", ("customer",)
)
TOP = StageView("top", "SELECT * FROM totals ORDER BY total DESC LIMIT 3", ("customer",))
PAGES = StageView("pages", "SELECT page, count(*) AS n FROM clicks GROUP BY page", wanted=False)
VIEWS = (TOTALS, TOP, PAGES)


def _saved(inputs: tuple[StageInput, ...] = INPUTS, views: tuple[StageView, ...] = VIEWS) -> SavedStage:
    return SavedStage(
        {one.name: SavedInput.of(one) for one in inputs},
        {one.name: SavedStageView(one.name, one.sql, one.keys, one.wanted) for one in views},
    )


def _changes(plan: StagePlan) -> dict[str, str]:
    return {one.name: one.change for one in plan.views}


def test_a_stage_without_state_is_new() -> None:
    plan = compare(None, INPUTS, VIEWS)
    assert {one.change for one in plan.inputs} == {"new"}
    assert set(_changes(plan).values()) == {"new"}
    assert not plan.loses_rows
    assert not plan.is_unchanged


def test_what_means_the_same_is_unchanged() -> None:
    other = replace(TOTALS, sql=TOTALS.sql.replace(" FROM", "\n  FROM -- all of them\n "))
    spelled = replace(ORDERS, keys=("ID",))
    plan = compare(_saved(), (spelled, CLICKS), (other, TOP, PAGES))
    assert plan.is_unchanged


def test_a_changed_query_rebuilds_the_view_and_those_that_read_it() -> None:
    plan = compare(_saved(), INPUTS, (replace(TOTALS, sql=TOTALS.sql.replace("sum", "max")), TOP, PAGES))
    assert _changes(plan) == {"totals": "rebuilt", "top": "rebuilt", "pages": "unchanged"}
    assert plan.view("top").reason == "the view 'totals', which it reads, is rebuilt"
    assert not plan.loses_rows


@pytest.mark.parametrize(
    ("schema", "change", "reason"),
    [
        ("id BIGINT, customer INT, amount INT, note STRING, _op STRING", "kept", "new columns are NULL in the rows that are there: note"),
        ("id BIGINT, amount BIGINT, _op STRING", "kept", "columns that are gone: customer"),
        ("id BIGINT, customer INT, amount BIGINT, _op STRING", "kept", "its rows are kept in other types"),
        ("id BIGINT, customer INT, amount STRING, _op STRING", "emptied", "column 'amount' was int and is string"),
        ("id BIGINT, customer INT, amount SMALLINT, _op STRING", "emptied", "column 'amount' was int and is smallint"),
    ],
)  # fmt: skip
def test_other_columns_of_an_input(schema: str, change: str, reason: str) -> None:
    plan = compare(_saved(), (replace(ORDERS, schema=schema), CLICKS), VIEWS)
    assert (plan.input("orders").change, plan.input("orders").reason) == (change, reason)
    assert _changes(plan) == {"totals": "rebuilt", "top": "rebuilt", "pages": "unchanged"}
    assert plan.loses_rows == plan.view("top").loses_rows == (change == "emptied")


def test_another_key_of_an_input_loses_its_rows() -> None:
    plan = compare(_saved(), (replace(ORDERS, keys=()), CLICKS), VIEWS)
    assert plan.input("orders").reason == "its key was (id) and is none"
    assert plan.loses_rows


def test_an_input_that_keeps_only_what_was_used_cannot_change() -> None:
    used = replace(ORDERS, retain="used")
    plan = compare(_saved((used, CLICKS)), (replace(used, schema=ORDERS.schema + ", x INT"), CLICKS), VIEWS)
    assert plan.input("orders").change == "emptied"


def test_changes_that_begin_anew_keep_the_state() -> None:
    plan = compare(_saved(), INPUTS, (replace(TOTALS, keys=()), TOP, replace(PAGES, wanted=True)))
    assert _changes(plan) == {"totals": "kept", "top": "unchanged", "pages": "kept"}
    assert not plan.loses_rows


def test_what_is_not_declared_any_more_is_dropped() -> None:
    plan = compare(_saved(), (ORDERS,), (TOTALS,))
    assert _changes(plan) == {"totals": "unchanged", "top": "dropped", "pages": "dropped"}
    assert plan.input("clicks").change == "dropped"
    assert plan.loses_rows
    assert not compare(_saved(), INPUTS, (TOTALS,)).loses_rows


def test_a_log_has_the_operation_and_the_order_of_arrival() -> None:
    log = replace(ORDERS, keys=(), log=True)
    assert [field.name for field in log.fields] == ["id", "customer", "amount", "_op", "_arrival"]
    assert [field.nullable for field in ORDERS.fields] == [False, True, True]
