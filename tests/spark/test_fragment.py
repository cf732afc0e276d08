"""What the kernel leaves to Spark, run on rows that Spark has never seen before."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.data.types import kernel_type
from penstock.errors import DataError, PenstockError
from penstock.plan import node
from penstock.spark.catalyst import relations, table
from penstock.spark.fragment import Fragments
from twin.planning import RELATIONS, of_kind, planned

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def _fragment(spark: SparkSession, sql: Any, position: int = 0) -> tuple[Fragments, node.Spark]:
    found = planned(spark, sql)
    return Fragments(spark, found), of_kind(found.view.root, node.Spark)[position]


def _columns(source: node.Node, **values: list[Any]) -> list[pa.Array]:
    return [pa.array(values[item.name], kernel_type(item.type)) for item in source.fields]


@pytest.mark.smoke
def test_expressions_over_a_delta(spark: SparkSession) -> None:
    sql = (
        "SELECT cosh(x) AS p, sentences(date_format(ts, 'EEEE')) AS q, transform(arr, z -> z + cast(sign(cosh(z)) AS INT)) AS r, "
        "from_csv(s, 'a INT').a AS j, sinh(months_between(now(), ts)) AS m, a FROM t"
    )
    fragments, fragment = _fragment(spark, sql)
    columns = _columns(
        fragment.inputs[0],
        a=[1, 2],
        s=["7", None],
        x=[0.0, None],
        ts=[NOON, None],
        arr=[[1, None], None],
    )
    micros = int(NOON.timestamp()) * 1_000_000
    found = fragments.expressions(fragment, columns, 2, micros)
    assert [column.type for column in found] == [
        kernel_type(item.type) for item in fragment.fields[len(columns) :]
    ]
    assert {repr(column.to_pylist()) for column in found} == {
        "[1.0, None]",
        "[[['Wednesday']], None]",
        "[[2, None], None]",
        "[{'a': 7}, None]",
        "[0.0, None]",
    }
    assert [
        column.to_pylist() for column in fragments.expressions(fragment, [c[:0] for c in columns], 0, 0)
    ] == [[]] * 5


def test_an_expression_over_aggregates_and_keys(spark: SparkSession) -> None:
    fragments, fragment = _fragment(spark, "SELECT cosh(sum(x) + b % 7) AS z FROM t GROUP BY b % 7")
    assert isinstance(fragment.inputs[0], node.Aggregate)
    columns = [
        pa.array([1 if item.type == "int" else 2.0], kernel_type(item.type))
        for item in fragment.inputs[0].fields
    ]
    assert fragments.expressions(fragment, columns, 1, 0)[0].to_pylist() == [10.067661995777765]


def test_an_error_has_the_kernels_code(spark: SparkSession) -> None:
    fragments, fragment = _fragment(spark, "SELECT cosh(1 / b) AS z FROM t")
    with pytest.raises(DataError) as caught:
        fragments.expressions(fragment, [pa.array([1, 0], pa.int32())], 2, 0)
    assert caught.value.code == "DATA_DIVIDE_BY_ZERO"


def test_a_row_is_named_when_spark_refuses_it(spark: SparkSession) -> None:
    fragments, fragment = _fragment(spark, "SELECT cosh(1 / b) AS z FROM t")
    with pytest.raises(DataError) as caught:
        fragments.expressions(fragment, [pa.array([1, 2, 3, 0, 5, 0], pa.int32())], 6, 0)
    assert caught.value.message.endswith(" for the row (b=0)")


def test_an_error_that_is_not_about_a_row_names_none(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    fragments, fragment = _fragment(spark, "SELECT cosh(1 / b) AS z FROM t")
    evaluate, lengths = fragments._evaluated, list[int]()

    def ends_meanwhile(node: node.Spark, pairs: Any, arguments: Any, names: Any, kinds: Any) -> Any:
        lengths.append(len(arguments[0]))
        if len(lengths) > 2:
            raise ConnectionError("Spark is gone")
        return evaluate(node, pairs, arguments, names, kinds)

    monkeypatch.setattr(fragments, "_evaluated", ends_meanwhile)
    with pytest.raises(PenstockError) as caught:
        fragments.expressions(fragment, [pa.array([1, 2, 3, 4, 5, 6, 7, 0], pa.int32())], 8, 0)
    assert not isinstance(caught.value, DataError)
    assert "Spark is gone" in caught.value.message
    assert lengths == [8, 4, 2]


def test_a_python_function(spark: SparkSession) -> None:
    @F.udf("int")
    def plus(value):  # type: ignore[no-untyped-def]  # PySpark would take hints for the kind of function
        return None if value is None else value + 1

    frame = table(spark, RELATIONS["t"]).select(plus("b").alias("z"), "a")
    fragments, fragment = _fragment(spark, frame)
    columns = _columns(fragment.inputs[0], a=[1, 2, 3], b=[3, None, 5])
    assert fragments.expressions(fragment, columns, 3, 0)[0].to_pylist() == [4, None, 6]


def test_an_aggregate_that_only_spark_has(spark: SparkSession) -> None:
    sql = "SELECT b, sum(x) AS total, approx_count_distinct(s COLLATE UTF8_LCASE) AS n FROM t GROUP BY b"
    fragments, fragment = _fragment(spark, sql)
    assert not fragment.stateless
    columns = _columns(fragment.inputs[0], b=[1, 1, None], s=["a", "b", "a"], x=[1.0, 2.0, 3.0])
    found, _ = fragments.operator(fragment, [columns], [3], 0)
    rows = sorted(zip(*(column.to_pylist() for column in found), strict=True), key=repr)
    assert rows == [(1, 2), (None, 1)]


def test_a_generator_gives_the_row_it_came_from(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    # The kernel knows all generators whose columns it can hold: Spark is asked for one as if it did not.
    monkeypatch.setattr(relations, "GENERATORS", frozenset())
    fragments, fragment = _fragment(
        spark, "SELECT a, p, q FROM t LATERAL VIEW json_tuple(s, 'p', 'q') AS p, q"
    )
    assert fragment.stateless
    columns = _columns(fragment.inputs[0], a=[5, 6], s=['{"p": 1}', None])
    parents, found = fragments.generated(fragment, columns, 2, 0)
    assert parents.to_pylist() == [0, 1]
    assert [column.to_pylist() for column in found] == [[5, 6], ["1", None], [None, None]]


def test_an_operator_with_a_scalar_subquery(spark: SparkSession) -> None:
    sql = "SELECT approx_count_distinct(s COLLATE UTF8_LCASE) FILTER (WHERE b > (SELECT max(k) FROM u)) AS n FROM t"
    fragments, fragment = _fragment(spark, sql)
    (value,) = of_kind(fragment, node.Single)
    assert fragment.inputs[1] == value
    columns = _columns(fragment.inputs[0], b=[1, 5, 9], s=["a", "b", "c"])
    found, _ = fragments.operator(fragment, [columns, [pa.array([4], pa.int32())]], [3, 1], 0)
    assert found[0].to_pylist() == [2]
