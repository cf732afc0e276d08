"""from_json and to_json with formats of timestamps and dates: the kernel's answer against Spark's, and views over rows that come and go."""

from __future__ import annotations

from datetime import UTC, date, datetime
from random import Random

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from golden.spark_answer import settings
from seed import SEED
from twin.judge import Judge, Table
from twin.ticked import differences

VALUES = [
    '"2024-02-29 23:59:59"',
    '"2024-03-31 02:30:00"',
    '"2024-10-27 02:30:00"',
    '"2023-02-29 00:00:00"',
    '"29/02/2024"',
    '"29/02/2024 08:30"',
    '"2024-02-29"',
    '"2024-02-29T23:59:59+02:00"',
    '"2024-02-29T23:59:59.123Z"',
    '" 2024-02-29"',
    '"x"',
    '""',
    "null",
    "0",
    "-1",
    "1709251199",
    "1.5",
    "true",
    "[]",
    "{}",
]
TEXTS = [None, "", "x", "[1]", *(f'{{"a": {value}, "b": 1}}' for value in VALUES), '{"b": 2}', '{"a": "2024-']
MOMENTS = ["yyyy-MM-dd HH:mm:ss", "dd/MM/yyyy HH:mm", "yyyy-MM-dd''T''HH:mm:ss[.SSS]XXX", "yyyy-MM-dd"]
DATES = ["yyyy-MM-dd", "dd/MM/yyyy", "d.M.yy", "yyyy-DDD"]
READ = [
    *(f"from_json(j, 'a TIMESTAMP, b INT', map('timestampFormat', '{one}'))" for one in MOMENTS),
    *(f"from_json(j, 'a DATE, b INT', map('dateFormat', '{one}'))" for one in DATES),
    "from_json(j, 'a ARRAY<TIMESTAMP>, b TIMESTAMP', map('timestampFormat', 'yyyy'))",
    "from_json(j, 'a TIMESTAMP, b INT, bad STRING', map('timestampFormat', 'yyyy-MM-dd', 'columnNameOfCorruptRecord', 'bad'))",
    "from_json(j, 'MAP<STRING, TIMESTAMP>', map('timestampFormat', 'yyyy-MM-dd'))",
    "from_json(j, 'a DATE, b TIMESTAMP', map('timestampFormat', 'yyyy'))",
]
WRITTEN = [
    *(f"to_json(named_struct('a', t, 'd', d), map('timestampFormat', '{one}'))" for one in MOMENTS),
    *(f"to_json(named_struct('d', d, 't', t), map('dateFormat', '{one}'))" for one in DATES),
    "to_json(array(t, NULL), map('timestampFormat', 'EEEE \"x\" MMM'))",
    "to_json(map('k', d), map('dateFormat', 'MMMM d, yyyy', 'timestampFormat', 'yyyy'))",
    "to_json(named_struct('n', CAST(t AS TIMESTAMP_NTZ)), map('timestampFormat', 'yyyy'))",
]
TIMES: Table = {
    "t": (
        "timestamp",
        [
            None,
            datetime(2024, 2, 29, 23, 59, 59, 123_456, tzinfo=UTC),
            datetime(1, 1, 2, tzinfo=UTC),
            datetime(2024, 10, 27, 0, 30, tzinfo=UTC),
            datetime(1890, 7, 1, 12, tzinfo=UTC),
            datetime(9999, 12, 30, tzinfo=UTC),
        ],
    ),
    "d": (
        "date",
        [date(2024, 2, 29), None, date(1, 1, 1), date(9999, 12, 31), date(1582, 10, 15), date(1970, 1, 1)],
    ),
}


@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris"])
@pytest.mark.parametrize(("calls", "table"), [(READ, {"j": ("string", TEXTS)}), (WRITTEN, TIMES)])
def test_formats(spark: SparkSession, zone: str, calls: list[str], table: Table) -> None:
    with settings(spark, {"spark.sql.session.timeZone": zone}):
        judge = Judge(spark, table, calls)
        assert {call: wrong for index, call in enumerate(calls) if (wrong := judge.differences(index))} == {}


def test_views_over_formats(session: ps.Session) -> None:
    chance = Random(SEED)
    rows = TEXTS * 2
    calls = ", ".join(f"{call} AS e{number}" for number, call in enumerate([READ[0], READ[4], *READ[8:]]))
    assert differences(session, f"SELECT id, {calls} FROM t", {"j": ("string", rows)}, chance) == []
    far = [*rows, '{"a": 99999999999999}', '{"a": "+999999-01-01"}', '{"a": -999999999999}']
    call = "unix_micros(from_json(j, 'a TIMESTAMP', map('timestampFormat', 'yyyy-MM-dd')).a)"
    assert differences(session, f"SELECT id, {call} AS e FROM t", {"j": ("string", far)}, chance) == []
    calls = ", ".join(f"{call} AS e{number}" for number, call in enumerate(WRITTEN))
    assert differences(session, f"SELECT id, {calls} FROM t", TIMES, chance) == []


def test_they_are_the_kernels(session: ps.Session) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("t", "j STRING, t TIMESTAMP, d DATE")
    calls = ", ".join(f"{call} AS e{number}" for number, call in enumerate([*READ, *WRITTEN]))
    assert flow.register_view("v", f"SELECT {calls} FROM t").tier == "kernel", str(flow.explain("v"))


@pytest.mark.parametrize(
    "call",
    [
        "from_json(j, 'a TIMESTAMP', map('timestampFormat', 'yyyy-MM-dd VV'))",
        "from_json(j, 'a TIMESTAMP', map('timestampFormat', 'yyyy', 'mode', 'FAILFAST'))",
        "from_json(j, 'a DATE', map('dateFormat', 'yyyy-MM-dd HH'))",
        "from_json(j, 'a TIMESTAMP')",
    ],
)
def test_what_is_left_to_spark(session: ps.Session, call: str) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("t", "j STRING")
    assert flow.register_view("v", f"SELECT {call} AS e FROM t").tier == "spark"
