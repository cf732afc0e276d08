"""JSON functions against Spark: written cases, then random texts that are ordinary, lenient or broken."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock import DeltaBatch
from penstock.functions import evaluate
from seed import SEED
from twin import json_text
from twin.judge import Judge, Table, grid

TEXTS: list[str | None] = [
    None,
    "",
    "  ",
    "null",
    "1",
    "1x",
    "true",
    '"a"',
    "'a'",
    "{}",
    "[]",
    "{",
    "[",
    "}",
    '{"a"',
    '{"a":',
    '{"a":1',
    '{"a":1,',
    '{"a":1,}',
    '{"a":1} trailing',
    '{"a":1}{"a":2}',
    '\ufeff{"a":1}',
    '{"a":1,"b":"x"}',
    ' {"a" : 1 , "b" :\n"x" } ',
    '{"a":1,"a":2}',
    '{"a":1,"a":"x"}',
    '{"a":"x","a":1}',
    '{"a":1,"a":null}',
    '{"A":1,"a ":2}',
    '{"a":"1"}',
    '{"a":1.0}',
    '{"a":1.5,"b":1.50}',
    '{"a":-0,"b":-0}',
    '{"a":-0.0,"b":-0.0}',
    '{"a":1e2,"b":1e2}',
    '{"a":2147483648,"b":12345678901234567890}',
    '{"a":null,"b":null}',
    '{"a":true,"b":true}',
    '{"a":{"b":{"c":[1,{"d":"e"}]}}}',
    '{"a":[1,2,3],"b":[1.10,"x",null,{"y":[]}]}',
    '{"a":[[1,2],[3,[4]]],"b":2}',
    '{"a":[{"b":1},{"b":2},{"c":3}]}',
    '{"a":[{"b":[1,2]},{"b":[3]}]}',
    '{"a":[{"b":"x"}]}',
    '{"a":["x"]}',
    '{"a":[null]}',
    '[{"a":1},{"a":2}]',
    '[{"a":"x"}]',
    "[1,2,3]",
    '["x","y"]',
    "[[1],[2,3]]",
    '[{"a":[1,2]},{"a":[3]}]',
    '{"a":NaN,"b":NaN}',
    '{"a":Infinity,"b":-Infinity}',
    '{"a":+INF,"b":-INF}',
    '{"a":+Infinity}',
    '{"a":+1}',
    '{"a":01,"b":1}',
    '{"a":.5}',
    '{"a":5.}',
    '{"a":1e}',
    '{"a":0x1}',
    '{"a":tru,"b":1}',
    '{"a":truex,"b":1}',
    '{"a":{"x":tru},"b":1}',
    '{"b":1,"a":[tru,1],"c":2}',
    '{"a":[1.,2],"b":3}',
    '{"a":[0.x,2],"b":3}',
    '{"a":"\\q","b":1}',
    '{"a":"\\q,"b":1}',
    '{"a":"x\\u00e9y","b":"\\u0041"}',
    '{"a":"\\ud83d\\ude00","b":["\\ud83d\\ude00","😀"]}',
    '{"a":"\\ud83d","b":["\\ud83d"]}',
    '{"b":"\\ude00x"}',
    '{"a":"\\ud83dx"}',
    '{"a\\u0062":1,"ab":2}',
    '{"a":"tab\there","b":"x\x01y"}',
    '{"a":"line\nbreak"}',
    '{"b":{"k\n":"\\u0001\\t\\/\\"\\\\"}}',
    "{'a':'it\\'s','b':'x\"y'}",
    "{a:1}",
    '{"a" 1}',
    '{"a":1 "b":2}',
    '{"a":1/*c*/,"b":2}',
    '{"a":1,//c\n"b":2}',
    "#c",
    '{"a":1;"b":2}',
    '{"x y":1,"":2,"é":3}',
    '{"a.b":1,"a":{"b":2}}',
    '{"d":"2024-02-29","b":"2024-02-30"}',
    '{"d":"19000","b":1}',
    '{"d":"17"}',
    '{"d":"-200000000"}',
    '{"d":"2024-01-02T03:04:05Z"}',
    '{"e":1.005,"f":0.1}',
    '{"e":"1,234.565","f":"NaN"}',
    '{"e":12345678901,"f":1e39}',
    '{"e":"","f":""}',
    '{"e":"1e1","f":16777217}',
    "[" * 1001 + "]" * 1001,
    '{"a":' * 999 + "1" + "}" * 999,
    '{"a":' + "1" * 1001 + "}",
    '{"a":' + "1" * 999 + "}",
    '\x1e{"a":1}',
]
PATHS = [
    "$",
    "$.a",
    "$.b",
    "$.a.b",
    "$.a.b.c",
    "$['a']",
    "$['x y']",
    "$.x y",
    "$. a",
    "$['a']['b']",
    "$.a[0]",
    "$.a[1]",
    "$.a[*]",
    "$.a[*].b",
    "$.a[*].b[0]",
    "$.a[*].b[*]",
    "$.a[*][*]",
    "$.a[0][*]",
    "$.a[1][1][*]",
    "$.b[*]",
    "$.b[3].y",
    "$[0]",
    "$[*]",
    "$[*].a",
    "$[*].a[*]",
    "$[*][*]",
    "$[*][0]",
    "$[0].a[1]",
    "$[5]",
    "$.*",
    "$.a.*",
    "$['*']",
    "$..a",
    "$a",
    "a",
    "",
    " $.a",
    "$.a ",
    "$ ['a']",
    "$[ 0]",
    "$[0 ]",
    "$.A",
    "$['']",
    "$.'a'",
    "$[-1]",
    "$.é",
]
SCHEMAS = [
    "a INT, b STRING",
    "a STRING, b BIGINT, c INT",
    "a DOUBLE, b FLOAT",
    "a TINYINT, b SMALLINT",
    "a BOOLEAN, b BOOLEAN",
    "a ARRAY<INT>, b INT",
    "a ARRAY<STRUCT<b: INT>>, b STRING",
    "a ARRAY<MAP<STRING, INT>>, b INT",
    "a STRUCT<b: STRUCT<c: ARRAY<INT>>, x: BOOLEAN>, b INT",
    "a MAP<STRING, STRING>, b ARRAY<STRING>",
    "d DATE, e DECIMAL(10, 2), f FLOAT, b DATE",
    "f DOUBLE, e DECIMAL(38, 18)",
    "a INT, _corrupt_record STRING, b INT",
    "MAP<STRING, INT>",
    "MAP<STRING, STRING>",
    "MAP<STRING, STRUCT<b: INT>>",
    "ARRAY<INT>",
    "ARRAY<STRING>",
    "ARRAY<STRUCT<a: INT>>",
    "ARRAY<MAP<STRING, INT>>",
]
OPTIONS = [
    ("a STRING, b INT", "map('allowUnquotedFieldNames', 'true')"),
    ("a STRING, b INT", "map('allowSingleQuotes', 'false')"),
    ("a DOUBLE, b INT", "map('allowNumericLeadingZeros', 'true')"),
    ("a DOUBLE, b DOUBLE", "map('allowNonNumericNumbers', 'false')"),
    ("a STRING, b INT", "map('allowBackslashEscapingAnyCharacter', 'true')"),
    ("a STRING, b STRING", "map('allowUnquotedControlChars', 'true')"),
    ("a INT, b INT", "map('allowComments', 'true')"),
    ("a INT, b STRING", "map('mode', 'FAILFAST')"),
    ("a INT, bad STRING", "map('columnNameOfCorruptRecord', 'bad', 'mode', 'permissive')"),
]
SMALL = [
    "json_array_length(j)",
    "json_object_keys(j)",
    "json_array_length(get_json_object(j, '$.a'))",
    "from_json(j, 'a INT, b STRING').a",
    "from_json(j, 'a INT, b STRING, c ARRAY<INT>').b",
    "from_json(j, 'ARRAY<STRUCT<a: INT>>')[0].a",
]


def differences(spark: SparkSession, table: Table, expressions: list[str]) -> dict[str, Any]:
    judge = Judge(spark, table, expressions)
    for expression in judge.root.expressions:  # type: ignore[union-attr]
        assert evaluate.unsupported(expression) is None
    return {text: wrong for index, text in enumerate(expressions) if (wrong := judge.differences(index))}


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def schemas() -> list[str]:
    return [f"from_json(j, {quoted(schema)})" for schema in SCHEMAS]


def test_paths(spark: SparkSession) -> None:
    table: Table = {"j": ("string", TEXTS)}
    assert differences(spark, table, [f"get_json_object(j, {quoted(path)})" for path in PATHS]) == {}


def test_paths_in_a_column(spark: SparkSession) -> None:
    table = grid(j=("string", TEXTS[::3]), p=("string", [None, *PATHS[::2]]))
    assert differences(spark, table, ["get_json_object(j, p)"]) == {}


def test_schemas(spark: SparkSession) -> None:
    table: Table = {"j": ("string", TEXTS)}
    assert differences(spark, table, [*schemas(), *SMALL]) == {}


def test_options(spark: SparkSession) -> None:
    table: Table = {"j": ("string", TEXTS)}
    expressions = [f"from_json(j, {quoted(schema)}, {options})" for schema, options in OPTIONS]
    assert differences(spark, table, expressions) == {}


def test_nested_values_are_lost_as_a_whole_without_partial_results(spark: SparkSession) -> None:
    name = "spark.sql.json.enablePartialResults"
    before = str(spark.conf.get(name))
    spark.conf.set(name, "false")
    try:
        table: Table = {"j": ("string", TEXTS)}
        assert differences(spark, table, schemas()) == {}
    finally:
        spark.conf.set(name, before)


@pytest.mark.parametrize("round", range(2))
def test_random_texts(spark: SparkSession, round: int) -> None:
    print(f"seed {SEED}")
    rng = random.Random(f"{SEED} {round}")
    table: Table = {"j": ("string", [json_text.text(rng) for _ in range(1500)])}
    paths = [f"get_json_object(j, {quoted(path)})" for path in rng.sample(PATHS[:28], 12)]
    made = [f"from_json(j, {quoted(schema)})" for schema in rng.sample(SCHEMAS, 10)]
    schema, options = rng.choice(OPTIONS[:7])
    lenient = f"from_json(j, {quoted(schema)}, {options})"
    assert differences(spark, table, [*paths, *made, lenient, *SMALL]) == {}


VALUES: dict[str, tuple[str, list[Any]]] = {
    "s": (
        "struct<a:int,b:string,c:array<string>,d:map<string,int>>",
        [
            None,
            {"a": 1, "b": 'x"\\/\n\x01é😀\u2028\x7f', "c": ["p", None], "d": [("k", 1), ("l", None)]},
            {"a": None, "b": None, "c": None, "d": None},
            {"a": -1, "b": "", "c": [], "d": []},
        ],
    ),
    "n": ("double", [1.5, float("nan"), 1e10, -0.0]),
    "f": ("float", [0.1, float("inf"), 1e-5, 3.4028234663852886e38]),
    "e": ("decimal(20,10)", [Decimal("0E-10"), Decimal("1.5000000000"), Decimal("-0.0000000001"), None]),
    "t": (
        "timestamp",
        [
            datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC),
            datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
            datetime(2024, 7, 1, tzinfo=UTC),
            None,
        ],
    ),
    "m": ("timestamp_ntz", [datetime(2024, 2, 29, 12, 30, 15, 123456), datetime(1, 1, 1), None, None]),
    "d": ("date", [date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31), None]),
    "b": ("binary", [b"", b"abc", b"\x00\xff", None]),
    "a": (
        "array<struct<x:boolean,y:bigint>>",
        [[{"x": True, "y": 2**63 - 1}, None], [], None, [{"x": None, "y": None}]],
    ),
    "k": ("map<int,array<double>>", [[(1, [1.0, None])], [], None, [(-1, None)]]),
}
WRITTEN = [
    "to_json(s)",
    "to_json(s.c)",
    "to_json(s.d)",
    "to_json(a)",
    "to_json(k)",
    "to_json(named_struct('n', n, 'f', f, 'e', e, 't', t, 'm', m, 'd', d, 'b', b))",
    "to_json(named_struct('n', n, 's', s), map('ignoreNullFields', 'false'))",
    "to_json(struct(*))",
    "to_json(array(n, e))",
    "to_json(from_json(to_json(s), 'a INT, b STRING, c ARRAY<STRING>, d MAP<STRING, INT>'))",
]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris", "+05:30"])
def test_values_to_text(spark: SparkSession, zone: str) -> None:
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        assert differences(spark, VALUES, WRITTEN) == {}
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


VIEWS = {
    "parsed": "SELECT id, p.a AS a, p.b AS b FROM (SELECT id, from_json(j, 'a INT, b STRING') AS p FROM t)",
    "found": "SELECT id, regexp_substr(w, '[a-c]+') AS r, get_json_object(j, '$.b') AS b, json_array_length(j) AS n, md5(j) AS digest FROM t",
    "fields": "SELECT id, x, y FROM t LATERAL VIEW json_tuple(j, 'a', 'b') f AS x, y",
    "outer_fields": "SELECT id, x FROM t LATERAL VIEW OUTER json_tuple(j, w) f AS x",
    "words": "SELECT word, count(*) AS n FROM t LATERAL VIEW explode(split(w, '[, ]+')) s AS word GROUP BY word",
    "written": "SELECT id, to_json(named_struct('w', w, 'id', id)) AS j, concat_ws('-', split(w, ','), w) AS c FROM t",
    "alike": "SELECT a.id, b.id AS other FROM t a JOIN t b ON a.w LIKE concat(b.w, '%')",
}
ROWS = [
    (number, TEXTS[number], word)
    for number, word in enumerate(["a", "a,b", None, "", "b c", "x%", "a, b,c", "_"] * 12)
    if number < len(TEXTS) - 4
]


KINDS = {"id": pa.int64(), "j": pa.string(), "w": pa.string()}


def test_views_follow_their_rows_and_need_no_jvm(session: ps.Session) -> None:
    flow = ps.IncrementalFlow(session, name="json")
    flow.register_source("t", "id BIGINT, j STRING, w STRING")
    for name, query in VIEWS.items():
        flow.register_view(name, query)
        assert flow.explain(name).tier == "kernel", name
    rebuilt = ps.IncrementalFlow.from_definition(flow.definition())
    names = ("id", "j", "w")
    ticks = [
        [(row, 1) for row in ROWS[:50]],
        [(row, -1) for row in ROWS[5:20]] + [(row, 1) for row in ROWS[50:]],
        [(ROWS[30], 1), (ROWS[40], -1)],
    ]
    counts: Counter[tuple[Any, ...]] = Counter()
    for tick in ticks:
        for each in (flow, rebuilt):
            each.tick(
                "t",
                DeltaBatch.weighted(
                    [dict(zip(names, row, strict=True), _weight=weight) for row, weight in tick]
                ),
            )
        counts.update(dict(tick))
        rows = [row for row, count in counts.items() for _ in range(count)]
        columns = dict(zip(names, zip(*rows, strict=True), strict=True))
        table = pa.table({name: pa.array(values, KINDS[name]) for name, values in columns.items()})
        session.spark.createDataFrame(table).createOrReplaceTempView("t")
        for name, query in VIEWS.items():
            wanted = Counter(map(tuple, session.spark.sql(query).collect()))
            for each in (flow, rebuilt):
                assert Counter(tuple(row.values()) for row in each.snapshot(name).to_pylist()) == wanted, name
    session.spark.catalog.dropTempView("t")
