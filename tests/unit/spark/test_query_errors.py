"""Errors of streaming queries: whose they are, and which line they name."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigError, PenstockError
from penstock.spark.errors.query import translate_query_error, translated


def _fails() -> None:
    raise ValueError("no")


def test_an_error_of_the_user_names_the_line_that_raised_it() -> None:
    with (
        pytest.raises(PenstockError, match="the function of the query raised ValueError: no") as caught,
        translated(),
    ):
        _fails()
    assert caught.value.code == "STREAM_FUNCTION"
    assert (caught.value.where or "").startswith(__file__)
    assert (caught.value.where or "").endswith("in _fails")
    assert caught.value.__suppress_context__


def test_an_error_of_penstock_passes_as_it_is() -> None:
    error = ConfigError("wrong", code="STREAM_KEY")
    with pytest.raises(ConfigError) as caught, translated(where="program.py:1"):
        raise error
    assert caught.value is error
    assert error.where == "program.py:1"
    assert translate_query_error(error) is error


def test_an_error_of_spark_without_a_place_gets_the_line_of_the_program() -> None:
    from pyspark.errors import PySparkValueError

    with pytest.raises(PenstockError) as caught, translated(where="program.py:1"):
        raise PySparkValueError("something is wrong")
    assert caught.value.where == "program.py:1"
