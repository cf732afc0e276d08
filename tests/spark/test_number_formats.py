"""to_char, to_number and try_to_number by formats against Spark, with random formats and texts."""

from __future__ import annotations

from decimal import Decimal
from random import Random

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from seed import SEED
from twin.judge import Judge, Table
from twin.ticked import differences

FORMATS = [
    "999",
    "000",
    "9",
    "99.99",
    "00.00",
    "0.9",
    ".99",
    "99.",
    "9,999",
    "0,000",
    "99,999.00",
    "9G999D99",
    "$99.99",
    "$0,000.00",
    "S999",
    "999S",
    "MI99.9",
    "99.9MI",
    "999pr",
    "S$9,999.99",
    "$99.99pr",
    "999,99,9.9s",
]
NUMBERS: Table = {
    "d": (
        "decimal(12,3)",
        [
            None,
            *map(
                Decimal,
                (
                    "0",
                    "1",
                    "-1",
                    "0.5",
                    "-0.25",
                    "12.3",
                    "-99.99",
                    "454",
                    "999.999",
                    "1234.5",
                    "-12454.8",
                    "100",
                    "0.001",
                    "999999999.999",
                ),
            ),
        ],
    ),
    "i": ("int", [None, 0, 1, -1, 7, 10, 99, 100, 454, 999, 1000, -1234, 12345, 2**31 - 1, -(2**31)]),
}
TEXTS = [
    None, "", " ", "0", "1", "-1", "+1", "454", "0454", "1234", "1,234", "12,34", "1,2,3", ",123", "12.3", "12.34", ".5", "5.", "12.345", "$12.34", "$", "-$1", "$-1",
    "<12>", "<12", "12>", "<$1.50>", "12-", "12.5-", "1 2", " 12", "12 ", "\t7", "1e3", "abc", "--1", "1-1", "00.00", "00", "-0", "١٢", "1\u00a02",
]  # fmt: skip


def written() -> list[str]:
    return [f"to_char({name}, '{one}')" for one in FORMATS for name in NUMBERS]


def test_numbers_are_written(spark: SparkSession) -> None:
    judge = Judge(spark, NUMBERS, written())
    assert {call: wrong for index, call in enumerate(written()) if (wrong := judge.differences(index))} == {}


def test_texts_are_read(session: ps.Session) -> None:
    calls = ", ".join(
        f"try_to_number(t, '{one}') AS e{number}" for number, one in enumerate(FORMATS) if one != ".99"
    )
    chance = Random(SEED)
    # Without a digit Spark fails for every format.
    numbers = [text for text in TEXTS if text is None or any(map(str.isdigit, text))]
    assert differences(session, f"SELECT id, {calls} FROM t", {"t": ("string", numbers)}, chance) == []
    plain: Table = {"t": ("string", [text for text in numbers if text is not None and text.isascii()])}
    calls_alone = [f"try_to_number(t, '{one}')" for one in FORMATS if one != ".99"]
    judge = Judge(session.spark, plain, calls_alone)
    wrong = {call: found for index, call in enumerate(calls_alone) if (found := judge.differences(index))}
    assert wrong == {}


@pytest.mark.parametrize("text", ["454", "45", "x", "", "1 2 3"])
def test_what_does_not_fit_is_refused_alike(session: ps.Session, text: str) -> None:
    table: Table = {"t": ("string", ["454", text, None])}
    assert differences(session, "SELECT id, to_number(t, '000') AS e FROM t", table, Random(1), ticks=2) == []


def test_random_formats(spark: SparkSession) -> None:
    print(f"seed {SEED}")
    chance = Random(SEED)
    formats = sorted({_format(chance) for _ in range(40)})
    calls = [f"to_char(d, '{one}')" for one in formats]
    numbers = [Decimal(chance.randrange(-(10**9), 10**9)).scaleb(-chance.randrange(4)) for _ in range(60)]
    judge = Judge(
        spark, {"d": ("decimal(12,3)", [number.quantize(Decimal("0.001")) for number in numbers])}, calls
    )
    assert {call: wrong for index, call in enumerate(calls) if (wrong := judge.differences(index))} == {}


def _format(chance: Random) -> str:
    whole = ",".join(chance.choice("09") * chance.randrange(1, 4) for _ in range(chance.randrange(1, 4)))
    point = chance.choice(["", "", ".", "D"])
    decimals = chance.choice("09") * chance.randrange(3) if point else ""
    sign = chance.choice(["", "S", "MI"])
    front = chance.random() < 0.5
    behind = chance.choice(["", "PR"]) if not sign else ""
    return f"{sign if front else ''}{chance.choice(['', '$'])}{whole}{point}{decimals}{'' if front else sign}{behind}"


def test_they_are_the_kernels(session: ps.Session) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("t", "t STRING, d DECIMAL(12,3), i INT")
    query = f"SELECT to_number(t, '999') AS a, try_to_number(t, '9.9') AS b, {written()[0]} AS c, to_varchar(i, '999') AS d FROM t"
    assert flow.register_view("v", query).tier == "kernel", str(flow.explain("v"))
