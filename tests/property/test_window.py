"""Window functions against their naive twin: every row looks at its whole partition, after every tick."""

from __future__ import annotations

import math
import random
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from functools import cmp_to_key
from typing import Any

import pyarrow as pa
import pytest

from penstock.data.tick import Tick
from penstock.functions.rounding import ratio
from penstock.operators.window import Window
from penstock.plan.node import Frame, SortKey, WindowCall
from twin.collisions import weakened
from twin.rows import delta_of
from twin.tick import end_tick
from twin.view import apply

NAN = math.nan
TICK = Tick(1, 0)
# partition, order, double, text, decimal, default
TYPES = (pa.int64(), pa.int32(), pa.float64(), pa.large_string(), pa.decimal128(8, 2), pa.large_string())
POOLS: tuple[list[Any], ...] = (
    [None, 1, 2],
    [None, *range(8)],
    [None, NAN, math.inf, -math.inf, 0.1, 0.2, -0.3, 1e16, 1e-300, 5.0, -0.0],
    [None, None, "a", "b", "the same sixteen bytes 1", "the same sixteen bytes 2"],
    [None, Decimal("1.25"), Decimal("-3.50"), Decimal("99999.99")],
    ["x", None],
)
DEFAULT = Frame("range", None, 0)
WHOLE = Frame("rows", None, None)
FRAMES = (
    DEFAULT,
    WHOLE,
    Frame("rows", -1, 1),
    Frame("rows", None, 0),
    Frame("rows", 2, 3),
    Frame("rows", -3, -2),
    Frame("range", 0, None),
    Frame("range", -2, 1),
    Frame("range", None, -1),
    Frame("range", 1, 2),
)
RANKS = tuple(
    WindowCall(name, (), "int", Frame("rows", None, 0), options=options)
    for name, options in (
        ("RowNumber", ()),
        ("Rank", ()),
        ("DenseRank", ()),
        ("PercentRank", ()),
        ("CumeDist", ()),
        ("NTile", (("buckets", 3),)),
    )
)
SHIFTS = (
    WindowCall("Lag", (3,), "string", Frame("rows", -1, -1), options=(("offset", 1),)),
    WindowCall("Lead", (3, 5), "string", Frame("rows", 2, 2), options=(("offset", 2),)),
    WindowCall(
        "Lag", (3, 5), "string", Frame("rows", -1, -1), options=(("ignoreNulls", True), ("offset", 1))
    ),
    WindowCall("Lead", (2,), "double", Frame("rows", 1, 1), options=(("ignoreNulls", True), ("offset", 2))),
    WindowCall("Lag", (3,), "string", Frame("rows", 0, 0), options=(("offset", 0),)),
)
FRAMED = (
    ("Count", (), ()),
    ("Count", (2,), ()),
    ("Sum", (1,), ()),
    ("Sum", (2,), ()),
    ("Sum", (4,), ()),
    ("Average", (1,), ()),
    ("Average", (2,), ()),
    ("Min", (3,), ()),
    ("Max", (2,), ()),
    ("First", (3,), ()),
    ("Last", (3,), (("ignoreNulls", True),)),
    ("First", (2,), (("ignoreNulls", True),)),
    ("Last", (2,), ()),
    ("NthValue", (3,), (("offset", 2),)),
    ("NthValue", (3,), (("ignoreNulls", True), ("offset", 2))),
    ("CollectList", (3,), ()),
    ("BitXorAgg", (1,), ()),
    ("MaxBy", (3, 1), ()),
)


def plain(value: Any) -> Any:
    if isinstance(value, float):
        return (1, 0.0) if value != value else (0, value)
    return value.encode() if isinstance(value, str) else value


def compare(left: Any, right: Any, key: SortKey) -> int:
    if left is None or right is None:
        found = (right is None) - (left is None)
        return found if key.nulls_first else -found
    found = (plain(left) > plain(right)) - (plain(left) < plain(right))
    return -found if key.descending else found


def sorter(order: tuple[SortKey, ...]) -> Any:
    whole = (*order, *(SortKey(index) for index in range(len(TYPES))))

    def decide(left: tuple[Any, ...], right: tuple[Any, ...]) -> int:
        for key in whole:
            found = compare(left[key.column], right[key.column], key)
            if found:
                return found
        return 0

    return cmp_to_key(decide)


def frame_of(frame: Frame, rows: list[Any], at: int, order: tuple[SortKey, ...]) -> list[Any]:
    if frame.unit == "rows":
        low = 0 if frame.lower is None else at + frame.lower
        high = len(rows) if frame.upper is None else at + frame.upper + 1
        return rows[max(low, 0) : max(high, 0)]

    def side(bound: int, row: Any) -> int:
        """Where a row lies against the current row moved by a bound."""
        if bound == 0:
            return next((c for key in order if (c := compare(row[key.column], rows[at][key.column], key))), 0)
        key = order[0]
        here = rows[at][key.column]
        moved = None if here is None else here + (-bound if key.descending else bound)
        return compare(row[key.column], moved, key)

    return [
        row
        for row in rows
        if (frame.lower is None or side(frame.lower, row) >= 0)
        and (frame.upper is None or side(frame.upper, row) <= 0)
    ]


def exact(values: list[Any], *, mean: bool) -> Any:
    if isinstance(values[0], Decimal):
        return sum(values, Decimal(0))
    if isinstance(values[0], float) and not all(map(math.isfinite, values)):
        return sum(v for v in values if not math.isfinite(v))
    total = sum(map(Fraction, values))
    if mean:
        return ratio(total.numerator, total.denominator * len(values))
    return ratio(total.numerator, total.denominator) if isinstance(values[0], float) else int(total)


def naive(call: WindowCall, rows: list[Any], at: int, order: tuple[SortKey, ...]) -> Any:
    name, row = call.function, rows[at]

    def peers(other: Any) -> int:
        return next((c for key in order if (c := compare(other[key.column], row[key.column], key))), 0)

    before = sum(peers(other) < 0 for other in rows)
    if name == "RowNumber":
        return at + 1
    if name == "Rank":
        return before + 1
    if name == "DenseRank":
        return 1 + len({tuple(repr(plain(o[k.column])) for k in order) for o in rows if peers(o) < 0})
    if name == "PercentRank":
        return before / (len(rows) - 1) if len(rows) > 1 else 0.0
    if name == "CumeDist":
        return sum(peers(other) <= 0 for other in rows) / len(rows)
    if name == "NTile":
        buckets = [n for n in range(3) for _ in range(len(rows) // 3 + (n < len(rows) % 3))]
        return buckets[at] + 1
    if name in ("Lag", "Lead"):
        step = call.option("offset") * (-1 if name == "Lag" else 1)
        default = row[call.args[1]] if len(call.args) > 1 else None
        if call.option("ignoreNulls"):
            places = range(at + 1, len(rows)) if step > 0 else range(at - 1, -1, -1)
            found = [rows[p][call.args[0]] for p in places if rows[p][call.args[0]] is not None]
            return found[abs(step) - 1] if len(found) >= abs(step) else default
        return rows[at + step][call.args[0]] if 0 <= at + step < len(rows) else default
    frame = frame_of(call.frame, rows, at, order)
    if name == "MaxBy":
        found = [(r[1], plain(r[3]) is not None, plain(r[3]), r[3]) for r in frame if r[1] is not None]
        return max(found, key=lambda f: (f[0], f[1], f[2] or b""))[3] if found else None
    values = [r[call.args[0]] for r in frame] if call.args else [1 for _ in frame]
    filled = [value for value in values if value is not None]
    if name == "Count":
        return len(filled)
    if name == "CollectList":
        return filled
    if name in ("First", "Last", "NthValue"):
        chosen = filled if call.option("ignoreNulls") else values
        index = {"First": 0, "Last": -1, "NthValue": call.option("offset", 1) - 1}[name]
        return chosen[index] if len(chosen) > index and chosen else None
    if not filled:
        return None
    if name in ("Sum", "Average"):
        return exact(filled, mean=name == "Average")
    if name == "BitXorAgg":
        result = 0
        for value in filled:
            result ^= value
        return result
    return (min if name == "Min" else max)(
        filled, key=lambda v: (plain(v), math.copysign(1, v) if v == 0 else 0)
    )


def twin(rows: list[Any], partition: tuple[int, ...], order: tuple[SortKey, ...], calls: Any) -> Counter[str]:
    groups: dict[Any, list[Any]] = {}
    for row in rows:
        groups.setdefault(tuple(plain(row[key]) for key in partition), []).append(row)
    result: Counter[str] = Counter()
    for members in groups.values():
        ranked = sorted(members, key=sorter(order))
        for at, row in enumerate(ranked):
            result[repr((*row, *(naive(call, ranked, at, order) for call in calls)))] += 1
    return result


def run(
    partition: tuple[int, ...], order: tuple[SortKey, ...], calls: tuple[WindowCall, ...], ticks: int
) -> None:
    rng = random.Random(f"{partition}{order}{len(calls)}")
    operator = Window(TYPES, partition, order, calls)
    rows: list[Any] = []
    view: Counter[str] = Counter()
    for _ in range(ticks):
        after, changes = list(rows), []
        for _ in range(rng.choice([0, 1, 3, 10])):
            if after and rng.random() < 0.45:
                changes.append((after.pop(rng.randrange(len(after))), -1))
            else:
                row = tuple(rng.choice(pool) for pool in POOLS)
                times = rng.choice([1, 1, 2])
                after += [row] * times
                changes.append((row, times))
        if rng.random() < 0.3:
            operator.step([delta_of(changes, TYPES)], TICK)
            operator.rollback()
        apply(view, operator.step([delta_of(changes, TYPES)], TICK))
        end_tick(operator)
        rows = after
        assert view == twin(rows, partition, order, calls)
    apply(view, operator.step([delta_of([(row, -1) for row in rows], TYPES)], TICK))
    assert not view


ORDERS = ((SortKey(1),), (SortKey(1, True, False),), (SortKey(1, False, False),))


@pytest.mark.parametrize("order", [*ORDERS, (SortKey(3, True, True), SortKey(1))], ids=str)
@pytest.mark.parametrize("partition", [(), (0,), (0, 3)])
def test_ranks_and_shifts(order: tuple[SortKey, ...], partition: tuple[int, ...]) -> None:
    run(partition, order, (*RANKS, *SHIFTS), 10)


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("frame", FRAMES, ids=str)
def test_functions_over_frames(order: tuple[SortKey, ...], frame: Frame) -> None:
    calls = tuple(WindowCall(name, args, "", frame, options=options) for name, args, options in FRAMED)
    with weakened(3):
        run((0,), order, calls, 6)


def test_windows_without_order() -> None:
    calls = tuple(WindowCall(name, args, "", WHOLE, options=options) for name, args, options in FRAMED[:9])
    run((0,), (), calls, 8)
    run((), (), (), 4)
