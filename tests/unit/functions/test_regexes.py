"""Regular expressions that come with each row, against Python's where both are the same, and those that are left to Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.data.types import kernel_type
from penstock.functions import evaluate
from penstock.functions.scalars.base import BeyondKernel, ByRow
from penstock.plan.expression import Call, Column, Literal

TEXT, PATTERN = Column(0, "string"), Column(1, "string")
CALLS = {
    "split": Call("StringSplit", (TEXT, PATTERN, Literal(-1, "int")), "array<string>"),
    "rlike": Call("RLike", (TEXT, PATTERN), "boolean"),
    "replace": Call("RegExpReplace", (TEXT, PATTERN, Literal("<$0>", "string"), Literal(1, "int")), "string"),
    "extract": Call("RegExpExtract", (TEXT, PATTERN, Literal(0, "int")), "string"),
    "extract all": Call("RegExpExtractAll", (TEXT, PATTERN, Literal(0, "int")), "array<string>"),
    "instr": Call("RegExpInStr", (TEXT, PATTERN, Literal(0, "int")), "int"),
}


class _Tick:
    micros = 0


def run(call: Call, *rows: tuple[str | None, str | None]) -> list[Any]:
    columns = [pa.array([row[at] for row in rows], kernel_type("string")) for at in (0, 1)]
    values: list[Any] = evaluate.compile(call)(columns, len(rows), _Tick()).to_pylist()
    return values


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("split", [["a", "b", ""], ["a", "b"], ["a", "b"], None, None]),
        ("rlike", [True, True, False, None, None]),
        ("replace", ["a<,>b<,>", "a<;>b", "ab", None, None]),
        ("extract", [",", ";", "", None, None]),
        ("extract all", [[",", ","], [";"], [], None, None]),
        ("instr", [2, 2, 0, None, None]),
    ],
)
def test_every_row_has_its_own_pattern(name: str, expected: list[Any]) -> None:
    rows = [("a,b,", ","), ("a;b", "[;]"), ("ab", "x"), (None, ","), ("a", None)]
    if name == "split":
        rows[2] = ("ab", "")
    assert run(CALLS[name], *rows) == expected


@pytest.mark.parametrize("name", CALLS)
def test_a_pattern_of_java_alone_is_left_to_spark(name: str) -> None:
    assert isinstance(evaluate.unsupported(CALLS[name]), ByRow)
    assert evaluate.only_by_row(CALLS[name])
    with pytest.raises(BeyondKernel):
        run(CALLS[name], ("ab", "b"), ("ab", "(?<=a)b"))


def test_a_constant_pattern_is_decided_when_it_is_planned() -> None:
    known = Call("RLike", (TEXT, Literal("a+", "string")), "boolean")
    unknown = Call("RLike", (TEXT, Literal("(?<=a)b", "string")), "boolean")
    assert evaluate.unsupported(known) is None
    assert evaluate.unsupported(unknown) is not None
    assert not evaluate.only_by_row(unknown)


def test_rows_that_a_condition_keeps_away_are_not_asked() -> None:
    safe = Call("EqualTo", (PATTERN, Literal("b", "string")), "boolean")
    chosen = Call("If", (safe, CALLS["rlike"], Literal(False, "boolean")), "boolean")
    assert run(chosen, ("ab", "b"), ("ab", "(?<=a)b")) == [True, False]
