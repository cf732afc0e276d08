"""Session variables in views: bound when a view is registered, named by `explain`, and kept with the definition."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import penstock as ps

# A type, a value of it, and an expression over it that the kernel shows.
TYPES = [
    ("TINYINT", "7Y", "{x}"),
    ("SMALLINT", "-300S", "{x}"),
    ("INT", "3 + 4", "{x} * id"),
    ("BIGINT", "9223372036854775807", "{x}"),
    ("FLOAT", "1.5F", "{x}"),
    ("DOUBLE", "double('NaN')", "{x}"),
    ("DOUBLE", "-0.1D", "{x} + id"),
    ("DECIMAL(38, 4)", "1234567890123456789012345678901234.5678", "{x}"),
    ("BOOLEAN", "true", "{x} AND id > 1"),
    ("STRING", "'it''s \"a\" \\\\ b'", "concat({x}, name)"),
    ("STRING", "''", "{x}"),
    ("BINARY", "X'00FF10'", "{x}"),
    ("DATE", "DATE'2024-02-29'", "date_add({x}, id)"),
    ("TIMESTAMP", "TIMESTAMP'2024-02-29 12:34:56.789012'", "{x}"),
    ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ'1999-12-31 23:59:59.999999'", "{x}"),
    (
        "INTERVAL DAY TO SECOND",
        "INTERVAL '1 02:03:04.5' DAY TO SECOND",
        "TIMESTAMP'2024-01-01 00:00:00' + {x}",
    ),
    ("INTERVAL YEAR TO MONTH", "INTERVAL '1-2' YEAR TO MONTH", "DATE'2024-01-31' + {x}"),
    ("ARRAY<INT>", "array(1, NULL, 3)", "array_contains({x}, id)"),
    ("MAP<STRING, INT>", "map('a', 1, 'b', NULL)", "{x}[name]"),
    ("STRUCT<p: INT, q: STRING>", "named_struct('p', 1, 'q', 'z')", "{x}.q"),
    ("INT", "NULL", "coalesce({x}, id)"),
    ("STRING", None, "{x}"),
]
ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3, "name": None}]


@pytest.fixture
def variables(session: ps.Session) -> Iterator[ps.Session]:
    """The session; its variables go with the test."""
    yield session
    for name in ("x", "y", "statement", "place", "`odd name`"):
        session.sql(f"DROP TEMPORARY VARIABLE IF EXISTS {name}")


@pytest.fixture
def flow(variables: ps.Session) -> ps.IncrementalFlow:
    """A flow with a few rows."""
    flow = ps.IncrementalFlow(variables)
    flow.register_source("t", "id INT, name STRING")
    flow.tick("t", ROWS)
    variables.register_table("batch_t", ROWS, schema="id INT, name STRING")
    return flow


def rows_of(flow: ps.IncrementalFlow, view: str) -> list[str]:
    return sorted(repr(tuple(row.values())) for row in flow.snapshot(view).to_pylist())


def batch(session: ps.Session, query: str) -> list[str]:
    """Spark's own answer, over a table with the same rows."""
    text = re.sub(r"FROM t\b(?! AS)", "FROM batch_t AS t", query).replace("FROM t AS", "FROM batch_t AS")
    rows = session.sql_with_timeout(text, "1 minute").to_pylist()
    return sorted(repr(tuple(row.values())) for row in rows)


def test_a_view_keeps_the_value_of_its_registration(variables: ps.Session, flow: ps.IncrementalFlow) -> None:
    variables.sql("DECLARE x INT DEFAULT 2")
    explained = flow.register_view("bound", "SELECT id, x AS v FROM t WHERE id <= x")
    assert str(explained).endswith("variables: x = 2 (bound at registration)")
    assert explained.variables[0].name == "x"
    assert rows_of(flow, "bound") == ["(1, 2)", "(2, 2)"]
    variables.sql("SET VAR x = 100")
    flow.tick("t", [{"id": 0, "name": "n"}, {"id": 50, "name": "m"}])
    assert rows_of(flow, "bound") == ["(0, 2)", "(1, 2)", "(2, 2)"]
    flow.register_view("later", "SELECT count(*) AS n FROM t WHERE id <= x")
    assert "x = 100" in str(flow.explain("later"))
    assert rows_of(flow, "later") == ["(5,)"]
    variables.sql("DROP TEMPORARY VARIABLE x")
    flow.tick("t", [{"id": -1, "name": None}])
    assert rows_of(flow, "bound")[0] == "(-1, 2)"
    assert "x = 2 (bound at registration)" in str(flow.explain("bound"))
    with pytest.raises(ps.SqlError) as caught:
        flow.register_view("gone", "SELECT id FROM t WHERE id <= x")
    assert caught.value.code == "SQL_UNKNOWN_COLUMN"


def test_a_view_without_variables_does_not_speak_of_them(
    variables: ps.Session, flow: ps.IncrementalFlow
) -> None:
    variables.sql("DECLARE x INT DEFAULT 2")
    assert "variables" not in str(flow.register_view("plain", "SELECT id FROM t"))
    # A column comes before a variable of its name.
    variables.sql("DECLARE y STRING DEFAULT 'variable'")
    assert "variables" not in str(flow.register_view("column", "SELECT y FROM (SELECT name AS y FROM t)"))


@pytest.mark.parametrize(
    ("kind", "value", "expression"), TYPES, ids=[f"{kind} {value}" for kind, value, _ in TYPES]
)
def test_variables_of_every_type(
    variables: ps.Session, flow: ps.IncrementalFlow, kind: str, value: str | None, expression: str
) -> None:
    variables.sql(f"DECLARE x {kind}" + ("" if value is None else f" DEFAULT {value}"))
    variables.register_table("countries", [{"key": 1}, {"key": 3}], schema="key INT")
    shown = expression.replace("{x}", "x")
    queries = {
        "typed": f"SELECT id, {shown} AS v FROM t",
        "joined": f"SELECT t.id, {shown} AS v FROM t JOIN countries ON countries.key = t.id",
    }
    expected = {name: batch(variables, query) for name, query in queries.items()}
    for name, query in queries.items():
        assert "(bound at registration)" in str(flow.register_view(name, query))
        assert rows_of(flow, name) == expected[name]
    # What is planned again, for its static table, has the saved value, whatever the session has then.
    variables.sql("DROP TEMPORARY VARIABLE x")
    again = ps.IncrementalFlow.from_definition(flow.definition(), variables)
    again.tick("t", ROWS)
    for name in queries:
        assert rows_of(again, name) == expected[name]
        assert again.explain(name).variables == flow.explain(name).variables


QUERIES = [
    "SELECT id FROM t WHERE id = (SELECT max(id) FROM t WHERE id < x)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM t AS u WHERE u.id = t.id + x)",
    "SELECT name, count(*) AS n FROM t GROUP BY name HAVING count(*) < x",
    "WITH c AS (SELECT id, x AS v FROM t) SELECT a.id, b.v FROM c a JOIN c b ON a.id = b.id AND b.id < x",
    "WITH RECURSIVE r(n) AS (SELECT x UNION ALL SELECT n + 1 FROM r WHERE n < x + 3) SELECT n FROM r",
    "SELECT id FROM t ORDER BY id LIMIT x",
    "SELECT id, sum(id) OVER (ORDER BY id) + x AS s FROM t",
    "SELECT id + session.x AS v, system.session.x AS w, X AS z FROM t",
    "SELECT CASE WHEN id < x THEN 'low' ELSE 'high' END AS c FROM t",
    "SELECT id FROM t WHERE id IN (x, x + 1)",
    "SELECT transform(array(id), e -> e * x)[0] AS e FROM t",
    "SELECT id, x AS v FROM t UNION ALL SELECT x, id FROM t",
]


@pytest.mark.parametrize("query", QUERIES)
def test_variables_anywhere_in_a_query(variables: ps.Session, flow: ps.IncrementalFlow, query: str) -> None:
    variables.sql("DECLARE x INT DEFAULT 2")
    explained = flow.register_view("anywhere", query)
    assert [(each.name, each.type, each.value) for each in explained.variables] == [("x", "INT", "2")]
    assert rows_of(flow, "anywhere") == batch(variables, query)


DYNAMIC = [
    ("EXECUTE IMMEDIATE 'SELECT id FROM t WHERE id < ?' USING x", {"x"}),
    ("EXECUTE IMMEDIATE 'SELECT id FROM t WHERE id < :most' USING x AS most", {"x"}),
    ("EXECUTE IMMEDIATE 'SELECT id FROM t WHERE id < x'", {"x"}),
    ("EXECUTE IMMEDIATE statement", {"statement", "y"}),
    ("EXECUTE IMMEDIATE concat(statement, ' AND id < ', x)", {"statement", "x", "y"}),
    ("SELECT id FROM IDENTIFIER(place) WHERE id < x", {"place", "x"}),
    ("SELECT IDENTIFIER('id') AS v FROM t WHERE id < x", {"x"}),
]


@pytest.mark.parametrize(("query", "names"), DYNAMIC, ids=[case[0] for case in DYNAMIC])
def test_variables_of_text_that_is_made_when_a_view_is_registered(
    variables: ps.Session, flow: ps.IncrementalFlow, query: str, names: set[str]
) -> None:
    for name, value in (
        ("x", "3"),
        ("y", "'a'"),
        ("place", "'t'"),
        ("statement", "'SELECT id FROM t WHERE name = y'"),
    ):
        variables.sql(f"DECLARE {name} = {value}")
    explained = flow.register_view("dynamic", query)
    assert {variable.name for variable in explained.variables} == names
    variables.sql("SET VAR (x, y, place) = (SELECT 1, 'b', 'nowhere')")
    flow.tick("t", [{"id": 1, "name": "a"}])
    expected = ["(1,)", "(1,)"] if "y" in names else ["(1,)", "(1,)", "(2,)"]
    assert rows_of(flow, "dynamic") == expected


def test_a_name_with_spaces(variables: ps.Session, flow: ps.IncrementalFlow) -> None:
    variables.sql("DECLARE `odd name` INT DEFAULT 1")
    flow.register_view("odd", "SELECT id + `odd name` AS v FROM t")
    assert "odd name = 1 (bound" in str(flow.explain("odd"))
    assert rows_of(flow, "odd") == ["(2,)", "(3,)", "(4,)"]


def test_a_view_of_a_dataframe(variables: ps.Session, flow: ps.IncrementalFlow) -> None:
    variables.sql("DECLARE x INT DEFAULT 2")
    flow.table("t").createOrReplaceTempView("frame_t")
    flow.register_view("frame", variables.spark.sql("SELECT id FROM frame_t WHERE id < x"))
    assert "x = 2 (bound at registration)" in str(flow.explain("frame"))
    assert rows_of(flow, "frame") == ["(1,)"]


def test_a_static_side_that_reads_a_variable(variables: ps.Session, flow: ps.IncrementalFlow) -> None:
    variables.sql("DECLARE x INT DEFAULT 2")
    variables.sql("CREATE OR REPLACE TEMPORARY VIEW few AS SELECT id AS key FROM range(10) WHERE id <= x")
    flow.register_view("sides", "SELECT t.id FROM t JOIN few ON few.key = t.id")
    assert rows_of(flow, "sides") == ["(1,)", "(2,)"]


def test_settings_of_a_variable_do_not_reach_the_session(
    variables: ps.Session, flow: ps.IncrementalFlow
) -> None:
    variables.sql("DECLARE x INT DEFAULT 2")
    flow.register_view("bound", "SELECT id + x AS v FROM t JOIN batch_t b USING (id)")
    variables.sql("SET VAR x = 5")
    ps.IncrementalFlow.from_definition(flow.definition(), variables)
    value: Any = variables.sql("SELECT x").collect()[0][0]
    assert value == 5
