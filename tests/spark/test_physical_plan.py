"""What only Spark's physical plan does, through DataFrames and Python functions; what SQL alone can say is in the golden cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf

import penstock as ps
from golden import canonical, drive, multiset
from golden.case import Area, Tick, read_ticks, table
from golden.spark_answer import settings

if TYPE_CHECKING:
    import pyarrow as pa

TABLES = {"t": "k STRING, v INT, ts TIMESTAMP"}
TICKS = read_ticks(
    [
        {
            "t": [
                [1, "b", 3, "2024-03-01T00:12:00Z"],
                [1, "a", 1, "2024-03-01T00:00:00Z"],
                [2, "a", 2, "2024-03-01T00:04:00Z"],
                [1, None, 4, None],
            ]
        },
        {"t": [[-1, "a", 2, "2024-03-01T00:04:00Z"], [1, "b", 5, "2024-03-01T00:05:00Z"]]},
        {"t": [[-1, "a", 1, "2024-03-01T00:00:00Z"], [1, "b", 0, None]]},
    ],
    TABLES,
    "physical plans",
)
Batches = Iterable[pd.DataFrame]


@pytest.fixture(scope="module")
def functions(spark: SparkSession) -> None:
    """Functions in Python, by name; they are made here because Spark's workers cannot import this file."""

    class Total:
        """One row for each partition: its key, its rows in the order in which they came, and their sum."""

        def __init__(self) -> None:
            self._key: str | None = None
            self._values: list[int] = []

        def eval(self, row: Any) -> None:
            self._key = row["k"]
            self._values.append(row["v"])

        def terminate(self) -> Iterator[tuple[str | None, str, int]]:
            yield self._key, str(self._values), sum(self._values)

    class Twice:
        """Every value two times."""

        def eval(self, value: int) -> Iterator[tuple[int]]:
            yield (value,)
            yield (value,)

    def middle(values: pd.Series) -> float:
        return float(values.median())

    table_function: Any = F.udtf  # PySpark's types leave open what it returns
    aggregate: Any = pandas_udf
    total = "k STRING, v STRING, total INT"
    spark.udtf.register("total", table_function(Total, returnType=total).asDeterministic())
    spark.udtf.register("any_total", table_function(Total, returnType=total))
    spark.udtf.register("twice", table_function(Twice, returnType="a INT").asDeterministic())
    spark.udf.register("plus", F.udf(lambda value: None if value is None else value + 1, "int"))
    spark.udf.register("middle", aggregate(middle, "double"))


QUERIES = {
    "table function by key": "SELECT * FROM total(TABLE(t) PARTITION BY k ORDER BY v)",
    "table function over all rows": "SELECT v, total FROM total(TABLE(SELECT 'x' AS k, v FROM t) WITH SINGLE PARTITION ORDER BY v DESC)",
    "table function and a subquery": "SELECT * FROM total(TABLE(SELECT k, v FROM t WHERE v >= (SELECT min(v) + 1 FROM t)) PARTITION BY k ORDER BY v) WHERE total > 3",
    "table function beside rows": "SELECT t.k, x.a FROM t, LATERAL twice(t.v) x",
    "function in a filter": "SELECT k, plus(v) AS p FROM t WHERE plus(v) > 2",
    "function in a join": "SELECT a.k, b.v FROM t a JOIN t b ON plus(a.v) = b.v",
    "function as a key": "SELECT plus(v) AS p, sum(plus(v)) AS s FROM t GROUP BY plus(v)",
    "aggregate": "SELECT k, middle(v) AS m FROM t GROUP BY k",
    "aggregate over a window": "SELECT k, v, middle(v) OVER (PARTITION BY k) AS m FROM t",
    "aggregate of sessions": "SELECT k, session_window.start AS s, session_window.end AS e, middle(v) AS m FROM t GROUP BY k, session_window(ts, '5 minutes')",
}


@pytest.mark.parametrize("query", [pytest.param(text, id=name) for name, text in QUERIES.items()])
def test_functions_in_python(session: ps.Session, functions: None, query: str) -> None:
    def view(rows: DataFrame) -> DataFrame:
        rows.createOrReplaceTempView("t")
        return rows.sparkSession.sql(query)

    _check(session, query, view)


def frames() -> dict[str, Callable[[DataFrame], DataFrame]]:
    """Queries as DataFrames over the rows of the table."""

    def running_total(batches: Batches) -> Batches:
        total = 0
        for batch in batches:
            values = batch.v.fillna(0).cumsum() + total
            total = int(values.iloc[-1]) if len(values) else total
            yield batch.assign(v=values.astype("int32"))

    def doubled(batches: Batches) -> Batches:
        for batch in batches:
            yield batch.assign(v=(batch.v * 2).astype("int32"))

    def arrow(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        yield from batches

    def largest(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(v=rows.v.max())

    return {
        "pandas over sorted partitions": lambda t: (
            t.repartition(1).sortWithinPartitions("v", "k", "ts").mapInPandas(running_total, t.schema)
        ),
        "pandas over computed columns": lambda t: (
            t.withColumn("v", F.col("v") * 2)
            .repartition("k")
            .sortWithinPartitions("k", "v")
            .select("v")
            .mapInPandas(doubled, "v INT")
        ),
        "arrow": lambda t: t.mapInArrow(arrow, t.schema),
        "groups in pandas": lambda t: t.groupBy("k").applyInPandas(largest, t.schema),
        "observed": lambda t: t.observe("rows", F.count(F.lit(1))).groupBy("k").count(),
        "watermark": lambda t: t.withWatermark("ts", "1 minute").groupBy(F.window("ts", "5 minutes")).count(),
        "duplicates": lambda t: (
            t.withWatermark("ts", "1 minute").select("k", "ts").dropDuplicates(["k", "ts"])
        ),
        "duplicate sessions": lambda t: t.select(F.session_window("ts", "5 minutes")).dropDuplicates(),
        "duplicates by session": lambda t: (
            t.select("k", "v", F.session_window("ts", "5 minutes"))
            .dropDuplicates(["k", "session_window"])
            .select("k", "session_window")
        ),
        "repartitioned": lambda t: t.repartition(3, "k").coalesce(1).select("k"),
        "cached": lambda t: t.cache().groupBy("k").count(),
        "hint": lambda t: t.join(t.hint("broadcast").select("k").distinct(), "k"),
        "pivot": lambda t: t.groupBy("k").pivot("v", [1, 2]).count(),
        "pandas frame": lambda t: t.pandas_api().to_spark(),
    }


@pytest.mark.filterwarnings("ignore:'PYARROW_IGNORE_TIMEZONE'", "ignore:If `index_col` is not specified")
@pytest.mark.parametrize("view", [pytest.param(view, id=name) for name, view in frames().items()])
def test_frames(session: ps.Session, view: Callable[[DataFrame], DataFrame]) -> None:
    _check(session, None, view)


def _check(session: ps.Session, query: str | None, view: Callable[[DataFrame], DataFrame]) -> None:
    """After every tick a view over a flow shows what the same query over plain rows gives."""
    schema = Area("physical plans", TABLES, {}, ()).schema("t")
    with settings(session.spark, {}):
        flow = drive.open_flow(session, TABLES)
        flow.register_view("view", query or view(flow.table("t")))
        watched = drive.Watched(flow, "view")
        rows = multiset.start(TABLES)
        for number, tick in enumerate(TICKS, start=1):
            rows = _step(flow, watched, rows, tick, schema)
            plain = session.spark.createDataFrame(table(multiset.rows(rows, "t"), schema), schema=TABLES["t"])
            expected = canonical.rows(view(plain).toArrow())
            assert canonical.rows(flow.snapshot("view")) == expected, f"after tick {number}"


def _step(
    flow: ps.IncrementalFlow, watched: drive.Watched, rows: multiset.State, tick: Tick, schema: pa.Schema
) -> multiset.State:
    watched.check(drive.step(flow, tick, {"t": schema}))
    return multiset.apply(rows, tick)


@pytest.mark.parametrize(
    ("query", "function"),
    [
        ("SELECT monotonically_increasing_id() AS i, k FROM t", "monotonically_increasing_id"),
        ("SELECT spark_partition_id() AS i, k FROM t", "SPARK_PARTITION_ID"),
        ("SELECT input_file_name() AS i, k FROM t", "input_file_name"),
        ("SELECT rand(7) AS i, k FROM t", "rand"),
        ("SELECT * FROM t TABLESAMPLE (50 PERCENT) REPEATABLE (7)", "sample"),
        ("SELECT * FROM t TABLESAMPLE (BUCKET 1 OUT OF 2)", "sample"),
        ("SELECT * FROM any_total(TABLE(t) PARTITION BY k)", "asDeterministic"),
    ],
)
def test_what_depends_on_tasks_and_chance_is_refused(
    session: ps.Session, functions: None, query: str, function: str
) -> None:
    flow = drive.open_flow(session, TABLES)
    with pytest.raises(ps.SqlError, match=function) as failure:
        flow.register_view("view", query)
    assert failure.value.code == "SQL_NONDETERMINISTIC"


@pytest.mark.parametrize("sets", ["ROLLUP", "CUBE"])
def test_sessions_in_grouping_sets(session: ps.Session, sets: str) -> None:
    """Spark fails over them with an internal error; the groups without a session are those of all its rows."""
    schema = Area("physical plans", TABLES, {}, ()).schema("t")
    timed = "(SELECT * FROM t WHERE ts IS NOT NULL)"
    parts = [
        "SELECT k, session_window AS w, count(*) AS c FROM t GROUP BY k, session_window(ts, '5 minutes')",
        f"SELECT k, NULL, count(*) FROM {timed} GROUP BY k",
        f"SELECT NULL, NULL, count(*) FROM {timed} HAVING count(*) > 0",
    ]
    if sets == "CUBE":
        parts.append("SELECT NULL, session_window, count(*) FROM t GROUP BY session_window(ts, '5 minutes')")
    with settings(session.spark, {}):
        flow = drive.open_flow(session, TABLES)
        flow.register_view(
            "view",
            f"SELECT k, session_window AS w, count(*) AS c FROM t GROUP BY {sets}(k, session_window(ts, '5 minutes'))",
        )
        watched = drive.Watched(flow, "view")
        rows = multiset.start(TABLES)
        for number, tick in enumerate(TICKS, start=1):
            rows = _step(flow, watched, rows, tick, schema)
            plain = session.spark.createDataFrame(table(multiset.rows(rows, "t"), schema), schema=TABLES["t"])
            plain.createOrReplaceTempView("t")
            expected = canonical.rows(session.spark.sql(" UNION ALL ".join(parts)).toArrow())
            assert canonical.rows(flow.snapshot("view")) == expected, f"after tick {number}"
