"""An argument is evaluated only on the rows on which Spark evaluates it; a row that reaches one that raises is named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from penstock.data.types import kernel_type
from penstock.errors import DataError
from penstock.functions import evaluate
from penstock.functions.argument_order import (
    CONDITIONAL,
    DIVISIONS,
    EAGER,
    FILTER_ARGUMENT,
    FILTER_CONDITION,
    HIGHER_ORDER,
    NULL_INTOLERANT,
    UNTIL_NULL,
    conditional_arguments,
    may_raise,
)
from penstock.plan.expression import Call, Column, Expression, Literal


@dataclass(frozen=True)
class _Tick:
    micros: int = 0


def call(name: str, kind: str, *args: Expression, **options: Any) -> Call:
    return Call(name, args, kind, True, tuple(sorted(options.items())))


A, B, D, S = Column(0, "bigint"), Column(1, "bigint"), Column(2, "double"), Column(3, "string")
ZERO, ONE = Literal(0, "bigint"), Literal(1, "bigint")
INVERSE = call("IntegralDivide", "bigint", ONE, B)  # raises where B is 0
INFINITE = call(
    "Divide", "double", Literal(1.0, "double"), Literal(0.0, "double")
)  # raises wherever it is evaluated
TEXT = call("Cast", "string", INVERSE)
FAILING_CAST = call("Cast", "bigint", Literal("x", "string"), evalMode="ANSI")
#        NULL and zero, a value
ROWS = {"bigint a": [None, 2], "bigint b": [0, 1], "double d": [1.5, None], "string s": [None, "x"]}
COLUMNS = [pa.array(values, kernel_type(name.split()[0])) for name, values in ROWS.items()]


def run(expression: Expression, columns: list[pa.Array] = COLUMNS) -> list[Any]:
    assert evaluate.unsupported(expression) is None
    value = evaluate.compile(expression)(columns, len(columns[0]), _Tick())
    assert value.type == kernel_type(expression.type)
    rows: list[Any] = value.to_pylist()
    return rows


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (call("NaNvl", "double", D, INFINITE), [1.5, None]),
        (call("Add", "bigint", A, INVERSE), [None, 3]),
        (
            call("Add", "bigint", call("Add", "bigint", A, ONE), call("Multiply", "bigint", INVERSE, A)),
            [None, 5],
        ),
        (call("LessThan", "boolean", A, INVERSE), [None, False]),
        (call("IntegralDivide", "bigint", INVERSE, A), [None, 0]),
        (call("Remainder", "bigint", INVERSE, A), [None, 1]),
        (call("IntegralDivide", "bigint", INVERSE, B, evalMode="TRY"), [None, 1]),
        (call("In", "boolean", A, INVERSE, ONE), [None, False]),
        (call("In", "boolean", B, ZERO, INVERSE), [True, True]),
        (call("Concat", "string", S, TEXT), [None, "x1"]),
        (call("Coalesce", "double", D, call("Cast", "double", A), INFINITE), [1.5, 2.0]),
        (call("If", "bigint", call("IsNull", "boolean", A), ZERO, INVERSE), [0, 1]),
        (call("If", "bigint", call("IsNotNull", "boolean", S), ONE, A), [None, 1]),
        (
            call(
                "CaseWhen",
                "array<bigint>",
                call("IsNotNull", "boolean", A),
                call("CreateArray", "array<bigint>", A, INVERSE),
            ),
            [None, [2, 1]],
        ),
        (call(FILTER_ARGUMENT, "bigint", INVERSE, call("GreaterThan", "boolean", B, ZERO)), [None, 1]),
    ],
)
def test_argument_that_a_row_does_not_reach_does_not_raise(
    expression: Expression, expected: list[Any]
) -> None:
    assert run(expression) == expected


@pytest.mark.parametrize(
    "expression",
    [
        call("EqualNullSafe", "boolean", A, INVERSE),
        call("Greatest", "bigint", A, INVERSE),
        call("CreateArray", "array<bigint>", A, INVERSE),
        call("ConcatWs", "string", Literal("-", "string"), S, TEXT),
        call("Add", "bigint", INVERSE, A),
        call(
            "And",
            "boolean",
            call("GreaterThan", "boolean", A, ZERO),
            call("GreaterThan", "boolean", INVERSE, ZERO),
        ),
        call("Add", "bigint", call("Add", "bigint", INVERSE, ONE, evalMode="TRY"), ONE, evalMode="TRY"),
    ],
)
def test_argument_that_every_row_reaches_raises(expression: Expression) -> None:
    with pytest.raises(DataError, match="division by zero") as caught:
        run(expression)
    assert caught.value.code == "DATA_DIVIDE_BY_ZERO"
    assert "(1, 0)" in str(caught.value)


def test_error_names_the_row_that_is_reached() -> None:
    """The first row has a zero, too, but a NULL before it."""
    columns = [pa.array([None, 7, 8]), pa.array([0, 1, 0])]
    overflow = call("Add", "bigint", A, call("IntegralDivide", "bigint", call("Add", "bigint", A, ONE), B))
    with pytest.raises(DataError) as caught:
        run(overflow, columns)
    assert "(9, 0)" in str(caught.value)


@pytest.mark.parametrize("expression", [INFINITE, FAILING_CAST, call("Add", "bigint", FAILING_CAST, ONE)])
def test_constant_that_raises_does_so_only_for_a_row(expression: Expression) -> None:
    value = evaluate.compile(expression)([], 0, _Tick())
    assert (value.type, len(value)) == (kernel_type(expression.type), 0)
    with pytest.raises(DataError):
        evaluate.compile(expression)([], 1, _Tick())


def test_filter_does_not_ask_a_refused_row_for_the_next_part() -> None:
    positive = call("GreaterThan", "boolean", A, ZERO)
    inverse = call("GreaterThan", "boolean", INVERSE, ZERO)
    check = call("IsNotNull", "boolean", A)
    for condition in (
        call("And", "boolean", positive, inverse),
        call("And", "boolean", check, call("And", "boolean", positive, inverse)),
    ):
        assert evaluate.compile_condition(condition)(COLUMNS, 2, _Tick()).to_pylist() == [False, True]
        column = evaluate.compile(call(FILTER_CONDITION, "boolean", condition))
        assert column(COLUMNS, 2, _Tick()).to_pylist() == [False, True]
    # IS NOT NULL is asked when the first part that reads the column is: here never before the division.
    with pytest.raises(DataError):
        evaluate.compile_condition(call("And", "boolean", check, inverse))(COLUMNS, 2, _Tick())


def test_no_rows_and_all_rows_are_reached() -> None:
    columns = [pa.nulls(2, pa.int64()), pa.array([0, 0])]
    assert run(call("Add", "bigint", A, INVERSE), columns) == [None, None]
    with pytest.raises(DataError):
        run(call("Add", "bigint", A, INVERSE), [pa.array([1, 1]), pa.array([0, 0])])


def test_every_function_says_which_arguments_it_evaluates() -> None:
    tables = [NULL_INTOLERANT, UNTIL_NULL, EAGER, DIVISIONS, CONDITIONAL, HIGHER_ORDER]
    assert sum(map(len, tables)) == len(frozenset().union(*tables))
    assert set(evaluate.FUNCTIONS) <= frozenset().union(*tables)


def test_arguments_that_some_rows_do_not_reach() -> None:
    assert conditional_arguments("CaseWhen", [True, True, True]) == [False, True, True]
    assert conditional_arguments("Add", [True, True]) == [False, True]
    assert conditional_arguments("Add", [False, True]) == [False, False]
    assert conditional_arguments("Divide", [True, True]) == [True, False]
    assert conditional_arguments("Greatest", [True, True]) == [False, False]
    assert conditional_arguments("JsonToStructs", [True]) == [False]


def test_what_may_raise() -> None:
    assert may_raise(INVERSE)
    assert may_raise(call("Not", "boolean", call("EqualTo", "boolean", INVERSE, A)))
    assert not may_raise(call("Like", "boolean", S, Literal("x%", "string")))
