"""Which rows a query without memory fails for, judged by Spark over each row alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.functions.plugin import ScalarFunction
from penstock.spark import plugin_function
from penstock.spark.micro_batch import failing_rows, stateless
from seed import SEED

COLUMNS = "id INT, a INT, b INT, s STRING, xs ARRAY<INT>"
ROWS = [
    (1, 5, 2, "1", [1]),
    (2, 6, 0, "2", [1]),
    (3, 7, 3, "abc", [2]),
    (4, 8, 1, "4", [3, 0]),
    (5, None, None, None, []),
]


@pytest.fixture(scope="module")
def spark_with_functions(spark: SparkSession) -> SparkSession:
    """With a function that fails for one value."""

    def halved(value: int | None) -> int | None:
        if value == 0:
            raise ValueError("no half of nothing")
        return None if value is None else value // 2

    spark.udf.register("halved", halved, "int")
    return spark


@pytest.fixture
def rows(spark_with_functions: SparkSession) -> Iterator[DataFrame]:
    frame = spark_with_functions.createDataFrame(ROWS, COLUMNS).repartition(2).persist()
    yield frame
    frame.unpersist()


def planned(rows: DataFrame, sql: str, **tables: DataFrame) -> DataFrame:
    hinted = {name: table.hint("broadcast") for name, table in tables.items()}
    return stateless.query(
        rows.sparkSession, sql, {"t": failing_rows.leaf(rows.sparkSession, rows.schema), **hinted}
    )


def reasons(rows: DataFrame, sql: str, **tables: DataFrame) -> dict[int, str]:
    """The ids of the rows for which a query fails, and why."""
    query = planned(rows, sql, **tables)
    assert failing_rows.obstacle(query) is None
    numbered = failing_rows.numbered(rows)
    found = failing_rows.failing(numbered, query)
    if found is None:
        return {}
    told = numbered.join(found, failing_rows.NUMBER).select("id", failing_rows.REASON).collect()
    return {row[0]: row[1] for row in told}


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT id, a / b AS q FROM t", {2: "[DIVIDE_BY_ZERO]"}),
        ("SELECT id, CASE WHEN b <> 0 THEN a / b END AS q FROM t", {}),
        ("SELECT id, b <> 0 AND a / b > 1 AS q FROM t", {}),
        ("SELECT id FROM t WHERE CAST(s AS INT) > 1", {3: "[CAST_INVALID_INPUT]"}),
        ("SELECT id, CAST(a * 1000000000L * 10 AS INT) FROM t WHERE id = 1", {1: "[CAST_OVERFLOW]"}),
        ("SELECT id, e FROM t LATERAL VIEW explode(xs) AS e WHERE 10 / e > 1", {4: "[DIVIDE_BY_ZERO]"}),
        ("SELECT id, e FROM t, LATERAL (SELECT a / b AS e)", {2: "[DIVIDE_BY_ZERO]"}),
        ("SELECT id, a / b AS q FROM t UNION ALL SELECT id, CAST(s AS INT) FROM t", {2: "[DIVIDE", 3: "[CAST"}),
        ("SELECT id, a / b AS q FROM t UNION ALL SELECT id, 1 / b FROM t", {2: "[DIVIDE"}),
        ("WITH c AS (SELECT *, a / b AS q FROM t) SELECT id, q FROM c WHERE b <> 0", {}),
        ("WITH c AS (SELECT *, a / b AS q FROM t) SELECT id FROM c", {}),
        ("SELECT id, raise_error('no ' || s) AS q FROM t WHERE id = 3", {3: "[USER_RAISED_EXCEPTION] no abc"}),
        ("SELECT id, assert_true(b > 0) FROM t WHERE id < 5", {2: "'(b > 0)' is not true!"}),
        ("SELECT id, element_at(xs, 2) AS x FROM t WHERE id IN (2, 4)", {2: "[INVALID_ARRAY_INDEX_IN_ELEMENT_AT]"}),
        ("SELECT id, halved(b) AS h FROM t", {2: "ValueError: no half of nothing"}),
        ("SELECT id, halved(b) AS h FROM t UNION ALL SELECT id, CAST(s AS INT) FROM t", {2: "ValueError", 3: "[CAST"}),
        ("SELECT id, f, 1 / (b * f) AS q FROM t JOIN fixed USING (id)", {2: "[DIVIDE_BY_ZERO]"}),
        ("SELECT id, 1 / b AS q FROM t WHERE id NOT IN (SELECT id FROM fixed)", {}),
        ("SELECT id, f FROM t LEFT JOIN fixed ON t.id = fixed.id AND 1 / t.b > 0", None),
    ],
)  # fmt: skip
def test_the_rows_for_which_spark_fails(rows: DataFrame, sql: str, expected: dict[int, str] | None) -> None:
    fixed = rows.sparkSession.createDataFrame([(at, at) for at in range(1, 5)], "id INT, f INT")
    if "fixed" in sql and "id, f FROM" in sql:
        sql = sql.replace("id, f", "t.id, f")
    found = reasons(rows, sql, fixed=fixed) if "fixed" in sql else reasons(rows, sql)
    if expected is None:
        expected = dict.fromkeys(alone(rows, sql, fixed=fixed), "[")
    assert found.keys() == expected.keys()
    assert all(expected[each] in found[each] for each in found), found
    assert all("\n== " not in reason for reason in found.values())


def test_a_function_of_a_plugin(rows: DataFrame) -> None:
    """It takes many rows at once, and its errors come as those of penstock."""

    def tenth(values: pa.Array) -> pa.Array:
        if pc.any(pc.equal(values, 0)).as_py():
            raise ValueError("nothing to divide")
        return pc.divide(10, values)

    plugin_function.register(rows.sparkSession, "tenth", ScalarFunction(tenth, "int"))
    found = reasons(rows, "SELECT id, tenth(b) AS t FROM t")
    assert found.keys() == {2}
    assert "nothing to divide" in found[2]
    assert "penstock-error" not in found[2]


def alone(rows: DataFrame, sql: str, **tables: DataFrame) -> set[int]:
    """The ids of the rows for which Spark fails when they are all that there is."""
    failed = set()
    for row in rows.collect():
        one = rows.sparkSession.createDataFrame([row], rows.schema)
        try:
            stateless.query(rows.sparkSession, sql, {"t": one, **tables}).collect()
        except Exception:
            failed.add(row.id)
    return failed


def test_what_cannot_be_told_apart(rows: DataFrame) -> None:
    for sql, why in (
        ("SELECT id, rand() / b FROM t", "random values"),
        ("SELECT * FROM t TABLESAMPLE (50 PERCENT)", "TABLESAMPLE"),
        ("SELECT /*+ REPARTITION(3) */ * FROM t", "exchange of rows"),
        ("SELECT /*+ MERGE(o) */ t.id FROM t JOIN o USING (id)", "too large for every task"),
    ):
        other = failing_rows.leaf(rows.sparkSession, rows.schema)
        query = stateless.query(
            rows.sparkSession, sql, {"t": failing_rows.leaf(rows.sparkSession, rows.schema), "o": other}
        )
        assert why in (failing_rows.obstacle(query) or "")
    assert failing_rows.obstacle(planned(rows, "SELECT id, now() FROM t")) is None


def test_errors_that_are_not_of_a_row_are_raised(rows: DataFrame) -> None:
    """An error in front of the query, while its rows are computed, says nothing of them."""
    failing = rows.selectExpr("id", "a", "a / b AS b", "s", "xs").persist()
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        failing_rows.failing(failing_rows.numbered(failing), planned(rows, "SELECT id FROM t"))


@pytest.mark.parametrize("codegen", ["true", "false"])
def test_many_rows_of_which_many_fail(spark_with_functions: SparkSession, codegen: str) -> None:
    spark = spark_with_functions.newSession()
    spark.conf.set("spark.sql.codegen.wholeStage", codegen)
    many = spark.range(20_000).selectExpr(
        "CAST(id AS INT) AS id", "CAST(id % 7 AS INT) AS b", "IF(id % 1000 = 1, 'x', CAST(id AS STRING)) AS s"
    ).persist()  # fmt: skip
    query = stateless.query(
        spark,
        "SELECT id, 1 / b AS q, CAST(s AS INT) AS n FROM t",
        {"t": failing_rows.leaf(spark, many.schema)},
    )
    found = failing_rows.failing(failing_rows.numbered(many), query)
    assert found is not None
    told = failing_rows.numbered(many).join(found, failing_rows.NUMBER).collect()
    assert {row.id for row in told} == {at for at in range(20_000) if at % 7 == 0 or at % 1000 == 1}
    many.unpersist()


def test_columns_that_are_computed_whatever_is_needed_of_them(rows: DataFrame) -> None:
    spark = rows.sparkSession
    query = stateless.query(spark, "SELECT id, a / b AS q, b FROM t", {"t": rows})
    assert query.select("id").count() == 5
    assert query.where("b <> 0").count() == 3
    whole = failing_rows.evaluated(query)
    assert whole.schema.simpleString() == query.schema.simpleString()
    for narrowed in (whole.select("id"), whole.where("b <> 0"), whole.groupBy().count()):
        with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
            narrowed.collect()
    good = failing_rows.evaluated(query.where("b <> 0"))
    assert sorted(good.collect()) == sorted(query.where("b <> 0").collect())


VALUES = ["a", "b", "id", "a + b", "a - 3", "CAST(s AS INT)", "0", "2"]
CONDITIONS = ["a > 3", "b <> 0", "s IS NOT NULL", "size(xs) > 1", "id % 2 = 0"]


def expression(pick: random.Random, depth: int = 2) -> str:
    """An expression of a number, of which some rows make none."""
    if depth == 0 or pick.random() < 0.2:
        return pick.choice(VALUES)
    left, right = expression(pick, depth - 1), expression(pick, depth - 1)
    condition = f"{left} > {right}" if pick.random() < 0.3 else pick.choice(CONDITIONS)
    return pick.choice(
        [
            f"({left}) div ({right})",
            f"({left}) % ({right})",
            f"(({left}) * 100000 + ({right}))",
            f"CASE WHEN {condition} THEN {left} ELSE {right} END",
            f"coalesce({left}, {right})",
            f"IF({condition}, CAST(raise_error('raised') AS INT), {right})",
            f"xs[{left}]",
        ]
    )


def a_query(pick: random.Random) -> str:
    def branch(source: str) -> str:
        e, f = expression(pick), expression(pick, 1)
        condition = (
            pick.choice(CONDITIONS)
            if pick.random() < 0.5
            else f"{expression(pick, 1)} > {expression(pick, 0)}"
        )
        return pick.choice(
            [
                f"SELECT id, {e} AS v FROM {source}",
                f"SELECT id, {e} AS v FROM {source} WHERE {condition}",
                f"SELECT id, v FROM (SELECT *, {e} AS v FROM {source}) WHERE {condition}",
                f"SELECT id, {f} + x AS v FROM {source} LATERAL VIEW explode(xs) AS x WHERE {condition}",
                f"SELECT id, v FROM (SELECT *, {e} AS v FROM {source}) LATERAL VIEW OUTER explode(xs) AS x WHERE {condition}",
            ]
        )  # fmt: skip

    kind = pick.random()
    if kind < 0.6:
        return branch("t")
    if kind < 0.8:
        return f"{branch('t')} UNION ALL {branch('t')}"
    return f"WITH c AS (SELECT *, {expression(pick, 1)} AS w FROM t) {branch('c')}"


def test_generated_queries(spark: SparkSession) -> None:
    """Of random queries over random rows: those fail for which Spark fails when they are alone, all others give what they give alone."""
    pick = random.Random(SEED)
    judged = failed = 0
    for _ in range(25):
        sql = a_query(pick)
        made = [
            (
                at,
                pick.choice([None, 0, 1, 5, 100_000]),
                pick.choice([None, 0, 0, 1, 2]),
                pick.choice([None, "7", "-1", "x", ""]),
                [pick.choice([0, 1, 9]) for _ in range(pick.randrange(3))],
            )
            for at in range(8)
        ]
        frame = spark.createDataFrame(made, COLUMNS).repartition(2).persist()
        expected: dict[int, list[Any]] = {}
        for row in frame.collect():
            one = spark.createDataFrame([row], frame.schema).persist()  # what Spark sees it folds
            try:
                expected[row.id] = sorted(
                    map(tuple, stateless.query(spark, sql, {"t": one}).collect()), key=str
                )
            except Exception:
                failed += 1
            one.unpersist()
        found = reasons(frame, sql)
        assert found.keys() == {row[0] for row in made} - expected.keys(), f"{sql}\n{made}\n{found}"
        good = frame.where(~frame.id.isin(list(found)))
        got = stateless.query(spark, sql, {"t": good}).collect()
        assert sorted(map(tuple, got), key=str) == sorted(
            (each for rows in expected.values() for each in rows), key=str
        )
        judged += len(expected)
        frame.unpersist()
    assert judged > 20
    assert failed > 20
