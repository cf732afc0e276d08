"""Functions of text and of regular expressions against Spark, with random regular expressions."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.functions import evaluate
from penstock.functions.scalars import patterns
from seed import SEED
from twin.judge import Judge, Table, grid

WORDS = [
    None,
    "",
    "a",
    "Abc",
    "  pad ",
    "äÖß",
    "日本語",
    "😀x",
    "a%b_c",
    "abcabc",
    "\t\n",
    "a,b,,c,",
    ",",
    "x\r\n",
    "10.5-7",
    "foo@bar.com",
    "hello WORLD 42",
    "a\\b",
    "12345678",
    "4539578763621486",
]
LISTS = [None, [], [None], ["a"], ["a", None, "b"], ["", ""], [None, None], ["x", "y", "z"]]
REGEXES = [
    ",",
    "[,;]",
    "b",
    "\\\\|",
    "\\\\.",
    "\\\\s+",
    "[0-9]+",
    "(a)(b)?",
    "a|b",
    "(?i)ABC",
    "^a",
    "c$",
    "^\\\\s+|\\\\s+$",
    "[^a-z]",
    "(\\\\w+)@(\\\\w+)\\\\.com",
    "\\\\d{2,3}",
    "(a|bc)+",
    "x$",
    "$",
    "^",
    "^|,",
    ".",
    "a.?c",
    "b+?",
]
FAMILIES: dict[str, tuple[Table, list[str]]] = {
    "regular expressions": (
        {"s": ("string", WORDS)},
        [
            *(f"split(s, '{regex}')" for regex in REGEXES),
            *(f"s RLIKE '{regex}'" for regex in REGEXES),
            *(f"regexp_replace(s, '{regex}', '-')" for regex in REGEXES),
            *(f"regexp_extract(s, '{regex}', 0)" for regex in REGEXES),
            *(f"regexp_extract_all(s, '{regex}', 0)" for regex in REGEXES),
            *(f"regexp_instr(s, '{regex}')" for regex in REGEXES),
            *(f"regexp_count(s, '{regex}')" for regex in REGEXES[:6]),
            "regexp_extract(s, '(a)(b)?', 2)",
            "regexp_extract_all(s, '(a)(b)?', 2)",
            "regexp_extract(s, '(\\\\w+)@(\\\\w+)')",
            "regexp_replace(s, '(a)(b)', '$2$1')",
            "regexp_replace(s, '(a)(b)?', '[$2]\\\\$')",
            "regexp_like(s, 'b')",
            "split(s, '')",
            "split(s, '', 2)",
        ],
    ),
    "limits of split": (
        grid(s=("string", WORDS), n=("int", [None, -1, 0, 1, 2, 3])),
        [
            "split(s, ',', n)",
            "split(s, '[bc]', n)",
            "split(s, '', n)",
            "split(s, '^|,', n)",
            "split(s, ',', 2)",
        ],
    ),
    "patterns in a column": (
        grid(
            s=("string", WORDS),
            p=(
                "string",
                [
                    None,
                    "",
                    "%",
                    "a%",
                    "_",
                    "%b%",
                    "a\\%b\\_c",
                    "%\n",
                    "_%_",
                    "A_C",
                    "\\\\%",
                    "%.%",
                ],
            ),
        ),
        [
            "s LIKE p",
            "s ILIKE p",
            "s NOT LIKE p",
            "s LIKE ANY (p, 'a')",
            "s LIKE ALL (p, '%')",
        ],
    ),
    "escapes in a column": (
        grid(s=("string", ["a", "a%", None]), p=("string", ["a%", "a\\", "\\a", "a!%", None])),
        ["s LIKE p", "s LIKE p ESCAPE '!'"],
    ),
    "several patterns": (
        {"s": ("string", WORDS)},
        [
            "s LIKE ALL ('a%', '%c')",
            "s LIKE ANY ('a%', '%c', '_')",
            "s NOT LIKE ALL ('a%', '%c')",
            "s NOT LIKE ANY ('a_c%', '%c')",
            "s ILIKE ALL ('A%', '%_c%')",
            "s ILIKE ANY ('A_c%', '%L%')",
            "s LIKE ANY ('a_%b', '%_c', 'x_y', '_')",
        ],
    ),
    "joined": (
        {
            "a": ("array<string>", LISTS * 3),
            "b": ("array<string>", (LISTS[3:] + LISTS[:3]) * 3),
            "s": ("string", [None, "-", "", "s", "tt", ", ", "é", "😀"] * 3),
            "t": ("string", ["x"] * 8 + [None] * 8 + ["NULL"] * 8),
            "i": ("int", [None, 0, 1, 2, 3, -1, 4, 1] * 3),
        },
        [
            "concat_ws(',', a)",
            "concat_ws(s, a, b)",
            "concat_ws('-', a, s, b, t)",
            "concat_ws(s)",
            "concat_ws(NULL, a)",
            "array_join(a, ',')",
            "array_join(a, s)",
            "array_join(a, ',', '?')",
            "array_join(a, ',', t)",
            "array_join(a, s, t)",
            "elt(i, s, t)",
            "elt(2, s, t)",
            "format_string('%s=%s', s, t)",
            "format_string('%5s|%-5s|%d|%05d|%,d|%+d|%%%n', s, t, i, i, i * 1000, i)",
            "printf('%.2s', t)",
        ],
    ),
    "text": (
        grid(
            s=("string", WORDS),
            t=("string", [None, "", "a", "b,a,c", "ß", "abc", "kitten", "😀"]),
            i=("int", [None, 0, 1, 3, -1, -2, 2**31 - 1]),
        ),
        [
            "soundex(s)",
            "levenshtein(s, t)",
            "levenshtein(s, t, 2)",
            "find_in_set(s, t)",
            "find_in_set(t, s)",
            "overlay(s PLACING t FROM 2)",
            "overlay(s PLACING t FROM i)",
            "overlay(s, t, i, 1)",
            "overlay(s, t, 2, i)",
            "locate(t, s, i)",
            "left(s, i)",
            "right(s, i)",
            "lpad(s, i % 100, t)",
            "substring_index(s, t, i)",
            "substring_index(s, ',', i)",
            "split_part(s, ',', 2)",
            "split_part(s, t, 1)",
            "translate(s, t, 'xy')",
            "btrim(s)",
            "btrim(s, 'a ')",
            "btrim(s, t)",
            "ltrim(t, s)",
            "rtrim(t, s)",
            "trim(BOTH t FROM s)",
            "mask(s)",
            "mask(s, 'Q', 'q', '#', '*')",
            "mask(s, NULL, NULL, NULL, '-')",
            "luhn_check(s)",
            "url_encode(s)",
            "url_decode(url_encode(s))",
            "ascii(s)",
            "position(t, s)",
            "instr(s, t)",
            "char_length(s)",
            "replace(s, t, '')",
            "initcap(s)",
        ],
    ),
    "urls": (
        {
            "s": (
                "string",
                [
                    "%41",
                    "a+b",
                    "%",
                    "%4",
                    "%zz",
                    "%+1",
                    "%-1",
                    "%c3%a9",
                    "%C3",
                    "%F0%9F%98%80x",
                    "%ff%fe",
                    "é",
                    "a%20b%",
                    "~*-_. /?&=",
                ],
            )
        },
        ["url_decode(s)", "try_url_decode(s)", "url_encode(s)"],
    ),
    "numbers": (
        {
            "l": ("bigint", [None, 0, 1, -1, 65, 255, 256, 300, 1234567, -(2**63), 2**63 - 1]),
            "d": (
                "double",
                [None, 0.0, -0.0, 0.5, 1.5, 2.675, -0.001, 1234567.125, float("nan"), float("inf"), 1e20],
            ),
            "f": (
                "float",
                [None, 0.0, -0.0, 0.5, 1.1, 2.675, -0.001, 1234567.1, float("nan"), float("-inf"), 1e20],
            ),
            "e": (
                "decimal(12,3)",
                [
                    None,
                    *map(
                        Decimal,
                        (
                            "0.000",
                            "0.005",
                            "0.015",
                            "-0.001",
                            "1234567.895",
                            "-1.500",
                            "2.500",
                            "999999999.999",
                            "1.000",
                            "0.125",
                        ),
                    ),
                ],
            ),
            "i": ("int", [None, 0, 1, -1, 2, 3, 5, 2, 2, 0, 1]),
        },
        [
            "format_number(l, 2)",
            "format_number(d, 2)",
            "format_number(d, i)",
            "format_number(f, 3)",
            "format_number(e, 2)",
            "format_number(e, 0)",
            "format_number(i, 0)",
            "chr(l)",
            "char(l)",
            "chr(i)",
        ],
    ),
    "delimiters that overlap": (
        grid(
            s=("string", [None, "", "a", "aa", "aaa", "aaaa", "abaababa", "äää", "aab"]),
            t=("string", ["", "a", "aa", "aba", "ää", "aab", "aaab"]),
            i=("int", [None, 0, 1, 2, 3, -1, -2, -3, 2**31 - 1, -(2**31) + 1, -(2**31)]),
        ),
        ["substring_index(s, t, i)", "split_part(s, t, i)"],
    ),
    "numbers with many digits": (
        grid(
            d=("double", [0.5, -1234.5678, 1e-300, 1.7976931348623157e308, 0.1]),
            e=("decimal(38,2)", [None, Decimal("9" * 36 + ".99"), Decimal("-" + "123456789" * 4 + ".05")]),
            i=("int", [1, 27, 29, 100, 339, 340, 341, 400]),
        ),
        [
            "format_number(d, i)",
            "format_number(e, i)",
            "format_number(i, i)",
            "format_number(CAST(d AS float), i)",
        ],
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


def _regex(rng: random.Random, depth: int) -> str:
    """A regular expression over a few characters, of all that the kernel takes and some that it does not."""
    kind = rng.randrange(8 if depth else 4)
    if kind < 3:
        return rng.choice(
            ["a", "b", "c", ".", "\\d", "\\w", "\\s", "[ab]", "[^a]", "[a-c1]", "\\.", "^", "$", ",", "é"]
        )
    if kind == 3:
        return rng.choice(["a", "b", "[bc]", "."]) + rng.choice(
            ["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,1}"]
        )
    if kind < 6:
        return _regex(rng, depth - 1) + _regex(rng, depth - 1)
    if kind == 6:
        return (
            "("
            + _regex(rng, depth - 1)
            + "|"
            + _regex(rng, depth - 1)
            + ")"
            + rng.choice(["", "", "*", "+", "?", "+?", "{2}"])
        )
    return rng.choice(["(", "(?:"]) + _regex(rng, depth - 1) + ")" + rng.choice(["", "*", "?", "+"])


def test_random_regular_expressions(spark: SparkSession) -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    regexes: list[str] = []
    while len(regexes) < 40:
        regex = rng.choice(["", "", "", "(?i)"]) + _regex(rng, 3)
        if patterns.python_regex(regex) is not None:
            regexes.append(regex)
    texts = [
        "".join(
            rng.choice(["a", "b", "c", "A", "1", ",", ".", " ", "\n", "\r", "é", "😀"])
            for _ in range(rng.randrange(9))
        )
        for _ in range(150)
    ]
    table: Table = {"s": ("string", texts)}
    expressions = []
    for regex in regexes:
        pattern = patterns.python_regex(regex)
        assert pattern is not None
        written = regex.replace("\\", "\\\\")
        group = rng.randrange(pattern.groups + 1)
        expressions += [
            f"regexp_extract_all(s, '{written}', {group})",
            f"regexp_replace(s, '{written}', '<${group}>')",
            f"split(s, '{written}')",
            f"s RLIKE '{written}'",
        ]
    judge = Judge(spark, table, expressions)
    assert {
        text: found for index, text in enumerate(expressions) if (found := judge.differences(index))
    } == {}
