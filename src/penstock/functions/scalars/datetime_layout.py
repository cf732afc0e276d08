"""Texts that are as long as their datetime pattern, read a column at a time: each field stands at the same place in
all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.functions.scalars import characters, datetime_words, time_text
from penstock.functions.scalars.datetime_pattern import (
    Fraction,
    NamedField,
    Number,
    Offset,
    PatternPart,
    Text,
)
from penstock.functions.scalars.datetime_resolve import RANGES

_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class DatetimeLayout:
    """Where each field stands in texts that are as long as their pattern: digits, letters of months, text, and an
    offset at the end."""

    digits: tuple[tuple[int, int, str], ...]
    month: int | None
    literals: tuple[tuple[int, int], ...]
    length: int
    offset: Offset | None


Read = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]


def read(layout: DatetimeLayout, column: pa.Array) -> Read:
    """The texts that are as long as the pattern and have digits where it has fields.

    Gives local time, the offset that is written or `NO_OFFSET`, and which texts these are.
    """
    local, fits = np.zeros(len(column), np.int64), np.zeros(len(column), bool)
    offsets = np.full(len(column), time_text.NO_OFFSET)
    length = layout.length
    for rows, matrix in characters.by_length(column, length, length + (6 if layout.offset else 0)):
        more = matrix.shape[1] - length
        offset_fits, shift = np.ones(len(rows), bool), np.full(len(rows), time_text.NO_OFFSET)
        if layout.offset:
            if more == 1:
                offset_fits, shift = matrix[:, -1] == 90, np.zeros(len(rows), np.int64)
            elif more == (6 if layout.offset.colons else 5):
                offset_fits, shift = time_text.offset_of(matrix[:, -more:], colon=layout.offset.colons)
            else:
                continue
        micros, good = _laid_out(layout, matrix)
        good &= offset_fits
        local[rows], offsets[rows], fits[rows] = np.where(good, micros, 0), shift, good
    return local, offsets, fits


_MONTH_CODES = {
    (ord(name[0].lower()) << 16) + (ord(name[1]) << 8) + ord(name[2]): index + 1
    for index, name in enumerate(datetime_words.WORDS["month", False])
}


def _laid_out(
    layout: DatetimeLayout, matrix: characters.Bytes
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Local time of the rows that fit a layout."""
    good = np.ones(len(matrix), bool)
    for place, code in layout.literals:
        good &= matrix[:, place] == code
    values: dict[str, npt.NDArray[np.int64]] = {}
    for start, stop, field in layout.digits:
        good &= characters.are_digits(matrix, start, stop)
        values[field] = characters.number(matrix, start, stop)
        if field == "nano":
            values[field] *= 10 ** (9 - (stop - start))
        elif field != "year":
            low, high = RANGES[field]
            good &= (values[field] >= low) & (values[field] <= high)
    if layout.month is not None:
        letters = (matrix[:, layout.month : layout.month + 3] | 0x20).astype(np.int64)
        codes = (letters[:, 0] << 16) + (letters[:, 1] << 8) + letters[:, 2]
        good &= (matrix[:, layout.month : layout.month + 3] >= 65).all(axis=1)
        values["month"] = np.zeros(len(matrix), np.int64)
        for code, month in _MONTH_CODES.items():
            values["month"][codes == code] = month
        good &= values["month"] > 0
    ones = np.ones(len(matrix), np.int64)
    days, valid = time_text.civil_days(
        values.get("year", ones * 1970), values.get("month", ones), values.get("day", ones)
    )
    seconds = (values.get("hour", 0 * ones) * 60 + values.get("minute", 0 * ones)) * 60 + values.get(
        "second", 0 * ones
    )
    return days * _DAY + seconds * 1_000_000 + values.get("nano", 0 * ones) // 1000, good & valid


def layout_of(parts: Sequence[PatternPart]) -> DatetimeLayout | None:
    """Where each field stands in a text that is as long as the pattern, None when that is not sure."""
    digits: list[tuple[int, int, str]] = []
    literals: list[tuple[int, int]] = []
    offset = parts[-1] if parts and isinstance(parts[-1], Offset) else None
    if offset is not None:
        if offset.zero != "Z" or not offset.minutes or offset.seconds:
            return None
        parts = parts[:-1]
    at, month = 0, None
    for index, part in enumerate(parts):
        if isinstance(part, Text):
            if not part.text.isascii() or any(letter.isdigit() for letter in part.text):
                return None
            literals += [(at + place, ord(letter)) for place, letter in enumerate(part.text)]
            at += len(part.text)
        elif isinstance(part, NamedField) and part.field == "month" and not part.full and month is None:
            month, at = at, at + 3
        else:
            field = _fixed_field(parts, index)
            if field is None or field[0] in (name for _, _, name in digits):
                return None
            digits.append((at, at + field[1], field[0]))
            at += field[1]
    if month is not None and "month" in (name for _, _, name in digits):
        return None
    return DatetimeLayout(tuple(digits), month, tuple(literals), at, offset)


def _fixed_field(parts: Sequence[PatternPart], index: int) -> tuple[str, int] | None:
    """The name and the width of a field whose digits are as many as its letters, None for others."""
    part = parts[index]
    if isinstance(part, Fraction):
        behind = parts[index + 1] if index + 1 < len(parts) else None
        return ("nano", part.most) if behind is None or isinstance(behind, Text | NamedField) else None
    if not isinstance(part, Number) or part.field not in ("year", "month", "day", "hour", "minute", "second"):
        return None
    wide = part.sign == "exceeds" and part.fewest == 4 and _ends_before_text(parts, index)
    fixed = part.sign == "none" and not part.reduced
    return (part.field, part.fewest) if wide or fixed else None


def _ends_before_text(parts: Sequence[PatternPart], index: int) -> bool:
    """Whether behind a year come only numbers of fixed width, and then text or the end."""
    for part in parts[index + 1 :]:
        if isinstance(part, Text | NamedField):
            return True
        if not (isinstance(part, Number) and part.fewest == part.most):
            return False
    return True
