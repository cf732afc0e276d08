"""SEQUENCE: arrays of numbers, dates and timestamps from a start to a stop, both included.

Steps of a fixed width are arithmetic. Steps of months, and of days in local time, are added to the start, each as
often as its place says, because a month that is cut short (31 January and one month) must not shorten the next ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.arrays import Bools, Ints, Positions
from penstock.data.types import kernel_type
from penstock.functions.scalars import zones
from penstock.functions.scalars.arrays import MOST_ELEMENTS, TOO_MANY, TOO_MANY_ASKED, all_valid, of_values
from penstock.functions.scalars.base import INTEGRAL, AnsiError, Datum, Scalar, array, bad_row_error
from penstock.functions.scalars.elements import nested_array
from penstock.plan.expression import Call, Literal

BOUNDARIES = "SQL_SPARK"  # Spark gives this error no name
NO_DAYS = "SQL_SPARK"
_DAY = 86_400_000_000  # microseconds
_MONTH = 28 * _DAY  # the least, so that no array is estimated too short


@dataclass(frozen=True, slots=True)
class _Step:
    """A step for every row: months, then days of local time, then microseconds."""

    months: Ints
    days: Ints
    micros: Ints


def _check(call: Call) -> str | None:
    kind = call.args[0].type
    if kind in INTEGRAL:
        return None
    if kind not in ("date", "timestamp", "timestamp_ntz"):
        return f"SEQUENCE of {kind}"
    if len(call.args) > 2 and call.args[2].type == "interval" and not isinstance(call.args[2], Literal):
        return "SEQUENCE with a calendar interval that is not constant"
    return None if kind == "timestamp_ntz" else zones.reason(call.option("timeZoneId"))


def _sequence(call: Call, values: list[Datum], length: int) -> pa.Array:
    valid = all_valid(length, *values)
    there = np.ones(length, np.bool_) if valid is None else valid
    start, stop = (_numbers(value, length) for value in values[:2])
    kind = call.args[0].type
    if kind in INTEGRAL:
        step = _numbers(values[2], length) if len(values) > 2 else np.where(start <= stop, 1, -1)
        counts = _counts(call, values, there, start, stop, step)
        return _arithmetic(call, start, step, counts, valid)
    steps = _steps(call, values, length, start, stop)
    if kind == "date":
        nothing = there & (steps.months == 0) & (steps.days == 0)
        _refuse(call, values, nothing, AnsiError("the step of a sequence of dates has no days", NO_DAYS))
    plain = _is_arithmetic(kind, steps) | ~there
    if plain.all():
        step = steps.days if kind == "date" else steps.micros
        return _arithmetic(call, start, step, _counts(call, values, there, start, stop, step), valid)
    if plain[there].any():
        return _row_by_row(call, values, length, plain)
    return _in_local_time(call, values, there, start, stop, steps)


def _row_by_row(call: Call, values: list[Datum], length: int, plain: Bools) -> pa.Array:
    """Rows of both kinds: each kind for itself, and put together again."""
    parts, order = [], []
    for chosen in (plain, ~plain):
        rows = np.flatnonzero(chosen)
        some = [array(value, length).take(pa.array(rows)) for value in values]
        parts.append(_sequence(call, some, len(rows)))
        order.append(rows)
    return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(order))))


def _numbers(value: Datum, length: int) -> Ints:
    column = array(value, length)
    if column.type.id == pa.date32().id:
        column = column.cast(pa.int32())
    numbers: Ints = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return numbers


def _steps(call: Call, values: list[Datum], length: int, start: Ints, stop: Ints) -> _Step:
    none = np.zeros(length, np.int64)
    if len(call.args) < 3:
        return _Step(none, np.where(start <= stop, 1, -1), none)
    step = call.args[2]
    if step.type == "interval":
        assert isinstance(step, Literal)
        months, days, micros = step.value or (0, 0, 0)
        return _Step(none + months, none + days, none + micros)
    numbers = _numbers(values[2], length)
    if "year" in step.type or "month" in step.type:
        return _Step(numbers, none, none)
    rest = np.fmod(numbers, _DAY)
    return _Step(none, (numbers - rest) // _DAY, rest)


def _is_arithmetic(kind: str, steps: _Step) -> Bools:
    if kind == "date":
        return np.asarray((steps.months == 0) & (steps.micros == 0))
    return np.asarray((steps.months == 0) & (steps.days == 0))


def _refuse(call: Call, values: list[Datum], bad: Bools, error: AnsiError) -> None:
    if bad.any():
        raise bad_row_error(call, values, int(np.argmax(bad)), error)


def _counts(call: Call, values: list[Datum], there: Bools, start: Ints, stop: Ints, step: Ints) -> Positions:
    """How many elements every row has, by the width of its step."""
    right = ((step > 0) & (start <= stop)) | ((step < 0) & (start >= stop)) | ((step == 0) & (start == stop))
    _refuse(
        call, values, there & ~right, AnsiError("a sequence does not come from start to stop", BOUNDARIES)
    )
    width = np.where(step == 0, 1, step)
    # In floating point first: the difference of two 64-bit numbers may need one bit more.
    rough = (stop.astype(np.float64) - start.astype(np.float64)) / width
    _refuse(
        call,
        values,
        there & (rough > 2 * MOST_ELEMENTS),
        AnsiError("a sequence has too many elements", TOO_MANY, TOO_MANY_ASKED),
    )
    with np.errstate(over="ignore"):
        distance = np.where(step < 0, start - stop, stop - start).view(np.uint64)
    counts = (distance // np.abs(width).view(np.uint64)).astype(np.int64) + 1
    _refuse(
        call,
        values,
        there & (counts > MOST_ELEMENTS),
        AnsiError("a sequence has too many elements", TOO_MANY, TOO_MANY_ASKED),
    )
    return np.where(there, counts, 0)


def _arithmetic(call: Call, start: Ints, step: Ints, counts: Positions, valid: Bools | None) -> pa.Array:
    places = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    with np.errstate(over="ignore"):
        elements = np.repeat(start, counts) + np.repeat(step, counts) * places
    return nested_array(kernel_type(call.type), counts, (_typed(call, elements),), valid)


def _typed(call: Call, elements: Ints) -> pa.Array:
    kind = kernel_type(call.type).value_type
    if kind.id == pa.date32().id:
        return pa.array(elements, pa.int32()).cast(kind)
    return pc.cast(pa.array(elements, pa.int64()), kind)


def _in_local_time(
    call: Call, values: list[Datum], there: Bools, start: Ints, stop: Ints, steps: _Step
) -> pa.Array:
    zone = call.option("timeZoneId") if call.args[0].type != "timestamp_ntz" else "UTC"
    is_date = call.args[0].type == "date"
    first, last = (zones.day_starts(side, zone) if is_date else side for side in (start, stop))
    width = steps.micros + steps.months * _MONTH + steps.days * _DAY
    most = _counts(call, values, there, first, last, width)
    # Clocks that go forward make room for one more.
    counts = np.where(there, most + 1, 0)
    rows = np.repeat(np.arange(len(counts)), counts)
    times = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    moments = _added(first[rows], steps, rows, times, zone)
    sign = np.where(width > 0, 1, -1)
    end = (last + sign)[rows]
    inside = np.where(sign[rows] > 0, moments < end, moments >= end)
    rows, moments = rows[inside], moments[inside]
    if is_date:
        moments = np.floor_divide(moments + zones.offsets_at(moments, zone), _DAY)
    inside_counts = np.bincount(rows, minlength=len(counts))
    valid = None if there.all() else there
    return nested_array(kernel_type(call.type), inside_counts, (_typed(call, moments),), valid)


def _added(start: Ints, steps: _Step, rows: Positions, times: Positions, zone: str | None) -> Ints:
    """Instants and a number of steps: months and days in local time, the rest in exact time."""
    offset = zones.offsets_at(start, zone)
    days, rest = np.divmod(start + offset, _DAY)
    months = steps.months[rows] * times
    moved = zones.keeping(_months_later(days, months) * _DAY + rest, offset, zone)
    offset = zones.offsets_at(moved, zone)
    moved = zones.keeping(moved + offset + steps.days[rows] * times * _DAY, offset, zone)
    result: Ints = moved + steps.micros[rows] * times
    return result


def _months_later(days: Ints, months: Ints) -> Ints:
    """Days since 1970 and a number of months; the last day of a month that has no such day."""
    dates = days.astype("datetime64[D]")
    month = dates.astype("datetime64[M]")
    later = month + months
    lengths = (later + 1).astype("datetime64[D]") - later.astype("datetime64[D]")
    day = np.minimum(dates - month.astype("datetime64[D]"), lengths - 1)
    result: Ints = (later.astype("datetime64[D]") + day).astype(np.int64)
    return result


FUNCTIONS: dict[str, Scalar] = {"Sequence": Scalar(of_values(_sequence), _check)}
