"""What is recorded about the golden cases: Spark's answers after every tick, and the tier of every operator of our views.

A file in `recorded/` has an entry for each case of an area. `schema` and `ticks` are Spark's answer; `tiers` has for each view of
the case the kinds of its operators with the tier that each runs in, so that an operator which falls back to Spark is noticed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import canonical
from .case import RECORDED, Area

if TYPE_CHECKING:
    from penstock.plan.explain import Explanation, OperatorLine

MISSING_ROW = "MISSING_ROW"
TPCH_TIERS = RECORDED.parent / "tpch" / "tiers.json"

# The operators of a view as sorted lines such as "Join: kernel" or "Project: spark, 2 expressions", each once.
Tiers = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer after one tick: rows, or the class of the error that the query ended with."""

    rows: tuple[canonical.Canonical, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Answers:
    """Spark's answers to one case: one before the first tick, then one per tick."""

    schema: list[list[str]]
    ticks: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """What is recorded about one case; `tiers` is by view, the views that the case registers first included."""

    answers: Answers
    tiers: Mapping[str, Tiers]


def tiers_of(explanation: Explanation) -> Tiers:
    """Return the tier of every kind of operator in a view, and how many expressions Spark evaluates for it."""
    return tuple(sorted({_tier_of(line) for line in explanation.operators}))


def _tier_of(line: OperatorLine) -> str:
    expressions = f", {line.detail}" if line.tier == "spark" and line.detail else ""
    return f"{line.operator}: {line.tier}{expressions}"


def recorded(area: str) -> dict[str, Recording]:
    """Read what is recorded about the cases of an area."""
    path = _path(area)
    document = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {
        name: Recording(
            Answers(entry["schema"], tuple(_ticks(entry["ticks"]))),
            {view: tuple(lines) for view, lines in entry.get("tiers", {}).items()},
        )
        for name, entry in document.items()
    }


def save(area: Area, recordings: Mapping[str, Recording]) -> None:
    """Write the recordings of an area: a line for each tick, so that a change is easy to read."""
    entries = (f" {_json(case.name)}: {_entry(recordings[case.name])}" for case in area.cases)
    _path(area.name).write_text("{\n" + ",\n".join(entries) + "\n}\n", encoding="utf-8")


def recorded_tpch() -> dict[str, Tiers]:
    """Read the tiers of the TPC-H queries."""
    return {name: tuple(lines) for name, lines in json.loads(TPCH_TIERS.read_text(encoding="utf-8")).items()}


def save_tpch(by_query: Mapping[str, Tiers]) -> None:
    """Write the tiers of the TPC-H queries."""
    lines = (f" {_json(name)}: {_json(operators)}" for name, operators in by_query.items())
    TPCH_TIERS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _path(area: str) -> Path:
    return RECORDED / f"{area}.json"


def _entry(recording: Recording) -> str:
    answers = recording.answers
    return "\n".join(
        [
            "{",
            f'  "schema": {_json(answers.schema)},',
            f'  "tiers": {_json(recording.tiers)},',
            '  "ticks": [',
            ",\n".join(f"   {tick}" for tick in _changed(answers.ticks)),
            "  ]",
            " }",
        ]
    )


def _changed(answers: Iterable[Answer]) -> Iterator[str]:
    """Give the text of every answer; one that is as the answer before is written as such, which keeps the files small."""
    last = None
    for answer in answers:
        text = _json({"error": answer.error} if answer.error else answer.rows)
        yield '"="' if text == last else text
        last = text


def _ticks(entries: list[Any]) -> Iterator[Answer]:
    last = Answer()
    for entry in entries:
        if isinstance(entry, dict):
            last = Answer(error=entry["error"])
        elif entry != "=":
            last = Answer(tuple(tuple(row) for row in entry))
        yield last


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
