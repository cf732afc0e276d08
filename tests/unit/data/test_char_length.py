"""Text of a declared length is kept as Spark's tables keep it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.data.char_length import fit_length
from penstock.data.schema import declared_type, to_arrow_schema
from penstock.errors import DataError


@pytest.mark.parametrize(
    ("kind", "given", "kept"),
    [
        ("char(3)", ["a", "", None, "abc", "é", "ab   "], ["a  ", "   ", None, "abc", "é  ", "ab "]),
        ("varchar(3)", ["a", "", None, "abc", "a ", "ab   "], ["a", "", None, "abc", "a ", "ab "]),
        ("string", ["abcdef ", None], ["abcdef ", None]),
    ],
)
def test_text_is_padded_and_blanks_are_cut(
    kind: str, given: list[str | None], kept: list[str | None]
) -> None:
    assert fit_length(pa.array(given), kind, name="c", where="source t").to_pylist() == kept


@pytest.mark.parametrize("kind", ["char(2)", "varchar(2)"])
def test_text_that_is_too_long_is_refused(kind: str) -> None:
    with pytest.raises(DataError) as caught:
        fit_length(pa.array(["ab", None, "abc"]), kind, name="code", where="source t")
    assert caught.value.code == "DATA_LENGTH"
    assert "'code'" in str(caught.value)
    assert "'abc'" in str(caught.value)


def test_no_rows() -> None:
    assert fit_length(pa.array([], pa.string()), "char(2)", name="c", where="").to_pylist() == []


def test_declared_types_keep_lengths_and_collations() -> None:
    schema = to_arrow_schema(
        "a CHAR(4) NOT NULL, b CHARACTER VARYING(5), c STRING COLLATE UTF8_LCASE COMMENT 'text', "
        "d ARRAY<STRUCT<Name: STRING, n: INT>>, e MAP<STRING, DECIMAL(5,2)>, f VARCHAR(7)"
    )
    assert [declared_type(field) for field in schema] == [
        "char(4)",
        "varchar(5)",
        "string collate UTF8_LCASE",
        "array<struct<Name:string,n:int>>",
        "map<string,decimal(5,2)>",
        "varchar(7)",
    ]
    assert schema.field("c").metadata[b"comment"] == b"text"


def test_declared_types_of_a_pyspark_schema() -> None:
    from pyspark.sql.types import CharType, IntegerType, StringType, StructField, StructType, VarcharType

    schema = StructType(
        [
            StructField("a", CharType(4)),
            StructField("b", VarcharType(5)),
            StructField("c", StringType("UTF8_LCASE")),
            StructField("d", IntegerType()),
        ]
    )
    assert [declared_type(field) for field in to_arrow_schema(schema)] == [
        "char(4)",
        "varchar(5)",
        "string collate UTF8_LCASE",
        "int",
    ]
