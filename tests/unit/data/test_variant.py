"""JSON text as VARIANT: the bytes that PySpark's own parser makes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import VariantVal

from penstock.data.variant import from_json, parse_json
from penstock.errors import DataError

TEXTS = [
    "null",
    "true",
    " false ",
    "0",
    "-1",
    "127",
    "128",
    "-32769",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "1.5",
    "-0.10",
    "1e3",
    "123456789.123456789",
    "1" * 38,
    "1" * 39,
    '""',
    '"text"',
    '"' + "x" * 63 + '"',
    '"' + "x" * 64 + '"',
    '"\\u00e4\\n"',
    "[]",
    "[1, [2, []], {}]",
    "{}",
    '{"b": 1, "a": {"b": 2, "c": null}}',
    "[" + ", ".join(map(str, range(300))) + "]",
    "{" + ", ".join(f'"k{number}": "{"v" * number}"' for number in range(300)) + "}",
]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:20])
def test_json_text_becomes_the_bytes_of_spark(text: str) -> None:
    expected = VariantVal.parseJson(text)
    assert parse_json(text) == (bytes(expected.value), bytes(expected.metadata))


@pytest.mark.parametrize("text", ["", "{", "NaN", "[1,]", '{"a": 1, "a": 2}', "text", "[" * 100_000])
def test_what_is_no_json_is_refused_with_its_row(text: str) -> None:
    with pytest.raises(DataError, match="column 'v' is a VARIANT, and row 2 is no JSON text") as caught:
        from_json(pa.array(["1", text]), name="v", where="source 's'")
    assert caught.value.code == "DATA_TYPE"


def test_null_stays_null() -> None:
    assert from_json(pa.array([None, "1"]), name="v", where="").to_pylist()[0] is None
