"""Dynamic tables: filled by rows, changed from outside, and asked by SQL."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock import config
from penstock.errors import DataError, PenstockError
from penstock.pipeline.transforms.dynamic_table import DynamicTableNode
from penstock.transforms.dynamic_table.function import MembershipFunction
from penstock.transforms.dynamic_table.members import Members
from penstock.transforms.dynamic_table.table import DynamicTable
from penstock.transforms.postgres_table import PostgresTable
from penstock.transforms.task_error import carried
from servers.postgres import Postgres
from transform_context import Values, context
from waiting import wait_for


@pytest.fixture(scope="module")
def function() -> MembershipFunction:
    return MembershipFunction()


def _members(type_name: str, *values: Any) -> Members:
    none = Members(type_name)
    return none.apply(none.array(list(values)), none.array([]))


def _open(
    node: dict[str, Any], spark: SparkSession, columns: str | None, values: Values | None = None
) -> DynamicTable:
    schema = None if columns is None else spark.createDataFrame([], columns).schema
    table = DynamicTableNode.model_validate(node).dynamic_table(config.load(), name="vip")
    table.check(context(spark, state=values), schema)
    table.open(context(spark, state=values), schema)
    return table


def _contents(table: DynamicTable) -> list[Any]:
    return sorted(table.members.values().to_pylist())


@pytest.mark.smoke
def test_a_check_may_stand_anywhere(spark: SparkSession, function: MembershipFunction) -> None:
    function.register(
        spark, {"Vip": _members("bigint", 0, 2, 5, -(1 << 63)), "names": _members("string", "", "Zoë")}
    )
    rows = spark.sql(
        """SELECT id, dynamic_table_check('vip', id) AS a, NOT dynamic_table_check('VIP', id) AS b,
        CASE WHEN dynamic_table_check('vip', id + 1) THEN 'next' ELSE 'no' END AS c,
        filter(array(1, 2, 3), x -> dynamic_table_check('vip', x)) AS d
        FROM VALUES (0L), (1L), (2L), (NULL), (-9223372036854775808L) AS t(id)"""
    )
    assert [tuple(row) for row in rows.collect()] == [
        (0, True, False, "no", [2]),
        (1, False, True, "next", [2]),
        (2, True, False, "no", [2]),
        (None, False, True, "no", [2]),
        (-(1 << 63), True, False, "no", [2]),
    ]
    texts = spark.sql(
        "SELECT s FROM VALUES (''), ('Zoë'), ('zoë'), (NULL) AS t(s) WHERE dynamic_table_check('names', s)"
    )
    assert [row.s for row in texts.collect()] == ["", "Zoë"]
    grouped = spark.sql("SELECT sum(IF(dynamic_table_check('vip', id), 1, 0)) AS n FROM range(1000)")
    assert grouped.collect()[0].n == 3


def test_queries_are_planned_before_the_values_are_known(
    spark: SparkSession, function: MembershipFunction
) -> None:
    function.plan(spark, ["a", "b"])
    row = spark.sql("SELECT dynamic_table_check('a', 1) AS x, dynamic_table_check('b', 'text') AS y").first()
    assert row is not None
    assert (row.x, row.y) == (False, False)


def test_values_are_compared_by_what_they_are(spark: SparkSession, function: MembershipFunction) -> None:
    function.register(
        spark,
        {
            "n": _members(
                "decimal(30,4)",
                Decimal("1"),
                Decimal("2.5000"),
                Decimal("12345678901234567890.25"),
                Decimal("-0.0100"),
            ),
            "day": _members("date", date(1969, 12, 31)),
            "b": _members("boolean", True),
            "raw": _members("binary", b"\x00\xff", b""),
        },
    )
    answers = spark.sql(
        """SELECT dynamic_table_check('n', CAST(1 AS TINYINT)), dynamic_table_check('n', 1.00), dynamic_table_check('n', 1D),
        dynamic_table_check('n', 2.5), dynamic_table_check('n', 2.5D), dynamic_table_check('n', 12345678901234567890.250),
        dynamic_table_check('n', -0.01), dynamic_table_check('n', double('NaN')), dynamic_table_check('n', 0),
        dynamic_table_check('day', DATE'1969-12-31'), dynamic_table_check('day', DATE'1970-01-01'),
        dynamic_table_check('b', true), dynamic_table_check('b', false),
        dynamic_table_check('raw', X'00FF'), dynamic_table_check('raw', X''), dynamic_table_check('raw', X'00')"""
    )
    assert list(answers.collect()[0]) == [
        *(True, True, True, True, True, True, True, False, False),
        *(True, False, True, False, True, True, False),
    ]


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_times_are_compared_to_the_microsecond(
    spark: SparkSession, function: MembershipFunction, kind: str
) -> None:
    rows = spark.sql(f"SELECT CAST('1890-01-01 00:00:00.123456' AS {kind}) AS at")
    none = Members(kind)
    function.register(spark, {"t": none.apply(none.array(rows.toArrow().column("at")), none.array([]))})
    checks = rows.selectExpr(
        "dynamic_table_check('t', at)", "dynamic_table_check('t', at + INTERVAL '0.000001' SECOND)"
    )
    assert list(checks.collect()[0]) == [True, False]


@pytest.mark.parametrize(
    ("check", "code"),
    [
        ("dynamic_table_check('t', s)", "DYNAMIC_TABLE_TYPE"),
        ("dynamic_table_check('none', id)", "DYNAMIC_TABLE_UNKNOWN"),
    ],
)
def test_checks_that_make_no_sense_are_errors(
    spark: SparkSession, function: MembershipFunction, check: str, code: str
) -> None:
    function.register(spark, {"t": _members("bigint", 1)})
    with pytest.raises(Exception, match="dynamic") as raised:
        spark.range(3).selectExpr("id", "CAST(id AS STRING) AS s").where(check).collect()
    error = carried(raised.value)
    assert isinstance(error, DataError)
    assert error.code == code


def test_later_epochs_see_later_values(spark: SparkSession, function: MembershipFunction) -> None:
    values = Values()
    table = _open({"sql": "SELECT id FROM x"}, spark, "id BIGINT", values)

    def checked(session: SparkSession = spark) -> list[int]:
        function.register(session, {"vip": table.members})
        return [row.id for row in session.range(6).where("dynamic_table_check('vip', id)").collect()]

    table.update(0, spark.sql("SELECT * FROM VALUES (1L), (3L), (1L), (NULL) AS t(id)"))
    assert checked() == [1, 3]
    assert checked(spark.newSession()) == [1, 3]
    table.update(
        1,
        spark.sql(
            "SELECT * FROM VALUES (3L, 'd'), (4L, 'i'), (5L, 'i'), (5L, 'd'), (1L, 'd'), (1L, 'u') AS t(id, _op)"
        ),
    )
    assert checked() == [1, 4]
    table.close()
    again = _open({"sql": "SELECT id FROM x"}, spark, "id BIGINT", values)
    table = again
    assert _contents(again) == [1, 4]
    again.update(
        1,
        spark.sql(
            "SELECT * FROM VALUES (3L, 'd'), (4L, 'i'), (5L, 'i'), (5L, 'd'), (1L, 'd'), (1L, 'u') AS t(id, _op)"
        ),
    )
    assert checked() == [1, 4]
    with pytest.raises(PenstockError) as raised:
        _open({"sql": "SELECT id, x FROM x"}, spark, "id BIGINT, x INT", Values())
    assert raised.value.code == "DYNAMIC_TABLE_COLUMNS"


def test_a_table_of_postgres_is_everybodys(spark: SparkSession, postgres: Postgres) -> None:
    url = postgres.new_database()
    node = {
        "backend": "Postgres",
        "url": url,
        "table": "lists.vip",
        "sql": "SELECT id FROM x",
        "refresh": "0",
    }
    postgres.execute("CREATE SCHEMA lists", url)
    table = _open(node, spark, "id BIGINT")
    assert _contents(table) == []
    table.update(0, spark.sql("SELECT * FROM VALUES (1L), (2L), (2L) AS t(id)"))
    table.update(0, spark.sql("SELECT * FROM VALUES (1L), (2L), (2L) AS t(id)"))
    assert postgres.execute("SELECT value FROM lists.vip ORDER BY 1", url) == [(1,), (2,)]
    postgres.execute("INSERT INTO lists.vip VALUES (7)", url)
    postgres.execute("DELETE FROM lists.vip WHERE value = 1", url)

    def follows(expected: list[int]) -> bool:
        table.update(1, None)
        return _contents(table) == expected

    wait_for(lambda: follows([2, 7]), "the changes of others", 20)
    table.update(2, spark.sql("SELECT 7L AS id, 'd' AS _op"))
    assert postgres.execute("SELECT value FROM lists.vip", url) == [(2,)]
    table.close()
    again = _open({**node, "column": "value"}, spark, "id BIGINT")
    assert _contents(again) == [2]
    postgres.execute("TRUNCATE lists.vip", url)
    table = again
    wait_for(lambda: follows([]), "the end of all rows", 20)
    again.close()


def test_a_table_of_postgres_is_not_read_again_after_changes_of_our_own(
    spark: SparkSession, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.new_database()
    node = {"backend": "Postgres", "url": url, "table": "own", "sql": "SELECT id FROM x", "refresh": "0"}
    table = _open(node, spark, "id BIGINT")
    reads: list[int] = []
    read_with = PostgresTable.read_with

    def watched(*values: Any) -> Any:
        reads.append(1)
        return read_with(*values)

    monkeypatch.setattr(PostgresTable, "read_with", watched)
    for epoch in range(10):
        table.update(epoch, spark.sql(f"SELECT {epoch}L AS id"))
    table.update(10, spark.sql("SELECT 3L AS id, 'd' AS _op"))

    def counted() -> bool:
        table.update(11, None)
        query = "SELECT n_tup_ins + n_tup_del FROM pg_stat_user_tables WHERE relname = 'own'"
        return postgres.execute(query, url) == [(11,)]

    wait_for(counted, "the counters of PostgreSQL", 20)
    table.update(12, None)
    assert (reads, _contents(table)) == ([], [0, 1, 2, 4, 5, 6, 7, 8, 9])
    postgres.execute("INSERT INTO own VALUES (77)", url)

    def follows() -> bool:
        table.update(13, None)
        return 77 in _contents(table)

    wait_for(follows, "the change of another", 20)
    assert reads
    table.close()


def test_tables_of_postgres_that_do_not_fit_are_refused(spark: SparkSession, postgres: Postgres) -> None:
    url = postgres.new_database()
    postgres.execute("CREATE TABLE names (id int, name text)", url)
    node = {"backend": "Postgres", "url": url, "table": "names", "column": "name"}
    postgres.execute("INSERT INTO names VALUES (1, 'a'), (2, NULL), (3, 'a')", url)
    table = _open(node, spark, None)
    assert _contents(table) == ["a"]
    table.close()
    for change, columns, code in (
        ({}, "id BIGINT", "DYNAMIC_TABLE_TYPE"),
        ({"column": "nme"}, None, "DYNAMIC_TABLE_COLUMNS"),
        ({"table": "nowhere"}, None, "SINK_TABLE_MISSING"),
    ):
        with pytest.raises(PenstockError) as raised:
            _open({**node, **change}, spark, columns)
        assert raised.value.code == code
        assert "secret" not in str(raised.value)
