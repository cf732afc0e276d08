"""The plan of an ASOF view: names and options of the user checked, and turned into columns by position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Literal, Protocol

from penstock.data.duration import milliseconds
from penstock.data.types import kernel_type
from penstock.engine.names import one_of, position, require_comparable
from penstock.errors import ConfigError
from penstock.plan import node as plan
from penstock.plan.expression import Column

By = str | Sequence[str | tuple[str, str]]
Tolerance = int | str | timedelta
DIRECTIONS = ("backward", "forward", "nearest")
KINDS = ("left", "inner")

# How many units of a time column a millisecond is; integers are their own unit.
_UNITS = {"timestamp": 1_000.0, "timestamp_ntz": 1_000.0, "date": 1 / 86_400_000}
_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})


class JoinInput(Protocol):
    """A source or view of the flow, as one side of the join."""

    @property
    def name(self) -> str:
        """As it was registered."""

    @property
    def fields(self) -> plan.Fields:
        """The columns that it shows."""


def asof_view(
    name: str,
    left: JoinInput,
    right: JoinInput,
    *,
    left_time: str,
    right_time: str,
    by: By = (),
    direction: str = "backward",
    tolerance: Tolerance | None = None,
    how: str = "left",
    columns: Sequence[str] | Mapping[str, str] | None = None,
) -> plan.View:
    """Return the view of each left row with the right row that is nearest in time; ConfigError for what cannot work."""
    one_of("direction", direction, DIRECTIONS)
    one_of("how", how, KINDS)
    pairs = [
        (entry, entry) if isinstance(entry, str) else tuple(entry)
        for entry in ([by] if isinstance(by, str) else by)
    ]
    keys = [
        (_position(left, left_column), _position(right, right_column)) for left_column, right_column in pairs
    ]
    times = (_position(left, left_time), _position(right, right_time))
    for left_at, right_at in (*keys, times):
        _same_type(left, left_at, right, right_at)
    wanted = _columns(right, [right_at for _, right_at in keys], columns)
    # The right side is read by what is compared and what is shown, nothing else.
    read = tuple(dict.fromkeys([*(right_at for _, right_at in keys), times[1], *wanted.values()]))
    scans = (_scan(left, tuple(range(len(left.fields)))), _scan(right, read))
    outer = how == "left"
    matched = tuple(plan.Field(field.name, field.type, field.nullable or outer) for field in scans[1].fields)
    joined = plan.Asof(
        (*left.fields, *matched),
        *scans,
        tuple(left_at for left_at, _ in keys),
        tuple(read.index(right_at) for _, right_at in keys),
        times[0],
        read.index(times[1]),
        _literal(direction),
        _units(tolerance, left.fields[times[0]].type),
        outer,
    )
    shown = [*range(len(left.fields)), *(len(left.fields) + read.index(at) for at in wanted.values())]
    names = [*(field.name for field in left.fields), *wanted]
    double = next((column for column in names if names.count(column) > 1), None)
    if double is not None:
        raise ConfigError(
            f"the view would have two columns '{double}'",
            code="FLOW_SCHEMA",
            where=f"view '{name}'",
            hint=f"choose and name the columns of the right side: columns={{'{right.name}_{double}': '{double}'}}",
        )
    fields = tuple(
        plan.Field(column, joined.fields[at].type, joined.fields[at].nullable)
        for column, at in zip(names, shown, strict=True)
    )
    expressions = tuple(
        Column(at, joined.fields[at].type, joined.fields[at].nullable, joined.fields[at].name) for at in shown
    )
    return plan.View(name, "", plan.Project(fields, joined, expressions))


def _literal(direction: str) -> Literal["backward", "forward", "nearest"]:
    return "backward" if direction == "backward" else "forward" if direction == "forward" else "nearest"


def _position(side: JoinInput, column: str) -> int:
    return position(column, [field.name for field in side.fields], of=f"'{side.name}'")


def _scan(side: JoinInput, columns: tuple[int, ...]) -> plan.Scan:
    return plan.Scan(tuple(side.fields[at] for at in columns), side.name, columns)


def _same_type(left: JoinInput, left_at: int, right: JoinInput, right_at: int) -> None:
    a, b = left.fields[left_at], right.fields[right_at]
    require_comparable((a, b), of="an ASOF join")
    if kernel_type(a.type) != kernel_type(b.type):
        raise ConfigError(
            f"'{left.name}.{a.name}' is {a.type}, but '{right.name}.{b.name}' is {b.type}",
            code="FLOW_TYPES_DIFFER",
            hint="cast one of them in a view, and join that",
        )


def _columns(
    right: JoinInput, keys: Sequence[int], columns: Sequence[str] | Mapping[str, str] | None
) -> dict[str, int]:
    """The right columns that the view shows, by the name they have there."""
    if columns is None:
        return {field.name: at for at, field in enumerate(right.fields) if at not in keys}
    named = columns if isinstance(columns, Mapping) else {column: column for column in columns}
    return {shown: _position(right, column) for shown, column in named.items()}


def _units(tolerance: Tolerance | None, kind: str) -> int | None:
    """A tolerance in units of the time column."""
    if kind not in _UNITS and kind not in _INTEGERS:
        raise ConfigError(
            f"rows cannot be joined by the nearest {kind}",
            code="FLOW_OPTION",
            hint="the time columns are timestamps, dates or whole numbers",
        )
    if tolerance is None:
        return None
    if kind in _INTEGERS:
        if isinstance(tolerance, bool) or not isinstance(tolerance, int) or tolerance < 0:
            raise ConfigError(
                f"tolerance={tolerance!r} is not a difference of two values of type {kind}",
                code="FLOW_OPTION",
                hint="give a whole number that is not negative",
            )
        return tolerance
    units = milliseconds(tolerance, what="tolerance") * _UNITS[kind]
    if units != int(units):
        raise ConfigError(
            f"tolerance={tolerance!r} is not a number of days, and the time columns are dates",
            code="FLOW_OPTION",
            hint='write "2 days"',
        )
    return int(units)
