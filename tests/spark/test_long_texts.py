"""repeat, lpad, rpad and space with counts of every size against Spark."""

from __future__ import annotations

from random import Random

import pytest

import penstock as ps
from seed import SEED
from twin.judge import Table
from twin.ticked import differences

TEXTS = [None, "", "a", "ab", "é", "a€"]
COUNTS = [None, 0, 1, -1, 7, -(2**31)]


def test_in_ticks(session: ps.Session) -> None:
    chance = Random(SEED)
    rows = [(chance.choice(TEXTS), chance.choice(COUNTS), chance.choice(TEXTS)) for _ in range(40)]
    table: Table = {
        "t": ("string", [row[0] for row in rows]),
        "n": ("int", [row[1] for row in rows]),
        "f": ("string", [row[2] for row in rows]),
    }
    query = "SELECT id, repeat(t, n) AS a, lpad(t, n, f) AS b, rpad(t, n, f) AS c, space(n) AS d FROM t"
    assert differences(session, query, table, chance) == []


@pytest.mark.parametrize("call", ["repeat(t, n)", "lpad(t, n, 'é')", "rpad(t, n, 'é')"])
def test_what_java_cannot_have_is_refused_alike(session: ps.Session, call: str) -> None:
    table: Table = {"t": ("string", ["a", "éé", None]), "n": ("int", [2, 2**31 - 1, 2**31 - 1])}
    assert differences(session, f"SELECT id, {call} AS c FROM t", table, Random(SEED), ticks=2) == []
