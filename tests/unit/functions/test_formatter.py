"""Formats of java.util.Formatter, without Spark: what Java writes for some numbers, and what holds for all."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.functions import evaluate
from penstock.functions.java_double import double_text
from penstock.functions.scalars.formatter import Directive, parse, writer
from penstock.plan.expression import Call, Column, Literal


def written(pattern: str, kind: str, value: Any, java: int = 17) -> str | None:
    (directive,) = parse(pattern) or (None,)
    if directive is None:
        return None
    assert isinstance(directive, Directive)
    write = writer(directive, kind, java)
    return None if write is None else write(value)


@pytest.mark.parametrize(
    ("pattern", "kind", "value", "text"),
    [
        ("%.2f", "double", 0.125, "0.13"),
        ("%.2f", "double", None, "nu"),
        ("%8.3f", "double", -1.0, "  -1.000"),
        ("%08.1f", "double", -1.25, "-00001.3"),
        ("%(,.1f", "double", -12345.67, "(12,345.7)"),
        ("%010(f", "double", 1.0, None),
        ("%0(10.1f", "double", -1.0, "(000001.0)"),
        ("%+.0f", "double", 0.5, "+1"),
        ("%#.0f", "double", 2.0, "2."),
        ("% f", "float", 1.5, " 1.500000"),
        ("%06f", "double", float("inf"), "Infinity"),
        ("%E", "double", float("nan"), "NAN"),
        ("%f", "double", -0.0, "-0.000000"),
        ("%e", "double", 123456.789, "1.234568e+05"),
        ("%.0e", "double", 9.5, "1e+01"),
        ("%e", "double", 5e-324, "4.900000e-324"),
        ("%g", "double", 0.0001, "0.000100000"),
        ("%g", "double", 0.00001, "1.00000e-05"),
        ("%.3g", "double", 999.6, "1.00e+03"),
        ("%g", "double", 0.0, "0.00000"),
        ("%x", "int", -1, "ffffffff"),
        ("%x", "bigint", -1, "ffffffffffffffff"),
        ("%#06X", "tinyint", -1, "0X00FF"),
        ("%#o", "smallint", 8, "010"),
        ("%,d", "bigint", -(2**63), "-9,223,372,036,854,775,808"),
        ("%(d", "int", -5, "(5)"),
        ("%b", "boolean", None, "false"),
        ("%B", "int", 0, "TRUE"),
        ("%-6b", "string", "x", "true  "),
        ("%c", "int", 0x1F600, "\U0001f600"),
        ("%3c", "int", None, "null"),
        ("%s", "double", 1e7, "1.0E7"),
        ("%s", "decimal(20,10)", Decimal("0E-10"), "0E-10"),
        ("%S", "boolean", True, "TRUE"),
        ("%S", "string", "x", None),
        ("%d", "decimal(3,0)", Decimal(1), None),
        ("%f", "int", 1, None),
        ("%c", "bigint", 1, None),
    ],
)
def test_values_are_written(pattern: str, kind: str, value: Any, text: str | None) -> None:
    assert written(pattern, kind, value) == text


@pytest.mark.parametrize(
    "pattern", ["%", "%a", "%h", "%tY", "%-d", "%+ d", "%-05d", "%.2d", "%#d", "%,x", "%+x", "%#g", "%,e", "%<s", "%0$s", "%--5d", "%5n", "%1$%"]
)  # fmt: skip
def test_what_java_refuses_or_writes_alone_is_left_to_it(pattern: str) -> None:
    assert parse(pattern) is None


def test_arguments_by_number_and_the_last_again() -> None:
    parts = parse("%s %2$s %<s %s %1$s %%%n") or ()
    assert [part.argument for part in parts if isinstance(part, Directive)] == [0, 1, 1, 1, 0]
    assert "".join(part for part in parts if isinstance(part, str)) == "     %\n"


def test_digits_of_a_later_java_are_left_to_spark() -> None:
    call = Call(
        "FormatString", (Literal("%f", "string"), Column(0, "double")), "string", options=(("java", 21),)
    )
    assert evaluate.unsupported(call) is not None


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 20))
def test_digits_are_near_the_number(value: float, places: int) -> None:
    for conversion in "ef":
        text = written(f"%.{places}{conversion}", "double", value)
        assert text is not None
        unit = Decimal(1).scaleb(-places)
        if conversion == "e":
            unit = unit.scaleb(Decimal(text).adjusted())
        assert abs(Decimal(text) - Decimal(double_text(value, 17))) <= unit
