"""Texts whose length a number says: measured before they are made."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DataError
from penstock.functions import evaluate
from penstock.functions.scalars.long_text import padded_size, repeated_size
from penstock.plan.expression import Call, Column, Literal
from twin.judge import Tick

TEXT = Column(0, "string", True, "t")
COUNT = Column(1, "int", True, "n")
FILL = Literal("é", "string")
MOST = 2**31 - 1


def made(call: Call, texts: list[str | None], counts: list[int | None]) -> list[str | None]:
    columns = [pa.array(texts, pa.large_string()), pa.array(counts, pa.int32())]
    found: list[str | None] = evaluate.compile(call)(columns, len(texts), Tick()).to_pylist()
    return found


CALLS = {
    "repeat": Call("StringRepeat", (TEXT, COUNT), "string"),
    "lpad": Call("StringLPad", (TEXT, COUNT, FILL), "string"),
    "rpad": Call("StringRPad", (TEXT, COUNT, FILL), "string"),
    "space": Call("StringSpace", (COUNT,), "string"),
}


@given(st.text(max_size=5), st.integers(-2, 20), st.text(max_size=3))
def test_sizes_are_those_of_the_texts(text: str, count: int, fill: str) -> None:
    columns = [pa.array([text], pa.large_string()), pa.array([count], pa.int32())]
    for name in ("StringLPad", "StringRPad"):
        call = Call(name, (TEXT, COUNT, Literal(fill, "string")), "string")
        (padded,) = evaluate.compile(call)(columns, 1, Tick()).to_pylist()
        assert len(padded.encode()) <= padded_size(text, count, fill)
        if count >= len(text):
            assert len(padded.encode()) == padded_size(text, count, fill)
    assert made(CALLS["repeat"], [text], [count]) == [text * count]
    assert len((text * count).encode()) == repeated_size(text, count)


@pytest.mark.parametrize("name", ["repeat", "lpad", "rpad"])
def test_a_text_that_java_cannot_have_overflows(name: str) -> None:
    with pytest.raises(DataError) as caught:
        made(CALLS[name], ["a", "éé", None], [1, MOST, MOST])
    assert (caught.value.code, caught.value.condition) == ("DATA_OVERFLOW", None)


@pytest.mark.parametrize("name", ["repeat", "space"])
def test_a_column_that_arrow_cannot_have_is_too_large(name: str) -> None:
    with pytest.raises(DataError) as caught:
        made(CALLS[name], ["a", "b", None], [MOST, 1, MOST])
    assert caught.value.code == "DATA_TOO_LARGE"


@pytest.mark.parametrize("name", CALLS)
def test_null_and_nothing_have_no_size(name: str) -> None:
    assert made(CALLS[name], ["", None, "a"], [0, 5 if name != "space" else None, None]) == ["", None, None]
