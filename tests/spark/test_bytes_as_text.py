"""Bytes that are no UTF-8, read as text: functions of text take them as Spark does."""

from __future__ import annotations

import pytest

import penstock as ps
from twin.batch import Pair

TABLES = {"t": "id INT, b BINARY"}
TICKS = (
    {"t": ((1, (1, b"abc")), (1, (2, b"\xff\x00\x80")), (1, (3, None)))},
    {"t": ((-1, (2, b"\xff\x00\x80")), (1, (4, b"\xc3\x28")), (1, (5, b"")))},
)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, ascii(b) AS x FROM t",
        "SELECT id, length(CAST(b AS STRING)) AS x, hex(upper(CAST(b AS STRING))) AS y FROM t",
        "SELECT id, hex(concat(CAST(b AS STRING), 'x')) AS x FROM t",
        "SELECT id FROM t WHERE CAST(b AS STRING) LIKE '%a%' OR length(CAST(b AS STRING)) = 2",
        "SELECT length(CAST(b AS STRING)) AS n, count(*) AS c FROM t GROUP BY length(CAST(b AS STRING))",
    ],
)
def test_the_answer_is_that_of_spark(session: ps.Session, query: str) -> None:
    pair = Pair(session, query, TABLES)
    for tick in TICKS:
        expected, answer = pair.step(tick)
        assert answer == expected
        assert not isinstance(answer, str)
