"""Expressions as keys: equal plans share operators, so equality must be exact."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from penstock.plan.expression import Call, Column, Lambda, Literal, Parameter, shift, show, walk
from penstock.plan.node import AggregateCall, Field, Frame, Values, WindowCall


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        (0.0, -0.0, False),
        (math.nan, float("nan"), True),
        ([1, None], [1, None], True),
        ({"a": 1}, {"a": 2}, False),
        (Decimal("1.0"), Decimal("1.0"), True),
        (1, True, False),
        ("1", 1, False),
    ],
)
def test_constants_are_equal_when_they_are_written_alike(one: Any, two: Any, same: bool) -> None:
    left, right = Literal(one, "x"), Literal(two, "x")
    assert (left == right) is same
    assert (len({left, right}) == 1) is same
    rows = [Values((Field("a", "x"),), ((value,),)) for value in (one, two)]
    assert (rows[0] == rows[1]) is same
    assert (len(set(rows)) == 1) is same


def test_a_type_is_part_of_a_constant() -> None:
    assert Literal(1, "int") != Literal(1, "bigint")


def test_shift_moves_columns_and_keeps_the_rest() -> None:
    call = Call("Add", (Column(0, "int"), Literal(1, "int")), "int", False, (("evalMode", "ANSI"),))
    assert shift(call, {0: 3}) == Call(
        "Add", (Column(3, "int"), Literal(1, "int")), "int", False, call.options
    )


@pytest.mark.parametrize(
    "call",
    [
        Call("Cast", (), "int", options=(("evalMode", "ANSI"),)),
        AggregateCall("Sum", (), "int", options=(("evalMode", "ANSI"),)),
        WindowCall("Sum", (), "int", Frame("rows", None, 0), options=(("evalMode", "ANSI"),)),
    ],
    ids=["scalar", "aggregate", "window"],
)
def test_options_are_read_by_name(call: Call | AggregateCall | WindowCall) -> None:
    assert call.option("evalMode") == "ANSI"
    assert call.option("timeZoneId") is None
    assert call.option("timeZoneId", "UTC") == "UTC"
    assert not hasattr(call, "__dict__")


def test_lambdas_are_equal_whatever_their_parameters_are_called() -> None:
    x, y = (Parameter(0, "int", name=name) for name in "xy")
    one, two = (Lambda((item,), Call("Add", (item, Column(3, "int", name="b")), "int")) for item in (x, y))
    assert one == two
    assert [type(part) for part in walk(one)] == [Lambda, Call, Parameter, Column]
    assert shift(one, {3: 1}) == Lambda((x,), Call("Add", (x, Column(1, "int")), "int"))
    pair = Lambda((x, Parameter(1, "int", name="i")), x)
    shown = Call("ArrayTransform", (Column(0, "array<int>"), one), "array<int>")
    assert show(shown, ["a", "", "", "b"]) == "arraytransform(a, x -> x + b)"
    assert (
        show(Call("ArrayTransform", (Column(0, "array<int>"), pair), ""), ["a"])
        == "arraytransform(a, (x, i) -> x)"
    )
