"""The evaluator against plain Python, with branches that must not be evaluated and errors that name the row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.data.types import kernel_type
from penstock.errors import DataError
from penstock.functions import evaluate
from penstock.plan.expression import Call, Column, Expression, Literal


@dataclass(frozen=True)
class _Tick:
    micros: int = 0


def run(expression: Expression, *columns: tuple[str, list[Any]]) -> list[Any]:
    assert evaluate.unsupported(expression) is None
    arrays = [pa.array(values, kernel_type(kind)) for kind, values in columns]
    length = len(arrays[0]) if arrays else 1
    found = evaluate.compile(expression)(arrays, length, _Tick())
    assert found.type == kernel_type(expression.type)
    assert len(found) == length
    values: list[Any] = found.to_pylist()
    return values


def call(name: str, kind: str, *args: Expression, **options: Any) -> Call:
    return Call(name, args, kind, True, tuple(sorted(options.items())))


INT = Column(0, "int")
A, B = Column(0, "bigint"), Column(1, "bigint")
NAN = math.nan


def test_addition_raises_on_overflow_and_names_the_values() -> None:
    add = call("Add", "bigint", A, B)
    assert run(add, ("bigint", [1, None, -5]), ("bigint", [2, 3, None])) == [3, None, None]
    with pytest.raises(DataError, match=r"bigint overflow in #0 \+ #1") as caught:
        run(add, ("bigint", [1, 2**63 - 1]), ("bigint", [1, 7]))
    assert caught.value.code == "DATA_OVERFLOW"
    assert "(9223372036854775807, 7)" in str(caught.value)


def test_try_and_legacy_modes() -> None:
    column = ("bigint", [2**63 - 1, 1])
    one = Literal(1, "bigint")
    assert run(call("Add", "bigint", A, one, evalMode="TRY"), column) == [None, 2]
    assert run(call("Add", "bigint", A, one, evalMode="LEGACY"), column) == [-(2**63), 2]


def test_division_by_zero() -> None:
    divide = call("Divide", "double", Column(0, "double"), Column(1, "double"))
    assert run(divide, ("double", [1.0, None]), ("double", [4.0, 0.0])) == [0.25, None]
    with pytest.raises(DataError, match="division by zero") as caught:
        run(divide, ("double", [1.0]), ("double", [-0.0]))
    assert caught.value.code == "DATA_DIVIDE_BY_ZERO"
    quiet = call("Divide", "double", Column(0, "double"), Column(1, "double"), evalMode="TRY")
    assert run(quiet, ("double", [1.0, 9.0]), ("double", [0.0, 2.0])) == [None, 4.5]


def test_integer_division_truncates_and_the_remainder_has_the_sign_of_the_dividend() -> None:
    pairs = [(7, 2), (-7, 2), (7, -2), (-7, -2), (0, 3), (-(2**63), 3)]
    columns = ("bigint", [one for one, _ in pairs]), ("bigint", [two for _, two in pairs])
    assert run(call("IntegralDivide", "bigint", A, B), *columns) == [
        int(Decimal(a) / b) for a, b in pairs[:-1]
    ] + [-3074457345618258602]
    assert run(call("Remainder", "bigint", A, B), *columns) == [
        int(math.fmod(a, b)) for a, b in pairs[:-1]
    ] + [-2]
    assert run(call("Pmod", "bigint", A, B), *columns) == [1, 1, 1, -1, 0, 1]
    with pytest.raises(DataError, match="overflow"):
        run(call("IntegralDivide", "bigint", A, B), ("bigint", [-(2**63)]), ("bigint", [-1]))


def test_decimals_keep_sparks_scale_and_round_half_up() -> None:
    price, rate = Column(0, "decimal(15,2)"), Column(1, "decimal(15,2)")
    columns = (
        ("decimal(15,2)", [Decimal("10.00"), None]),
        ("decimal(15,2)", [Decimal("3.00"), Decimal("1.00")]),
    )
    assert run(call("Multiply", "decimal(31,4)", price, rate), *columns) == [Decimal("30.0000"), None]
    assert run(call("Divide", "decimal(33,18)", price, rate), *columns) == [
        Decimal("3.333333333333333333"),
        None,
    ]
    half = call("Cast", "decimal(3,1)", Column(0, "decimal(4,2)"))
    assert run(half, ("decimal(4,2)", [Decimal("2.25"), Decimal("-2.25"), Decimal("2.24")])) == [
        Decimal("2.3"),
        Decimal("-2.3"),
        Decimal("2.2"),
    ]
    with pytest.raises(DataError, match="out of range"):
        run(half, ("decimal(4,2)", [Decimal("99.96"), Decimal("99.94")]))


def test_nan_is_equal_to_itself_and_greatest() -> None:
    one, two = Column(0, "double"), Column(1, "double")
    columns = ("double", [NAN, NAN, 1.0, -0.0, None]), ("double", [NAN, 1.0, NAN, 0.0, NAN])
    assert run(call("EqualTo", "boolean", one, two), *columns) == [True, False, False, True, None]
    assert run(call("LessThan", "boolean", one, two), *columns) == [False, False, True, False, None]
    assert run(call("GreaterThanOrEqual", "boolean", one, two), *columns) == [True, True, False, True, None]
    assert run(call("EqualNullSafe", "boolean", one, two), *columns) == [True, False, False, True, False]
    found = run(call("Greatest", "double", one, two), *columns)
    assert [math.isnan(value) for value in found] == [True, True, True, False, True]


def test_three_valued_logic() -> None:
    values = [True, False, None]
    one = [a for a in values for _ in values]
    two = [b for _ in values for b in values]
    p, q = Column(0, "boolean"), Column(1, "boolean")
    found = run(call("And", "boolean", p, q), ("boolean", one), ("boolean", two))
    assert found == [True, False, None, False, False, False, None, False, None]
    found = run(call("Or", "boolean", p, q), ("boolean", one), ("boolean", two))
    assert found == [True, True, True, True, False, None, True, None, None]


def test_in_with_null() -> None:
    values = ("bigint", [1, 3, None])
    listed = call("In", "boolean", A, Literal(1, "bigint"), Literal(2, "bigint"))
    assert run(listed, values) == [True, False, None]
    with_null = call("In", "boolean", A, Literal(1, "bigint"), Literal(None, "bigint"))
    assert run(with_null, values) == [True, None, None]
    floats = call("In", "boolean", Column(0, "double"), Literal(NAN, "double"), Literal(0.0, "double"))
    assert run(floats, ("double", [NAN, -0.0, 1.0, None])) == [True, True, False, None]


ZERO = Literal(0, "bigint")
INVERSE = call("Divide", "double", Literal(1.0, "double"), call("Cast", "double", A))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (
            call("If", "double", call("EqualTo", "boolean", A, ZERO), Literal(0.0, "double"), INVERSE),
            [0.0, 0.5, None],
        ),
        (call("CaseWhen", "double", call("GreaterThan", "boolean", A, ZERO), INVERSE), [None, 0.5, None]),
        (
            call(
                "And",
                "boolean",
                call("Not", "boolean", call("EqualTo", "boolean", A, ZERO)),
                call("GreaterThan", "boolean", INVERSE, Literal(0.4, "double")),
            ),
            [False, True, None],
        ),
        (
            call(
                "Or",
                "boolean",
                call("EqualTo", "boolean", A, ZERO),
                call("GreaterThan", "boolean", INVERSE, Literal(0.4, "double")),
            ),
            [True, True, None],
        ),
    ],
)
def test_a_branch_that_is_not_taken_does_not_fail(expression: Expression, expected: list[Any]) -> None:
    assert run(expression, ("bigint", [0, 2, None])) == expected


def test_a_branch_that_is_taken_fails() -> None:
    expression = call("If", "double", call("EqualTo", "boolean", A, ZERO), INVERSE, Literal(0.0, "double"))
    with pytest.raises(DataError, match="division by zero"):
        run(expression, ("bigint", [0, 2]))


def test_coalesce_stops_at_the_first_value() -> None:
    expression = call("Coalesce", "double", Column(1, "double"), INVERSE)
    assert run(expression, ("bigint", [0, 2, None]), ("double", [7.0, None, None])) == [7.0, 0.5, None]


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        (" 12\t", "int", 12),
        ("+7", "tinyint", 7),
        ("1e3", "double", 1000.0),
        ("-Infinity", "double", -math.inf),
        ("1.005", "decimal(5,2)", Decimal("1.01")),
        ("yes", "boolean", True),
        ("2024-2-9", "date", date(2024, 2, 9)),
        ("2024", "date", date(2024, 1, 1)),
    ],
)
def test_text_casts(text: str, kind: str, expected: Any) -> None:
    assert run(call("Cast", kind, Column(0, "string"), evalMode="ANSI"), ("string", [text, None])) == [
        expected,
        None,
    ]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("12.5", "int"),
        ("128", "tinyint"),
        ("", "double"),
        ("x", "boolean"),
        ("2024-02-30", "date"),
        ("1,0", "decimal(5,2)"),
    ],
)
def test_bad_text_is_an_error_that_shows_it(text: str, kind: str) -> None:
    expression = call("Cast", kind, Column(0, "string"), evalMode="ANSI")
    with pytest.raises(DataError) as caught:
        run(expression, ("string", ["1", text] if kind != "date" else ["2024-01-01", text]))
    assert repr(text) in str(caught.value)
    quiet = call("Cast", kind, Column(0, "string"), evalMode="TRY")
    assert run(quiet, ("string", [text])) == [None]


def test_time_is_the_ticks() -> None:
    now = call("CurrentTimestamp", "timestamp")
    found = evaluate.compile(now)([], 2, _Tick(1_000_000))
    assert found.to_pylist() == [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)] * 2


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (call("Sinh", "double", Column(0, "double")), "the function Sinh"),
        (call("Upper", "string collate UNICODE_CI", Column(0, "string collate UNICODE_CI")), "collation"),
        (call("Cast", "string", Column(0, "double")), "CAST from double to string"),
        (call("RLike", "boolean", Column(0, "string"), Literal(r"(?=a)", "string")), "regular expression"),
        (call("RLike", "boolean", Column(0, "string"), Column(1, "string")), "regular expression"),
        (call("Hour", "int", Column(0, "timestamp"), timeZoneId="Antarctica/Troll"), "Antarctica/Troll"),
    ],
)
def test_what_the_kernel_leaves_to_spark_has_a_reason(expression: Expression, why: str) -> None:
    reason = evaluate.unsupported(expression)
    assert reason is not None
    assert why in reason


def test_no_rows_and_constants() -> None:
    assert run(call("Add", "bigint", A, ZERO), ("bigint", [])) == []
    assert (
        run(call("Concat", "string", Literal("a", "string"), Literal("b", "string")), ("bigint", [1, 2]))
        == ["ab"] * 2
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(
            (name, "string")
            for name in ("Lower", "Upper", "InitCap", "Reverse", "Hex", "StringTrim", "SoundEx")
        ),
        *((name, "int") for name in ("Length", "OctetLength", "BitLength", "Ascii")),
    ],
)
def test_text_that_is_cut_out_of_a_column_is_read_from_its_place(name: str, kind: str) -> None:
    texts = ["xyz", "Abc", "%\\", "dE f", "", "Straße", None]
    for stop in (4, 5, 7):
        cut = pa.array(texts).slice(1, stop - 1).cast(pa.large_string())
        whole = pa.array(texts[1:stop], pa.large_string())
        function = evaluate.compile(call(name, kind, Column(0, "string")))
        assert (
            function([cut], len(cut), _Tick()).to_pylist()
            == function([whole], len(whole), _Tick()).to_pylist()
        )


@pytest.mark.parametrize("name", ["EqualTo", "EqualNullSafe", "LessThan", "In", "Greatest"])
@pytest.mark.parametrize("rows", [[], [{"a": 1, "b": 2}, {"a": 3, "b": None}, None]])
def test_a_constant_struct_is_compared_with_any_number_of_rows(name: str, rows: list[Any]) -> None:
    kind = "struct<a:int,b:int>"
    struct = call(
        "CreateNamedStruct",
        kind,
        Literal("a", "string"),
        Literal(1, "int"),
        Literal("b", "string"),
        Literal(2, "int"),
    )
    of_type = kind if name == "Greatest" else "boolean"
    for sides in ((struct, Column(0, kind)), (Column(0, kind), struct)):
        assert len(run(call(name, of_type, *sides), (kind, rows))) == len(rows)
    assert len(run(call(name, of_type, struct, struct), (kind, rows))) == len(rows)
