"""Queries and the plans they become: which nodes, on which tier, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.errors import SqlError
from penstock.plan import node
from penstock.plan.expression import Call, Column, Expression, Literal, walk
from penstock.spark.catalyst import Relation, table
from twin.planning import RELATIONS, TPCH, TPCH_RELATIONS, nodes, of_kind, planned, relation


def shape(root: node.Node) -> str:
    """The kinds of a plan's nodes, from the root down."""
    inner = ", ".join(shape(child) for child in node.children(root))
    return f"{type(root).__name__}({inner})" if inner else type(root).__name__


@pytest.mark.parametrize("query", [f"q{number:02d}" for number in range(1, 23)])
def test_every_tpch_query_is_the_kernels(spark: SparkSession, query: str) -> None:
    found = planned(spark, (TPCH / f"{query}.sql").read_text(), TPCH_RELATIONS)
    assert of_kind(found.view.root, node.Spark) == []
    assert {scan.name for scan in of_kind(found.view.root, node.Scan)} <= TPCH_RELATIONS.keys()
    assert found.statics == ()


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT a, b FROM t", "Scan"),
        ("SELECT a + 1 AS z FROM t WHERE b > 2", "Project(Filter(Scan))"),
        ("SELECT DISTINCT b FROM t", "Aggregate(Scan)"),
        ("SELECT count(*) FROM t", "Aggregate(Scan)"),
        ("SELECT a, sum(b) * 2 AS z FROM t GROUP BY a", "Project(Aggregate(Scan))"),
        ("SELECT a FROM t UNION ALL SELECT a FROM u", "Union(Scan, Scan)"),
        ("SELECT a FROM t UNION SELECT a FROM u", "Aggregate(Union(Scan, Scan))"),
        ("SELECT a FROM t EXCEPT SELECT a FROM u", "Aggregate(Join(Scan, Scan))"),
        ("SELECT t.a, k FROM t JOIN u ON t.a = u.a", "Project(Join(Scan, Scan))"),
        ("SELECT a FROM t WHERE a NOT IN (SELECT a FROM u)", "Join(Scan, Scan)"),
        ("SELECT a FROM t WHERE a NOT IN (SELECT a FROM u WHERE a IS NOT NULL)", "Join(Scan, Filter(Scan))"),
        ("SELECT t.a FROM t LEFT SEMI JOIN u ON t.a = u.a + 1", "Project(Join(Scan, Project(Scan)))"),
        ("SELECT t.a FROM t LEFT SEMI JOIN u ON t.a = u.a AND 10 / u.k > t.b", "Project(Join(Scan, Scan))"),
        (
            "SELECT t.a FROM t LEFT SEMI JOIN (SELECT * FROM u WHERE k IS NOT NULL) u ON t.a = u.a AND t.b > u.a",
            "Project(Join(Scan, Filter(Scan)))",
        ),
        ("SELECT a FROM t LIMIT 5", "TopK(Scan)"),
        ("SELECT a, e FROM t LATERAL VIEW explode(arr) AS e", "Generate(Scan)"),
        ("SELECT a, rank() OVER (PARTITION BY b ORDER BY x) AS r FROM t", "Project(Window(Scan))"),
        ("SELECT * FROM VALUES (1, 'x'), (2, NULL) AS v(i, j)", "Values"),
        ("SELECT 1 AS one", "Project(Values)"),
        ("SELECT id FROM range(3)", "Values"),
        ("SELECT a, (SELECT max(k) FROM u) AS top FROM t", "Project(Join(Scan, Single(Aggregate(Scan))))"),
        ("SELECT sinh(x) AS z, a FROM t", "Project(Spark(Scan))"),
        ("SELECT approx_count_distinct(s COLLATE UTF8_LCASE) AS n FROM t", "Spark(Scan)"),
        (
            "SELECT sum(x) AS z, approx_count_distinct(s COLLATE UTF8_LCASE) AS n FROM t GROUP BY a",
            "Project(Join(Aggregate(Scan), Spark(Scan)))",
        ),
    ],
)
def test_shapes(spark: SparkSession, sql: str, expected: str) -> None:
    found = planned(spark, sql)
    kinds = shape(found.view.root)
    # A projection that only picks columns may stand anywhere; what matters are the operators.
    assert kinds.replace("Project(", "").replace(")", "") == expected.replace("Project(", "").replace(")", "")


def test_only_the_columns_that_are_read_are_scanned(spark: SparkSession) -> None:
    (scan,) = of_kind(planned(spark, "SELECT s FROM t WHERE m > 1 ORDER BY s").view.root, node.Scan)
    assert [item.name for item in scan.fields] == ["s", "m"]
    assert scan.columns == (2, 6)


def test_aggregates_are_by_position_with_their_modes(spark: SparkSession) -> None:
    sql = "SELECT s, sum(a * 2) AS p, count(DISTINCT b) AS q, count(DISTINCT s), avg(x) FILTER (WHERE b > 1) AS r, count(*) AS n FROM t GROUP BY s"
    (whole,) = of_kind(planned(spark, sql).view.root, node.Aggregate)
    assert [(call.function, call.distinct, call.filter is not None) for call in whole.calls] == [
        ("Sum", False, False),
        ("Count", True, False),
        ("Count", True, False),
        ("Average", False, True),
        ("Count", False, False),
    ]
    assert whole.calls[0].option("evalMode") == "ANSI"
    assert whole.calls[-1].args == ()
    assert whole.input.fields[whole.calls[0].args[0]].type == "bigint"


def test_ordered_lists_and_percentiles_keep_their_options(spark: SparkSession) -> None:
    sql = (
        "SELECT listagg(s, ',') WITHIN GROUP (ORDER BY b DESC) AS p, percentile_cont(0.25) WITHIN GROUP (ORDER BY x) AS q, "
        "percentile(x, array(0.1, 0.9)) AS r, regr_slope(x, a) AS z FROM t"
    )
    found = planned(spark, sql)
    assert of_kind(found.view.root, node.Spark) == []
    calls = [call for item in of_kind(found.view.root, node.Aggregate) for call in item.calls]
    (listed,) = (call for call in calls if call.function == "ListAgg")
    assert (listed.option("delimiter"), listed.option("order"), len(listed.args)) == (
        ",",
        ((1, True, False),),
        2,
    )
    assert {call.option("percentage") for call in calls if call.function == "Percentile"} == {
        0.25,
        (0.1, 0.9),
    }


def test_an_option_that_is_not_constant_is_left_to_spark(spark: SparkSession) -> None:
    found = planned(spark, "SELECT sum(a) AS z, percentile(x, 0.5, b) AS q FROM t")
    (fragment,) = of_kind(found.view.root, node.Spark)
    assert (fragment.operator, fragment.stateless, len(fragment.path)) == ("Aggregate", False, 2)
    assert len(of_kind(found.view.root, node.Aggregate)) == 1


def test_float_keys_are_normalised(spark: SparkSession) -> None:
    (whole,) = of_kind(planned(spark, "SELECT x, count(*) FROM t GROUP BY x").view.root, node.Aggregate)
    assert isinstance(whole.input, node.Project)
    key = whole.input.expressions[whole.keys[0]]
    assert isinstance(key, Call)
    assert key.name == "NormalizeNaNAndZero"


def test_group_by_an_expression_used_above(spark: SparkSession) -> None:
    found = planned(
        spark,
        "SELECT upper(s) AS z, upper(s) || '!' AS y, count(*) FROM t GROUP BY upper(s) HAVING count(*) > 1",
    )
    (whole,) = of_kind(found.view.root, node.Aggregate)
    assert len(whole.keys) == 1
    assert of_kind(found.view.root, node.Spark) == []


@pytest.mark.parametrize(
    ("sql", "kind", "keys", "safe", "residual"),
    [
        ("SELECT 1 FROM t JOIN u ON t.a = u.a AND t.b < u.k", "inner", 1, (False,), True),
        ("SELECT t.a, k FROM t LEFT JOIN u ON t.a <=> u.a", "left", 1, (True,), False),
        ("SELECT t.a, k FROM t RIGHT JOIN u ON t.a = u.a AND t.b > 3", "right", 1, (False,), False),
        (
            "SELECT t.a, k FROM t FULL JOIN u ON t.a = u.a AND t.b = u.k AND t.s > u.s",
            "full",
            2,
            (False, False),
            True,
        ),
        ("SELECT a FROM t LEFT SEMI JOIN u USING (a)", "semi", 1, (False,), False),
        ("SELECT a FROM t LEFT ANTI JOIN u ON t.a = u.a AND t.b <> u.k", "anti", 1, (False,), True),
        ("SELECT 1 FROM t CROSS JOIN u", "inner", 0, (), False),
        ("SELECT 1 FROM t JOIN u ON upper(t.s) = upper(u.s)", "inner", 1, (False,), False),
    ],
)
def test_joins(
    spark: SparkSession, sql: str, kind: str, keys: int, safe: tuple[bool, ...], residual: bool
) -> None:
    (join,) = of_kind(planned(spark, sql).view.root, node.Join)
    assert (join.kind, len(join.left_keys), join.null_safe, join.residual is not None) == (
        kind,
        keys,
        safe,
        residual,
    )
    assert not join.null_aware


def test_not_in_is_null_aware(spark: SparkSession) -> None:
    (join,) = of_kind(planned(spark, "SELECT b FROM t WHERE a NOT IN (SELECT a FROM u)").view.root, node.Join)
    assert (join.kind, join.null_aware, len(join.left_keys)) == ("anti", True, 1)
    sql = "SELECT b FROM t WHERE a NOT IN (SELECT a FROM u WHERE u.k = t.b)"
    (join,) = of_kind(planned(spark, sql).view.root, node.Join)
    assert (join.kind, join.null_aware, len(join.left_keys), join.residual is not None) == (
        "anti",
        False,
        1,
        True,
    )


def test_exists_in_a_condition_is_matches_and_the_rest(spark: SparkSession) -> None:
    found = planned(spark, "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a) OR b > 3")
    assert {join.kind for join in of_kind(found.view.root, node.Join)} == {"semi", "anti"}
    assert len(of_kind(found.view.root, node.Union)) == 1


def test_a_correlated_scalar_subquery_that_may_give_two_rows_checks_it(spark: SparkSession) -> None:
    found = planned(spark, "SELECT a, (SELECT k FROM u WHERE u.a = t.a) AS z FROM t")
    assert of_kind(found.view.root, node.Spark) == []
    assert any(isinstance(item, Call) and item.name == "RaiseError" for item in _expressions(found.view.root))


def _expressions(root: node.Node) -> list[Expression]:
    found: list[Expression] = []
    for item in nodes(root):
        if isinstance(item, node.Project):
            found.extend(part for expression in item.expressions for part in walk(expression))
        if isinstance(item, node.Filter):
            found.extend(walk(item.condition))
    return found


def test_order_and_limit(spark: SparkSession) -> None:
    view = planned(spark, "SELECT a, b FROM t ORDER BY b DESC NULLS LAST, a").view
    assert view.order == (node.SortKey(1, True, False), node.SortKey(0, False, True))
    assert of_kind(view.root, node.TopK) == []
    view = planned(spark, "SELECT b, a FROM t ORDER BY x LIMIT 10 OFFSET 5").view
    (top,) = of_kind(view.root, node.TopK)
    assert (top.limit, top.offset, len(top.order), top.partition) == (10, 5, 1, ())
    view = planned(spark, "SELECT a FROM t ORDER BY a OFFSET 3").view
    (top,) = of_kind(view.root, node.TopK)
    assert (top.limit, top.offset) == (None, 3)
    assert view.order == (node.SortKey(0),)


def test_a_limit_below_a_correlated_subquery_keeps_its_order(spark: SparkSession) -> None:
    inner = "(SELECT a, b FROM t ORDER BY b DESC LIMIT 2) first"
    view = planned(spark, f"SELECT *, (SELECT max(k) FROM u WHERE u.a = first.a) AS m FROM {inner}").view
    (top,) = of_kind(view.root, node.TopK)
    assert len(top.order) == 1


def test_row_number_up_to_k_is_a_top_k(spark: SparkSession) -> None:
    sql = "SELECT * FROM (SELECT s, x, row_number() OVER (PARTITION BY b ORDER BY x DESC) AS r FROM t) WHERE r <= 3 AND s <> 'q'"
    found = planned(spark, sql)
    (top,) = of_kind(found.view.root, node.TopK)
    assert (top.limit, top.rank_field, len(top.partition)) == (3, True, 1)
    assert of_kind(found.view.root, node.Window) == []


def test_drop_duplicates_keeps_whole_rows(spark: SparkSession) -> None:
    frame = table(spark, RELATIONS["t"]).select("a", "b", "s").dropDuplicates(["a"])
    (top,) = of_kind(planned(spark, frame).view.root, node.TopK)
    assert (top.limit, len(top.partition), top.rank_field) == (1, 1, False)


def test_windows(spark: SparkSession) -> None:
    sql = (
        "SELECT lag(a, 2, 0) OVER w AS l, sum(a) OVER (PARTITION BY b ORDER BY d ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS s, "
        "ntile(4) OVER w AS n, last_value(a) IGNORE NULLS OVER w AS i FROM t WINDOW w AS (PARTITION BY b ORDER BY d)"
    )
    calls = [call for item in of_kind(planned(spark, sql).view.root, node.Window) for call in item.calls]
    found = {call.function: call for call in calls}
    assert found["Lag"].option("offset") == 2
    assert found["Sum"].frame == node.Frame("rows", -2, 0)
    assert found["NTile"].option("buckets") == 4
    assert found["Last"].option("ignoreNulls") is True


def test_recursion(spark: SparkSession) -> None:
    sql = (
        "WITH RECURSIVE r(src, dst) AS (SELECT src, dst FROM e UNION ALL SELECT r.src, e.dst FROM r JOIN e ON r.dst = e.src) "
        "SELECT DISTINCT * FROM r"
    )
    (loop,) = of_kind(planned(spark, sql).view.root, node.Recursive)
    assert loop.name in {scan.name for scan in of_kind(loop.step, node.Scan)}
    assert {scan.name for scan in of_kind(loop.anchor, node.Scan)} == {"e"}


def test_common_table_expressions_are_equal_subplans(spark: SparkSession) -> None:
    sql = "WITH c AS (SELECT a, count(*) AS n FROM t GROUP BY a) SELECT c1.a FROM c AS c1 JOIN c AS c2 ON c1.n = c2.n"
    one, two = of_kind(planned(spark, sql).view.root, node.Aggregate)
    assert (one.input, one.keys, one.calls[0].function) == (two.input, two.keys, "Count")


def test_set_operations_with_duplicates(spark: SparkSession) -> None:
    found = planned(spark, "SELECT a FROM t EXCEPT ALL SELECT a FROM u")
    (made,) = of_kind(found.view.root, node.Generate)
    assert isinstance(made.generator, Call)
    assert made.generator.name == "ReplicateRows"


def test_grouping_sets(spark: SparkSession) -> None:
    found = planned(spark, "SELECT a, b, grouping_id(a, b) AS g, sum(x) FROM t GROUP BY CUBE (a, b)")
    (expand,) = of_kind(found.view.root, node.Expand)
    assert len(expand.projections) == 4
    assert of_kind(found.view.root, node.Spark) == []


# ------------------------------------------------------------------ time and chance


@pytest.mark.parametrize(
    "condition",
    [
        "ts > now() - INTERVAL 1 HOUR",
        "d = current_date",
        "ts < current_timestamp() + INTERVAL '2' DAY",
        "d >= current_date() - 3",
    ],
)
def test_time_is_bound_to_the_tick(spark: SparkSession, condition: str) -> None:
    found = planned(spark, f"SELECT a FROM t WHERE {condition}")
    assert found.view.uses_time
    assert of_kind(found.view.root, node.Spark) == []
    assert Call("CurrentTimestamp", (), "timestamp", nullable=False) in _expressions(found.view.root)


def test_a_view_without_time_says_so(spark: SparkSession) -> None:
    assert not planned(spark, "SELECT a FROM t WHERE ts > TIMESTAMP'2024-01-01'").view.uses_time


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT rand() FROM t",
        "SELECT a FROM t WHERE rand(1) < 0.5",
        "SELECT uuid() FROM t",
        "SELECT monotonically_increasing_id() FROM t",
        "SELECT * FROM t TABLESAMPLE (10 PERCENT)",
        "SELECT a FROM t ORDER BY rand() LIMIT 3",
        "SELECT shuffle(arr) FROM t",
    ],
)
def test_chance_is_refused(spark: SparkSession, sql: str) -> None:
    with pytest.raises(SqlError) as caught:
        planned(spark, sql)
    assert caught.value.code == "SQL_NONDETERMINISTIC"
    assert caught.value.hint


# ------------------------------------------------------------------ names


def test_unknown_names_are_suggested(spark: SparkSession) -> None:
    with pytest.raises(SqlError, match="ordrs") as caught:
        planned(spark, "SELECT * FROM ordrs", {"orders": relation("orders", "a INT")})
    assert caught.value.code == "SQL_UNKNOWN_TABLE"
    assert "orders" in str(caught.value)
    with pytest.raises(SqlError) as caught:
        planned(spark, "SELECT nosuch FROM t")
    assert "nosuch" in str(caught.value)
    with pytest.raises(SqlError) as caught:
        planned(spark, "SELEC a FROM t")
    assert caught.value.code == "SQL_SYNTAX"


def test_the_flows_names_come_first_and_nothing_leaks(spark: SparkSession) -> None:
    spark.createDataFrame([(1,)], "other INT").createOrReplaceTempView("u")
    try:
        found = planned(spark, "SELECT k FROM u")
        assert found.statics == ()
        assert spark.table("u").columns == ["other"]
    finally:
        spark.catalog.dropTempView("u")
    assert not spark.catalog.tableExists("t")


def test_a_temporary_view_of_the_session_is_a_static_side(spark: SparkSession) -> None:
    spark.createDataFrame([(1, "one"), (2, "two")], "k INT, label STRING").createOrReplaceTempView("labels")
    try:
        found = planned(spark, "SELECT a, label FROM u JOIN labels USING (k) WHERE label <> 'x'")
    finally:
        spark.catalog.dropTempView("labels")
    assert found.view.statics == ("labels",)
    (static,) = found.statics
    assert [item.name for item in static.fields] == ["k", "label"]
    assert static.frame.toArrow().num_rows == 2
    assert {scan.name for scan in of_kind(found.view.root, node.Scan)} == {"u", "labels"}


def test_files_are_static_sides(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.parquet(str(tmp_path / "ids"))
    found = planned(spark, f"SELECT a FROM t JOIN parquet.`{tmp_path}/ids` AS i ON t.a = i.id")
    (static,) = found.statics
    assert static.frame.count() == 3


def test_a_dataframe_over_the_flows_tables(spark: SparkSession) -> None:
    left, right = table(spark, RELATIONS["t"]), table(spark, RELATIONS["u"])
    frame = (
        left.join(right, "a")
        .groupBy("b")
        .agg(F.sum("k").alias("total"), F.max(F.current_timestamp()).alias("at"))
    )
    found = planned(spark, frame)
    assert {scan.name for scan in of_kind(found.view.root, node.Scan)} == {"t", "u"}
    assert found.view.uses_time
    assert found.view.sql == ""


def test_constants_keep_their_types(spark: SparkSession) -> None:
    sql = (
        "SELECT 1Y AS a, 1.50BD AS b, double('NaN') AS c, X'00ff' AS d, DATE'2024-02-29' AS e, TIMESTAMP'2024-01-01 00:00:00Z' AS f, "
        "NULL AS g, array(1, NULL) AS h, named_struct('p', 1) AS i, map('k', 1) AS j, 'ä' AS k, -0.0D AS l FROM t"
    )
    found = planned(spark, sql)
    assert isinstance(found.view.root, node.Project)
    values = [item.value for item in found.view.root.expressions if isinstance(item, Literal)]
    assert len(values) == 12
    assert repr(values[1:5]) == "[Decimal('1.50'), nan, b'\\x00\\xff', datetime.date(2024, 2, 29)]"
    assert repr(values[6:12]) == "[None, [1, None], {'p': 1}, [('k', 1)], 'ä', -0.0]"


def test_char_columns_are_compared_with_padding(spark: SparkSession) -> None:
    relations = {"c": Relation("c", (node.Field("code", "char(5)"), node.Field("n", "int")))}
    found = planned(spark, "SELECT n FROM c WHERE code = 'ab'", relations)
    assert Literal("ab   ", "string") in _expressions(found.view.root)


def test_a_collation_is_left_to_spark(spark: SparkSession) -> None:
    found = planned(spark, "SELECT a FROM t WHERE s COLLATE UTF8_LCASE = 'x'")
    (fragment,) = of_kind(found.view.root, node.Spark)
    assert "collat" in fragment.reason


def test_a_branch_around_an_unknown_function_goes_to_spark_as_a_whole(spark: SparkSession) -> None:
    found = planned(spark, "SELECT CASE WHEN x > 0 THEN sinh(x) ELSE 0 END AS z, a FROM t")
    (fragment,) = of_kind(found.view.root, node.Spark)
    assert fragment.stateless
    assert isinstance(found.view.root, node.Project)
    assert [type(item) for item in found.view.root.expressions] == [Column, Column]
