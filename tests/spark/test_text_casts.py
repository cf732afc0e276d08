"""Casts from and to text: the kernel's answer against Spark's, in every mode, for what people write and for what they mistype."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import seed
from penstock.functions import evaluate
from penstock.functions.scalars import floats
from penstock.plan import node
from twin.judge import Judge, Table

ZONES = ["UTC", "Europe/Paris", "America/Sao_Paulo", "Africa/Casablanca", "+05:30"]
WHOLE = ("tinyint", "smallint", "int", "bigint")
NUMBERS = """
    |0|1|-1|+1|127|128|-128|-129|32768|2147483648|9223372036854775807|9223372036854775808|-9223372036854775809|00012|1.5|1.|.5|.|-.|+|-|1e2|1E-3|
    1e+5|1e|e1|1d|1f|1D|1F|1dd|0x1|0x1p3|0x1.8P-2d|0x.1p1|0x1p|NaN|nan|+NaN|-NaN|NAN|Infinity|-Infinity|+infinity|inf|-INF|infinityd|1e400|-1e400|
    1e-400|4.9e-324|1.7976931348623157e308|1.7976931348623159e308|3.4028235e38|3.4028236e38|3.4028235677973366e38|340282356779733661637539395458142568447|
    1.00000005960464477539|1.0000000596046447754|1.00000005960464477541|7.006492321624085e-46|7.1e-46|1_000|1,000|--1|+-1|1 2|１|१२|𝟏|1e１|12.345|
    99999999.995|99999999.994|99999999999999999999999999999999999999|999999999999999999999999999999999999990|1e37|1e38|0e50|0e30|1e-50|1e99999999999|
    1e2147483647|1e-2147483647|1e-2147483648|true|TRUE|t|T|y|Yes|n|no|f|False|0.0|abc|İ|ﬁ|null
""".strip().split("|")
BLANKS = [
    "",
    " ",
    "\t\n",
    " 1 ",
    "\x7f1\x7f",
    "\x001\x1f",
    "\u00a01",
    "\u20001",
    "1\u0085",
    " 1.5\t",
    "\x7f1.5",
    "\x0b1",
    "\u30001",
]
MOMENTS = """
    2024|2024-|2024-2|2024-02|2024-02-|2024-2-9|2024-02-29|2023-02-29|2024-00-01|2024-13-01|2024-01-32|2024-01-01T|2024-01-01 |2024-01-01 1|2024-01-01 10|
    2024-01-01 10:|2024-01-01 10:5|2024-01-01 10:05|2024-01-01 10:05:|2024-01-01 10:05:6|2024-01-01 10:05:06|2024-01-01T10:05:06|2024-01-01t10:05:06|
    2024-01-01 24:00:00|2024-01-01 10:60:00|2024-01-01 10:00:60|2024-01-01 100:00:00|2024-01-01 10:05:06.|2024-01-01 10:05:06.1|2024-01-01 10:05:06.123456|
    2024-01-01 10:05:06.1234567|2024-01-01 10:05:06.123456789123|2024-01-01 10:05:06.1.5|2024-01-01 10:05:06Z|2024-01-01 10:05:06z|2024-01-01 10:05:06 Z|
    2024-01-01 10:05:06.5Z|2024-01-01 10:05:06+01:00|2024-01-01 10:05:06-01:00|2024-01-01 10:05:06+1:00|2024-01-01 10:05:06+1|2024-01-01 10:05:06+01|
    2024-01-01 10:05:06+0130|2024-01-01 10:05:06+01:3|2024-01-01 10:05:06+01:30:15|2024-01-01 10:05:06+013015|2024-01-01 10:05:06+18:00|
    2024-01-01 10:05:06+18:01|2024-01-01 10:05:06+19:00|2024-01-01 10:05:06+01:60|2024-01-01 10:05:06 UTC|2024-01-01 10:05:06UTC|2024-01-01 10:05:06 utc|
    2024-01-01 10:05:06 GMT+2|2024-01-01 10:05:06 UTC+02:30|2024-01-01 10:05:06 UT-3|2024-01-01 10:05:06 GMT0|2024-01-01 10:05:06 Europe/Berlin|
    2024-07-01T10:05:06.25Europe/Berlin|2024-01-01 10:05:06 europe/berlin|2024-01-01 10:05:06 PST|2024-01-01 10:05:06 EST|2024-01-01 10:05:06 CET|
    2024-01-01 10:05:06 Mars/Olympus|2024-01-01 10:05:06 [Europe/Paris]|2024-03-31 02:30:00|2024-10-27 02:30:00|2024-03-31 02:30:00 Europe/Paris|
    2018-11-04 00:30:00|1582-10-04|1582-10-10 12:00:00|0000-01-01|0001-01-01|-0001-01-01|-0044-03-15 10:00:00|+2024-01-01|9999-12-31 23:59:59.999999|
    10000-01-01|+10000-01-01 00:00:00|294247-01-10 04:00:54.775807|294247-01-10 04:00:54.775808|-290308-12-21 19:59:05.224192|-290308-12-21 19:59:05.224191|
    999999-01-01|1000000-01-01|5881580-07-11|5881580-07-12|-5877641-06-23|9999999-01-01|99999999-01-01|24-01-01|202-01-01|20240101|2024/01/01|01.02.2024|
    2024-01-01 10.05|2024-01-01  10:05|T|today|epoch|now|yesterday|ten|２０２４-01-01|2024-01-01 １0:00|2024-01-01 10:05:06.１|1883-11-18 12:03:00|
    2500-07-01 02:30:00|2100-07-01 12:00:00|2087-12-01 12:00:00
""".strip().split("|")
TEXTS: list[str | None] = [
    None,
    *BLANKS,
    *(item.strip("\n ") if "2024-01-01 " not in item else item.strip("\n") for item in [*NUMBERS, *MOMENTS]),
]
TARGETS = (
    *WHOLE,
    "float",
    "double",
    "boolean",
    "date",
    "timestamp",
    "timestamp_ntz",
    "decimal(10,2)",
    "decimal(38,10)",
    "decimal(38,0)",
    "binary",
)

DOUBLES = [
    None, 0.0, -0.0, 1.0, -1.5, 0.1, 1 / 3, 100.0, 1e6, 9999999.0, 1e7, 12345678.9, 1e-3, 9.99e-4, 1e-5, 2e-5, 1e21, 1e22, 1e23, 2e23, 8.41e21,
    2.0**-44, 2.0**53, 2.0**54 + 2, 2.0**60, 2.0**62, 2.0**63, 2.0**100, 5e-324, 2e-323, 2.2250738585072014e-308, 1.7976931348623157e308,
    math.nan, math.inf, -math.inf, 0.30000000000000004, 123456.789, 4.35, 2.675, 127.9, -128.5, 1e18, 9007199254740993.0, 33.333333333333336,
]  # fmt: skip
MOMENT_EDGES = [
    None, 0, 1, -1, 10, 123_000, 123_456, 999_999, 1_000_000, -62_135_596_800_000_000, -62_167_219_200_000_000, -62_167_219_200_000_001,
    253_402_300_799_999_999, 253_402_300_800_000_000, 1_711_846_800_000_000, 1_711_850_400_000_000, 1_729_990_800_000_000,
    1_729_994_400_500_000, -12_219_292_800_000_000, -12_219_379_200_000_000, -2_717_647_200_000_000, 2**63 - 1, -(2**63),
]  # fmt: skip
INTERVALS = [None, 0, 1, -1, 10_000_000, -93_784_500_000, 86_400_000_000, 59_999_999, 10**15, -(10**15)]
DAYS = [
    None,
    0,
    -1,
    1,
    19782,
    -719162,
    -719163,
    -719528,
    -719529,
    -141428,
    -141427,
    2932896,
    2932897,
    2**31 - 1,
    -(2**31),
]


@contextmanager
def settings(spark: SparkSession, **values: str) -> Iterator[None]:
    names = {"zone": "spark.sql.session.timeZone", "ansi": "spark.sql.ansi.enabled"}
    before = {names[name]: str(spark.conf.get(names[name])) for name in values}
    for name, value in values.items():
        spark.conf.set(names[name], value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def wrong(spark: SparkSession, table: Table, expressions: list[str]) -> dict[str, Any]:
    """The expressions on which the kernel and Spark differ."""
    judge = Judge(spark, table, expressions)
    return {text: found for index, text in enumerate(expressions) if (found := judge.differences(index))}


def of_micros(values: list[int | None], kind: str) -> Table:
    arrow = pa.timestamp("us", "UTC") if kind == "timestamp" else pa.timestamp("us")
    return {"a": (kind, pa.array(values, pa.int64()).cast(arrow))}  # type: ignore[dict-item]


@pytest.mark.parametrize("mode", ["CAST", "try_cast", "legacy"])
def test_texts_become_values(spark: SparkSession, mode: str) -> None:
    word = "try_cast" if mode == "try_cast" else "CAST"
    with settings(spark, ansi="false" if mode == "legacy" else "true"):
        assert wrong(spark, {"a": ("string", TEXTS)}, [f"{word}(a AS {kind})" for kind in TARGETS]) == {}


@pytest.mark.parametrize("zone", ZONES)
def test_texts_are_moments_of_the_session(spark: SparkSession, zone: str) -> None:
    with settings(spark, zone=zone):
        assert (
            wrong(spark, {"a": ("string", TEXTS)}, ["try_cast(a AS timestamp)", "to_timestamp(a) IS NULL"])
            == {}
        )


@pytest.mark.parametrize("zone", ZONES)
def test_moments_become_text(spark: SparkSession, zone: str) -> None:
    with settings(spark, zone=zone):
        assert wrong(spark, of_micros(MOMENT_EDGES, "timestamp"), ["CAST(a AS string)", "a || ''"]) == {}
    if zone == "UTC":
        assert wrong(spark, of_micros(MOMENT_EDGES, "timestamp_ntz"), ["CAST(a AS string)"]) == {}
        days = {"a": ("date", pa.array(DAYS, pa.int32()).cast(pa.date32()))}
        assert wrong(spark, days, ["CAST(a AS string)"]) == {}  # type: ignore[arg-type]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_numbers_become_text_and_moments(spark: SparkSession, ansi: str) -> None:
    floating = [
        None if value is None else float(np.float32(value))
        for value in DOUBLES
        if value is None or abs(value) < 3e38
    ]
    kinds = ("string", "decimal(38,10)", "decimal(38,30)", "decimal(20,0)", "decimal(10,2)")
    decimals = [
        None,
        *map(
            Decimal,
            (
                "0E-10",
                "1",
                "-3.3333333333",
                "0.0000000001",
                "0.0000001",
                "0.000001",
                "1234567.89",
                "16777217",
                "9007199254740993",
            ),
        ),
    ]
    with settings(spark, ansi=ansi):
        casts = [f"CAST(a AS {kind})" for kind in (*kinds, *WHOLE)] + [
            f"try_cast(a AS {kind})" for kind in kinds
        ]
        assert wrong(spark, {"a": ("double", DOUBLES)}, casts) == {}
        assert wrong(spark, {"a": ("float", floating)}, casts) == {}
        assert (
            wrong(
                spark,
                {"a": ("decimal(38,10)", decimals)},
                ["CAST(a AS string)", "CAST(a AS float)", "CAST(a AS double)"],
            )
            == {}
        )
        moment_kinds = (*WHOLE, "float", "double", "decimal(20,6)", "decimal(10,2)", "decimal(19,3)")
        assert (
            wrong(
                spark, of_micros(MOMENT_EDGES, "timestamp"), [f"CAST(a AS {kind})" for kind in moment_kinds]
            )
            == {}
        )
        longs = [
            None,
            0,
            1,
            -1,
            1_700_000_000,
            9_223_372_036_854,
            9_223_372_036_855,
            -9_223_372_036_855,
            2**63 - 1,
        ]
        assert (
            wrong(
                spark,
                {"a": ("bigint", longs)},
                ["CAST(a AS timestamp)", "CAST(a AS tinyint)", "CAST(a AS int)"],
            )
            == {}
        )


def test_intervals_become_text(spark: SparkSession) -> None:
    table: Table = {
        "a": ("timestamp_ntz", pa.array(INTERVALS, pa.int64()).cast(pa.timestamp("us"))),
        "d": ("date", pa.array([None, 0, 19782, -719162, 400, -1, 0, 1, 2, 3], pa.int32()).cast(pa.date32())),
        "n": ("int", [None, 0, 1, -1, 13, -14, 2**31 - 1, -(2**31), 24, 11]),
    }
    expressions = [
        "CAST(a - TIMESTAMP_NTZ'1970-01-01 00:00:00' AS string)",
        "CAST(CAST(a - TIMESTAMP_NTZ'1970-01-01 00:00:00' AS INTERVAL HOUR TO MINUTE) AS string)",
        "CAST(d - DATE'1970-01-01' AS string)",
        "CAST(make_ym_interval(0, n) AS string)",
    ]
    for expression in expressions:
        judge = Judge(spark, table, [expression])
        if isinstance(judge.root, node.Project) and isinstance(judge.root.input, node.Scan):
            assert judge.differences(0) == [], expression
        else:
            assert expression in (expressions[1], expressions[3])


def random_doubles(rng: random.Random) -> list[float]:
    bits = [struct.unpack(">d", struct.pack(">Q", rng.getrandbits(64)))[0] for _ in range(4000)]
    return [
        *(value for value in bits if value == value),
        *(rng.uniform(-1e6, 1e6) for _ in range(1000)),
        *(round(rng.uniform(-1e6, 1e6), rng.randrange(8)) for _ in range(1000)),
        *(float(rng.getrandbits(rng.randrange(1, 70))) for _ in range(2000)),
        *(float(f"{rng.randrange(1, 100)}e{rng.randrange(-324, 308)}") for _ in range(1000)),
        *(2.0 ** rng.randrange(-1074, 1024) for _ in range(500)),
    ]


def random_floats(rng: random.Random) -> list[float]:
    bits = [struct.unpack(">f", struct.pack(">I", rng.getrandbits(32)))[0] for _ in range(4000)]
    return [
        *(value for value in bits if value == value),
        *(float(np.float32(rng.uniform(-1e5, 1e5))) for _ in range(1000)),
        *(float(np.float32(rng.getrandbits(rng.randrange(1, 60)))) for _ in range(2000)),
        *(2.0 ** rng.randrange(-149, 128) for _ in range(300)),
    ]


def random_texts(rng: random.Random) -> list[str]:
    """What is or looks like a moment or a number, and one edit away from it."""
    tails = [
        "",
        "",
        "",
        "Z",
        "+01:00",
        " UTC",
        " Europe/Berlin",
        "-3",
        ".5",
        ".123456789",
        " America/New_York",
        "+5:30",
    ]
    texts = []
    for _ in range(4000):
        kind = rng.randrange(4)
        if kind == 0:
            text = f"{rng.uniform(-1e9, 1e9):.{rng.randrange(8)}{rng.choice('feg')}}{rng.choice(['', '', 'd', 'F'])}"
        elif kind == 1:
            text = f"{rng.choice(['', '', '-', '+'])}{rng.getrandbits(rng.randrange(1, 70))}"
        else:
            text = f"{rng.randrange(0, 3000):04d}-{rng.randrange(0, 14)}-{rng.randrange(0, 32):02d}"
            if kind == 3:
                clock = f"{rng.randrange(0, 25):02d}:{rng.randrange(0, 61)}:{rng.randrange(0, 61):02d}"
                text += rng.choice(" T") + clock + rng.choice(tails)
        if rng.random() < 0.4:
            at = rng.randrange(len(text) + 1)
            text = (
                text[:at]
                + rng.choice(["", " ", "-", ":", "1", "0", "T", ".", "+", "e", "Z", "é", "１"])
                + text[at + rng.randrange(2) :]
            )
        # A time alone is one of today, which is another day for the kernel.
        if ":" not in text[:3] and not text.startswith("T"):
            texts.append(text)
    return texts


def test_random_numbers_are_written_as_the_jvm_does(spark: SparkSession) -> None:
    rng = random.Random(seed.SEED)
    assert wrong(spark, {"a": ("double", random_doubles(rng))}, ["CAST(a AS string)"]) == {}
    assert wrong(spark, {"a": ("float", random_floats(rng))}, ["CAST(a AS string)"]) == {}


@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris"])
def test_random_texts_are_read_as_spark_does(spark: SparkSession, zone: str) -> None:
    texts = random_texts(random.Random(seed.SEED))
    kinds = ("double", "float", "bigint", "decimal(20,4)", "date", "timestamp", "timestamp_ntz", "boolean")
    with settings(spark, zone=zone):
        assert wrong(spark, {"a": ("string", texts)}, [f"try_cast(a AS {kind})" for kind in kinds]) == {}


def test_later_javas_write_the_fewest_digits() -> None:
    values = [2e-323, 5e-324, 1e23, 2e23, 8.41e21, 2.0**-44, 1e22, 1.0, 100.0, 9007199254740993.0]
    texts = [
        "2.0E-323",
        "4.9E-324",
        "1.0E23",
        "2.0E23",
        "8.41E21",
        "5.684341886080802E-14",
        "1.0E22",
        "1.0",
        "100.0",
        "9.007199254740992E15",
    ]
    assert floats.write_doubles(values, 21) == texts


def test_a_time_alone_is_one_of_the_tick(spark: SparkSession) -> None:
    judge = Judge(
        spark, {"a": ("string", ["10:20", "T10:20:30.5", "10:20:30 Europe/Paris"])}, ["CAST(a AS timestamp)"]
    )
    judge.kernel(0, 0, 3)
    tick = type("Tick", (), {"micros": 1_718_000_000_000_000})()
    assert isinstance(judge.root, node.Project)
    moments = evaluate.compile(judge.root.expressions[0])(judge.arrays, 3, tick).to_pylist()
    day = date(2024, 6, 10)
    assert [moment.astimezone(UTC) for moment in moments] == [
        datetime(day.year, day.month, day.day, 10, 20, tzinfo=UTC),
        datetime(day.year, day.month, day.day, 10, 20, 30, 500000, tzinfo=UTC),
        datetime(day.year, day.month, day.day, 8, 20, 30, tzinfo=UTC),
    ]
