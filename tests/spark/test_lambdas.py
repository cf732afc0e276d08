"""Higher-order functions and their lambdas, against Spark's own evaluation of the same Catalyst expression."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock as ps
import seed
from golden import ticking
from twin.judge import Judge, Table

ARRAYS = [
    None,
    [],
    [1],
    [None],
    [0],
    [3, None, 5],
    [2**31 - 1, 7],
    [0, 1, None],
    [5, 4, 3, 2, 1, 0],
    [None, None],
    [2, 2, -7, 2],
    [1, 0],
]
OTHERS = [[1, 2], [None], None, [], [0, 0, 0], [1], [-1, None], [10], [3, 4], [7, None, 0], [2], [0, 1, 2]]
ROWS: Table = {
    "a": ("array<int>", ARRAYS),
    "c": ("array<int>", OTHERS),
    "b": ("int", [None, 0, 1, 2, 3, 2**31 - 1, -1, 5, 0, 4, 7, 2]),
    "s": ("array<string>", [["x", "yy", None], None, [], ["a"], ["ß", "B", "b"], [None]] * 2),
    "d": ("array<double>", [[0.0, -0.0, math.nan, None, 1.5], None, [], [math.inf, -1.0], [2.0], [None]] * 2),
    "p": (
        "array<struct<k:int,v:string>>",
        [[{"k": 2, "v": "b"}, {"k": 1, "v": "a"}, None], None, [], [{"k": None, "v": "z"}]] * 3,
    ),
    "n": ("array<array<int>>", [[[1, 2], [], None, [None, 3]], None, [], [[0]]] * 3),
    "m": ("map<string,int>", [[("k", 1), ("l", None), ("o", 0)], None, [], [("k", 7)]] * 3),
    "w": ("map<string,int>", [[("l", 5), ("z", 1)], [("k", 2)], None, [("k", 0), ("q", None)]] * 3),
    "f": ("map<double,int>", [[(0.5, 1), (math.nan, 2)], [(-0.0, 3)], None, []] * 3),
}

PLAIN = [
    "transform(a, x -> x + 1)",
    "transform(a, (x, i) -> x * 2 - i)",
    "transform(a, x -> x + b)",
    "transform(a, x -> 1)",
    "transform(a, x -> b)",
    "transform(a, x -> CAST(NULL AS INT))",
    "transform(s, x -> upper(x) || '!')",
    "transform(d, x -> x * 2)",
    "transform(p, x -> x.v)",
    "transform(p, x -> named_struct('v', x.v, 'w', x.k + b))",
    "transform(n, x -> size(x))",
    "transform(n, x -> transform(x, y -> y + size(x) + b))",
    "transform(n, (x, i) -> transform(x, (y, j) -> y + i * 10 + j))",
    "transform(a, x -> transform(a, y -> x * y))",
    "transform(a, x -> filter(c, y -> y > x))",
    "transform(a, x -> array(x, x + 1))",
    "filter(a, x -> x > 1)",
    "filter(a, (x, i) -> i % 2 = 0)",
    "filter(a, x -> x IS NOT NULL)",
    "filter(a, x -> NULL)",
    "filter(a, x -> x > b)",
    "filter(s, x -> x LIKE '%y%')",
    "filter(p, x -> x.k > 1)",
    "filter(n, x -> exists(x, y -> y = 3))",
    "exists(a, x -> x > 2)",
    "exists(a, x -> x IS NULL)",
    "exists(a, x -> x = b)",
    "forall(a, x -> x > 0)",
    "forall(a, x -> x IS NOT NULL)",
    "forall(a, x -> x < b OR x IS NULL)",
    "exists(n, x -> forall(x, y -> y > 0))",
    "aggregate(a, 0L, (acc, x) -> acc + x)",
    "aggregate(a, 0L, (acc, x) -> acc + coalesce(x, 0), acc -> acc * 10)",
    "reduce(a, b, (acc, x) -> greatest(acc, x))",
    "aggregate(s, '', (acc, x) -> concat(acc, coalesce(x, '-')))",
    "aggregate(a, named_struct('n', 0L, 's', 0L), (acc, x) -> named_struct('n', acc.n + 1, 's', acc.s + x), acc -> acc.s)",
    "aggregate(a, array(b), (acc, x) -> concat(acc, array(x)))",
    "aggregate(n, 0L, (acc, x) -> acc + aggregate(x, 0L, (u, y) -> u + y + coalesce(acc, 0L)))",
    "zip_with(a, c, (x, y) -> x + y)",
    "zip_with(a, s, (x, y) -> named_struct('x', x, 'y', y))",
    "zip_with(a, c, (x, y) -> coalesce(x, y, b))",
    "map_filter(m, (k, v) -> v > 0)",
    "map_filter(m, (k, v) -> k > 'k')",
    "map_filter(m, (k, v) -> v IS NULL OR v = b)",
    "transform_values(m, (k, v) -> v + b)",
    "transform_values(m, (k, v) -> concat(k, CAST(v AS STRING)))",
    "transform_values(f, (k, v) -> k + v)",
    "transform_keys(m, (k, v) -> upper(k))",
    "transform_keys(m, (k, v) -> length(k) * 0 + coalesce(v, 9))",
    "transform_keys(m, (k, v) -> 'same')",
    "transform_keys(m, (k, v) -> nullif(k, 'l'))",
    "transform_keys(f, (k, v) -> k * 0)",
    "map_zip_with(m, w, (k, u, v) -> concat(k, coalesce(CAST(u AS STRING), '-'), coalesce(CAST(v AS STRING), '-')))",
    "map_zip_with(m, w, (k, u, v) -> u + v)",
    "map_zip_with(f, f, (k, u, v) -> u + v + b)",
    "array_compact(a)",
    "size(filter(a, x -> x % 2 = 1))",
    "if(exists(a, x -> x > 3), 'big', 'small')",
    "coalesce(element_at(transform(a, x -> x + 1), 1), -1)",
    "transform(filter(a, x -> x IS NOT NULL), x -> x % 3)",
]
RAISING = [
    "transform(a, x -> 10 div x)",
    "transform(a, x -> x + 2147483647)",
    "transform(a, x -> if(x = 0, 0, 10 div x))",
    "transform(a, x -> x IS NOT NULL AND 10 div x > 1)",
    "transform(a, x -> CASE WHEN x = 0 THEN CAST('z' AS INT) WHEN x = 1 THEN 1 div 0 ELSE x END)",
    "transform(a, x -> 10 div b)",
    "transform(a, x -> coalesce(x, 1 div 0))",
    "filter(a, x -> 10 div x > 1)",
    "exists(a, x -> 10 div x > 1)",
    "exists(a, x -> 6 div x = 2)",
    "forall(a, x -> 10 div x > 1)",
    "forall(a, x -> 10 div x > 100)",
    "exists(a, x -> x = 1 OR 10 div x = 2)",
    "aggregate(a, 0, (acc, x) -> acc + x)",
    "aggregate(a, 1L, (acc, x) -> acc + 10 div x)",
    "aggregate(a, 1 div b, (acc, x) -> acc + x)",
    "aggregate(a, 0L, (acc, x) -> acc + x, acc -> 10 div acc)",
    "aggregate(a, 1L, (acc, x) -> if(x = 0, acc, acc + 10 div x))",
    "zip_with(a, c, (x, y) -> x div y)",
    "zip_with(a, array(1 div b), (x, y) -> x + y)",
    "transform_values(m, (k, v) -> 10 div v)",
    "map_filter(m, (k, v) -> 10 div v > 2)",
    "transform(n, x -> transform(x, y -> 10 div y))",
    "exists(n, x -> exists(x, y -> 6 div y = 3))",
    "b > 1 AND exists(a, x -> 10 div x > 1)",
    "if(b = 0, NULL, transform(a, x -> x div b))",
    "transform(a, x -> element_at(c, x))",
    "transform(a, x -> if(x > size(c) OR x = 0, NULL, element_at(c, x)))",
]
SORTED = [
    "array_sort(a)",
    "array_sort(s)",
    "array_sort(d)",
    "array_sort(p)",
    "array_sort(n)",
    "array_sort(a, (l, r) -> CASE WHEN l < r THEN -1 WHEN l > r THEN 1 ELSE 0 END)",
    "array_sort(a, (l, r) -> CASE WHEN l < r THEN 1 WHEN l > r THEN -1 ELSE 0 END)",
    "array_sort(a, (l, r) -> CASE WHEN l IS NULL AND r IS NULL THEN 0 WHEN l IS NULL THEN -1 WHEN r IS NULL THEN 1 "
    "WHEN l > r THEN -1 WHEN l < r THEN 1 ELSE 0 END)",
    "array_sort(s, (l, r) -> CASE WHEN length(l) < length(r) THEN -1 WHEN length(l) > length(r) THEN 1 ELSE 0 END)",
    "array_sort(p, (l, r) -> CASE WHEN l.k < r.k THEN -1 WHEN l.k > r.k THEN 1 ELSE 0 END)",
    "array_sort(p, (l, r) -> if(l.v < r.v, 1, if(l.v > r.v, -1, 0)))",
    "array_sort(a, (l, r) -> l - r)",
    "array_sort(a, (l, r) -> coalesce(r, 0) - coalesce(l, 0))",
    "array_sort(filter(a, x -> x < 1000), (l, r) -> r - l)",
    "array_sort(s, (l, r) -> length(l) - length(r))",
    "array_sort(filter(s, x -> x IS NOT NULL), (l, r) -> length(r) - length(l))",
    "array_sort(a, (l, r) -> CASE WHEN l % 2 = r % 2 THEN 0 WHEN l % 2 = 0 THEN -1 ELSE 1 END)",
    "array_sort(a, (l, r) -> CAST(10 div l - 10 div r AS INT))",
    "array_sort(a, (l, r) -> if(b > 1, coalesce(l, 0) - coalesce(r, 0), coalesce(r, 0) - coalesce(l, 0)))",
    "array_sort(d, (l, r) -> CASE WHEN l < r THEN -1 WHEN l > r THEN 1 ELSE 0 END)",
]
GROUPS = {"plain": PLAIN, "raising": RAISING, "sorted": SORTED}


def _differences(spark: SparkSession, table: Table, expressions: list[str]) -> dict[str, list[str]]:
    judge = Judge(spark, table, expressions)
    return {text: found for index, text in enumerate(expressions) if (found := judge.differences(index))}


@pytest.mark.parametrize("group", GROUPS)
def test_lambdas_answer_as_spark_does(spark: SparkSession, group: str) -> None:
    assert _differences(spark, ROWS, GROUPS[group]) == {}


def test_the_last_of_equal_keys_wins_if_the_session_says_so(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.mapKeyDedupPolicy", "LAST_WIN")
    try:
        wrong = _differences(
            spark,
            ROWS,
            [
                "transform_keys(m, (k, v) -> 'same')",
                "transform_keys(m, (k, v) -> v % 2 + b)",
                "transform_keys(f, (k, v) -> k * 0)",
            ],
        )
    finally:
        spark.conf.unset("spark.sql.mapKeyDedupPolicy")
    assert wrong == {}


def test_exists_without_three_values(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.legacy.followThreeValuedLogicInArrayExists", "false")
    try:
        wrong = _differences(spark, ROWS, ["exists(a, x -> x > 2)", "exists(a, x -> 6 div x = 2)"])
    finally:
        spark.conf.unset("spark.sql.legacy.followThreeValuedLogicInArrayExists")
    assert wrong == {}


def test_comparators_are_asked_as_java_does(spark: SparkSession) -> None:
    """Comparators that contradict themselves: the result, or the error, shows which pairs were compared."""
    chosen = random.Random(seed.SEED)
    lists = [
        [chosen.randrange(-span, span) for _ in range(length)]
        for length in (2, 3, 20, 31, 32, 33, 64, 100, 150)
        for span in (3, 50, 10_000)
    ]
    lists += [sorted(item, reverse=True) for item in lists[9::4]]
    lists += [sorted(item[: len(item) // 2]) + sorted(item[len(item) // 2 :]) for item in lists[9:27]]
    wrong = _differences(
        spark,
        {"a": ("array<int>", lists)},
        [
            "array_sort(a, (l, r) -> l - r + 0)",
            "array_sort(a, (l, r) -> (l * 7 + r * 3) % 5 - 2)",
            "array_sort(a, (l, r) -> if(abs(l - r) < 5, 0, l - r))",
            "array_sort(a, (l, r) -> if((l + r) % 3 = 0, 1, -1))",
            "array_sort(a, (l, r) -> if(pmod(l * r, 7) = 3, NULL, l - r))",
            "array_sort(a, (l, r) -> CAST(l div 10 - r div 10 AS INT))",
            "array_sort(a, (l, r) -> CAST(100 div (l - r) AS INT))",
        ],
    )
    assert wrong == {}, f"seed {seed.SEED}"


class Writer:
    """Random expressions over the columns of ROWS and the parameters in scope."""

    def __init__(self, chosen: random.Random) -> None:
        self.chosen = chosen
        self.names = 0

    def fresh(self) -> str:
        self.names += 1
        return f"x{self.names}"

    def number(self, scope: tuple[str, ...], depth: int) -> str:
        # No plain constants: Spark would compute what has only constants, and refuse the view if that raises.
        leaves = [*scope, *scope, "b", "(b * 0)", "(b * 0 + 1)", "(b * 0 - 3)", "CAST(NULL AS INT)"]
        if depth <= 0 or self.chosen.random() < 0.2:
            return self.chosen.choice(leaves)
        one, two = self.number(scope, depth - 1), self.number(scope, depth - 1)
        x, y = self.fresh(), self.fresh()
        inner = (*scope, x)
        return self.chosen.choice(
            [
                f"({one} + {two})",
                f"({one} - {two})",
                f"CAST({one} div {two} AS INT)",
                f"({one} % {two})",
                f"coalesce({one}, {two})",
                f"if({self.truth(scope, depth - 1)}, {one}, {two})",
                f"size({self.numbers(scope, depth - 1)})",
                f"element_at({self.numbers(scope, depth - 1)}, {one})",
                f"aggregate({self.numbers(scope, depth - 1)}, {one}, ({x}, {y}) -> {self.number((*inner, y), depth - 1)})",
                f"greatest({one}, {two})",
            ]
        )

    def truth(self, scope: tuple[str, ...], depth: int) -> str:
        one, two = self.number(scope, depth - 1), self.number(scope, depth - 1)
        x = self.fresh()
        simple = [f"{one} < {two}", f"{one} = {two}", f"{one} IS NULL", f"{one} <=> {two}"]
        if depth <= 0:
            return self.chosen.choice(simple)
        test = self.truth((*scope, x), depth - 1)
        return self.chosen.choice(
            [
                *simple,
                f"({self.truth(scope, depth - 1)} AND {self.truth(scope, depth - 1)})",
                f"({self.truth(scope, depth - 1)} OR {self.truth(scope, depth - 1)})",
                f"NOT {self.truth(scope, depth - 1)}",
                f"exists({self.numbers(scope, depth - 1)}, {x} -> {test})",
                f"forall({self.numbers(scope, depth - 1)}, {x} -> {test})",
            ]
        )

    def numbers(self, scope: tuple[str, ...], depth: int) -> str:
        if depth <= 0 or self.chosen.random() < 0.3:
            return self.chosen.choice(["a", "c", "a", "map_values(m)"])
        x, y = self.fresh(), self.fresh()
        return self.chosen.choice(
            [
                f"transform({self.numbers(scope, depth - 1)}, {x} -> {self.number((*scope, x), depth - 1)})",
                f"transform({self.numbers(scope, depth - 1)}, ({x}, {y}) -> {self.number((*scope, x, y), depth - 1)})",
                f"filter({self.numbers(scope, depth - 1)}, {x} -> {self.truth((*scope, x), depth - 1)})",
                f"zip_with({self.numbers(scope, depth - 1)}, {self.numbers(scope, depth - 1)}, "
                f"({x}, {y}) -> {self.number((*scope, x, y), depth - 1)})",
                f"array({self.number(scope, depth - 1)}, {self.number(scope, depth - 1)})",
                f"map_values(transform_values(m, ({x}, {y}) -> {self.number((*scope, y), depth - 1)}))",
                f"array_sort({self.numbers(scope, depth - 1)})",
            ]
        )


def test_random_lambdas(spark: SparkSession) -> None:
    chosen = random.Random(seed.SEED)
    expressions: list[str] = []
    while len(expressions) < 80:
        writer = Writer(chosen)
        made: Any = chosen.choice([writer.numbers, writer.truth, writer.number])
        text = made((), 3)
        if "->" in text and len(text) < 1500:
            expressions.append(text)
    assert _differences(spark, ROWS, expressions) == {}, f"seed {seed.SEED}"


def test_lambdas_of_dataframes_in_a_restored_flow(session: ps.Session) -> None:
    """Lambdas of Python are those of SQL, and a restored flow evaluates them without Spark."""
    flow = ps.IncrementalFlow(session)
    flow.register_source("t", "a ARRAY<INT>, b INT")
    pairs = F.map_from_arrays(F.array(F.lit("x"), F.lit("y")), "a")
    frame = flow.table("t").select(
        F.transform("a", lambda x, i: x * 10 + i + F.col("b")).alias("t"),
        F.aggregate("a", F.lit(0), lambda acc, x: acc + x, lambda acc: acc * F.col("b")).alias("s"),
        F.map_filter(pairs, lambda k, v: v > F.col("b")).alias("m"),
        F.array_sort("a", lambda x, y: y - x).alias("o"),
    )
    explained = flow.register_view("v", frame)
    assert all(line.tier == "kernel" for line in explained.operators)
    restored = ps.IncrementalFlow.from_definition(flow.definition())
    for one in (flow, restored):
        one.feed("t", [{"a": [1, 2], "b": 1}, {"a": None, "b": 0}])
        one.step()
        assert sorted(one.snapshot("v").to_pylist(), key=str) == [
            {"t": None, "s": None, "m": None, "o": None},
            {"t": [11, 22], "s": 3, "m": [("y", 2)], "o": [2, 1]},
        ]


PLACES = [
    "SELECT k FROM t WHERE exists(a, x -> x > k)",
    "SELECT l.k, r.b FROM t l JOIN t r ON l.k = r.k AND exists(l.a, x -> x = r.b)",
    "SELECT l.k FROM t l LEFT ANTI JOIN t r ON l.k = r.b AND forall(r.a, x -> x < l.k)",
    "SELECT transform(a, x -> x % 10) AS g, count(*) AS c FROM t GROUP BY transform(a, y -> y % 10)",
    "SELECT k, transform(array_sort(collect_list(b)), x -> x + max(k)) AS g FROM t GROUP BY k",
    "SELECT k, sum(aggregate(a, 0L, (u, x) -> u + coalesce(x, 0))) AS s FROM t GROUP BY k HAVING exists(array(max(b)), x -> x > 0)",
    "SELECT k, count(*) FILTER (WHERE exists(a, x -> 10 div x > 1)) AS c FROM (SELECT k, filter(a, x -> x <> 0) AS a FROM t) GROUP BY k",
    "SELECT k, e FROM t LATERAL VIEW explode(transform(a, x -> x * 2)) AS e",
    "SELECT k, p, e FROM t LATERAL VIEW OUTER posexplode(filter(a, (x, i) -> i < 2)) AS p, e",
    "SELECT k, a FROM t ORDER BY array_sort(a) DESC, k LIMIT 3",
    "SELECT DISTINCT array_sort(array_distinct(a)) AS d FROM t",
    "SELECT k, size(filter(collect_list(b) OVER (PARTITION BY k), x -> x > 0)) AS n FROM t",
    "SELECT named_struct('d', CAST(b AS DOUBLE) * 0) AS s, count(*) AS c FROM t GROUP BY named_struct('d', CAST(b AS DOUBLE) * 0)",
]


def _row(chance: random.Random) -> tuple[Any, ...]:
    elements = [chance.choice((0, 1, 2, 5, 11, None)) for _ in range(chance.randint(0, 4))]
    return (
        chance.choice((0, 1, 2, None)),
        chance.choice((0, 1, 2, -3, None)),
        chance.choice((elements, elements, elements, None)),
    )


def test_lambdas_in_every_place_of_a_query(session: ps.Session) -> None:
    ticking.check(session, {"t": "k INT, b INT, a ARRAY<INT>"}, PLACES, _row, ticks=3)
