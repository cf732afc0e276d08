"""Regular expressions that come with each row: the kernel computes them, and asks Spark for those that are Java's alone."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.functions.scalars import patterns
from seed import SEED
from twin.judge import Judge, grid
from twin.ticked import differences

TEXTS = [None, "", "a", "abcabc", "a,b;;c|d", "x.y.z", "é😀é", "line\r\n", "foo@bar.com", "Ab12 aB", "  x "]
# Of both dialects.
SHARED = [
    None,
    ",",
    ";",
    "[,;]",
    "\\|",
    "\\.",
    "\\s+",
    "b",
    "(a)(b)?",
    "^a",
    "c$",
    "(?i)AB",
    "a|b",
    "(\\w+)@(\\w+)",
]
# Of Java's alone: they look around, take all, match nothing between characters, or name what has a name in Unicode.
JAVA = ["", "(?<=a)b", "a*+b", "\\p{Lu}", "x*", "(?<n>a)b", "\\bx", "[a-z&&[^b]]"]
REFUSED = ["(", "a{", "[b", "*"]
CALLS = [
    "split(s, p)",
    "split(s, p, n)",
    "s RLIKE p",
    "regexp_replace(s, p, r)",
    "regexp_replace(s, p, '-')",
    "regexp_replace(s, ',', r)",
    "regexp_extract(s, p, 0)",
    "regexp_extract(s, '(a)(b)?', n)",
    "regexp_extract_all(s, p, 0)",
    "regexp_instr(s, p)",
    "regexp_count(s, p)",
    "CASE WHEN n > 0 THEN split(s, p)[0] ELSE 'none' END",
    "transform(split(s, p), x -> x RLIKE p)",
]
TABLE = grid(
    s=("string", TEXTS), p=("string", SHARED), n=("int", [None, 0, 1, 2]), r=("string", ["<$0>", None])
)


def test_patterns_of_both_dialects(spark: SparkSession) -> None:
    judge = Judge(spark, TABLE, CALLS)
    wrong: dict[str, Any] = {
        text: found for index, text in enumerate(CALLS) if (found := judge.differences(index))
    }
    assert wrong == {}


@pytest.mark.parametrize("pattern", [*JAVA, *REFUSED])
def test_a_pattern_of_one_dialect_is_known_as_such(pattern: str) -> None:
    assert patterns.python_regex(pattern) is None


def test_views_over_patterns_of_both_dialects_and_of_one(session: ps.Session) -> None:
    chance = Random(SEED)
    rows = [
        (chance.choice(TEXTS), chance.choice([*SHARED, *SHARED, *JAVA]), chance.choice([0, 1, None]), "<$0>")
        for _ in range(80)
    ]
    names = {"s": "string", "p": "string", "n": "int", "r": "string"}
    table = {name: (kind, [row[at] for row in rows]) for at, (name, kind) in enumerate(names.items())}
    calls = [*(call for call in CALLS if "(b)?', n" not in call), "regexp_substr(s, p)"]
    listed = ", ".join(f"{call} AS e{number}" for number, call in enumerate(calls))
    assert differences(session, f"SELECT id, {listed} FROM t", table, chance) == []
    query = "SELECT p, count(*) AS c, min(regexp_replace(s, p, '')) AS m FROM t WHERE s RLIKE p OR n = 0 GROUP BY p"
    assert differences(session, query, table, chance) == []


@pytest.mark.parametrize("pattern", REFUSED)
@pytest.mark.parametrize("call", ["split(s, p)", "regexp_replace(s, p, 'x')", "regexp_extract(s, p, 0)"])
def test_what_spark_refuses_is_refused_alike(session: ps.Session, call: str, pattern: str) -> None:
    table = {"s": ("string", ["ab", "b"]), "p": ("string", ["b", pattern])}
    found = differences(session, f"SELECT id, {call} AS e FROM t", table, Random(0), ticks=2)
    assert found == []


def test_it_is_the_kernels(session: ps.Session) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("t", "s STRING, p STRING, n INT, r STRING")
    for number, call in enumerate(CALLS):
        explanation = flow.register_view(f"v{number}", f"SELECT {call} AS e FROM t")
        assert explanation.tier == "kernel", (call, str(explanation))
    assert "Spark, for a delta with a regular expression" in str(flow.explain("v0"))
