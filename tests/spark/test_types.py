"""Every type as a column of sources, views and keys: the answer of the view is Spark's, or both refuse the query."""

from __future__ import annotations

import json
from datetime import time, timedelta

import pyarrow as pa
import pytest

import penstock as ps
from golden.spark_answer import INTERPRETED, settings
from penstock.data.collation import normaliser
from penstock.errors import ConfigError, DataError, PenstockError
from penstock.spark.arrow import to_frame
from twin import typed
from twin.typed import Kind

TIME = {"spark.sql.timeType.enabled": "true"}


def _intervals(unit: str, *texts: str) -> list[str]:
    return [f"INTERVAL '{text}' {unit}" for text in texts]


def _months(*numbers: int) -> list[pa.MonthDayNano]:
    return [pa.MonthDayNano([number, 0, 0]) for number in numbers]


KINDS = [
    Kind(
        "year_to_month",
        "INTERVAL YEAR TO MONTH",
        _intervals("YEAR TO MONTH", "1-2", "3-0", "-1-11", "0-0"),
        ["1-2", "INTERVAL '3-0' YEAR TO MONTH", "-1-11", "0-0"],
        numeric=True,
        whole=True,
    ),
    Kind(
        "year",
        "INTERVAL YEAR",
        _intervals("YEAR", "1", "3", "-11", "0"),
        _months(12, 36, -132, 0),
        numeric=True,
    ),
    Kind(
        "month",
        "INTERVAL MONTH",
        _intervals("MONTH", "1", "3", "-11", "0"),
        _months(1, 3, -11, 0),
        numeric=True,
    ),
    Kind(
        "day_to_second",
        "INTERVAL DAY TO SECOND",
        _intervals("DAY TO SECOND", "1 02:03:04.5", "3 00:00:00", "-1 23:59:59.999999", "0 00:00:00"),
        ["1 02:03:04.5", "3 00:00:00", "-1 23:59:59.999999", "0 00:00:00"],
        numeric=True,
    ),
    Kind(
        "hour_to_minute",
        "INTERVAL HOUR TO MINUTE",
        _intervals("HOUR TO MINUTE", "100:30", "3:00", "-1:59", "0:00"),
        [timedelta(hours=100, minutes=30), timedelta(hours=3), -timedelta(minutes=119), timedelta(0)],
        numeric=True,
    ),
    Kind(
        "day",
        "INTERVAL DAY",
        _intervals("DAY", "1", "3", "-11", "0"),
        [timedelta(1), timedelta(3), timedelta(-11), timedelta(0)],
        numeric=True,
    ),
    Kind(
        "calendar",
        "INTERVAL",
        [
            "make_interval(1, 2, 0, 3, 4, 5, 6.789)",
            "make_interval(0, 0, 0, 1)",
            "make_interval(0, -1, 0, 40, -1)",
            "make_interval()",
        ],
        [
            pa.MonthDayNano([14, 3, ((4 * 60 + 5) * 60 * 1000 + 6789) * 1_000_000]),
            pa.MonthDayNano([0, 1, 0]),
            pa.MonthDayNano([-1, 40, -3_600_000_000_000]),
            pa.MonthDayNano([0, 0, 0]),
        ],
    ),
    Kind(
        "variant",
        "VARIANT",
        [
            """parse_json('{"b": 1, "a": [1.50, "x", null, true]}')""",
            """parse_json('12345678901234567890')""",
            """parse_json('"text"')""",
            """parse_json('null')""",
        ],
        ['{"b": 1, "a": [1.50, "x", null, true]}', "12345678901234567890", '"text"', "null"],
        extra={
            "paths": "SELECT id, k:b::int AS b, k:a[1]::string AS a, v:a AS whole FROM t",
            "gets": "SELECT id, try_variant_get(k, '$.a[0]', 'decimal(5,2)') AS d, try_variant_get(v, '$', 'bigint') AS n FROM t",
            "group_of_path": "SELECT k:b::int AS b, count(*) AS c FROM t GROUP BY k:b::int",
            "json": "SELECT id, to_json(k) AS j, schema_of_variant(k) AS s, is_variant_null(v) AS z FROM t",
            "made": "SELECT id, parse_json(CAST(n AS STRING)) AS p, CAST(n AS VARIANT) AS c, to_variant_object(named_struct('n', n)) AS o FROM t",
            "variant_exploded": "SELECT id, pos, value FROM t, LATERAL variant_explode(k)",
            # Spark fails when it shuffles by a VARIANT, which a DISTINCT count does.
            "counts": "SELECT n, count(k) AS c, count(v) AS d FROM t GROUP BY n",
            "strict": "SELECT id, variant_get(v, '$.b', 'int') AS b FROM t WHERE n = 1",
        },
        whole=True,
    ),
    Kind(
        "time",
        "TIME(6)",
        ["TIME'12:30:00.123456'", "TIME'23:59:59.999999'", "TIME'00:00:00'", "TIME'01:02:03'"],
        [time(12, 30, 0, 123456), time(23, 59, 59, 999999), time(0), time(1, 2, 3)],
        conf=TIME,
        extra={
            "fields": "SELECT id, hour(k) AS h, minute(k) AS m, second(k) AS s, extract(SECOND FROM k) AS e FROM t",
            "made": "SELECT id, make_time(n, 2, 3.5) AS m, to_time('01:02:0' || n) AS t, try_to_time('x') AS x FROM t",
            "moved": "SELECT id, k - v AS d, time_diff('MINUTE', k, v) AS f, time_trunc('HOUR', k) AS h FROM t",
            "later": "SELECT id, k + INTERVAL '1' SECOND AS p FROM t WHERE k < TIME'20:00:00'",
            "narrow": "SELECT id, CAST(k AS TIME(2)) AS n, CAST(k AS TIME(0)) AS z, CAST(CAST(k AS TIME(0)) AS TIME(6)) AS w FROM t",
        },
    ),
    Kind(
        "time_of_seconds",
        "TIME(0)",
        ["TIME'12:30:00'", "TIME'23:59:59'", "TIME'00:00:00'", "TIME'01:02:03'"],
        ["12:30:00.9", "23:59:59", "00:00", "01:02:03"],
        conf=TIME,
    ),
    Kind("char", "CHAR(5)", ["'ab'", "'abc  '", "''", "'ABCDE'"], ["ab", "abc  ", "", "ABCDE"], stored=True),
    Kind(
        "varchar", "VARCHAR(5)", ["'ab'", "'ab  '", "''", "'ABCDE'"], ["ab", "ab  ", "", "ABCDE"], stored=True
    ),
    Kind(
        "lower_case",
        "STRING COLLATE UTF8_LCASE",
        ["'Abc'", "'aBC'", "'ÄB'", "'äb'"],
        ["Abc", "aBC", "ÄB", "äb"],
        extra={
            "compared": "SELECT id, k = 'ABC' AS e, k <=> v AS s, k < v AS l, k IN ('abc', 'x') AS i, nullif(k, v) AS x FROM t",
            "searched": "SELECT id, contains(k, 'B') AS c, startswith(k, 'A') AS s, k LIKE 'a%' AS l, replace(v, 'b', 'x') AS r, instr(v, 'B') AS p FROM t",
        },
        shown="lower({})",
        whole=True,
    ),
    Kind(
        "unicode",
        "STRING COLLATE UNICODE",
        ["'a'", "'A'", "'b'", "'B'"],
        ["a", "A", "b", "B"],
    ),
    Kind(
        "accents",
        "STRING COLLATE UNICODE_CI_AI",
        ["'café'", "'CAFE'", "'b'", "'Z'"],
        ["café", "CAFE", "b", "Z"],
        shown="lower(translate({}, 'é', 'e'))",
    ),
    Kind(
        "blanks",
        "STRING COLLATE UTF8_BINARY_RTRIM",
        ["'a'", "'a  '", "'b'", "''"],
        ["a", "a  ", "b", ""],
        shown="rtrim({})",
    ),
]


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in KINDS])
def test_views_over_a_type_give_the_answers_of_spark(session: ps.Session, kind: Kind) -> None:
    with settings(session.spark, {**INTERPRETED, **kind.conf}):
        tables = typed.Tables(session.spark, kind)
        try:
            tables.show("d", typed.STATIC)
            views = typed.Views(session, kind, tables.schema)
            wrong = []
            for number, (tick, state) in enumerate(zip(typed.TICKS, typed.states(), strict=True)):
                views.tick(tick)
                if not number:
                    continue
                wrong += typed.differences(typed.answers(session.spark, tables, kind, state), views.answers())
            assert not wrong, "\n".join(wrong)
        finally:
            tables.drop()


COMPARED = [kind for kind in KINDS if "COLLATE" not in kind.ddl and kind.name not in ("variant", "char")]


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in COMPARED])
def test_rows_are_replaced_and_found_by_a_key_of_a_type(session: ps.Session, kind: Kind) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("s", f"k {kind.ddl}, n INT", primary_key="k")
    first, second, third = kind.fed[:3]
    flow.tick("s", [{"k": first, "n": 1}, {"k": second, "n": 2}])
    flow.tick("s", [{"k": first, "n": 3}, {"k": third, "n": 4}])
    flow.tick("s", ps.DeltaBatch.deletes([{"k": second}]))
    assert sorted(flow.snapshot("s").column("n").to_pylist()) == [3, 4]
    assert flow.lookup("s", k=first).column("n").to_pylist() == [3]
    assert flow.lookup("s", k=second).num_rows == 0


@pytest.mark.parametrize("ddl", ["STRING COLLATE UNICODE_CI", "VARIANT", "ARRAY<STRING COLLATE UTF8_LCASE>"])
def test_keys_that_would_be_compared_by_bytes_are_refused(session: ps.Session, ddl: str) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("s", f"id INT, k {ddl}")
    for attempt in (
        lambda: flow.register_source("keyed", f"id INT, k {ddl}", primary_key="k"),
        lambda: flow.lookup("s", k=None),
        lambda: flow.feed("s", ps.DeltaBatch.upserts(pa.table({"id": [1], "k": ["1"]}), keys=["k"])),
    ):
        with pytest.raises(ConfigError) as caught:
            attempt()
        assert caught.value.code == "FLOW_KEY_TYPE"


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in KINDS])
def test_what_a_flow_gives_declares_and_feeds_another(session: ps.Session, kind: Kind) -> None:
    first = ps.IncrementalFlow(session)
    schema = typed.Tables(session.spark, kind).schema
    first.register_source("t", schema("t"))
    first.register_source("z", schema("z"))
    for name in ("t", "z"):
        first.tick(name, typed.fed_rows(kind, name, typed.TICKS[0][name][0]))
        rows = first.snapshot(name)
        copy = ps.IncrementalFlow.from_definition(first.definition())
        for given in (rows, *((rows.to_pylist(), rows.to_pandas()) if name == "t" else ())):
            copy.tick(name, given)
            assert copy.snapshot(name).equals(rows)
            copy.tick(name, ps.DeltaBatch.deletes(rows))
        other = ps.IncrementalFlow(session)
        other.register_source(name, rows.schema)
        other.tick(name, rows)
        assert other.snapshot(name).equals(rows)
        assert other.definition() == copy_of_definition(first, name)


@pytest.mark.parametrize("retain", ["all", "used"])
def test_rows_are_replaced_and_found_by_a_collated_key(session: ps.Session, retain: str) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("s", "k STRING COLLATE UTF8_LCASE, n INT", primary_key="k", retain=retain)
    flow.register_view("v", "SELECT k, n FROM s")
    flow.tick("s", [{"k": "Abc", "n": 1}, {"k": "ÄB", "n": 2}, {"k": "x", "n": 5}])
    flow.tick("s", [{"k": "aBC", "n": 3}])
    flow.tick("s", ps.DeltaBatch.deletes([{"k": "äb"}]))
    flow.tick("s", ps.DeltaBatch.upserts([{"k": "X", "n": 6}], keys=["k"]))
    assert sorted(flow.snapshot("v").to_pydict()["k"]) == ["X", "aBC"]
    assert flow.lookup("v", k="ABC").to_pylist() == [{"k": "aBC", "n": 3}]
    assert flow.lookup("v", k="äb").num_rows == 0
    if retain == "all":
        assert flow.lookup("s", k="ABC", n=3).num_rows == 1


def test_small_letters_are_those_of_spark(session: ps.Session) -> None:
    # Letters with a case, and the blocks in which newer ones may be.
    blocks = (range(0x1C80, 0x1D00), range(0xA700, 0xA800), range(0x10D40, 0x10D90))
    letters = [chr(code) for block in blocks for code in block]
    cased = (chr(code) for code in range(1, 0x20000) if chr(code).lower() != chr(code).upper())
    letters = sorted(
        {form for letter in cased for form in (letter, letter.lower(), letter.upper())} | set(letters)
    )
    normalise = normaliser("string collate UTF8_LCASE")
    assert normalise is not None
    column = pa.array(letters, pa.large_string())
    keys = normalise(column)
    frame = to_frame(session.spark, [column, keys], ["c", "k"], ["string", "string"])
    groups = frame.selectExpr("c COLLATE UTF8_LCASE AS c", "k").groupBy("c")
    apart = groups.agg({"k": "min"}).join(groups.agg({"k": "max"}), "c").where("`min(k)` <> `max(k)`")
    assert apart.collect() == []
    assert groups.count().count() == len(set(keys.to_pylist()))


def copy_of_definition(flow: ps.IncrementalFlow, name: str) -> str:
    """The definition of a flow with one of its sources."""
    saved = json.loads(flow.definition())
    saved["sources"] = [source for source in saved["sources"] if source["name"] == name]
    return json.dumps(saved, separators=(",", ":"))


def test_text_that_is_too_long_is_the_error_of_spark(session: ps.Session) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("s", "c CHAR(2), a ARRAY<VARCHAR(2)>")
    for row in ({"c": "abc", "a": []}, {"c": "a", "a": ["abc"]}):
        with pytest.raises(DataError) as caught:
            flow.tick("s", [row])
        assert caught.value.code == "DATA_LENGTH"
    flow.tick("s", [{"c": "a   ", "a": ["b   "]}])
    assert flow.snapshot("s").to_pylist() == [{"c": "a ", "a": ["b "]}]


def test_time_needs_its_setting_as_in_spark(session: ps.Session) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("s", "c TIME(3)")
    with pytest.raises(PenstockError) as caught:
        flow.register_view("v", "SELECT c FROM s")
    assert caught.value.condition == "UNSUPPORTED_TIME_TYPE"


RESULTS = [
    ("INTERVAL '1-2' YEAR TO MONTH", pa.MonthDayNano([14, 0, 0])),
    ("array(INTERVAL '1' YEAR, NULL)", [pa.MonthDayNano([12, 0, 0]), None]),
    ("named_struct('x', INTERVAL '-3' MONTH)", {"x": pa.MonthDayNano([-3, 0, 0])}),
    ("make_interval(0, 1, 0, 2, 0, 0, 0.5)", pa.MonthDayNano([1, 2, 500_000_000])),
    ("INTERVAL '1' DAY", timedelta(1)),
]


@pytest.mark.parametrize(("text", "expected"), RESULTS, ids=[text for text, _ in RESULTS])
def test_batch_results_with_intervals_reach_arrow(session: ps.Session, text: str, expected: object) -> None:
    query = f"SELECT {text} AS c FROM range(2)"
    assert session.sql_with_timeout(query, 60_000).to_pydict() == {"c": [expected] * 2}
    operation = session.submit(query)
    batches = [batch for ticket in operation.tickets for batch in operation.fetch(ticket)]
    assert pa.Table.from_batches(batches, operation.schema).to_pydict() == {"c": [expected] * 2}
