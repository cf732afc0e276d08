"""Our statements, found in the text of SQL, and what is wrong with those that are nearly ours."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import SqlError
from penstock.sql.excerpt import excerpt, moved
from penstock.sql.parse import is_of_flows, parse
from penstock.sql.statement import (
    CreateSource,
    CreateView,
    Delete,
    Describe,
    Drop,
    ExplainQuery,
    ExplainView,
    Insert,
    RefreshSources,
    RefreshView,
    Show,
    SparkChange,
    SparkCreate,
    Update,
)


def read(text: str, kind: type[Any]) -> Any:
    statement = parse(text)
    assert isinstance(statement, kind)
    return statement


def test_a_source_with_everything() -> None:
    source = read(
        """create or replace source `my orders` ( -- the orders
             id BIGINT NOT NULL, tags ARRAY<STRUCT<a: INT, b: STRING>> /* , */, amount DECIMAL(10, 2))
           primary key (id) WITH (dedup = TRUE, lateness = '10 minutes', 'event_time' = `at`, retain = used);""",
        CreateSource,
    )
    assert source.name.text == "my orders"
    assert source.primary_key == ("id",)
    assert source.replace
    assert source.options == {
        "dedup": True,
        "lateness": "10 minutes",
        "event_time": "at",
        "retain": "used",
    }
    assert "amount DECIMAL(10, 2)" in source.columns.text


@pytest.mark.parametrize(
    ("columns", "key", "left"),
    [
        ("id INT PRIMARY KEY, b INT", ("id",), ["id", "b"]),
        ("a INT, b INT, PRIMARY KEY (a, b)", ("a", "b"), ["a", "b"]),
        ("a INT, `b` DECIMAL(3, 1) NOT NULL primary key", ("b",), ["a", "b"]),
        ("a INT, key STRING, primary STRING", (), ["a", "key", "primary"]),
    ],
)
def test_a_primary_key_among_the_columns(columns: str, key: tuple[str, ...], left: list[str]) -> None:
    from penstock.data.schema import to_arrow_schema

    source = read(f"CREATE SOURCE s ({columns})", CreateSource)
    assert source.primary_key == key
    assert to_arrow_schema(source.columns.text).names == left
    assert len(source.columns.text) == len(columns)


def test_views() -> None:
    view = read(
        "CREATE INCREMENTAL VIEW shop.totals WITH (on_error = 'suspend') AS\nSELECT 1 -- x\n;", CreateView
    )
    assert (view.name.text, view.query.text, view.options) == (
        "shop.totals",
        "SELECT 1",
        {"on_error": "suspend"},
    )
    assert not view.recursive
    reach = read("CREATE RECURSIVE INCREMENTAL VIEW r (a, b) AS SELECT 1, 2", CreateView)
    assert (reach.recursive, reach.columns) == (True, ("a", "b"))
    assert read("CREATE INCREMENTAL VIEW IF NOT EXISTS v AS WITH a AS (SELECT 1) SELECT * FROM a", CreateView)
    assert read("REFRESH INCREMENTAL VIEW v", RefreshView).name.text == "v"
    assert read("REFRESH INCREMENTAL VIEW lake.db.v EVERY '1 minute';", RefreshView).every == "1 minute"
    names = read("refresh source a, `b c`", RefreshSources).names
    assert [name.text for name in names] == ["a", "b c"]
    assert parse("REFRESH TABLE source") is None
    source = read("CREATE SOURCE s FROM TABLE lake.db.t WITH (retain = used)", CreateSource)
    assert source.table.text == "lake.db.t"
    assert source.options == {"retain": "used"}


@pytest.mark.parametrize(
    ("text", "kind", "name", "if_exists"),
    [
        ("DROP INCREMENTAL VIEW v", "view", "v", False),
        ("DROP INCREMENTAL VIEW IF EXISTS a.b", "view", "a.b", True),
        ("DROP SOURCE IF EXISTS `s`", "source", "s", True),
        ("DROP INCREMENTAL SOURCE s", "source", "s", False),
    ],
)
def test_drops(text: str, kind: str, name: str, if_exists: bool) -> None:
    drop = read(text, Drop)
    assert (drop.kind, drop.name.text, drop.if_exists) == (kind, name, if_exists)


def test_questions() -> None:
    assert read("show incremental views", Show).kind == "view"
    assert read("SHOW SOURCES", Show).kind == read("SHOW INCREMENTAL SOURCES", Show).kind == "source"
    assert read("DESC INCREMENTAL VIEW v", Describe).kind == "view"
    assert read("DESCRIBE SOURCE s", Describe).kind == "source"
    assert read("EXPLAIN INCREMENTAL VIEW v", ExplainView).name.text == "v"
    query = read("EXPLAIN INCREMENTAL\nSELECT 1", ExplainQuery).query
    assert (query.text, query.start) == ("SELECT 1", 20)


def test_inserts() -> None:
    insert = read("INSERT INTO TABLE t (a, `b c`) VALUES (1, 2)", Insert)
    assert [column.text for column in insert.columns] == ["a", "b c"]
    assert insert.query.text == "VALUES (1, 2)"
    assert read("INSERT INTO t (SELECT 1)", Insert).columns == ()
    assert read("INSERT INTO t BY NAME SELECT 1 AS a", Insert).by_name
    common = read("WITH a AS (SELECT (1)), b AS (SELECT 2) INSERT INTO t SELECT * FROM a", Insert)
    assert common.common.text + common.query.text == "WITH a AS (SELECT (1)), b AS (SELECT 2) SELECT * FROM a"


def test_deletes_and_updates() -> None:
    assert not read("DELETE FROM t WHERE a = 1", Delete).has_alias
    assert read("DELETE FROM t AS o WHERE o.a = 1", Delete).has_alias
    assert read("DELETE FROM t o", Delete).has_alias
    update = read("UPDATE t SET a = if(b, 1, 2), o.c = m['x, y'] WHERE d IN (SELECT 1 WHERE true)", Update)
    assert [(item.column.text, item.expression.text) for item in update.assignments] == [
        ("a", "if(b, 1, 2)"),
        ("o.c", "m['x, y']"),
    ]


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("CREATE OR REPLACE TEMP VIEW v AS SELECT 1", SparkCreate, "v"),
        ("CREATE TABLE IF NOT EXISTS a.b.t (id INT)", SparkCreate, "a.b.t"),
        ("CREATE GLOBAL TEMPORARY VIEW v AS SELECT 1", SparkCreate, "v"),
        ("ALTER TABLE old RENAME TO new", SparkCreate, "new"),
        ("ALTER VIEW v AS SELECT 1", SparkChange, "v"),
        ("DROP TABLE IF EXISTS t", SparkChange, "t"),
        ("TRUNCATE TABLE t", SparkChange, "t"),
        ("MERGE INTO t USING s ON true WHEN MATCHED THEN DELETE", SparkChange, "t"),
        ("INSERT OVERWRITE TABLE t SELECT 1", SparkChange, "t"),
    ],
)
def test_statements_of_spark_with_a_name_that_may_be_ours(text: str, kind: type[Any], name: str) -> None:
    statement = read(text, kind)
    assert statement.target.text == name
    assert not is_of_flows(statement)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'CREATE SOURCE s (a INT)'",
        "-- CREATE SOURCE s\nSELECT 1",
        "",
        "SHOW TABLES",
        "SHOW SCHEMAS",
        "SHOW FUNCTIONS LIKE 'x'",
        "DESCRIBE orders",
        "DESCRIBE source",
        "DESCRIBE TABLE EXTENDED t",
        "EXPLAIN FORMATTED SELECT 1",
        "REFRESH TABLE t",
        "REFRESH 'path'",
        "DROP FUNCTION f",
        "CREATE DATABASE d",
        "CREATE TEMPORARY FUNCTION f AS 'x'",
        "INSERT INTO IDENTIFIER('t') VALUES (1)",
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "FROM t SELECT a",
        "UPDATE",
        "SET x = 1",
    ],
)
def test_the_rest_is_for_spark(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "column", "hint"),
    [
        ("CREATE INCREMENTL VIEW v AS SELECT 1", 8, "did you mean INCREMENTAL?"),
        ("CREATE SORCE s (a INT)", 8, "did you mean SOURCE?"),
        ("CREATE INCREMENTAL VEIW v AS SELECT 1", 20, "did you mean VIEW?"),
        ("CREATE RECURSIVE VIEW v AS SELECT 1", 18, "write CREATE RECURSIVE INCREMENTAL VIEW"),
        ("CREATE INCREMENTAL VIEW v (a) AS SELECT 1", 27, "SELECT x AS name"),
        ("CREATE INCREMENTAL VIEW v AS", 29, "AS SELECT"),
        ("CREATE SOURCE s (a INT) PRIMARY KEY a", 37, "PRIMARY KEY (column)"),
        ("CREATE SOURCE s (a INT) WIHT (dedup = true)", 25, "did you mean WITH?"),
        ("CREATE SOURCE s (a INT) WITH (dedupe = true)", 31, "did you mean 'dedup'?"),
        ("CREATE SOURCE s (a INT) WITH (dedup true)", 37, "option = value"),
        ("CREATE SOURCE s (a INT PRIMARY KEY) PRIMARY KEY (a)", 49, "CREATE SOURCE"),
        ("CREATE SOURCE s (a INT", 23, "CREATE SOURCE"),
        ("CREATE OR REPLACE SOURCE IF NOT EXISTS s (a INT)", 26, "leave one of them out"),
        ("SHOW INCREMENTAL VIEW", 18, "did you mean VIEWS?"),
        ("SHOW INCRMENTAL VIEWS", 6, "did you mean INCREMENTAL?"),
        ("DROP SUORCE s", 6, "did you mean SOURCE?"),
        ("DROP INCREMENTAL v", 18, "DROP INCREMENTAL VIEW"),
        ("DROP SOURCE s CASCADE", 15, "DROP SOURCE"),
        ("REFRESH INCREMENTAL VIEW v EVERY 5", 34, "REFRESH INCREMENTAL VIEW name"),
        ("REFRESH SUORCE s", 9, "did you mean SOURCE?"),
        ("REFRESH SOURCE a b", 18, "REFRESH SOURCE name"),
        ("CREATE SOURCE s FROM orders", 22, "FROM TABLE"),
        ("EXPLAIN INCREMENTAL", 20, "EXPLAIN INCREMENTAL SELECT"),
        ("UPDATE t SET a 1", 16, "SET column = value"),
    ],
)
def test_mistakes_have_a_place_and_a_hint(text: str, column: int, hint: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse("\n" + text)
    assert caught.value.code == "SQL_SYNTAX"
    assert (caught.value.where or "").startswith(f"line 2, column {column}\n")
    assert hint in (caught.value.hint or "")


def test_places_move_with_the_text() -> None:
    seen, text = "SELECT x\nFROM t", "INSERT INTO s\nSELECT x\nFROM t"
    where = excerpt(seen, 14, 1)
    assert moved(f"view 'v', {where}", seen, text, lambda offset: offset + 14) == (
        "view 'v', line 3, column 6\n    FROM t\n         ^"
    )
    assert moved("source 's'", seen, text, lambda offset: offset) == "source 's'"
    assert moved(None, seen, text, lambda offset: offset) is None
