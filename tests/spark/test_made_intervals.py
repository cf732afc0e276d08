"""make_interval, try_make_interval, make_dt_interval and make_ym_interval against Spark, with numbers at the ends of their types."""

from __future__ import annotations

from decimal import Decimal
from random import Random

import pytest

import penstock as ps
from seed import SEED
from twin.judge import Judge, Table
from twin.ticked import differences

ENDS = [
    None,
    0,
    1,
    -1,
    12,
    -100,
    2**31 - 1,
    -(2**31),
    178_956_970,
    178_956_971,
    -178_956_970,
    306_783_378,
    306_783_379,
]
USUAL = [None, 0, 1, -1, 7, 12, -100, 5000]
SECONDS = [
    None,
    *map(
        Decimal,
        ("0.000000", "1.500000", "-0.000001", "59.999999", "999999999999.999999", "-999999999999.999999"),
    ),
]
CALLS = [
    "make_ym_interval(a, b)",
    "make_ym_interval(a)",
    "make_dt_interval(a, b, c, s)",
    "make_dt_interval(a)",
    "make_interval(a, b, c, d, e, f, s)",
    "make_interval(a, b)",
    "try_make_interval(a, b, c, d, e, f, s)",
]


def drawn(numbers: list[int | None], seconds: list[Decimal | None], count: int) -> Table:
    chance = Random(SEED)
    columns: Table = {
        name: ("int", [chance.choice(numbers) if chance.random() < 0.5 else 0 for _ in range(count)])
        for name in "abcdef"
    }
    return {**columns, "s": ("decimal(18,6)", [chance.choice(seconds) for _ in range(count)])}


def test_numbers_of_every_size(session: ps.Session) -> None:
    print(f"seed {SEED}")
    judge = Judge(session.spark, drawn(ENDS, SECONDS, 40), CALLS)
    wrong = {}
    for index, call in enumerate(CALLS):
        for row in range(judge.length):
            ours, theirs = judge.attempt(judge.kernel, index, row), judge.attempt(judge.spark, index, row)
            # Spark says of what is beyond the kernel what it is; Arrow has no place for such an interval.
            beyond = ours == "DATA"
            if ours != theirs and not beyond:
                wrong[call, row] = (ours, theirs)
    assert wrong == {}


def test_in_ticks(session: ps.Session) -> None:
    # Spark hands neither intervals of years nor of calendars to Arrow.
    made = ", ".join(f"CAST({call} AS STRING) AS i{number}" for number, call in enumerate(CALLS))
    assert (
        differences(session, f"SELECT id, {made} FROM t", drawn(USUAL, SECONDS[:5], 30), Random(SEED)) == []
    )


@pytest.mark.parametrize("call", [CALLS[0], CALLS[2], CALLS[5]])
def test_what_overflows_is_refused_alike(session: ps.Session, call: str) -> None:
    query = f"SELECT id, CAST({call} AS STRING) AS i FROM t"
    assert differences(session, query, drawn([2**31 - 1], SECONDS[1:2], 6), Random(SEED), ticks=3) == []


def test_what_is_not_evaluated_does_not_fail(session: ps.Session) -> None:
    table: Table = {"a": ("int", [None, 1, 2**31 - 1]), "b": ("int", [1, None, None])}
    query = (
        "SELECT id, CAST(make_ym_interval(b, CAST(1 / (a - 1) AS INT)) AS STRING) AS i, "
        "CAST(if(a > 9, NULL, make_ym_interval(a, 0)) AS STRING) AS j FROM t"
    )
    assert differences(session, query, table, Random(SEED)) == []


def test_they_add_to_moments(session: ps.Session) -> None:
    query = (
        "SELECT id, TIMESTAMP '2024-01-31 10:00:00' + make_interval(0, 0, c, d, e, f, s) AS x, DATE '2024-01-31' + make_ym_interval(0, b) AS y, "
        "TIMESTAMP '2024-01-31 10:00:00' - make_dt_interval(a, b, c, s) AS z FROM t"
    )
    assert differences(session, query, drawn([None, 0, 1, -1, 7], SECONDS[:4], 30), Random(SEED)) == []


def test_they_are_the_kernels(session: ps.Session) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("t", "a INT, b INT, c INT, d INT, e INT, f INT, s DECIMAL(18,6)")
    made = ", ".join(f"{call} AS c{number}" for number, call in enumerate(CALLS))
    view = flow.register_view("v", f"SELECT {made} FROM t")
    assert view.tier == "kernel", str(flow.explain("v"))
