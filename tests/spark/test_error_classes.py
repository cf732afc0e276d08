"""What the kernel refuses has Spark's own error class, the one that a batch query has for the same row."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from twin.judge import Judge, Table

ROW: Table = {
    "y": ("tinyint", [127]),
    "h": ("smallint", [32767]),
    "i": ("int", [2147483647]),
    "l": ("bigint", [2**63 - 1]),
    "neg": ("int", [-(2**31)]),
    "z": ("int", [0]),
    "d": ("double", [1e300]),
    "zd": ("double", [0.0]),
    "m": ("decimal(38,0)", [Decimal("9" * 38)]),
    "n": ("decimal(10,2)", [Decimal("99999999.99")]),
    "s": ("string", ["x y"]),
    "long": ("string", ["9" * 60]),
    "ten": ("string", ["9" * 10]),
    "t": ("timestamp", [datetime(9999, 12, 31, tzinfo=UTC)]),
    "day": ("date", [date(9999, 12, 31)]),
    "ntz": ("timestamp_ntz", [datetime(9999, 12, 31)]),
    "a": ("array<int>", [[1, 2]]),
    "twice": ("array<string>", [["k", "k"]]),
    "gap": ("array<string>", [["k", None]]),
    "b": ("binary", [b"\xff"]),
    "broken": ("string", ['{"a":']),
}
NUMBERS = """
y + y|h - -h|i + 1|l + 1|y * y|i * 2|m + m|n * m|m / 0.0001|-neg|abs(neg)|i / z|d / zd|i % z|n % 0.00|pmod(i, z)|i div z
cast(i as tinyint)|cast(d as bigint)|cast(m as int)|cast(t as int)|cast(d as decimal(10,2))|cast(m as decimal(10,0))|round(i, -1)|bround(h, -1)
"""
TEXTS = """
cast(s as int)|cast(s as double)|cast(s as decimal(10,2))|cast(long as decimal(10,2))|cast(ten as decimal(5,2))|cast(s as date)|cast(s as timestamp)
cast(s as boolean)|decode(b, 'UTF-8')|url_decode(concat(s, '%zz'))|elt(i, s, s)|split_part(s, ' ', z)|bit_get(i, z + 99)
s like concat(s, '\\\\')|s like concat('\\\\', s)|from_json(broken, 'a INT', map('mode', 'FAILFAST'))
"""
TIMES = """
make_date(2024, 13 + z, 1)|make_timestamp(2024, 1, 1, 1, 1, z + 61)|make_timestamp(2024, 1, 1, 1, 1, 60.5 + z)|add_months(day, i)
timestampadd(YEAR, i, t)|timestamp_seconds(l)|t + interval '106751990' day|to_timestamp(s, 'yyyy-MM-dd')|unix_timestamp(s)
date_format(t, concat('Y', s))|date_format(t, concat('yyyy]', s))|to_timestamp(s, concat('yyyyyyyyyy', s))|date_format(t, concat('A', s))
from_utc_timestamp(t, s)|convert_timezone(s, 'UTC', ntz)|next_day(day, s)
"""
ELEMENTS = """
a[5]|element_at(a, 9)|element_at(a, z)|array_insert(a, z, 1)|array_insert(a, i, 1)|slice(a, z, 1)|slice(a, 1, z - 1)|sequence(z, i)|sequence(1, i, -1)
map(s, 1, s, 2)|map_from_arrays(twice, a)|map_from_arrays(gap, a)|map_from_arrays(twice, array(1))|array_sort(a, (p, q) -> cast(null as int))
exists(a, x -> x / z > 1)|transform(a, x -> i + x)|aggregate(a, i, (c, x) -> c + x)
"""


@pytest.mark.parametrize(
    "group", [NUMBERS, TEXTS, TIMES, ELEMENTS], ids=["numbers", "texts", "times", "elements"]
)
def test_a_refused_row_has_the_error_class_of_a_batch_query(spark: SparkSession, group: str) -> None:
    expressions = [text for line in group.strip().splitlines() for text in line.split("|")]
    judge = Judge(spark, ROW, expressions)
    classes = {
        text: (judge.condition(judge.spark, index), judge.condition(judge.kernel, index))
        for index, text in enumerate(expressions)
    }
    assert {text: pair for text, pair in classes.items() if pair[0] != pair[1]} == {}
    assert "no error" not in {pair[0] for pair in classes.values()}


QUERIES = {
    "SELECT sum(v) AS s FROM src": "ARITHMETIC_OVERFLOW",
    "SELECT corr(v, k) AS c FROM src": "DIVIDE_BY_ZERO",
    "SELECT k, (SELECT v FROM src) AS s FROM src": "SCALAR_SUBQUERY_TOO_MANY_ROWS",
    "SELECT 1 / (k - 1) AS q FROM src": "DIVIDE_BY_ZERO",
}


@pytest.mark.parametrize(("query", "condition"), QUERIES.items())
def test_a_refused_tick_has_the_error_class_of_a_batch_query(
    session: ps.Session, query: str, condition: str
) -> None:
    rows = [{"k": 1, "v": 2**63 - 1}, {"k": 2, "v": 2**63 - 1}]
    flow = ps.IncrementalFlow(session)
    flow.register_source("src", "k BIGINT, v BIGINT")
    assert flow.register_view("out", query).tier == "kernel"
    with pytest.raises(ps.DataError) as refused:
        flow.tick("src", ps.DeltaBatch.inserts(rows))
    assert refused.value.condition == condition
    session.register_table("src_table", rows)
    with pytest.raises(ps.DataError) as asked:
        session.sql_with_timeout(query.replace("src", "src_table"), 120_000)
    assert (asked.value.condition, asked.value.code) == (condition, refused.value.code)
