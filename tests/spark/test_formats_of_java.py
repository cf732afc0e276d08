"""format_string and printf against Spark: every conversion, flags by chance, and doubles of every size."""

from __future__ import annotations

import struct
from decimal import Decimal
from random import Random

from pyspark.sql import SparkSession

import penstock as ps
from penstock.functions.scalars.formatter import parse
from seed import SEED
from twin.judge import Judge, Table
from twin.ticked import differences

_COUNT = 400
_TIES = [
    0.5,
    1.5,
    2.5,
    0.125,
    0.375,
    0.05,
    0.15,
    1.005,
    2.675,
    1.45,
    8.345,
    1e15 + 0.5,
    0.0005,
    999.5,
    9.9999995,
]
_DOUBLES = [
    None, 0.0, -0.0, 1.0, -1.0, float("nan"), float("inf"), float("-inf"), 5e-324, 1.5e-323, 2.2250738585072014e-308,
    1.7976931348623157e308, 1e7, 1e-3, 123456789.125, 999999.5, 9999995.0, 0.0001, 0.00001, 0.00009999999, 2.0**53, 2.0**63, 2.0**-44, 1e23, 2e-3, 4.35, *_TIES,
]  # fmt: skip
FLOATS = [
    "%f", "%.0f", "%.1f", "%.2f", "%.10f", "%.20f", "%#.0f", "%12.3f", "%-12.2f", "%012.2f", "%+.2f", "% .2f", "%,.2f", "%(.2f", "%0(,15.1f", "%+,014.0f",
    "%e", "%.0e", "%.3e", "%E", "%#.0e", "%015.2e", "%-15e", "%(e", "%.17e", "%g", "%.0g", "%.3g", "%G", "%,g", "%015g", "%(.10g", "%.17g", "%s", "%S", "%30s", "%.3s", "%b",
]  # fmt: skip
WHOLE = [
    "%d", "%5d", "%-8d", "%08d", "%+d", "% d", "%,d", "%(d", "%0(12d", "%+,015d", "%x", "%X", "%#x", "%#X", "%012x", "%-20X", "%#020x", "%o", "%#o", "%025o",
    "%s", "%20s", "%-20s", "%.2s", "%S", "%b", "%B", "%-7b", "%.1b",
]  # fmt: skip


def _doubles(chance: Random) -> list[float | None]:
    """The listed numbers, decimal ones of few digits, and any bits."""
    short = [round(chance.uniform(-1e6, 1e6), chance.randrange(5)) for _ in range(_COUNT // 4)]
    halves = [chance.randrange(-(10**6), 10**6) / 2 ** chance.randrange(1, 12) for _ in range(_COUNT // 4)]
    whole = [float(chance.randrange(10 ** chance.randrange(1, 25))) for _ in range(_COUNT // 8)]
    bits = [struct.unpack(">d", chance.randbytes(8))[0] for _ in range(_COUNT // 4)]
    powers = [10.0 ** chance.randrange(-30, 30) * chance.randrange(1, 100) for _ in range(_COUNT // 8)]
    return [*_DOUBLES, *short, *halves, *whole, *bits, *powers]


def _wrong(spark: SparkSession, table: Table, calls: list[str]) -> dict[str, list[str]]:
    judge = Judge(spark, table, calls)
    return {call: wrong for index, call in enumerate(calls) if (wrong := judge.differences(index))}


def test_doubles_and_floats(spark: SparkSession) -> None:
    print(f"seed {SEED}")
    values = _doubles(Random(SEED))
    singles = [
        None
        if value is None
        else struct.unpack(">f", struct.pack(">f", value))[0]
        if value != value or abs(value) < 3e38
        else float("inf")
        for value in values
    ]
    table: Table = {"d": ("double", values), "f": ("float", singles)}
    calls = [f"format_string('{one}', {name})" for one in FLOATS for name in table]
    assert _wrong(spark, table, calls) == {}


def test_whole_numbers(spark: SparkSession) -> None:
    limits = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
    table: Table = {
        kind[0]: (
            kind,
            [None, 0, 1, -1, 7, -8, 10, 64, 99, 100, -127, *(2**bits - one for one in (1, 2)), -(2**bits), 1 - 2**bits],
        )
        for kind, bits in limits.items()
    }  # fmt: skip
    calls = [f"printf('{one}', {name})" for one in WHOLE for name in table]
    assert _wrong(spark, table, calls) == {}


def test_texts_booleans_decimals_and_characters(spark: SparkSession) -> None:
    table: Table = {
        "s": ("string", [None, "", "a", "abc", "é", "😀", "a😀b", "null", "%s"]),
        "b": ("boolean", [None, True, False] * 3),
        "d": ("decimal(20,10)", [None, *map(Decimal, ("0", "1", "-1.5", "0.0000000001", "-0.00000012", "12345.678", "9999999999", "0.1"))]),
        "e": ("decimal(5,0)", [None, *map(Decimal, range(-4, 4))]),
        "i": ("int", [None, 0, 65, 97, 233, 0x20AC, 0x1F600, 0x10FFFF, 10]),
        "t": ("tinyint", [None, 0, 65, 97, 127, 32, 10, 48, 90]),
    }  # fmt: skip
    texts = [
        f"format_string('{one}', {name})"
        for one in ("%s", "%7s", "%-7s|", "%.1s", "%5.2s", "%-5.3s", "%b", "%B")
        for name in ("s", "b", "d", "e")
    ]
    characters = [f"format_string('{one}', {name})" for one in ("%c", "%4c", "%-4c|") for name in "it"]
    together = [
        "format_string('%2$s %1$s %<s %s %s %%%n', s, i)",
        "format_string('%S %S', b, d)",
        "printf('%1$d|%1$x|%1$c|%1$s|%1$b', i)",
        "printf('%3$s%2$s%1$s%3$7.2s', s, b, i)",
        "printf('no directive', s)",
        "printf('é😀 %s %n', s)",
        "printf('%s', 1.5e0)",
        "printf('')",
    ]
    assert _wrong(spark, table, [*texts, *characters, *together]) == {}


def test_flags_by_chance(spark: SparkSession) -> None:
    """Formats that Java refuses are left to it, so that what is parsed is never refused."""
    print(f"seed {SEED}")
    chance = Random(SEED)
    columns = {"d": "efgEG", "i": "doxX", "l": "dxo", "s": "sb"}
    table: Table = {
        "d": ("double", [None, 0.0, -1.5, 1234567.891, -0.00012345, 1e300]),
        "i": ("int", [None, 0, -15, 1234567, 99, -(2**31)]),
        "l": ("bigint", [None, 0, -15, 1234567, 10**12, -(2**63)]),
        "s": ("string", [None, "", "x", "word", "é", "a longer text"]),
    }
    calls: set[str] = set()
    while len(calls) < 60:
        name = chance.choice(list(columns))
        flags = "".join(chance.sample("-#+ 0,(", chance.randrange(4)))
        width = chance.choice(["", "1", "7", "20"])
        precision = chance.choice(["", "", ".0", ".1", ".5"])
        pattern = f"%{flags}{width}{precision}{chance.choice(columns[name])}"
        if parse(pattern) is not None:
            calls.add(f"format_string('{pattern}', {name})")
    assert _wrong(spark, table, sorted(calls)) == {}


def test_rows_that_come_and_go(session: ps.Session) -> None:
    table: Table = {
        "d": ("double", [None, 0.0, -1.5, 1234567.891, float("nan")]),
        "i": ("int", [65, None, 0x110000, 0xD800, 10]),
        "s": ("string", ["a", None, "b", "é", ""]),
    }
    query = "SELECT id, format_string('%05d %,.2f %s', i, d, s) AS f, printf('%x|%e', i, d) AS p FROM t"
    assert differences(session, query, table, Random(SEED)) == []
    # A number that is no character is refused as Spark refuses it.
    assert differences(session, "SELECT id, printf('%c', i) AS c FROM t", table, Random(SEED)) == []


def test_they_are_the_kernels(session: ps.Session) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("t", "s STRING, d DOUBLE, i INT, n DECIMAL(12,3)")
    query = "SELECT printf('%c %2$,.2f %<e %3$s %4$b %1$x', i, d, n, s) AS c FROM t"
    assert flow.register_view("v", query).tier == "kernel", str(flow.explain("v"))
    for letter in "ah":
        query = f"SELECT printf('%{letter}', d) AS c FROM t"
        assert flow.register_view(letter, query).tier == "spark"
