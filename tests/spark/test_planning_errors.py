"""What a query over constants raises while Spark plans it: the class, the place, the hint, and never a trace of Java."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import pytest
from pyspark.sql import functions as F

import penstock as ps


@dataclass(frozen=True)
class Case:
    """An expression and what its error must say; `at` is the part to blame when it is not the whole expression."""

    sql: str
    condition: str | None
    code: str
    at: str | None = None
    hint: str = ""


def cast(sql: str, at: str | None = None) -> Case:
    return Case(sql, "CAST_INVALID_INPUT", "DATA_CAST", at, "try_cast")


def overflow(sql: str, condition: str | None, hint: str = "") -> Case:
    return Case(sql, condition, "DATA_OVERFLOW", hint=hint)


def pattern(sql: str, condition: str, code: str = "DATA_INVALID_DATETIME_PATTERN") -> Case:
    return Case(sql, condition, code, hint="datetime patterns")


def parameter(sql: str, kind: str, at: str | None = None) -> Case:
    return Case(sql, f"INVALID_PARAMETER_VALUE.{kind}", "DATA_INVALID_PARAMETER_VALUE", at, "values")


def escape(sql: str, kind: str, at: str, hint: str) -> Case:
    return Case(sql, f"INVALID_FORMAT.ESC_{kind}", "SQL_INVALID_FORMAT", at, hint)


_UPGRADE = "INCONSISTENT_BEHAVIOR_CROSS_VERSION.DATETIME_PATTERN_RECOGNITION"
_UPGRADE_CODE = "SQL_INCONSISTENT_BEHAVIOR_CROSS_VERSION"
_PATTERN = "INVALID_DATETIME_PATTERN"

KINDS: dict[str, list[Case]] = {
    "casts": [
        cast("CAST('1.5x' AS INT)"),
        cast("CAST('2024-02-30' AS DATE)"),
        cast("CAST('noon' AS TIMESTAMP)"),
        cast("CAST('maybe' AS BOOLEAN)"),
        cast("CAST('1,5' AS DOUBLE)"),
        cast("'7 apples'::BIGINT + 1", "'7 apples'::BIGINT"),
        cast("upper(CAST('one' AS DECIMAL(10, 2)))", "CAST('one' AS DECIMAL(10, 2))"),
        Case("CAST(INTERVAL '1000' MONTH AS TINYINT)", "CAST_OVERFLOW", "DATA_OVERFLOW", hint="try_cast"),
    ],
    "overflow": [
        overflow("2147483647 + 1", "ARITHMETIC_OVERFLOW", "try_add"),
        overflow("-9223372036854775808L - 1L", "ARITHMETIC_OVERFLOW", "try_subtract"),
        overflow("CAST(300 AS TINYINT)", "CAST_OVERFLOW", "try_cast"),
        overflow("abs(-2147483647 - 1)", "ARITHMETIC_OVERFLOW"),
        overflow("CAST(12345.678 AS DECIMAL(4, 2))", "NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION"),
        overflow("timestamp_seconds(1230219000123123)", None, "smaller"),
        overflow("timestamp_seconds(0.1234567)", None, "round"),
    ],
    "intervals": [
        overflow("INTERVAL 2147483647 MONTH * 2", None, "smaller"),
        overflow("INTERVAL 2147483647 MONTH / 0.5", None, "smaller"),
        overflow("make_interval(2147483647)", "ARITHMETIC_OVERFLOW"),
        overflow("make_dt_interval(106751991, 5)", "INTERVAL_ARITHMETIC_OVERFLOW.WITHOUT_SUGGESTION"),
        Case(
            "INTERVAL '2' SECOND / 0",
            "INTERVAL_DIVIDED_BY_ZERO",
            "DATA_INTERVAL_DIVIDED_BY_ZERO",
            hint="try_divide",
        ),
    ],
    "division": [
        Case("1 / 0", "DIVIDE_BY_ZERO", "DATA_DIVIDE_BY_ZERO", hint="try_divide"),
        Case("10 % 0", "REMAINDER_BY_ZERO", "DATA_DIVIDE_BY_ZERO"),
        Case("7 DIV (3 - 3)", "DIVIDE_BY_ZERO", "DATA_DIVIDE_BY_ZERO"),
        Case("2 * (1.0 / 0.0)", "DIVIDE_BY_ZERO", "DATA_DIVIDE_BY_ZERO", "1.0 / 0.0"),
    ],
    "datetime patterns": [
        pattern("date_format(TIMESTAMP'2024-01-01 00:00:00', 'FF')", _UPGRADE, _UPGRADE_CODE),
        pattern("date_format(TIMESTAMP'2024-01-01 00:00:00', 'yyyyyyy')", f"{_PATTERN}.LENGTH"),
        pattern("to_timestamp('2024-01-01', 'yyyy-MM-dd GGGGG')", f"{_PATTERN}.LENGTH"),
        pattern("to_timestamp('2024-01-01', 'yyyy-MM-dd A')", f"{_PATTERN}.ILLEGAL_CHARACTER"),
        pattern("date_format(DATE'2024-01-01', 'bb')", f"{_PATTERN}.WITH_SUGGESTION"),
        pattern(
            "date_format(DATE'2024-01-01', 'YYYY')",
            "INCONSISTENT_BEHAVIOR_CROSS_VERSION.DATETIME_WEEK_BASED_PATTERN",
            _UPGRADE_CODE,
        ),
    ],
    "dates and times": [
        Case(
            "to_date('02-30', 'MM-dd')",
            "CANNOT_PARSE_TIMESTAMP",
            "DATA_CANNOT_PARSE_TIMESTAMP",
            hint="try_to_date",
        ),
        Case(
            "to_timestamp('soon', 'yyyy')",
            "CANNOT_PARSE_TIMESTAMP",
            "DATA_CANNOT_PARSE_TIMESTAMP",
            hint="try_to_",
        ),
        Case(
            "unix_timestamp('x', 'yyyy')",
            "CANNOT_PARSE_TIMESTAMP",
            "DATA_CANNOT_PARSE_TIMESTAMP",
            hint="try_to_",
        ),
        Case(
            "make_date(2023, 2, 29)",
            "DATETIME_FIELD_OUT_OF_BOUNDS.WITH_SUGGESTION",
            "DATA_DATETIME",
            hint="try_",
        ),
        Case(
            "make_timestamp(2024, 13, 1, 0, 0, 0)",
            "DATETIME_FIELD_OUT_OF_BOUNDS.WITH_SUGGESTION",
            "DATA_DATETIME",
        ),
        Case(
            "make_timestamp(2024, 1, 1, 0, 0, 60.5)",
            "INVALID_FRACTION_OF_SECOND",
            "DATA_INVALID_FRACTION_OF_SECOND",
            hint="try_make_timestamp",
        ),
        Case(
            "next_day('2024-01-01', 'xx')", "ILLEGAL_DAY_OF_WEEK", "DATA_ILLEGAL_DAY_OF_WEEK", hint="MO, TU"
        ),
    ],
    "format strings": [
        Case("format_string('%s and %s', 'one')", None, "SQL_FORMAT_STRING", hint="argument"),
        Case("format_string('%d', 'one')", None, "SQL_FORMAT_STRING", hint="argument"),
        Case("format_string('%q', 1)", None, "SQL_FORMAT_STRING", hint="argument"),
        Case("upper(printf('%2$s', 'one'))", None, "SQL_FORMAT_STRING", "printf('%2$s', 'one')", "argument"),
    ],
    "LIKE and regular expressions": [
        escape("'maca' LIKE 'm%aca' ESCAPE '%'", "IN_THE_MIDDLE", "LIKE 'm%aca' ESCAPE '%'", "ESCAPE"),
        escape("'a' LIKE 'a#' ESCAPE '#'", "AT_THE_END", "LIKE 'a#' ESCAPE '#'", "twice"),
        escape("'a' NOT LIKE '\\\\a'", "IN_THE_MIDDLE", "NOT LIKE '\\\\a'", "ESCAPE"),
        parameter("'a' RLIKE '('", "PATTERN", "RLIKE '('"),
        parameter("regexp_replace('a', '[', 'b')", "PATTERN"),
        parameter("regexp_extract('a1', '([a-z])', 2)", "REGEX_GROUP_INDEX"),
    ],
    "numbers as text": [
        Case(
            "to_number('x12', '999')",
            "INVALID_FORMAT.MISMATCH_INPUT",
            "SQL_INVALID_FORMAT",
            hint="try_to_number",
        ),
        Case(
            "to_number('1', '9G')",
            "INVALID_FORMAT.CONT_THOUSANDS_SEPS",
            "SQL_INVALID_FORMAT",
            hint="999G999D00",
        ),
        Case("to_char(12, '')", "INVALID_FORMAT.EMPTY", "SQL_INVALID_FORMAT", hint="999G999D00"),
    ],
    "bytes and text": [
        Case(
            "to_binary('a?', 'base64')",
            "CONVERSION_INVALID_INPUT",
            "DATA_CONVERSION_INVALID_INPUT",
            hint="try_to_bin",
        ),
        Case(
            "to_binary('GG', 'hex')",
            "CONVERSION_INVALID_INPUT",
            "DATA_CONVERSION_INVALID_INPUT",
        ),
        parameter("encode('a', 'klingon')", "CHARSET"),
        parameter("decode(X'61', 'klingon')", "CHARSET"),
        Case(
            "encode('äö', 'US-ASCII')",
            "MALFORMED_CHARACTER_CODING",
            "DATA_MALFORMED_CHARACTER_CODING",
            hint="utf-8",
        ),
        Case(
            "validate_utf8(X'80')", "INVALID_UTF8_STRING", "DATA_INVALID_UTF8_STRING", hint="make_valid_utf8"
        ),
        Case("url_decode('%2s')", "CANNOT_DECODE_URL", "DATA_CANNOT_DECODE_URL", hint="try_url_decode"),
        parameter("aes_encrypt('a', 'short')", "AES_KEY_LENGTH"),
        parameter("bit_get(11, 64)", "BIT_POSITION_RANGE"),
    ],
    "collections": [
        Case("array(1, 2)[5]", "INVALID_ARRAY_INDEX", "DATA_INDEX", hint="get(array"),
        Case(
            "element_at(array(1), 3)",
            "INVALID_ARRAY_INDEX_IN_ELEMENT_AT",
            "DATA_INDEX",
            hint="try_element_at",
        ),
        Case("element_at(array(1), 0)", "INVALID_INDEX_OF_ZERO", "DATA_INDEX"),
        Case("split_part('a.b', '.', 0)", "INVALID_INDEX_OF_ZERO", "DATA_INDEX"),
        Case("sequence(1, 5, -1)", None, "SQL_SPARK"),
        Case("map(1, 'a', 1, 'b')", "DUPLICATED_MAP_KEY", "SQL_DUPLICATED_MAP_KEY", hint="LAST_WIN"),
        Case("map_from_arrays(array(1), array(2, 3))", "_LEGACY_ERROR_TEMP_2128", "SQL_SPARK"),
    ],
}
EXPRESSIONS = [
    pytest.param(case, id=f"{kind}: {case.sql}") for kind, cases in KINDS.items() for case in cases
]

SUBQUERY = "UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY"
QUERIES = [
    Case(
        "SELECT a.name FROM src a GROUP BY a.name HAVING EXISTS (SELECT 1 FROM src b WHERE sum(a.id + b.id) = b.id)",
        f"{SUBQUERY}.AGGREGATE_FUNCTION_MIXED_OUTER_LOCAL_REFERENCES",
        f"SQL_{SUBQUERY}",
        hint="join",
    ),
    Case(
        "SELECT a.id FROM src a JOIN src b ON EXISTS (SELECT 1 FROM src c WHERE c.id = a.id AND c.name = b.name)",
        f"{SUBQUERY}.UNSUPPORTED_CORRELATED_EXPRESSION_IN_JOIN_CONDITION",
        f"SQL_{SUBQUERY}",
        hint="join",
    ),
    Case(
        "SELECT transform(array(1), x -> (SELECT max(id) FROM src)) FROM src",
        f"{SUBQUERY}.HIGHER_ORDER_FUNCTION",
        f"SQL_{SUBQUERY}",
        hint="join",
    ),
    Case(
        "SELECT (SELECT id, name FROM src) FROM src",
        "INVALID_SUBQUERY_EXPRESSION.SCALAR_SUBQUERY_RETURN_MORE_THAN_ONE_OUTPUT_COLUMN",
        "SQL_INVALID_SUBQUERY_EXPRESSION",
        "(SELECT id, name FROM src)",
        "one column",
    ),
    Case(
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT CAST(n + 1 AS BIGINT) FROM r WHERE n < 5) SELECT n FROM r",
        "CANNOT_MERGE_INCOMPATIBLE_DATA_TYPE",
        "SQL_CANNOT_MERGE_INCOMPATIBLE_DATA_TYPE",
        hint="cast",
    ),
    Case(
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION SELECT n + 1 FROM r) SELECT n FROM r",
        "UNION_NOT_SUPPORTED_IN_RECURSIVE_CTE",
        "SQL_UNION_NOT_SUPPORTED_IN_RECURSIVE_CTE",
        hint="UNION ALL",
    ),
    Case(
        "SELECT a * 1.1 AS x FROM VALUES (INTERVAL '-2147483648' MONTH) AS t(a)",
        None,
        "DATA_OVERFLOW",
        "a * 1.1",
        "smaller",
    ),
    Case(
        "SELECT id FROM src WHERE id < (SELECT year(timestamp_millis(v)) FROM VALUES (92233720368547758) AS t(v))",
        None,
        "DATA_OVERFLOW",
        "timestamp_millis(v)",
    ),
    Case("SELECT randstr(3, 0) FROM src", None, "SQL_NONDETERMINISTIC", hint="column"),
]
TEMPLATES = ("SELECT {} AS x", "SELECT id,\n       {} AS x\nFROM src\nWHERE name = 'a'")
NAMES = count()


@pytest.fixture(scope="module")
def flow(session: ps.Session) -> ps.IncrementalFlow:
    """A flow in which no view is ever registered."""
    flow = ps.IncrementalFlow(session)
    flow.register_source("src", "id INT, name STRING")
    return flow


def refusal(flow: ps.IncrementalFlow, query: object) -> ps.PenstockError:
    """What `register_view` raises."""
    name = f"refused_{next(NAMES)}"
    with pytest.raises(ps.PenstockError) as caught:
        flow.register_view(name, query)
    assert str(caught.value.where).startswith(f"view '{name}', ")
    return caught.value


def check(error: ps.PenstockError, case: Case) -> None:
    """The error is Spark's by its class, in our words."""
    assert error.code == case.code, error
    assert error.condition == case.condition, error
    assert (case.condition or "_").startswith("_") or f"[{case.condition}" in str(error)
    assert case.hint in (error.hint or ""), error
    assert error.hint or case.code == "SQL_SPARK", error
    text = str(error)
    for trace in ("Py4J", "java.", "org.apache", "scala.", "\tat ", "Traceback", "== SQL", "JVM"):
        assert trace not in text, text
    assert error.__suppress_context__


def check_connection(error: ps.PenstockError, sql: str, part: str) -> None:
    """The place is a part of the text: its line, its column and a caret under each of its characters."""
    before = sql[: sql.index(part)]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    place = str(error.where)
    assert f"line {line}, column {column}\n" in place, error
    marked = re.search(r"\^+$", place)
    assert marked is not None
    # Of a function that Spark replaces by others, only the column that it stands in is known.
    assert len(marked[0]) in (len(part), len(f"{part} AS x")), error


@pytest.mark.parametrize("template", TEMPLATES, ids=["alone", "with columns"])
@pytest.mark.parametrize("case", EXPRESSIONS)
def test_an_expression_over_constants_is_refused_with_its_place(
    flow: ps.IncrementalFlow, case: Case, template: str
) -> None:
    sql = template.format(case.sql)
    error = refusal(flow, sql)
    check(error, case)
    check_connection(error, sql, case.at or case.sql)


@pytest.mark.parametrize("case", QUERIES, ids=lambda case: case.sql)
def test_a_query_that_spark_refuses_is_an_error_of_ours(flow: ps.IncrementalFlow, case: Case) -> None:
    error = refusal(flow, case.sql)
    check(error, case)
    if case.at is not None:
        check_connection(error, case.sql, case.at)


@pytest.mark.parametrize("kind", KINDS)
def test_every_door_of_the_session_gives_the_same_error(session: ps.Session, kind: str) -> None:
    doors: list[Callable[[str], object]] = [session.explain_stages]
    if kind != "intervals":  # those of months are refused for their type before they are computed
        doors.append(lambda text: session.sql_with_timeout(text, 60_000))
        doors.append(lambda text: session.submit(text).result(timeout=60))
    for case in KINDS[kind]:
        sql = TEMPLATES[0].format(case.sql)
        for door in doors:
            with pytest.raises(ps.PenstockError) as caught:
                door(sql)
            check(caught.value, case)
            check_connection(caught.value, sql, case.at or case.sql)


def test_a_view_of_a_dataframe_has_the_line_of_the_program(flow: ps.IncrementalFlow) -> None:
    error = refusal(flow, flow.table("src").select(F.lit("x").cast("int").alias("n")))
    assert (error.code, error.condition) == ("DATA_CAST", "CAST_INVALID_INPUT")
    assert "test_planning_errors.py:" in str(error.where)


@pytest.mark.parametrize(
    ("sql", "code", "place"),
    [
        (
            "EXECUTE IMMEDIATE 'SELECT id, 1 / 0 AS x FROM src'",
            "DATA_DIVIDE_BY_ZERO",
            "line 1, column 31\n    EXECUTE IMMEDIATE 'SELECT id, 1 / 0 AS x FROM src'\n"
            + " " * 34
            + "^^^^^",
        ),
        ("EXECUTE IMMEDIATE 'SELECT id,\n1 / 0 ' || 'AS x FROM src'", "DATA_DIVIDE_BY_ZERO", "1 / 0"),
        (
            "EXECUTE IMMEDIATE 'SELECT 1,\n 2 FORM src x'",
            "SQL_SYNTAX",
            "line 2, column 9\n     2 FORM src x\n",
        ),
        ("EXECUTE IMMEDIATE 5", "SQL_INVALID_EXPR_TYPE_FOR_QUERY_EXECUTE_IMMEDIATE", "EXECUTE IMMEDIATE 5"),
        (
            "SELECT id AS `ä`, '🙂' AS smile, CAST('🙂' AS INT) AS x FROM src",
            "DATA_CAST",
            "CAST('🙂' AS INT)",
        ),
    ],
)
def test_the_place_is_in_the_text_that_failed(
    flow: ps.IncrementalFlow, sql: str, code: str, place: str
) -> None:
    error = refusal(flow, sql)
    assert error.code == code
    assert place in str(error.where), error


STATEMENTS = [
    "DROP VIEW kept",
    "CREATE OR REPLACE TEMPORARY VIEW kept AS SELECT 2 AS n",
    "INSERT INTO kept VALUES (2)",
    "WITH two AS (SELECT 2 AS n) INSERT INTO kept SELECT n FROM two",
    "SET VAR x = 1",
    "SET spark.sql.shuffle.partitions = 3",
    "EXPLAIN SELECT 1",
    "BEGIN SELECT 1; DROP VIEW kept; END",
    "DROP VIEW IDENTIFIER('kept')",
    "CREATE OR REPLACE TEMPORARY VIEW IDENTIFIER('ke' || 'pt') AS SELECT 2 AS n",
    "CREATE TABLE IDENTIFIER('made')(n INT) USING parquet",
    "EXECUTE IMMEDIATE 'DROP VIEW kept'",
    "EXECUTE IMMEDIATE 'CREATE TABLE ' || 'made(n INT) USING parquet'",
    "EXECUTE IMMEDIATE 'CREATE OR REPLACE TEMPORARY VIEW IDENTIFIER(:x) AS SELECT 2 AS n' USING 'kept' AS x",
    "EXECUTE IMMEDIATE 'EXECUTE IMMEDIATE ''DROP VIEW kept'''",
    "EXECUTE IMMEDIATE 'SELECT 2' INTO x",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_is_no_view_and_does_not_run(
    session: ps.Session, flow: ps.IncrementalFlow, statement: str
) -> None:
    session.sql("CREATE OR REPLACE TEMPORARY VIEW kept AS SELECT 1 AS n")
    error = refusal(flow, statement)
    assert error.code in {"SQL_NOT_A_QUERY", "SQL_SYNTAX"}
    assert session.sql("SELECT n FROM kept").collect()[0][0] == 1
    assert not session.spark.catalog.tableExists("made")
