"""What every scalar function is made of: a check, a builder, and the values that pass between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.types import decimal_parts, kernel_type
from penstock.errors import DataError
from penstock.functions.scalars.condition import condition
from penstock.plan.expression import Call, Literal, show

INTEGRAL = ("tinyint", "smallint", "int", "bigint")
FLOATING = ("float", "double")
INTEGRAL_RANGE = {
    "tinyint": (-(2**7), 2**7 - 1),
    "smallint": (-(2**15), 2**15 - 1),
    "int": (-(2**31), 2**31 - 1),
    "bigint": (-(2**63), 2**63 - 1),
}


class TickLike(Protocol):
    """What an expression may know of the tick: its time."""

    @property
    def micros(self) -> int: ...


Columns = Sequence[Any]  # pa.Array per input column; None where the expression does not read it
Datum = Any  # pa.Array of the rows' length, or pa.Scalar for all rows
Compiled = Callable[[Columns, int, TickLike], Datum]
Check = Callable[[Call], "str | None"]
Build = Callable[[Call, tuple[Compiled, ...]], Compiled]


@dataclass(frozen=True, slots=True)
class Scalar:
    """One function: how it is built from its compiled arguments, and the reason when its types or options are beyond it."""

    build: Build
    check: Check


def accept(call: Call) -> str | None:
    """Any types."""
    return None


def only(*kinds: str, first: int | None = None) -> Check:
    """The arguments (the first few, or all) are of the given types; "decimal", "array" and so on stand for all of
    their kind, "interval" for all that can be compared."""

    def check(call: Call) -> str | None:
        for argument in call.args[:first]:
            if not any(is_kind(argument.type, kind) for kind in kinds):
                return f"{call.name} over {argument.type}"
        return None

    return check


def is_kind(name: str, kind: str) -> bool:
    """Whether a type is of a kind: the type itself, or all decimals, arrays, year-month and day-time intervals and so on."""
    if kind == "interval":
        return name.startswith("interval ")
    return name == kind or name.startswith((kind + "(", kind + "<"))


def both(*checks: Check) -> Check:
    """Every check must pass."""

    def check(call: Call) -> str | None:
        return next((why for part in checks if (why := part(call)) is not None), None)

    return check


def literal_args(*positions: int) -> Check:
    """The arguments at the positions are constants that are not NULL."""

    def check(call: Call) -> str | None:
        for position in positions:
            if position < len(call.args):
                argument = call.args[position]
                if not isinstance(argument, Literal) or argument.value is None:
                    return f"{call.name} with an argument {position + 1} that is not constant"
        return None

    return check


def constant(call: Call, position: int) -> Any:
    """The value of a constant argument."""
    argument = call.args[position]
    assert isinstance(argument, Literal)
    return argument.value


def is_decimal(kind: str) -> bool:
    """Say whether a type is a decimal."""
    return decimal_parts(kind) is not None


def eval_mode(call: Call) -> str:
    """ANSI raises, LEGACY wraps or gives NULL, TRY gives NULL."""
    return str(call.option("evalMode", "ANSI"))


# ------------------------------------------------------------------ values


def array(value: Datum, length: int) -> pa.Array:
    """Return a value as an array of the given length."""
    if isinstance(value, pa.Scalar):
        # Arrow cannot repeat a nested value no times.
        return pa.repeat(value, length) if length else pa.array([], value.type)
    return value


def null_of(kind: pa.DataType) -> pa.Scalar:
    """The NULL of a type."""
    return pa.scalar(None, kind)


def simple(function: Callable[..., Any], *arguments: Any, **options: Any) -> Build:
    """Build a function that is one call of pyarrow.compute over its arguments."""

    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        kind = kernel_type(call.type)
        if len(args) == 1:
            (argument,) = args

            def unary(columns: Columns, length: int, tick: TickLike) -> Datum:
                return typed(function(argument(columns, length, tick), *arguments, **options), kind)

            return unary

        def run(columns: Columns, length: int, tick: TickLike) -> Datum:
            values = [item(columns, length, tick) for item in args]
            return typed(function(*values, *arguments, **options), kind)

        return run

    return build


def typed(value: Datum, kind: pa.DataType) -> Datum:
    """Return a value in exactly the given Arrow type; the keys of maps that have none are VOID in Spark only."""
    if pa.types.is_null(kind) and isinstance(value, pa.Array):
        return pa.nulls(len(value))
    return value if value.type == kind else pc.cast(value, kind)


def row_wise(twin: Callable[..., Any]) -> Build:
    """Build a function that asks a plain Python function for every row; NULL in gives NULL out.

    The twin returns None for NULL and raises ValueError with the words of an ANSI error.
    """

    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        kind = kernel_type(call.type)

        def run(columns: Columns, length: int, tick: TickLike) -> Datum:
            values = [argument(columns, length, tick) for argument in args]
            return rows_of(call, twin, values, length, kind)

        return run

    return build


def rows_of(
    call: Call, twin: Callable[..., Any], values: Sequence[Datum], length: int, kind: pa.DataType
) -> Datum:
    """Apply a Python function to every row."""
    if all(isinstance(value, pa.Scalar) for value in values):
        lists = [[value.as_py()] for value in values]
        results = _apply(call, twin, zip(*lists, strict=True))
        return pa.scalar(results[0], kind) if values else pa.scalar(twin(), kind)
    lists = [
        [value.as_py()] * length if isinstance(value, pa.Scalar) else value.to_pylist() for value in values
    ]
    return pa.array(_apply(call, twin, zip(*lists, strict=True)), kind)


def _apply(call: Call, twin: Callable[..., Any], rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    results: list[Any] = []
    for row in rows:
        if None in row:
            results.append(None)
            continue
        try:
            results.append(twin(*row))
        except AnsiError as error:
            raise ansi_error(call, error, row) from None
    return results


class ByRow(str):
    """Why some rows of a call are left to Spark: `BeyondKernel` is raised for a delta that has one."""

    __slots__ = ()


class BeyondKernel(DataError):
    """A row that the kernel leaves to Spark; nobody sees it but the operator that asks Spark then."""


class AnsiError(ValueError):
    """A row that Spark's ANSI mode refuses; carries the stable code, and Spark's error class where the call does not tell it."""

    def __init__(self, message: str, code: str, condition: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.condition = condition


# The codes that batch queries give to the same mistakes.
OVERFLOW = "DATA_OVERFLOW"
DIVIDE_BY_ZERO = "DATA_DIVIDE_BY_ZERO"
CAST = "DATA_CAST"
DATETIME = "DATA_DATETIME"
INDEX = "DATA_INDEX"
INDEX_OF_ZERO = "INVALID_INDEX_OF_ZERO"  # Spark's error class, where positions begin at 1
RAISED = "DATA_RAISED"
SPARK = "SQL_SPARK"  # where Spark fails with an exception of Java's, as for counts of which there is no absolute value
LEAST_INT = -(2**31)


def ansi_error(call: Call, error: AnsiError, row: Sequence[Any]) -> DataError:
    """The error for a row that ANSI mode refuses: the expression and the values it was given."""
    shown = ", ".join(repr(value) for value in row)
    return DataError(
        f"{error} in {show(call)}",
        code=error.code,
        hint=f"the values were ({shown}); filter such rows, or use a try_ function, which gives NULL",
        condition=error.condition or condition(call, error.code),
    )


def bad_row_error(call: Call, values: Sequence[Datum], position: int, error: AnsiError) -> DataError:
    """The error for the row at a position that ANSI mode refuses."""
    row = [_in_python(value if isinstance(value, pa.Scalar) else value[position]) for value in values]
    return ansi_error(call, error, row)


def _in_python(value: pa.Scalar) -> Any:
    """A value to show; moments beyond the years that Python has as numbers."""
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return value.cast(pa.int64()).as_py()


def valid_mask(value: Datum, length: int) -> npt.NDArray[np.bool_]:
    """Where a value is not NULL."""
    if isinstance(value, pa.Scalar):
        return np.full(length, value.is_valid)
    if value.null_count == 0:
        return np.ones(len(value), bool)
    mask: npt.NDArray[np.bool_] = value.is_valid().to_numpy(zero_copy_only=False)
    return mask


def numbers(value: Datum, length: int, fill: Any = 0) -> npt.NDArray[Any]:
    """The values of a fixed-width column as NumPy, with NULLs replaced."""
    if isinstance(value, pa.Scalar):
        constant = value.as_py()
        return np.full(length, fill if constant is None else constant, dtype=value.type.to_pandas_dtype())
    if value.null_count:
        value = value.fill_null(fill)
    result: npt.NDArray[Any] = value.to_numpy(zero_copy_only=False)
    return result


def from_numbers(values: npt.NDArray[Any], valid: npt.NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    """A column from NumPy values and where they are not NULL."""
    if valid.all():
        return pa.array(values, kind)
    return pa.array(values, kind, mask=~valid)
