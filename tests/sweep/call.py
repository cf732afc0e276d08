"""Calls of functions as values, read from `calls.json`, and the rows that they are compared on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.data.schema import to_arrow_schema
from sweep.kinds import KINDS, pool
from sweep.template import Slot, Template

CALLS = Path(__file__).parent / "calls.json"
GROUPS = 7
# Functions whose answer is as long as a number says, and those whose least index ends the JVM in Spark (array_insert, element_at, try_element_at).
_LENGTHS = frozenset(
    {
        "array_insert",
        "array_repeat",
        "element_at",
        "format_number",
        "lpad",
        "randstr",
        "repeat",
        "rpad",
        "sequence",
        "space",
        "try_element_at",
    }
)
_LONGEST = 1000
_YEARS = (2023, 2024)


@dataclass(frozen=True, slots=True)
class Call:
    """One way to call a function; `type` is that of its value."""

    function: str
    group: str
    template: Template
    type: str
    example: bool = False
    shape: str = ""  # the operator that it brings with it: Aggregate, Generate, Window or none

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(slot.type for slot in self.template.slots)

    def __str__(self) -> str:
        return self.template.filled([f"<{kind}>" for kind in self.kinds])


def load(*, most: int, most_examples: int) -> dict[str, tuple[str, list[Call]]]:
    """Read group and calls of every function, at most so many of each."""
    document = json.loads(CALLS.read_text(encoding="utf-8"))
    found = {}
    for name, entry in document.items():
        calls = [_call(name, entry["group"], item) for item in entry["calls"]]
        examples = [call for call in calls if call.example][:most_examples]
        typed = [call for call in calls if not call.example]
        found[name] = entry["group"], [*examples, *typed[: max(0, most - len(examples))]]
    return found


def _call(name: str, group: str, item: dict[str, Any]) -> Call:
    slots = tuple(Slot(kind, tuple(examples)) for kind, examples in item["slots"])
    return Call(
        name,
        group,
        Template(item["text"], slots),
        item["type"],
        item.get("example", False),
        item.get("shape", ""),
    )


@dataclass(slots=True)
class Table:
    """The rows that some calls are compared on: a number, a group, and a column for each kind, pool of values and place of an argument.

    In consecutive rows the columns run through their values at different paces, so that values meet in all pairs.
    """

    length: int
    constants: dict[str, dict[str, Any]]  # type -> SQL text of an example -> its value
    tame: bool = False  # doubles of a size at which sums do not depend on the order of rows
    by_group: bool = False  # all rows of a group have the same values
    columns: dict[tuple[str, tuple[str, ...], int, bool], str] = field(default_factory=dict)

    def text(self, call: Call) -> str:
        """The call over the columns of this table."""
        return call.template.filled(
            [self._argument(call, slot, place) for place, slot in enumerate(call.template.slots)]
        )

    def names(self, call: Call) -> list[str]:
        """The columns that a call reads."""
        return list(
            dict.fromkeys(self._column(call, slot, place) for place, slot in enumerate(call.template.slots))
        )

    def _argument(self, call: Call, slot: Slot, place: int) -> str:
        name = self._column(call, slot, place)
        return KINDS[slot.type].made.format(name) if slot.type in KINDS else name

    def _column(self, call: Call, slot: Slot, place: int) -> str:
        key = slot.type, slot.examples, place, call.function in _LENGTHS
        return self.columns.setdefault(key, f"c{len(self.columns)}")

    def types(self, names: Iterable[str] | None = None) -> dict[str, str]:
        """The types of the columns, of all or of some."""
        wanted = set(self.columns.values()) if names is None else set(names)
        own = {name: KINDS[kind].type if kind in KINDS else kind for (kind, *_), name in self.columns.items()}
        return {"id": "int", "g": "int", **{name: kind for name, kind in own.items() if name in wanted}}

    def ddl(self, names: Iterable[str] | None = None) -> str:
        """The columns as DDL, all of them or some."""
        return ", ".join(f"{name} {kind}" for name, kind in self.types(names).items())

    def rows(self) -> pa.Table:
        """All rows."""
        numbers = range(self.length)
        columns: dict[str, Sequence[Any]] = {
            "id": list(numbers),
            "g": [number % GROUPS for number in numbers],
        }
        for (kind, examples, place, short), name in self.columns.items():
            values = pool(kind, [self.constants.get(kind, {}).get(text) for text in examples])
            if short:
                values = tuple(value for value in values if not _is_long(value))
            if self.tame:
                values = tuple(value for value in values if not _is_wild(value))
            count = len(values)
            steps = [row % GROUPS for row in numbers] if self.by_group else numbers
            columns[name] = [values[(step + place * (step // count)) % count] for step in steps]
        schema = to_arrow_schema(self.ddl())
        return pa.table([pa.array(columns[item.name], item.type) for item in schema], schema=schema)


def _is_long(value: Any) -> bool:
    """Whether a sequence up to a value, or as many places as it says, are too many."""
    if isinstance(value, date):
        return value.year not in _YEARS
    return isinstance(value, int | float | Decimal) and not abs(float(value)) <= _LONGEST


def _is_wild(value: Any) -> bool:
    return isinstance(value, float) and (abs(value) > 1e15 or 0 < abs(value) < 1e-15)
