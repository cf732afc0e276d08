"""Digests, hashes and encodings against Spark."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.functions import evaluate
from seed import SEED
from twin.judge import Judge, Table, grid

rng = random.Random(SEED)
WORDS = [
    "",
    "a",
    "abc",
    "Spark",
    "äÖß",
    "日本語",
    "😀x",
    "0123456789abcdef" * 5,
    "\x00",
    "a b\n",
    "-",
    "+7F",
    "ff",
    "FFG",
    "xyz",
]
DATA = [
    None,
    b"",
    b"a",
    b"\x00\xff\x80",
    bytes(range(256)),
    *(rng.randbytes(size) for size in (3, 7, 31, 32, 33, 64, 100)),
]
INTS = [None, 0, 1, -1, 2, 224, 256, 384, 512, 7, 2**31 - 1, -(2**31)]
LONGS = [None, 0, 1, -1, 17, 10**12, 2**63 - 1, -(2**63)]
DOUBLES = [None, 0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 5e-324, 1e300]

FAMILIES: dict[str, tuple[Table, list[str]]] = {
    "digests": (
        grid(s=("string", [None, *WORDS]), i=("int", INTS)),
        [
            "md5(s)",
            "sha(s)",
            "sha1(s)",
            "sha2(s, i)",
            "sha2(s, 256)",
            "sha2(s, 0)",
            "sha2(s, 512)",
            "sha2(s, 1)",
            "crc32(s)",
        ],
    ),
    "bytes": (
        {"b": ("binary", DATA)},
        [
            "md5(b)",
            "sha1(b)",
            "sha2(b, 384)",
            "crc32(b)",
            "hash(b)",
            "xxhash64(b)",
            "hex(b)",
            "base64(b)",
            "unbase64(base64(b))",
            "unhex(hex(b))",
            "decode(encode(hex(b), 'utf-8'), 'utf-8')",
        ],
    ),
    "hashes": (
        grid(s=("string", [None, *WORDS]), l=("bigint", LONGS)),
        [
            "hash(s)",
            "hash(l)",
            "hash(s, l)",
            "xxhash64(s)",
            "xxhash64(l)",
            "xxhash64(l, s, 1)",
            "pmod(hash(s), 10)",
        ],
    ),
    "hashes of other types": (
        {
            "i": ("int", [None, 0, 1, -1, 2**31 - 1, 7]),
            "t": ("tinyint", [None, 0, 1, -1, 127, -128]),
            "h": ("smallint", [None, 0, 1, -1, 2**15 - 1, 7]),
            "d": ("double", [None, 0.0, -0.0, 1.5, math.nan, math.inf]),
            "f": ("float", [None, 0.0, -0.0, 1.5, math.nan, math.inf]),
            "b": ("boolean", [None, True, False, True, False, None]),
            "e": ("decimal(10,2)", [None, *map(Decimal, ("0.00", "1.25", "-1.25", "99999999.99", "-0.01"))]),
            "w": (
                "decimal(38,2)",
                [None, *map(Decimal, ("0.00", "1.25", "-1.28", "9" * 30 + ".99", "-" + "9" * 36 + ".99"))],
            ),
            "day": (
                "date",
                [None, date(1970, 1, 1), date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31), None],
            ),
            "at": (
                "timestamp",
                [None, *(datetime(2024, 1, 1, 1, 2, 3, place, tzinfo=UTC) for place in range(5))],
            ),
            "n": ("timestamp_ntz", [None, *(datetime(1969, 1, 1, 1, 2, 3, place) for place in range(5))]),
            "a": ("array<string>", [None, [], ["a"], ["a", None, "bc"], [None], ["0123456789abcdef"]]),
            "s": (
                "struct<x:int,y:array<double>>",
                [
                    None,
                    {"x": 1, "y": [1.0, None]},
                    {"x": None, "y": None},
                    {"x": 2, "y": []},
                    None,
                    {"x": 3, "y": [0.0]},
                ],
            ),
        },
        [
            *(
                f"hash({name})"
                for name in ("i", "t", "h", "d", "f", "b", "e", "w", "day", "at", "n", "a", "s")
            ),
            *(
                f"xxhash64({name})"
                for name in ("i", "t", "h", "d", "f", "b", "e", "w", "day", "at", "n", "a", "s")
            ),
            "hash(i, t, h, d, f, b, e, w, day, at, n, a, s)",
            "xxhash64(i, t, h, d, f, b, e, w, day, at, n, a, s, NULL, 'x')",
            "hash(array(a, a))",
        ],
    ),
    "encodings": (
        grid(
            s=(
                "string",
                [None, *WORDS, "YWJj", "YW Jj", "YWJ", "YQ==", "YQ=", "Y", "YWJj!!", "====", "YQ==YQ=="],
            ),
            l=("bigint", LONGS),
        ),
        [
            "base64(s)",
            "hex(s)",
            "hex(l)",
            "bin(l)",
            "unhex(s)",
            "encode(s, 'utf-8')",
            "encode(s, 'UTF-8')",
            "unbase64(s)",
        ],
    ),
    "number systems": (
        grid(
            s=(
                "string",
                [
                    None,
                    "",
                    "0",
                    "10",
                    "-10",
                    "ff",
                    "FF",
                    "zz",
                    "1.5",
                    " 7",
                    "18446744073709551615",
                    "18446744073709551616",
                    "-18446744073709551616",
                    "9223372036854775808",
                    "-9223372036854775808",
                    "１",
                ],
            ),
            f=("int", [None, 10, 16, 2, 36, 37, 1]),
            t=("int", [None, 10, 16, -10, 2, -16, 37]),
        ),
        ["conv(s, f, t)", "conv(s, 10, 16)", "conv(s, 16, 10)", "conv(s, 10, -10)"],
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_kernel_answers_as_spark_does(spark: SparkSession, family: str) -> None:
    table, expressions = FAMILIES[family]
    judge = Judge(spark, table, expressions)
    wrong: dict[str, Any] = {}
    for index, text in enumerate(expressions):
        why = evaluate.unsupported(judge.root.expressions[index])  # type: ignore[union-attr]
        assert why is None, (text, why)
        if found := judge.differences(index):
            wrong[text] = found
    assert wrong == {}
