"""Which queries may see one batch at a time, and what operations of rows become on their way through them."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.spark.micro_batch import stateless
from penstock.spark.observed import Observed
from penstock.transforms import operations
from seed import SEED
from waiting import wait_for

ORDERS = "id INT, customer INT, amount INT"


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> SparkSession:
    """Tables that stand still."""
    rows = [(number, f"c{number}") for number in range(0, 10, 2)]
    spark.createDataFrame(rows, "customer INT, name STRING").createOrReplaceTempView("stands_still")
    return spark


def _schema(spark: SparkSession, ddl: str) -> Any:
    return spark.createDataFrame([], ddl).schema


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id + 1, now(), rand() FROM orders",
        "SELECT * FROM orders WHERE amount > 5 AND customer IN (SELECT customer FROM stands_still)",
        "SELECT explode(array(id, customer)) FROM orders",
        "SELECT id FROM orders UNION ALL SELECT customer FROM orders",
        "SELECT o.id, name FROM orders o LEFT JOIN stands_still USING (customer)",
        "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM stands_still s WHERE s.customer = o.customer)",
        "SELECT id, (SELECT max(name) FROM stands_still) FROM orders",
        "WITH large AS (SELECT * FROM orders WHERE amount > 1) SELECT * FROM large",
        "SELECT * FROM orders |> WHERE id > 1 |> SELECT id",
        "SELECT id, inline FROM orders LATERAL VIEW explode(array(1)) AS inline",
    ],
)
def test_queries_that_see_one_row_at_a_time(tables: SparkSession, query: str) -> None:
    assert _memory(tables, query) is None


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT count(*) FROM orders", "an aggregate"),
        ("SELECT customer, sum(amount) FROM orders GROUP BY customer", "GROUP BY"),
        ("SELECT DISTINCT customer FROM orders", "DISTINCT"),
        ("SELECT id FROM orders UNION SELECT customer FROM orders", "DISTINCT"),
        ("SELECT id, row_number() OVER (ORDER BY id) FROM orders", "a window function"),
        ("SELECT id FROM orders ORDER BY id", "ORDER BY"),
        ("SELECT id FROM orders LIMIT 5", "LIMIT"),
        ("SELECT id FROM orders OFFSET 5", "LIMIT"),
        ("SELECT a.id FROM orders a JOIN orders b ON a.id = b.id", "a join of rows that come in batches"),
        (
            "SELECT id FROM orders WHERE id IN (SELECT id FROM orders)",
            "a subquery over rows that come in batches",
        ),
        (
            "SELECT name, (SELECT max(id) FROM orders) FROM stands_still",
            "a subquery over rows that come in batches",
        ),
        ("SELECT id FROM orders INTERSECT SELECT customer FROM orders", "INTERSECT"),
        ("SELECT id FROM orders EXCEPT SELECT customer FROM orders", "EXCEPT"),
        ("SELECT id FROM orders UNION ALL SELECT 1", "a union with rows that would come with every batch"),
        (
            "SELECT s.name FROM stands_still s LEFT JOIN orders USING (customer)",
            "an outer join that gives rows of a table without a match",
        ),
        (
            "SELECT s.name FROM stands_still s LEFT SEMI JOIN orders USING (customer)",
            "an outer join that gives rows of a table without a match",
        ),
        (
            "WITH RECURSIVE t AS (SELECT id FROM orders WHERE amount IS NULL UNION ALL "
            "SELECT o.id FROM orders o JOIN t ON o.customer = t.id) SELECT * FROM t",
            "a recursive query",
        ),
        ("SELECT id, monotonically_increasing_id() AS n FROM orders", "monotonically_increasing_id()"),
        ("SELECT id FROM orders WHERE spark_partition_id() + 1 > 1", "spark_partition_id()"),
        ("SELECT TRANSFORM(id) USING 'cat' AS (id) FROM orders", "TRANSFORM"),
        (
            "SELECT id FROM (SELECT customer AS id, max(amount) m FROM orders GROUP BY customer) WHERE m > 1",
            "GROUP BY",
        ),
    ],
)
def test_queries_that_depend_on_other_batches(tables: SparkSession, query: str, reason: str) -> None:
    assert _memory(tables, query) == reason


def _memory(spark: SparkSession, query: str) -> str | None:
    orders = stateless.empty_stream(spark, _schema(spark, ORDERS))
    with stateless.relations(spark, {"orders": orders}):
        return stateless.planned(lambda: spark.sql(query)).memory


def test_names_are_gone_afterwards_also_after_an_error(spark: SparkSession) -> None:
    with pytest.raises(ZeroDivisionError), stateless.relations(spark, {"for_a_moment": spark.range(1)}):
        _ = 1 // 0
    assert not spark.catalog.tableExists("for_a_moment")


def test_what_is_persisted_of_a_frame_stays(spark: SparkSession) -> None:
    frame = spark.range(3).selectExpr("id + 1 AS id").persist()
    with stateless.relations(spark, {"persisted": frame}):
        twice = spark.sql("SELECT id * 2 FROM persisted")
    assert frame.storageLevel.useMemory
    assert "InMemoryTableScan" in twice._jdf.queryExecution().executedPlan().toString()
    frame.unpersist()


def test_frames_of_another_session_are_seen(spark: SparkSession) -> None:
    other = spark.newSession()
    with stateless.relations(spark, {"far": other.range(3)}):
        assert spark.sql("SELECT count(*) FROM far").first() == (3,)


def test_what_is_observed_in_a_frame_is_known_when_a_query_over_it_has_run(spark: SparkSession) -> None:
    rows = Observed(spark.range(10), {"rows": F.count(F.lit(1))})
    result = stateless.query(
        spark, "SELECT id + 1 AS id FROM observed WHERE id > 7", {"observed": rows.frame}
    )
    assert result.toArrow().num_rows == 2
    report = rows._observation._jo
    assert report is not None
    wait_for(report.future().isCompleted, "the report of what was observed", seconds=10)
    assert rows.values() == {"rows": 10}


@pytest.mark.parametrize(
    ("text", "volatile"),
    [
        ("SELECT id FROM orders WHERE id > CAST('5' AS INT)", False),
        ("SELECT id, rand(7) AS r FROM orders", True),
        ("SELECT id FROM orders WHERE current_date() > DATE'2026-01-01'", True),
        ("SELECT id, CAST('today' AS DATE) AS day FROM orders", True),
        ("SELECT id, CASE WHEN id > 1 THEN uuid() END AS u FROM orders", True),
    ],
)
def test_what_would_be_another_answer_when_it_is_planned_again(
    tables: SparkSession, text: str, volatile: bool
) -> None:
    assert stateless.is_volatile(_query(tables, text)(tables.createDataFrame([], ORDERS))) is volatile


def test_a_plan_of_a_given_time(spark: SparkSession) -> None:
    rows = Observed(spark.range(4), {"rows": F.count(F.lit(1))})
    text = (
        "unix_millis(now()) AS at", "unix_millis(current_timestamp()) AS same", "current_date() AS day",
        "CAST('yesterday' AS DATE) AS before", "CAST(current_time() AS STRING) AS clock",
        "rand() AS r", "rand() AS s", "randn() AS n", "uuid() AS u", "rand(7) AS own",
    )  # fmt: skip

    def answer(seed: int) -> list[tuple[Any, ...]]:
        planned = rows.frame.selectExpr(*text)
        return [tuple(row) for row in stateless.fixed(planned, time_ms=86_400_123, seed=seed).collect()]

    first = answer(1)
    assert {row[:5] for row in first} == {
        (86_400_123, 86_400_123, date(1970, 1, 2), date(1970, 1, 1), "00:00:00.123")
    }
    assert len({value for row in first for value in row[5:9]}) == 16
    assert answer(1) == first
    assert not {row[5:9] for row in answer(2)} & {row[5:9] for row in first}
    assert [row[9] for row in first] == [row[0] for row in spark.range(4).selectExpr("rand(7)").collect()]
    report = rows._observation._jo
    assert report is not None
    wait_for(report.future().isCompleted, "the report of what was observed", seconds=10)
    assert rows.values() == {"rows": 4}


PLAIN = {
    "all": "SELECT * FROM orders",
    "filter": "SELECT id, amount FROM orders WHERE amount > 4",
    "null condition": "SELECT id, amount FROM orders WHERE amount > CASE WHEN customer > 4 THEN 2 END",
    "two filters": "SELECT id, amount * 2 AS a FROM (SELECT * FROM orders WHERE amount > 2) WHERE amount < 8",
    "another key": "SELECT id + 100 AS id, amount FROM orders WHERE customer = 3 OR amount = 2",
    "with": "WITH large AS (SELECT id, amount AS b FROM orders WHERE amount >= 3) SELECT * FROM large WHERE b <> 5",
}
BY_KEY = {
    "inner join": "SELECT orders.id, amount, name FROM orders JOIN stands_still USING (customer)",
    "left join": "SELECT orders.id, name FROM orders LEFT JOIN stands_still USING (customer) WHERE amount > 3",
    "subquery": "SELECT id FROM orders WHERE customer IN (SELECT customer FROM stands_still)",
}


def _query(spark: SparkSession, text: str) -> Callable[[DataFrame], DataFrame]:
    def run(rows: DataFrame) -> DataFrame:
        with stateless.relations(spark, {"orders": rows}):
            return spark.sql(text)

    return run


@pytest.mark.parametrize("text", [*PLAIN.values(), *BY_KEY.values()], ids=[*PLAIN, *BY_KEY])
def test_changes_of_the_result_give_the_result(tables: SparkSession, text: str) -> None:
    """Random histories: the changes, applied by key, are what the query says of the rows that are there."""
    chance = random.Random(SEED)
    query = _query(tables, text)
    there: dict[int | None, tuple[int | None, int | None, int | None]] = {}
    result: dict[int | None, tuple[Any, ...]] = {}
    for _ in range(4):
        batch = _batch(chance, there)
        rows = tables.createDataFrame(batch, f"{ORDERS}, _op STRING").coalesce(1)
        changes = operations.through(rows, query, keys=["id"])
        for row in changes.collect():
            if row["_op"] == "d":
                result.pop(row["id"], None)
            else:
                result[row["id"]] = tuple(row)[:-1]
        expected = query(tables.createDataFrame(list(there.values()), ORDERS)).collect()
        assert sorted(result.values(), key=repr) == sorted(map(tuple, expected), key=repr)


@pytest.mark.parametrize("text", PLAIN.values(), ids=PLAIN)
def test_a_plain_query_carries_operations_without_looking_at_other_rows(
    tables: SparkSession, text: str
) -> None:
    rows = tables.createDataFrame([], f"{ORDERS}, _op STRING")
    assert operations.origins(rows, _query(tables, text)) is not None


@pytest.mark.parametrize("text", BY_KEY.values(), ids=BY_KEY)
def test_other_queries_need_the_columns_of_the_key_as_they_are(tables: SparkSession, text: str) -> None:
    rows = tables.createDataFrame([], f"{ORDERS}, _op STRING")
    assert operations.origins(rows, _query(tables, text)) is None
    assert operations.keeps_keys(rows, _query(tables, text), keys=["id"])
    changed = text.replace("orders.id", "orders.id + 1 AS id").replace("SELECT id", "SELECT id + 1 AS id")
    assert not operations.keeps_keys(rows, _query(tables, changed), keys=["id"])


def test_the_columns_that_each_column_of_a_query_is_made_of(spark: SparkSession) -> None:
    rows = spark.createDataFrame([], f"{ORDERS}, _op STRING")
    text = (
        "SELECT id AS number, CAST(twice AS STRING) AS twice, id || customer AS both, 1 AS one, rand() AS any "
        "FROM (SELECT *, amount * 2 AS twice FROM orders WHERE amount > 1)"
    )
    assert operations.origins(rows, _query(spark, text)) == {
        "number": {"id"},
        "twice": {"amount"},
        "both": {"id", "customer"},
        "one": set(),
        "any": None,
    }


def test_an_insert_that_replaces_a_row_of_its_batch_is_an_update(spark: SparkSession) -> None:
    batch = [(1, 1, 9, "d"), (1, 1, 2, "i"), (2, 1, 9, "i")]
    rows = spark.createDataFrame(batch, f"{ORDERS}, _op STRING").coalesce(1)
    newest = operations.newest_of_each_key(rows, ["id"]).orderBy("id").collect()
    assert [tuple(row) for row in newest] == [(1, 1, 2, "u"), (2, 1, 9, "i")]


def _batch(
    chance: random.Random, there: dict[int | None, tuple[int | None, int | None, int | None]]
) -> list[tuple[int | None, int | None, int | None, str]]:
    """Random changes, applied to what is there; of a deleted row only the key is known."""
    batch: list[tuple[int | None, int | None, int | None, str]] = []
    for _ in range(chance.randrange(12)):
        key = chance.choice([None, *range(5)])
        if key in there and chance.random() < 0.4:
            del there[key]
            batch.append((key, None, None, "d"))
            continue
        row = (key, chance.choice([None, *range(8)]), chance.choice([None, *range(10)]))
        batch.append((*row, "u" if key in there else "i"))
        there[key] = row
    return batch
