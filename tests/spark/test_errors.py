"""What users see when Spark refuses something: the cases are data."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import penstock as ps


@dataclass(frozen=True)
class Case:
    """A query, and what its error must say."""

    sql: str
    code: str
    message: str
    kind: type[ps.PenstockError] = ps.SqlError
    hint: str | None = None
    where: str | None = None


CASES = [
    Case(
        "SELECT * FROM error_ordrs",
        "SQL_UNKNOWN_TABLE",
        "no table or view 'error_ordrs'",
        hint="did you mean 'error_orders'?",
        where="line 1, column 15\n    SELECT * FROM error_ordrs\n                  ^^^^^^^^^^^",
    ),
    Case("SELECT * FROM orders.parquet", "SQL_UNKNOWN_TABLE", "orders.parquet", hint="FROM 'orders.parquet'"),
    Case("DROP TABLE nosuch", "SQL_UNKNOWN_TABLE", "'spark_catalog.default.nosuch'"),
    Case(
        "SELECT id,\n  nmae FROM error_orders",
        "SQL_UNKNOWN_COLUMN",
        "no column 'nmae'",
        hint="did you mean 'name'? Columns here: id, name",
        where="line 2, column 3\n      nmae FROM error_orders\n      ^^^^",
    ),
    Case("SELECT o.nam FROM error_orders o", "SQL_UNKNOWN_COLUMN", "'o.nam'", hint="did you mean 'o.name'?"),
    Case("SELECT x.id FROM error_orders o", "SQL_UNKNOWN_COLUMN", "'x.id'", hint="did you mean 'o.id'?"),
    Case("SELECT s.y FROM (SELECT struct(1 AS x) AS s)", "SQL_UNKNOWN_FIELD", "'y'", hint="x"),
    Case(
        "SELECT uper(name) FROM error_orders",
        "SQL_UNKNOWN_FUNCTION",
        "no function 'uper'",
        hint="did you mean 'upper'?",
        where="uper(name)",
    ),
    Case("SELECT zzqqxx(1)", "SQL_UNKNOWN_FUNCTION", "zzqqxx", hint="SHOW FUNCTIONS"),
    Case("USE nosuch", "SQL_UNKNOWN_SCHEMA", "'spark_catalog.nosuch'", hint="Known schemas: default"),
    Case("SELECT * FROM lake.db.t", "SQL_UNKNOWN_CATALOG", "no catalog 'lake'", hint="catalogs="),
    Case(
        "SELECT o.id FROM error_orders o JOIN error_orders p ON o.id = p.id WHERE name = 'a'",
        "SQL_AMBIGUOUS_COLUMN",
        "column 'name' is ambiguous",
        hint="write o.name or p.name",
    ),
    Case("SELEC 1", "SQL_SYNTAX", "syntax error at 'SELEC'", hint="did you mean SELECT instead of SELEC?"),
    Case(
        "SELECT id\nFROM error_orders\nWHER id > 1",
        "SQL_SYNTAX",
        "syntax error at 'id'",
        hint="did you mean WHERE instead of WHER?",
        where="line 3, column 6\n    WHER id > 1\n         ^^",
    ),
    Case("SELECT a,, b", "SQL_SYNTAX", "syntax error at ','", where="line 1, column 10"),
    Case("SELECT (1", "SQL_SYNTAX", "the end of the query"),
    Case("SELECT 1; SELECT 2", "SQL_SYNTAX", "'SELECT'", hint="one statement at a time"),
    Case(" ", "SQL_SYNTAX", "the statement is empty"),
    Case("CREATE TABLE t (id bgint)", "SQL_UNSUPPORTED_DATATYPE", "BGINT", where="column 20"),
    Case(
        "SELECT 1 AS a, id / 0 FROM error_orders",
        "DATA_DIVIDE_BY_ZERO",
        "division by zero",
        kind=ps.DataError,
        hint="try_divide",
        where="line 1, column 16\n    SELECT 1 AS a, id / 0 FROM error_orders\n                   ^^^^^^",
    ),
    Case(
        "SELECT 2147483647 + 1",
        "DATA_OVERFLOW",
        "overflow",
        kind=ps.DataError,
        hint="try_add",
        where="column 8",
    ),
    Case("SELECT CAST(300 AS TINYINT)", "DATA_OVERFLOW", "TINYINT", kind=ps.DataError),
    Case(
        "SELECT CAST(name AS INT) FROM error_orders",
        "DATA_CAST",
        "'a' (STRING) is not a valid INT",
        kind=ps.DataError,
        hint="try_cast",
        where="CAST(name AS INT)",
    ),
    Case("SELECT array(1, 2)[5]", "DATA_INDEX", "out of bounds", kind=ps.DataError, hint="get(array"),
    Case("SELECT element_at(array(1), 0)", "DATA_INDEX", "index 0 is invalid", kind=ps.DataError),
    Case("SELECT make_date(2024, 2, 30)", "DATA_DATETIME", "FEBRUARY 30", kind=ps.DataError),
    Case(
        "SELECT percentile(id, 0.5, -1) FROM range(3)",
        "DATA_NEGATIVE_FREQUENCY",
        "negative frequency",
        kind=ps.DataError,
    ),
    Case(
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r",
        "SQL_RECURSION_LIMIT",
        "ecursion",
        hint="condition in the recursive part",
    ),
    Case(
        "SELECT to_date('x', 'yyyy')", "DATA_CANNOT_PARSE_TIMESTAMP", "could not be parsed", kind=ps.DataError
    ),
    Case("SELECT raise_error('boom')", "DATA_RAISED", "boom", kind=ps.DataError),
    Case("SELECT (SELECT id FROM range(3))", "DATA_SCALAR_SUBQUERY", "more than one row", kind=ps.DataError),
    Case("SELECT id + array(1) FROM error_orders", "SQL_TYPE", "data type mismatch", hint="cast"),
    Case("SELECT sum(name, id) FROM error_orders", "SQL_WRONG_NUM_ARGS", "requires 1 parameters"),
    Case("SELECT id, count(*) FROM error_orders", "SQL_NOT_GROUPED", "GROUP BY", hint="any_value"),
    Case("SELECT 1 UNION SELECT 1, 2", "SQL_NUM_COLUMNS_MISMATCH", "SQLSTATE 42826"),
    Case(
        "SELECT * FROM error_orders WHERE id = :x",
        "SQL_PARAMETER",
        "parameter 'x' has no value",
        hint='"x": ...',
    ),
    Case(
        "SELECT * FROM parquet.`/nowhere/x.parquet`",
        "DATA_PATH_NOT_FOUND",
        "no such file or folder: /nowhere/x.parquet",
        kind=ps.DataError,
        hint="the folder /nowhere does not exist either",
    ),
    Case(
        "CREATE TABLE t (id INT) USING delta",
        "CONNECTOR_AT_START",
        "'delta' brings session extensions",
        kind=ps.ConnectorError,
        hint='connectors=("delta",)',
    ),
    Case(
        "CREATE TABLE t (id INT) USING parqet",
        "CONNECTOR_UNKNOWN",
        "no data source 'parqet'",
        kind=ps.ConnectorError,
        hint="did you mean 'parquet'?",
    ),
    Case(
        "SELECT split_part(a, b, 3) FROM VALUES ('a' COLLATE UTF8_BINARY, 'b' COLLATE UTF8_LCASE) AS t(a, b)",
        "SQL_INDETERMINATE_COLLATION",
        "which collation to use",
    ),
    Case("SET spark.sql.shuffle.partitions = many", "CONFIG_SPARK_VALUE", "many", kind=ps.ConfigError),
    Case("INSERT INTO error_orders VALUES (1)", "SQL_UNSUPPORTED_INSERT", "[UNSUPPORTED_INSERT"),
    Case(
        "CREATE TEMPORARY VIEW error_orders AS SELECT 1",
        "SQL_ALREADY_EXISTS",
        "'error_orders'",
        hint="REPLACE",
    ),
]


@pytest.fixture(scope="module")
def orders(session: ps.Session) -> ps.Session:
    session.register_table("error_orders", [{"id": 1, "name": "a"}])
    return session


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sql[:50])
def test_errors_say_what_to_do(orders: ps.Session, case: Case) -> None:
    with pytest.raises(ps.PenstockError) as caught:
        orders.sql_with_timeout(case.sql, 120_000)
    error = caught.value
    assert error.code == case.code
    assert type(error) is case.kind
    assert case.message in error.message
    assert case.hint is None or case.hint in (error.hint or "")
    assert case.where is None or case.where in (error.where or "")
    assert "org.apache" not in str(error)
    assert "\tat " not in str(error)
    # The original is there for those who ask, and only for them.
    assert error.__context__ is not None
    assert error.__suppress_context__
    assert error.__cause__ is None


def test_a_python_function_shows_only_the_users_frames(session: ps.Session) -> None:
    def inner(x: int) -> float:
        return 1 / (x - x)

    def outer(x: int) -> float:
        return inner(x)

    session.spark.udf.register("bad", outer, "double")
    with pytest.raises(ps.SqlError) as caught:
        session.sql_with_timeout("SELECT bad(id) FROM range(2)", 120_000)
    error = caught.value
    assert error.code == "SQL_PYTHON_FUNCTION"
    assert error.message == "a Python function failed: ZeroDivisionError: division by zero"
    assert error.where is not None
    assert "in outer" in error.where
    assert "return 1 / (x - x)" in error.where
    assert "pyspark" not in error.where


def test_a_worker_that_dies_is_named(session: ps.Session) -> None:
    session.spark.udf.register("dies", lambda x: __import__("os")._exit(1), "int")
    with pytest.raises(ps.SqlError, match="ended its process") as caught:
        session.sql_with_timeout("SELECT dies(id) FROM range(1)", 120_000)
    assert caught.value.code == "SQL_PYTHON_CRASH"


def test_readers_name_the_path(session: ps.Session, tmp_path: Path) -> None:
    (tmp_path / "not.parquet").write_text("no")
    with pytest.raises(ps.DataError, match="is not a Parquet file") as caught:
        session.read_parquet(tmp_path / "not.parquet")
    assert caught.value.code == "DATA_UNREADABLE_FILE"
    assert str(tmp_path) in caught.value.message
    with pytest.raises(ps.DataError, match=r"no such file or folder: .*\*\.nope") as caught:
        session.read_csv(tmp_path / "*.nope")
    assert caught.value.hint == "nothing matches the pattern"


def test_an_error_in_a_view_names_the_view(session: ps.Session) -> None:
    session.sql("CREATE OR REPLACE TEMPORARY VIEW halves AS SELECT id / (id - id) AS h FROM range(2)")
    with pytest.raises(ps.DataError, match="division by zero") as caught:
        session.sql_with_timeout("SELECT h FROM halves", 120_000)
    assert "halves" in (caught.value.where or "")


SCRIPT = """
import penstock as ps
with ps.Session.embedded(master="local[1]") as session:
    session.sql("SELECT nmae FROM (SELECT 1 AS name)")
"""


def test_a_script_shows_no_java(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=250, cwd=tmp_path, check=False
    )
    assert done.returncode == 1
    assert "penstock.errors.SqlError: no column 'nmae'" in done.stderr
    assert "did you mean 'name'?" in done.stderr
    assert "org.apache" not in done.stderr
    assert "py4j" not in done.stderr
    assert len(done.stderr.splitlines()) < 25


def test_the_caret_is_right_behind_a_file_on_an_earlier_line(session: ps.Session, tmp_path: Path) -> None:
    (tmp_path / "stores.csv").write_text("id\n1\n")
    with pytest.raises(ps.SqlError) as caught:
        session.sql(f"SELECT * FROM '{tmp_path}/stores.csv' s\nWHERE id = = 1")
    assert caught.value.where is not None
    first, line, caret = caught.value.where.splitlines()
    assert first == "line 2, column 12"
    assert line.strip() == "WHERE id = = 1"
    assert caret.index("^") - line.index("W") == 11
