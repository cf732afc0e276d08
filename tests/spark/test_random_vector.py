"""aes_encrypt in a view: with a vector that Spark draws for each row it is refused, else it answers as Spark does."""

from __future__ import annotations

import pytest

import penstock as ps
from twin.batch import Pair

TABLES = {"t": "id INT, s STRING"}
KEY = "'0000111122223333'"


@pytest.mark.parametrize("call", [f"aes_encrypt(s, {KEY})", f"aes_encrypt(s, {KEY}, 'CBC', 'PKCS')"])
def test_a_random_vector_is_refused(session: ps.Session, call: str) -> None:
    with pytest.raises(ps.SqlError) as caught:
        Pair(session, f"SELECT id, {call} AS e FROM t", TABLES)
    assert caught.value.code == "SQL_NONDETERMINISTIC"
    assert "ECB" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "call", [f"aes_encrypt(s, {KEY}, 'ecb')", f"aes_encrypt(s, {KEY}, 'CBC', 'DEFAULT', X'{'00' * 16}')"]
)
def test_a_constant_vector_or_none_answers_as_spark_does(session: ps.Session, call: str) -> None:
    pair = Pair(session, f"SELECT id, {call} AS e FROM t", TABLES)
    for tick in ({"t": ((1, (1, "a")), (1, (2, None)))}, {"t": ((-1, (1, "a")), (1, (3, "Ä")))}):
        expected, answer = pair.step(tick)
        assert answer == expected
