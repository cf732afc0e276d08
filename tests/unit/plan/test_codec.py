"""Saved plans come back exactly, and unknown ones are refused."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from penstock.errors import StateError
from penstock.plan import codec, node
from penstock.plan.expression import Call, Column, Expression, Lambda, Literal, Parameter


def _view(*expressions: Expression) -> node.View:
    fields = (node.Field("a", "bigint"), node.Field("b", "double", nullable=False))
    scan = node.Scan(fields, "t", (0, 2))
    projected = node.Project(fields, scan, expressions)
    top = node.TopK(
        fields, projected, (0,), (node.SortKey(1, descending=True, nulls_first=False),), 3, 1, True
    )
    call = node.AggregateCall("Percentile", (1,), "double", True, None, (("percentage", (0.5, 0.9)),))
    session = node.SessionWindow((*fields, node.Field("start", "timestamp")), top, (0,), 1, 1)
    grouped = node.Aggregate(fields, session, (0,), (call,))
    window = node.Window(
        fields, grouped, (), (), (node.WindowCall("Sum", (0,), "bigint", node.Frame("rows", None, 0)),)
    )
    joined = node.Join(
        fields, window, node.Single(fields, scan), "left", (0,), (1,), (True,), Literal(True, "boolean")
    )
    generated = node.Generate(
        fields, joined, Call("Explode", (Column(0, "array<int>"),), ""), (0,), outer=True
    )
    expanded = node.Expand(fields, generated, ((Column(0, "bigint"), Literal(None, "bigint")),))
    filtered = node.Filter(fields, expanded, Call("Not", (Literal(False, "boolean"),), "boolean"))
    fragment = node.Spark(
        fields, (filtered,), (4, 2), "Project", True, "the function Exp", (((4, 0), (5, -1)), ())
    )
    shared = node.KernelFirst(
        fields,
        (fragment,),
        (4,),
        "Project",
        True,
        "patterns",
        (((4, 0),),),
        expressions=(Column(0, "bigint"),),
    )
    recursive = node.Recursive(fields, "loop", shared, scan, max_depth=100, max_rows=-1, limit=3)
    values = node.Values(fields, ((1, 2.5), (None, math.inf)))
    return node.View(
        "v",
        "SELECT 'ä' FROM t",
        node.Union(fields, (recursive, values)),
        (node.SortKey(0),),
        uses_time=True,
        statics=("countries",),
        zones=(("Europe/Paris", (561, -1855958961, 0)),),
        variables=(node.Variable("x", "INT", "5"),),
        metadata=('{"spark.sessionWindow":true}', "{}"),
    )


def test_every_node_comes_back_as_it_was() -> None:
    x = Parameter(0, "int", name="x")
    view = _view(
        Column(0, "bigint"),
        Call("Cast", (Column(1, "double"),), "int", False, (("evalMode", "ANSI"),)),
        Call(
            "ArrayTransform", (Column(0, "array<int>"), Lambda((x,), Call("Abs", (x,), "int"))), "array<int>"
        ),
    )
    assert codec.loads(codec.dumps(view)) == view


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -(2**63),
        2**100,
        -0.0,
        5e-324,
        math.inf,
        Decimal("-0.00"),
        Decimal("1E+3"),
        Decimal("12345678901234567890123456789012345678"),
        "a\u0000\ud7ff\U0001f600",
        b"\x00\xff",
        date(1, 1, 1),
        datetime(9999, 12, 31, 23, 59, 59, 999_999),
        datetime(1970, 1, 1, tzinfo=UTC),
        [1, None, ["x"]],
        {"a": [Decimal("1.0")], "b": None},
        [("k", 1), ("l", None)],
    ],
)
def test_every_constant_comes_back_with_its_type(value: Any) -> None:
    found = codec.loads(codec.dumps(_view(Literal(value, "some"))))
    literal = next(item for item in _literals(found.root) if item.type == "some")
    assert literal.value == value
    assert type(literal.value) is type(value)
    assert repr(literal.value) == repr(value)


def test_nan_comes_back() -> None:
    found = codec.loads(codec.dumps(_view(Literal(math.nan, "some"))))
    literal = next(item for item in _literals(found.root) if item.type == "some")
    assert math.isnan(literal.value)


def _literals(root: node.Node) -> list[Literal]:
    own = (
        [item for item in root.expressions if isinstance(item, Literal)]
        if isinstance(root, node.Project)
        else []
    )
    return own + [item for child in node.children(root) for item in _literals(child)]


def test_another_version_is_refused() -> None:
    saved = json.loads(codec.dumps(_view()))
    saved["version"] = 99
    with pytest.raises(StateError, match="version 99") as caught:
        codec.loads(json.dumps(saved))
    assert caught.value.code == "STATE_PLAN_VERSION"


def test_an_unknown_part_is_refused_by_name() -> None:
    text = codec.dumps(_view()).replace('"Recursive"', '"Recursion"')
    with pytest.raises(StateError, match="Recursion") as caught:
        codec.loads(text)
    assert "did you mean 'Recursive'" in str(caught.value)
