"""Datetime patterns, such as 'yyyy-MM-dd HH:mm', taken apart as Spark and Java do.

Spark first refuses letters whose meaning has changed since its second version, reads y as a year that may be negative
when there is no era, and lets a fraction of a second that is parsed be shorter than its letters. What is left is a
pattern of java.time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

Sign = Literal["normal", "exceeds", "none"]

INVALID = "DATA_INVALID_DATETIME_PATTERN"
CHANGED = "SQL_INCONSISTENT_BEHAVIOR_CROSS_VERSION"


class PatternError(ValueError):
    """A pattern that Spark refuses, the code of its refusal and Spark's class of it; none yet where java.time refuses it."""

    def __init__(self, message: str, code: str = "", part: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.condition = f"{code.partition('_')[2]}.{part}"


@dataclass(frozen=True, slots=True)
class Text:
    """Letters that stand for themselves."""

    text: str


@dataclass(frozen=True, slots=True)
class Number:
    """A field as digits: how few and how many, how it is signed, and how many digits of the fields behind it follow at once."""

    field: str
    fewest: int
    most: int
    sign: Sign
    following: int = 0
    reduced: bool = False  # two digits of a year


@dataclass(frozen=True, slots=True)
class Fraction:
    """The fraction of a second."""

    fewest: int
    most: int


@dataclass(frozen=True, slots=True)
class NamedField:
    """A field as a word."""

    field: str
    full: bool


@dataclass(frozen=True, slots=True)
class Offset:
    """The offset from UTC: whether minutes and seconds are written and with colons, and what stands for no offset."""

    minutes: bool  # always, or only when there are some
    seconds: bool  # when there are some, or never
    colons: bool
    zero: str


@dataclass(frozen=True, slots=True)
class LocalOffset:
    """The offset behind the letters GMT."""

    full: bool


@dataclass(frozen=True, slots=True)
class ZoneId:
    """The name of the zone."""


@dataclass(frozen=True, slots=True)
class ZoneName:
    """What people call the zone, summer and winter."""

    full: bool
    generic: bool


@dataclass(frozen=True, slots=True)
class Optional:
    """A part that may be missing when it is parsed."""

    parts: tuple[PatternPart, ...]


PatternPart = Text | Number | Fraction | NamedField | Offset | LocalOffset | ZoneId | ZoneName | Optional

_WEEK_LETTERS = "YWwuec"
_FORBIDDEN = "ABnNp"
_FORBIDDEN_IN_PARSING = "EFqQ"
_FORBIDDEN_RUNS = ("GGGGG", "MMMMM", "LLLLL", "EEEEE", "QQQQQ", "qqqqq", "yyyyyyy")
_LEGACY_LETTERS = "GyMdkHmsSEDFwWahKzZYuXL"
_TWO_DIGITS = {
    "d": "day",
    "h": "clock_hour",
    "H": "hour",
    "k": "clock_hour_of_day",
    "K": "hour_of_ampm",
    "m": "minute",
    "s": "second",
}
_WORDS = {"M": "month", "L": "month", "Q": "quarter", "q": "quarter", "E": "weekday"}
# Of the lengths of X and x: minutes always, seconds when there are some, colons.
_OFFSETS = {
    1: (False, False, False),
    2: (True, False, False),
    3: (True, False, True),
    4: (True, True, False),
    5: (True, True, True),
}


@lru_cache(maxsize=1024)
def parts_of(pattern: str, *, parsing: bool) -> tuple[PatternPart, ...]:
    """Take a pattern apart; raises PatternError when Spark refuses it."""
    try:
        converted = _converted(pattern, parsing)
        builder = _Builder()
        if parsing and "S" in converted:
            _append_with_fractions(builder, converted)
        else:
            builder.append_pattern(converted)
        return builder.parts()
    except PatternError as error:
        # What the formatter of Spark's second version takes is another error.
        if error.code:
            raise
        if _legacy_accepts(pattern):
            raise PatternError(str(error), CHANGED, "DATETIME_PATTERN_RECOGNITION") from None
        raise PatternError(str(error), INVALID, "WITH_SUGGESTION") from None


def walk(parts: Sequence[PatternPart]) -> list[PatternPart]:
    """Every part, those inside optional ones too."""
    return [item for part in parts for item in (walk(part.parts) if isinstance(part, Optional) else [part])]


def _java_split(text: str) -> list[str]:
    """The pieces between quotes, without empty ones at the end."""
    pieces = text.split("'")
    while len(pieces) > 1 and not pieces[-1]:
        pieces.pop()
    return [] if pieces == [""] and text else pieces


def _converted(pattern: str, parsing: bool) -> str:
    era = any("G" in piece for piece in _java_split(pattern)[::2])
    pieces = _java_split(pattern + " ")
    for index in range(0, len(pieces), 2):
        piece = pieces[index]
        for letter in piece:
            if letter in _WEEK_LETTERS:
                raise PatternError(
                    f"the letter {letter} counts weeks", CHANGED, "DATETIME_WEEK_BASED_PATTERN"
                )
        for letter in piece:
            if letter in _FORBIDDEN or (parsing and letter in _FORBIDDEN_IN_PARSING):
                raise PatternError(f"the letter {letter} in {pattern!r}", INVALID, "ILLEGAL_CHARACTER")
        for run in _FORBIDDEN_RUNS:
            if run in piece:
                raise PatternError(f"the letters {run} in {pattern!r}", INVALID, "LENGTH")
        if not era:
            pieces[index] = piece.replace("y", "u")
    return "'".join(pieces).removesuffix(" ")


def _append_with_fractions(builder: _Builder, pattern: str) -> None:
    """As Spark does when it parses: quotes are only counted, so that a quote inside quotes turns what follows around."""
    for index, piece in enumerate(_java_split(pattern)):
        if not piece and index:
            builder.append(Text("'"))
        elif index % 2:
            builder.append(Text(piece))
        else:
            rest = piece
            while rest:
                before, _, _ = rest.partition("S")
                behind = rest[len(before) :].lstrip("S")
                count = len(rest) - len(before) - len(behind)
                if any(character in behind for character in "\n\r\u0085\u2028\u2029"):
                    raise PatternError(
                        f"a line break behind the fraction in {pattern!r}", INVALID, "SECONDS_FRACTION"
                    )
                builder.append_pattern(before)
                if count:
                    builder.append_fraction(1, count)
                rest = behind


def _legacy_accepts(pattern: str) -> bool:
    """Whether java.text.SimpleDateFormat takes a pattern, which decides between two errors."""
    quoted, index = False, 0
    while index < len(pattern):
        letter = pattern[index]
        if letter == "'":
            if pattern[index + 1 : index + 2] == "'":
                index += 1
            else:
                quoted = not quoted
        elif (
            not quoted
            and letter.isascii()
            and letter.isalpha()
            and (letter not in _LEGACY_LETTERS or pattern[index : index + 4] == "XXXX")
        ):
            return False
        index += 1
    return not quoted


class _Builder:
    """Parts in the order in which they are appended; numbers that touch share their digits when they are parsed."""

    def __init__(self) -> None:
        self._levels: list[list[PatternPart]] = [[]]
        self._adjacent: list[int] = [-1]  # the number of each level that digits behind it belong to

    def parts(self) -> tuple[PatternPart, ...]:
        while len(self._levels) > 1:
            self._end_optional()
        return tuple(self._levels[0])

    def append(self, part: PatternPart) -> int:
        self._levels[-1].append(part)
        self._adjacent[-1] = -1
        return len(self._levels[-1]) - 1

    def append_number(self, part: Number | Fraction) -> None:
        base = self._adjacent[-1]
        if base < 0:
            self._adjacent[-1] = self.append(part)
            return
        before = self._levels[-1][base]
        fixed = part.fewest == part.most and (isinstance(part, Fraction) or part.sign == "none")
        position = self.append(part)
        if fixed:
            if isinstance(before, Number):
                self._levels[-1][base] = replace(before, following=before.following + part.most)
            position = base
        self._adjacent[-1] = position

    def append_fraction(self, fewest: int, most: int) -> None:
        if most > 9:
            raise PatternError("a fraction of a second has at most 9 digits")
        if fewest == most:
            self.append_number(Fraction(fewest, most))
        else:
            self.append(Fraction(fewest, most))

    def append_pattern(self, pattern: str) -> None:
        index = 0
        while index < len(pattern):
            letter = pattern[index]
            if letter.isascii() and letter.isalpha():
                end = index
                while end < len(pattern) and pattern[end] == letter:
                    end += 1
                self._letters(letter, end - index)
                index = end
                continue
            if letter == "'":
                index = self._quoted(pattern, index)
            elif letter == "[":
                self._adjacent[-1] = -1
                self._levels.append([])
                self._adjacent.append(-1)
            elif letter == "]":
                if len(self._levels) == 1:
                    raise PatternError("there is a ] without a [")
                self._end_optional()
            elif letter in "{}#":
                raise PatternError(f"the character {letter} is reserved")
            else:
                self.append(Text(letter))
            index += 1

    def _quoted(self, pattern: str, start: int) -> int:
        """Append the text in quotes and return the position of the last one."""
        index = start + 1
        while index < len(pattern):
            if pattern[index] == "'":
                if pattern[index + 1 : index + 2] != "'":
                    break
                index += 1
            index += 1
        if index >= len(pattern):
            raise PatternError("a quote is not closed")
        self.append(Text(pattern[start + 1 : index].replace("''", "'") or "'"))
        return index

    def _end_optional(self) -> None:
        parts = self._levels.pop()
        self._adjacent.pop()
        if parts:
            self.append(Optional(tuple(parts)))

    def _letters(self, letter: str, count: int) -> None:
        if letter in "uy":
            self._year("year" if letter == "u" else "year_of_era", count)
        elif letter in _WORDS:
            self._word_or_number(letter, count)
        elif letter in _TWO_DIGITS:
            _at_most(letter, count, 2)
            self.append_number(_two_digits(_TWO_DIGITS[letter], count))
        elif letter == "S":
            self.append_fraction(count, count)
        elif letter == "D":
            _at_most(letter, count, 3)
            self.append_number(
                Number("day_of_year", 1, 19, "normal")
                if count == 1
                else Number("day_of_year", count, 3, "none")
            )
        elif letter == "F":
            _at_most(letter, count, 1)
            self.append_number(Number("week_or_weekday_of_month", 1, 19, "normal"))
        elif letter == "a":
            _at_most(letter, count, 1)
            self.append(NamedField("ampm", False))
        elif letter == "G":
            _at_most(letter, count, 5)
            self.append(NamedField("era", count == 4))
        elif letter == "g":
            _at_most(letter, count, 19)
            self.append_number(Number("modified_julian_day", count, 19, "normal"))
        else:
            self.append(_zone_part(letter, count))

    def _year(self, field: str, count: int) -> None:
        if count == 2:
            self.append_number(Number(field, 2, 2, "none", reduced=True))
        else:
            self.append_number(Number(field, count, 19, "normal" if count < 4 else "exceeds"))

    def _word_or_number(self, letter: str, count: int) -> None:
        _at_most(letter, count, 5)
        field = _WORDS[letter]
        if count >= 3 or letter == "E":
            self.append(NamedField(field, count == 4))
        else:
            self.append_number(_two_digits(field, count))


def _two_digits(field: str, count: int) -> Number:
    return Number(field, 1, 19, "normal") if count == 1 else Number(field, 2, 2, "none")


def _at_most(letter: str, count: int, most: int) -> None:
    if count > most:
        raise PatternError(f"too many letters {letter}")


def _zone_part(letter: str, count: int) -> PatternPart:
    if letter == "z":
        _at_most(letter, count, 4)
        return ZoneName(count == 4, False)
    if letter == "V" and count == 2:
        return ZoneId()
    if letter == "v" and count in (1, 4):
        return ZoneName(count == 4, True)
    if letter == "O" and count in (1, 4):
        return LocalOffset(count == 4)
    if letter == "Z" and count <= 5:
        if count == 4:
            return LocalOffset(True)
        return Offset(True, False, False, "+0000") if count < 4 else Offset(True, True, True, "Z")
    if letter == "X" and count <= 5:
        return Offset(*_OFFSETS[count], "Z")
    if letter == "x" and count <= 5:
        return Offset(*_OFFSETS[count], "+00" if count == 1 else "+00:00" if count % 2 else "+0000")
    raise PatternError(f"the letters {letter * count}")
