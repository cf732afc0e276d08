"""Datetime patterns and the functions of moments: the kernel's answer against Spark's, with constant patterns and with patterns in a column."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import seed
from penstock import DeltaBatch, IncrementalFlow, Session
from penstock.errors import PenstockError
from penstock.functions.scalars import datetime_format, datetime_parse
from penstock.functions.scalars.datetime_pattern import PatternError, parts_of
from twin.judge import Judge, Table, grid
from twin.ticked import differences

ZONES = ["UTC", "Europe/Paris", "America/Sao_Paulo", "+05:30"]
MICROS = [
    None, 0, 1, -1, 123_000, 123_456, -62_135_596_800_000_000, -62_167_219_200_000_000, -62_198_755_200_000_000, -62_167_219_200_000_001,
    253_402_300_799_999_999, 253_402_300_800_000_000, 1_711_846_799_999_999, 1_711_850_400_000_000, 1_729_990_800_000_000,
    1_729_994_400_500_000, -12_219_292_800_000_000, -12_219_379_200_000_001, -2_717_647_200_000_000, 1_709_209_815_123_456,
    1_700_000_000_000_000, 951_782_400_000_000, 1_541_300_400_000_000, 16_725_225_600_000_000,
]  # fmt: skip
FORMATS = [
    "yyyy-MM-dd", "yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "dd/MM/yy", "d.M.y", "MMM d, yyyy", "MMMM dd, yyyy h:mm a", "EEE", "EEEE, d MMMM",
    "E yyy", "yyyyMMddHHmmss", "HHmmssSSSSSS", "hh:mm:ss a", "k K kk KK h H", "D DD DDD", "Q QQ QQQ QQQQ", "q qq qqq qqqq", "L LL LLL LLLL", "G GG GGG GGGG y yy yyyy",
    "yyyyy yyyyyy", "S SS SSSS SSSSS SSSSSSS SSSSSSSSS", "X XX XXX XXXX XXXXX", "x xx xxx xxxx xxxxx", "Z ZZ ZZZ ZZZZ ZZZZZ", "O OOOO", "VV", "F", "g ggggggg",
    "''yyyy''", "'it''s' yyyy", "[yyyy][MM]", "yyyy[", "", " ", "'text'", "yyyy年MM月dd日", "s m", "y-M-d H:m:s", "'a'a", "😀yyyy",
]  # fmt: skip
PARSED = {
    "yyyy-MM-dd": ["2024-02-29", "2023-02-29", "2024-2-9", " 2024-02-29", "2024-02-29 ", "20240229", "2024-13-01", "0000-01-01", "-0001-01-01", "+10000-01-01", "10000-01-01",
                   "+2024-01-01", "-0000-01-01", "-294248-01-01", "+999999-01-01", "２０２４-01-01", "2024-01-01x", "", "1582-10-10"],
    "yyyy-MM-dd HH:mm:ss": ["2024-02-29 23:59:59", "2024-02-29 24:00:00", "2024-02-29 23:60:00", "2024-02-29 23:59", "2024-02-29T23:59:59", "2024-03-31 02:30:00", "2024-10-27 02:30:00"],
    "yyyy-MM-dd HH:mm:ss.SSS": ["2024-02-29 23:59:59.1", "2024-02-29 23:59:59.123", "2024-02-29 23:59:59.1234", "2024-02-29 23:59:59.", "2024-02-29 23:59:59"],
    "yyyy-MM-dd HH:mm:ss[.SSSSSS]": ["2024-02-29 23:59:59", "2024-02-29 23:59:59.5", "2024-02-29 23:59:59.123456", "2024-02-29 23:59:59.1234567"],
    "yyyy-MM-dd'T'HH:mm:ssXXX": ["2024-02-29T23:59:59Z", "2024-02-29t23:59:59z", "2024-02-29T23:59:59+01:00", "2024-02-29T23:59:59+0100", "2024-02-29T23:59:59-18:00",
                                 "2024-02-29T23:59:59+18:30", "2024-02-29T23:59:59+24:00", "2024-02-29T23:59:59+01:60"],
    "X|XX|XXXX|XXXXX": ["+01|+0100|+010030|+01:00:30", "Z|Z|Z|Z", "+0130|+0130|+0130|+01:30", "-00|-0000|-0000|-00:00"],
    "x|xx|xxx": ["+00|+0000|+00:00", "+01|+0100|+01:00", "Z|Z|Z"],
    "Z|ZZZZZ": ["+0100|+01:00", "+0000|Z", "Z|Z"],
    "ZZZZ": ["GMT", "GMT+01:00", "GMT-01:30:15", "gmt+01:00", "GMT+1:00", "GMT+01", "GMT+", "UTC"],
    "O": ["GMT", "GMT+1", "GMT+01", "GMT+1:30", "GMT+10:30:15", "GMT+1:3", "GMT+", "GMT-", "GMTx"],
    "yyyy-MM-dd VV": ["2024-07-01 Europe/Paris", "2024-07-01 europe/paris", "2024-07-01 UTC", "2024-07-01 UTC+3", "2024-07-01 UTC+03:00", "2024-07-01 +03:00", "2024-07-01 +3", "2024-07-01 Z",
                      "2024-07-01 z", "2024-07-01 GMT0", "2024-07-01 GMT", "2024-07-01 UT", "2024-07-01 PST", "2024-07-01 CET", "2024-07-01 Europe/Par", "2024-07-01 Mars", "2024-07-01 UTC+19:00",
                      "2024-07-01 GMT-2:00", "2024-07-01 Etc/GMT+5", "2024-07-01 EST5EDT"],
    "dd/MM/yy": ["29/02/24", "29/02/2024", "01/01/99", "9/2/24", "01/01/00"],
    "MMM d, yyyy": ["Feb 29, 2024", "feb 29, 2024", "FEB 9, 2024", "February 9, 2024", "Fe 9, 2024", "Sept 1, 2024", "Sep 31, 2024"],
    "MMMM d yyyy": ["March 1 2024", "Mar 1 2024", "may 1 2024"],
    "LLL L yyyy": ["Mar 3 2024", "Mar 4 2024", "3 3 2024"],
    "h:mm a": ["12:00 AM", "12:00 pm", "0:30 AM", "13:00 PM", "1:05 am", "1:05 a"],
    "hh:mm": ["12:30", "01:30", "00:30", "1:30"],
    "K:mm a": ["0:00 AM", "11:59 PM", "12:00 AM"],
    "kk:mm": ["24:00", "00:00", "01:00", "25:00"],
    "HH:mm a": ["14:00 PM", "14:00 AM", "02:00 AM"],
    "a": ["AM", "PM", "pm", "x"],
    "mm:ss": ["59:59", "60:00", "00:61"],
    "ss.SSS": ["01.5", "61.5"],
    "HH ss": ["10 20", "10 61"],
    "yyyy D": ["2024 366", "2023 366", "2023 365", "2023 0", "2024 60"],
    "yyyy-MM DDD": ["2024-02 060", "2024-03 060", "2024-02 60"],
    "yyyy-MM-dd D": ["2024-02-29 60", "2024-02-29 61"],
    "D": ["60", "366", "-1"],
    "MM-dd": ["02-29", "02-28", "13-01", "00-10"],
    "dd": ["31", "32", "00"],
    "MM": ["12", "13", "0"],
    "yyyy G": ["2024 AD", "0044 BC", "2024 ad", "0000 AD", "2024 Anno Domini"],
    "y GGGG": ["2024 Anno Domini", "44 Before Christ"],
    "yy[ G]": ["24", "24 AD", "24 BC"],
    "yyyy[ G] MM": ["2024 03", "2024 AD 03"],
    "yyyyMMdd": ["20240229", "2024022", "202402290", "+120240229", "-20240229", "120240229"],
    "yyyyMMddHHmmssSSS": ["20240229235959123", "2024022923595912", "20240229235959"],
    "yMMdd": ["240229", "20240229", "120240229"],
    "HHmm": ["2359", "235", "23599"],
    "HHmmssS": ["2359591", "235959", "23595912"],
    "ssSSS": ["59123", "5912", "59"],
    "d/M/y": ["1/2/2024", "01/02/2024", "1/2/-5", "1/2/+5", "32/1/2024", "00000000000000000001/1/2024"],
    "g": ["60000", "0", "-1", "99999999999999"],
    "yyyy g": ["2023 60000", "2024 60000"],
    "[yyyy][MM]": ["2024", "202401", "01", ""],
    "yyyy[-MM[-dd]]": ["2024", "2024-05", "2024-05-06", "2024-", "2024-05-"],
    "yyyy yyyy": ["2024 2024", "2024 2025"],
    "'it''s' yyyy": ["it's 2024", "IT'S 2024", "its 2024"],
    "'it''s'S": ["it5S", "it5s", "it's5"],
    "yyyy''S": ["2024'5", "20245"],
    "S''": ["5", "5'"],
    "yyyy年MM月": ["2024年05月", "2024年5月"],
    "'Ä'yyyy": ["ä2024", "Ä2024"],
    "yyyy-MM-dd HH:mm:ss.SSSSSSSSS": ["2024-01-01 00:00:00.123456789", "2024-01-01 00:00:00.1"],
    "": ["", "x"],
}  # fmt: skip
REFUSED = [
    "Y", "w", "W", "u", "e", "c", "A", "B", "n", "N", "p", "GGGGG", "MMMMM", "EEEEE", "yyyyyyy", "ddd", "HHH", "aa", "DDDD", "FF", "SSSSSSSSSS", "V", "VVV", "XXXXXX", "ZZZZZZ", "OO",
    "zzzzz", "b", "C", "f", "I", "J", "j", "l", "P", "R", "r", "t", "T", "U", "i", "o", "vv", "{", "}", "#", "]", "yyyy]", "'open", "yyyy'", "QQQQQ", "qqqqq", "LLLLL", "LLLLLL", "MMMMMM", "hhh",
    "yyyy-MM-dd'T", "ggggggggggggggggggggg", "X'", "Yb", "A]", "EEEEEE",
]  # fmt: skip
REFUSED_IN_PARSING = ["E", "F", "q", "Q", "EEE yyyy", "SSS\n'x'\n", "SSSSSSSSSS", "S S\n"]


@contextmanager
def zone_of(spark: SparkSession, zone: str, **more: str) -> Iterator[None]:
    values = {
        "spark.sql.session.timeZone": zone,
        **{f"spark.sql.{name.replace('_', '.')}": value for name, value in more.items()},
    }
    before = {name: str(spark.conf.get(name)) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def moments(values: list[int | None], kind: str = "timestamp") -> Any:
    """A column of timestamps, also of years that Python does not have."""
    return pa.array(values, pa.int64()).cast(pa.timestamp("us", "UTC" if kind == "timestamp" else None))


def wrong(spark: SparkSession, table: Table, expressions: list[str]) -> dict[str, Any]:
    judge = Judge(spark, table, expressions)
    return {text: found for index, text in enumerate(expressions) if (found := judge.differences(index))}


def quoted(text: str) -> str:
    return 'r"' + text + '"' if "'" in text else f"'{text}'"


@pytest.mark.parametrize("zone", ZONES)
def test_moments_are_written_by_constant_patterns(spark: SparkSession, zone: str) -> None:
    table: Table = {"a": ("timestamp", moments(MICROS))}
    expressions = [f"date_format(a, {quoted(pattern)})" for pattern in FORMATS]
    with zone_of(spark, zone):
        assert wrong(spark, table, expressions) == {}


@pytest.mark.parametrize("zone", ZONES)
def test_moments_are_written_by_patterns_of_rows(spark: SparkSession, zone: str) -> None:
    pairs = [(micros, pattern) for micros in MICROS for pattern in [*FORMATS, None]]
    seconds = [None if micros is None else micros // 1_000_000 for micros, _ in pairs]
    table: Table = {
        "a": ("timestamp", moments([micros for micros, _ in pairs])),
        "p": ("string", [pattern for _, pattern in pairs]),
        "s": ("bigint", seconds),
        "n": ("timestamp_ntz", moments([micros for micros, _ in pairs], "timestamp_ntz")),
    }
    expressions = [
        "date_format(a, p)",
        "from_unixtime(s, p)",
        "from_unixtime(s)",
        "from_unixtime(s, 'yyyy MM')",
        "date_format(n, 'yyyy-MM-dd HH:mm')",
    ]
    with zone_of(spark, zone):
        assert wrong(spark, table, expressions) == {}


READ = [
    "to_timestamp(t, p)",
    "try_to_timestamp(t, p)",
    "to_timestamp_ntz(t, p)",
    "unix_timestamp(t, p)",
    "to_unix_timestamp(t, p)",
    "to_date(t, p)",
    "try_to_date(t, p)",
]


@pytest.mark.parametrize("zone", ZONES)
def test_texts_are_read_by_patterns_of_rows(spark: SparkSession, zone: str) -> None:
    pairs = [(text, pattern) for pattern, texts in PARSED.items() for text in [*texts, None]] + [("x", None)]
    table: Table = {
        "t": ("string", [text for text, _ in pairs]),
        "p": ("string", [pattern for _, pattern in pairs]),
    }
    with zone_of(spark, zone):
        assert wrong(spark, table, READ if zone == "UTC" else READ[1:3]) == {}
    if zone == "UTC":
        with zone_of(spark, zone, ansi_enabled="false"):
            assert wrong(spark, table, READ) == {}


def test_texts_are_read_by_constant_patterns(spark: SparkSession) -> None:
    texts = [None, *{text for items in PARSED.values() for text in items}]
    patterns = [
        "yyyy-MM-dd",
        "yyyy-MM-dd HH:mm:ss[.SSSSSS]",
        "yyyy-MM-dd'T'HH:mm:ssXXX",
        "dd/MM/yy",
        "yyyyMMdd",
        "MMM d, yyyy",
        "h:mm a",
        "HHmm",
        "yyyy-MM-dd VV",
        "yyyyMMddHHmmssSSS",
    ]
    names = ["try_to_timestamp", "unix_timestamp", "to_timestamp_ntz"]
    expressions = [f"{name}(t, {quoted(pattern)})" for name in names[:1] for pattern in patterns]
    expressions += [f"{name}(t, 'yyyy-MM-dd')" for name in names[1:]] + [
        "unix_timestamp(t)",
        "to_date(t, 'yyyy-MM-dd')",
    ]
    with zone_of(spark, "Europe/Paris"):
        assert wrong(spark, {"t": ("string", sorted(texts, key=str))}, expressions) == {}


@pytest.mark.parametrize("parsing", [False, True])
def test_refused_patterns_are_refused_alike(spark: SparkSession, parsing: bool) -> None:
    patterns = [*REFUSED, *REFUSED_IN_PARSING] if parsing else REFUSED
    table: Table = {
        "a": ("timestamp", [datetime(2024, 1, 1, tzinfo=UTC)] * len(patterns)),
        "t": ("string", ["x"] * len(patterns)),
        "p": ("string", patterns),
    }
    judge = Judge(spark, table, ["try_to_timestamp(t, p)" if parsing else "date_format(a, p)"])
    differing = []
    for row, pattern in enumerate(patterns):
        ours, theirs = judge.attempt(judge.kernel, 0, row, 1), judge.attempt(judge.spark, 0, row, 1)
        if ours != theirs:
            differing.append((pattern, theirs, ours))
    assert differing == []


@pytest.mark.parametrize(
    "expression",
    ["date_format(a, 'zzzz')", "date_format(a, 'Y')", "to_timestamp(t, 'yyyy z')", "to_timestamp(t, 'E')"],
)
def test_what_is_the_jvms_alone_is_left_to_it(spark: SparkSession, expression: str) -> None:
    table: Table = {"a": ("timestamp", [datetime(2024, 1, 1, tzinfo=UTC)]), "t": ("string", ["2024 CET"])}
    with zone_of(spark, "Europe/Paris"):
        judge = Judge(spark, table, [expression])
        with pytest.raises((PenstockError, AssertionError)):
            judge.kernel(0, 0, 1)


def test_patterns_of_rows_with_names_of_zones_are_asked_of_spark(session: Session) -> None:
    patterns = ["yyyy z", "yyyy-MM-dd HH:mm zzzz", "yyyy-MM-dd HH:mm v", "yyyy-MM-dd HH:mm", "yyyy", None]
    texts = [
        "2024 CET",
        "2024 PST",
        "2024-07-01 12:30 Central European Summer Time",
        "2024-07-01 12:30",
        "2024",
        "x",
        None,
    ]
    table: Table = {
        **grid(p=("string", patterns), t=("string", texts)),
        "a": ("timestamp", moments([index * 10**15 for index in range(len(patterns) * len(texts))])),
    }
    written = "date_format(a, p) AS d, date_format(a, concat(p, ' VV')) AS e, from_unixtime(unix_timestamp(a), p) AS f"
    read = "try_to_timestamp(t, p) AS g, unix_timestamp(coalesce(date_format(a, 'yyyy'), t), 'yyyy') AS h"
    with zone_of(session.spark, "Europe/Paris"):
        assert (
            differences(session, f"SELECT id, {written}, {read} FROM t", table, random.Random(seed.SEED))
            == []
        )
        flow = IncrementalFlow(session)
        flow.register_source("t", "p STRING, t STRING")
        explanation = flow.register_view("v", "SELECT to_timestamp(t, p) AS e FROM t")
        assert explanation.tier == "kernel"
        assert "Spark, for a delta with a datetime pattern that has the name of a zone" in str(explanation)


def random_pattern(rng: random.Random, letters: str) -> str:
    """Letters in runs, with text, quotes and optional parts between them."""
    pieces = []
    for _ in range(rng.randrange(1, 6)):
        letter = rng.choice(letters)
        run = letter * rng.choice([1, 2, 2, 3, 4, 5] if letter not in "aVFOg" else [1, 2])
        pieces.append(
            rng.choice(["", "", "-", " ", ":", "'x'", "''", "/"])
            + (f"[{run}]" if rng.random() < 0.15 else run)
        )
    return "".join(pieces)


def valid_patterns(rng: random.Random, letters: str, count: int, *, parsing: bool) -> list[str]:
    patterns: list[str] = []
    while len(patterns) < count:
        pattern = random_pattern(rng, letters)
        try:
            parts = parts_of(pattern, parsing=parsing)
        except PatternError:
            continue
        if not (datetime_parse.beyond(parts) if parsing else datetime_format.beyond(parts, "Europe/Paris")):
            patterns.append(pattern)
    return patterns


def random_micros(rng: random.Random) -> int:
    spread = rng.choice([10**9, 10**15, 10**16, 6 * 10**16, 9 * 10**17])
    return rng.randrange(-spread, spread)


def test_random_patterns_write_as_spark_does(spark: SparkSession) -> None:
    rng = random.Random(seed.SEED)
    patterns = valid_patterns(rng, "GyyMMLddDQqEaHHhkKmmssSSXxZOVFg", 300, parsing=False) * 4
    table: Table = {
        "a": ("timestamp", moments([random_micros(rng) for _ in patterns])),
        "p": ("string", patterns),
    }
    with zone_of(spark, "Europe/Paris"):
        assert wrong(spark, table, ["date_format(a, p)"]) == {}


def test_random_patterns_read_as_spark_does(spark: SparkSession) -> None:
    rng = random.Random(seed.SEED)
    patterns = valid_patterns(rng, "GyyyMMMLdddDaHHhkKmmssSSXxZOVg", 400, parsing=True) * 4
    texts = []
    for pattern in patterns:
        # One of ten is beyond what is written, and is a fraction of another length.
        micros = np.array([random_micros(rng)])
        text = datetime_format.written(parts_of(pattern, parsing=False), micros, "UTC", 17)[0].as_py()
        if rng.random() < 0.3 and text:
            at = rng.randrange(len(text))
            text = (
                text[:at]
                + rng.choice(["", "0", "1", "-", "+", ":", "Z", "a", " "])
                + text[at + rng.randrange(2) :]
            )
        texts.append(text)
    table: Table = {"t": ("string", texts), "p": ("string", patterns)}
    with zone_of(spark, "Europe/Paris"):
        assert wrong(spark, table, ["try_to_timestamp(t, p)"]) == {}


DAYS = [
    None,
    *map(
        date.fromisoformat,
        (
            "1970-01-01",
            "2024-02-29",
            "2023-03-01",
            "1999-12-31",
            "0001-01-01",
            "9999-12-31",
            "1582-10-15",
            "2021-01-03",
            "2024-03-31",
        ),
    ),
]


def test_days_have_names(spark: SparkSession) -> None:
    table = grid(
        a=("date", DAYS),
        w=("string", [None, "MO", "tue", "Wednesday", "TH", "fr", "SAT", "sunday", "x", "", " MO"]),
    )
    expressions = ["dayname(a)", "monthname(a)", "next_day(a, w)", "next_day(a, 'Mon')"]
    assert wrong(spark, table, expressions) == {}
    with zone_of(spark, "UTC", ansi_enabled="false"):
        assert wrong(spark, table, ["next_day(a, w)", "next_day(a, 'never')"]) == {}


UNITS = [
    "year",
    "YYYY",
    "yy",
    "quarter",
    "month",
    "MM",
    "mon",
    "week",
    "day",
    "DD",
    "hour",
    "minute",
    "second",
    "millisecond",
    "microsecond",
    "century",
    "",
    None,
]
FIELDS = [
    "YEAR",
    "YEAROFWEEK",
    "QUARTER",
    "MONTH",
    "WEEK",
    "DAY",
    "DAYOFWEEK",
    "DOW",
    "DOW_ISO",
    "DOY",
    "HOUR",
    "MINUTE",
    "SECOND",
]
NAMED = [None, "UTC", "Europe/Paris", "America/New_York", "+05:30", "PST", "GMT+1", "Asia/Kathmandu", "Z"]
INSIDE = [
    None,
    *(
        value
        for value in MICROS
        if value is not None and -62_135_596_800_000_000 <= value < 253_402_300_800_000_000
    ),
]


@pytest.mark.parametrize("zone", ZONES)
def test_moments_are_cut_shifted_and_taken_apart(spark: SparkSession, zone: str) -> None:
    pairs = [
        (micros, unit, NAMED[index % len(NAMED)]) for index, micros in enumerate(INSIDE) for unit in UNITS
    ]
    table: Table = {
        "a": ("timestamp", moments([item[0] for item in pairs])),
        "n": ("timestamp_ntz", moments([item[0] for item in pairs], "timestamp_ntz")),
        "u": ("string", [item[1] for item in pairs]),
        "z": ("string", [NAMED[index % len(NAMED)] for index in range(len(pairs))]),
    }
    expressions = [
        "date_trunc(u, a)", "trunc(to_date(a), u)", "from_utc_timestamp(a, z)", "to_utc_timestamp(a, z)", "from_utc_timestamp(a, 'Asia/Seoul')", "to_utc_timestamp(a, '-3')",
        "convert_timezone('Europe/Paris', z, n)", "convert_timezone(z, 'America/New_York', n)", "convert_timezone('Asia/Tokyo', n)", "unix_timestamp(a)", "to_unix_timestamp(n)",
        "unix_timestamp(to_date(a))", "to_timestamp(to_date(a), u)", *(f"extract({field} FROM a)" for field in FIELDS), "date_part('hours', n)", "date_part('seconds', n)",
    ]  # fmt: skip
    with zone_of(spark, zone):
        assert wrong(spark, table, expressions) == {}


def test_an_unknown_zone_is_an_error(spark: SparkSession) -> None:
    table: Table = {
        "a": ("timestamp", [datetime(2024, 1, 1, tzinfo=UTC)] * 4),
        "z": ("string", ["x", "", "UTC+19", "utc"]),
    }
    assert wrong(spark, table, ["from_utc_timestamp(a, z)", "to_utc_timestamp(a, z)"]) == {}


@pytest.mark.parametrize("zone", ZONES)
def test_units_are_added_and_counted(spark: SparkSession, zone: str) -> None:
    quantities = [None, 0, 1, -1, 13, -25, 10**6, 2**31, 2**63 - 1, -(2**63)]
    units = [
        "MICROSECOND",
        "MILLISECOND",
        "SECOND",
        "MINUTE",
        "HOUR",
        "DAY",
        "DAYOFYEAR",
        "WEEK",
        "MONTH",
        "QUARTER",
        "YEAR",
    ]
    pairs = [
        (micros, other, quantity)
        for micros in INSIDE
        for other, quantity in zip([*INSIDE[::2]], quantities, strict=False)
    ]
    table: Table = {
        "a": ("timestamp", moments([item[0] for item in pairs])),
        "b": ("timestamp", moments([item[1] for item in pairs])),
        "n": ("timestamp_ntz", moments([item[0] for item in pairs], "timestamp_ntz")),
        "q": ("bigint", [item[2] for item in pairs]),
    }
    small = {
        **table,
        "q": ("bigint", [None if item is None else max(min(item, 50), -50) for item in table["q"][1]]),
    }
    added = [f"timestampadd({unit}, q, a)" for unit in units]
    counted = [f"timestampdiff({unit}, a, b)" for unit in units if unit != "DAYOFYEAR"]
    with zone_of(spark, zone):
        assert (
            wrong(spark, small, [*added, *counted, "timestampadd(MONTH, q, n)", "timestampadd(DAY, q, n)"])
            == {}
        )
        assert wrong(spark, table, ["months_between(a, b)", "months_between(a, b, false)"]) == {}
    if zone == "UTC":
        assert wrong(spark, table, added[:6]) == {}


@pytest.mark.parametrize(
    "name", ["make_timestamp", "try_make_timestamp", "make_timestamp_ntz", "make_timestamp_ltz"]
)
def test_moments_are_made_of_parts(spark: SparkSession, name: str) -> None:
    table = grid(
        y=("int", [None, 2024, 0, -1, 10000, 400000]),
        m=("int", [2, 13]),
        h=("int", [0, 23, 24]),
        s=("decimal(16,6)", [0, "59.999999", 60, "60.000001", "-0.000001", "4294967306"]),
        z=("string", ["UTC", "Europe/Paris", "x"]),
    )
    table = {
        column: (
            kind,
            [None if value is None else __import__("decimal").Decimal(value) for value in values]
            if column == "s"
            else values,
        )
        for column, (kind, values) in table.items()
    }
    expressions = [f"{name}(y, m, 29, h, 30, s)"]
    if name not in ("make_timestamp_ntz",):
        expressions.append(f"{name}(y, m, 29, h, 30, s, z)")
    with zone_of(spark, "America/Sao_Paulo"):
        assert wrong(spark, table, expressions) == {}


def test_other_policies_are_left_to_spark(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    try:
        judge = Judge(
            spark, {"a": ("timestamp", [datetime(2024, 1, 1, tzinfo=UTC)])}, ["date_format(a, 'yyyy')"]
        )
        with pytest.raises((PenstockError, AssertionError)):
            judge.kernel(0, 0, 1)
    finally:
        spark.conf.unset("spark.sql.legacy.timeParserPolicy")


EVENTS = {
    "read": "SELECT id, CAST(t AS TIMESTAMP) AS at, try_to_timestamp(t, p) AS parsed, to_unix_timestamp(t, p) AS unix FROM events",
    "written": "SELECT id, date_format(CAST(t AS TIMESTAMP), p) AS w, CAST(x AS STRING) AS s, from_utc_timestamp(CAST(t AS TIMESTAMP), z) AS u FROM events",
    "monthly": "SELECT date_format(CAST(t AS TIMESTAMP), 'yyyy-MM') AS month, count(*) AS n, max(CAST(t AS TIMESTAMP)) AS last FROM events GROUP BY 1",
}
_EVENT = "yyyy-MM-dd HH:mm:ss"
EVENT_TICKS: list[list[tuple[Any, ...]]] = [
    [
        (1, "2024-03-31 02:30:00", _EVENT, 0.1, "Asia/Tokyo", 1),
        (2, "2024-10-27 02:30:00", _EVENT, 2.0**60, "Europe/Paris", 1),
    ],
    [
        (3, None, None, None, None, 1),
        (4, "2024-02-29 23:59:59", _EVENT, 1e-5, "UTC", 1),
        (1, "2024-03-31 02:30:00", _EVENT, 0.1, "Asia/Tokyo", -1),
    ],
    [
        (5, "2024-10-27 12:00:00", _EVENT, 1e23, "America/New_York", 2),
        (2, "2024-10-27 02:30:00", _EVENT, 2.0**60, "Europe/Paris", -1),
    ],
]
RESTORED = """
import json, sys
from pathlib import Path
from penstock import IncrementalFlow
from penstock.data.batch import DeltaBatch
flow = IncrementalFlow.from_definition(Path(sys.argv[1]).read_text())
for rows in json.loads(Path(sys.argv[2]).read_text()):
    flow.tick("events", DeltaBatch.weighted(rows))
assert "pyspark" not in sys.modules, "Spark was loaded"
print(json.dumps({name: sorted(map(str, flow.snapshot(name).to_pylist())) for name in sys.argv[3:]}))
"""


def test_a_restored_flow_needs_no_jvm(session: Session, tmp_path: Path) -> None:
    """Rows of views over several ticks are those of a batch query, also in a process without Java."""
    names = ("id", "t", "p", "x", "z", "_weight")
    ticks = [[dict(zip(names, row, strict=True)) for row in rows] for rows in EVENT_TICKS]
    with zone_of(session.spark, "Europe/Berlin"):
        flow = IncrementalFlow(session)
        flow.register_source("events", "id BIGINT, t STRING, p STRING, x DOUBLE, z STRING")
        for name, query in EVENTS.items():
            flow.register_view(name, query)
        assert {name: flow.explain(name).tier for name in EVENTS} == dict.fromkeys(EVENTS, "kernel")
        for rows in ticks:
            flow.tick("events", DeltaBatch.weighted(rows))
        flow.snapshot("events")
        session.register_table("events_now", flow.snapshot("events"))
        for name, query in EVENTS.items():
            batch = session.sql(query.replace("FROM events", "FROM events_now")).toArrow().to_pylist()
            ours = flow.snapshot(name).to_pylist()
            assert [len(ours), sorted(map(_plain_row, ours))] == [
                len(batch),
                sorted(map(_plain_row, batch)),
            ], name
    (tmp_path / "flow.json").write_text(flow.definition())
    (tmp_path / "ticks.json").write_text(json.dumps(ticks))
    ended = subprocess.run(
        [sys.executable, "-c", RESTORED, str(tmp_path / "flow.json"), str(tmp_path / "ticks.json"), *EVENTS],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PATH": "", "JAVA_HOME": str(tmp_path)},
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {
        name: sorted(map(str, flow.snapshot(name).to_pylist())) for name in EVENTS
    }


def _plain_row(row: dict[str, Any]) -> str:
    """A row as text, moments as instants whatever zone they are shown in."""
    return str(
        {key: value.timestamp() if isinstance(value, datetime) else value for key, value in row.items()}
    )
