"""Functions of other packages: their types are kept, and what they do wrong is said."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.errors import ConfigError, DataError
from penstock.functions.plugin import scalar_function

NUMBERS = pa.array([1, None, 3], pa.int32())


def test_arguments_and_results_have_the_declared_types() -> None:
    @scalar_function("decimal(10,2)", arguments=["bigint"])
    def double(numbers: pa.Array) -> Any:
        assert numbers.type == pa.int64()
        return pc.multiply(numbers, 2)

    result = double.checked("double", [NUMBERS])
    assert result.type == pa.decimal128(10, 2)
    assert [None if value is None else int(value) for value in result.to_pylist()] == [2, None, 6]
    assert double(pa.array([4])).to_pylist() == [8]  # it is still a function


@pytest.mark.parametrize(
    ("call", "arrays", "code", "why"),
    [
        (lambda a: a, [NUMBERS, NUMBERS], "FUNCTION_ARGUMENTS", "f takes 1 arguments, got 2"),
        (lambda a: a.to_pylist(), [NUMBERS], "FUNCTION_RESULT", "gave list"),
        (lambda a: a.slice(1), [NUMBERS], "FUNCTION_RESULT", "gave 2 values for 3 rows"),
        (
            lambda a: pa.array(["x"] * 3),
            [NUMBERS],
            "DATA_TYPE",
            "column 'result' holds string values that do not fit int32",
        ),
        (lambda a: a, [pa.array(["x"])], "DATA_TYPE", "column 'argument 1' holds string"),
        (lambda a: a.nothing, [NUMBERS], "FUNCTION_FAILED", "f failed: AttributeError"),
    ],
)
def test_what_is_wrong_is_said(call: Any, arrays: list[pa.Array], code: str, why: str) -> None:
    function = scalar_function("int", arguments=["int"])(call)
    with pytest.raises(DataError, match=why) as refused:
        function.checked("f", arrays)
    assert refused.value.code == code


def test_a_type_that_is_none_is_refused_where_it_is_written() -> None:
    with pytest.raises(ConfigError):
        scalar_function("bigger")
