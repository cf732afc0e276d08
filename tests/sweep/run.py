"""The whole sweep: every function of the registry, compared in the way that its group asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import penstock as ps
from golden.spark_answer import settings
from sweep import relational, scalar
from sweep.call import Call, load
from sweep.forms import TABLES
from sweep.outcome import Outcome
from sweep.template import Template


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is compared: calls of one function, how many of these are examples of Spark's documentation, and rows."""

    calls: int
    examples: int
    rows: int
    group_rows: int
    full: bool = False


QUICK = Extent(calls=5, examples=3, rows=60, group_rows=49)
FULL = Extent(calls=60, examples=12, rows=180, group_rows=140, full=True)


def run(session: ps.Session, extent: Extent, only: Iterable[str] | None = None) -> Iterator[Outcome]:
    """Compare the functions, all or some of them, and yield what came of each call."""
    functions = load(most=extent.calls, most_examples=extent.examples)
    if only is not None:
        functions = {name: functions[name] for name in only}
    constants = _constants(session, [call for _, calls in functions.values() for call in calls])
    scalars: list[Call] = []
    windows: list[Call] = []
    for name, (group, calls) in functions.items():
        shaped = {
            shape: [call for call in calls if call.shape == shape] for shape in ("Aggregate", "Generate")
        }
        if shaped["Aggregate"]:
            yield from _guarded(
                shaped["Aggregate"][0],
                relational.aggregates(
                    session, shaped["Aggregate"], constants, rows=extent.group_rows, full=extent.full
                ),
            )
        for call in shaped["Generate"]:
            yield from _guarded(call, relational.generators(session, [call], constants, rows=extent.rows))
        windows += [call for call in calls if call.shape == "Window"]
        scalars += [call for call in calls if not call.shape]
        queries = [(Call(name, group, Template(sql, ()), ""), sql) for sql in TABLES.get(name, ())]
        for query in queries:
            yield from _guarded(query[0], relational.tables(session, [query], rows=extent.rows))
    yield from scalar.sweep(session, scalars, constants, rows=extent.rows, full=extent.full)
    yield from scalar.sweep(session, windows, constants, rows=extent.rows, full=extent.full)


def _guarded(call: Call, outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
    """The outcomes, and one that says so when the comparison itself fails."""
    try:
        yield from outcomes
    except Exception as error:
        yield Outcome(call, "", "WRONG", detail=f"{type(error).__name__}: {error}"[:400])


def _constants(session: ps.Session, calls: list[Call]) -> dict[str, dict[str, Any]]:
    """The values of the examples: type -> SQL text -> value as Arrow gives it."""
    texts: dict[str, dict[str, None]] = {}
    for call in calls:
        for slot in call.template.slots:
            for text in slot.examples:
                texts.setdefault(slot.type, {})[text] = None
    found: dict[str, dict[str, Any]] = {}
    with settings(session.spark, scalar.FOLDED):
        for kind, some in texts.items():
            listed = list(some)
            for start in range(0, len(listed), 100):
                part = listed[start : start + 100]
                items = ", ".join(f"CAST({text} AS {kind}) AS v{index}" for index, text in enumerate(part))
                row = session.spark.sql(f"SELECT {items}").toArrow().to_pylist()[0]
                found.setdefault(kind, {}).update(zip(part, row.values(), strict=True))
    return found
