"""Text to timestamps by a datetime pattern, as java.time parses strictly and in any case of letters.

A compiled pattern first reads at once the texts that have as many characters as it has letters; the others are read one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.functions.scalars import datetime_words, zone_ids, zones
from penstock.functions.scalars.datetime_layout import DatetimeLayout, layout_of
from penstock.functions.scalars.datetime_pattern import (
    Fraction,
    LocalOffset,
    NamedField,
    Number,
    Offset,
    Optional,
    PatternPart,
    Text,
    ZoneId,
    ZoneName,
    walk,
)
from penstock.functions.scalars.datetime_resolve import Fields, Unparsable, resolved

# Text, position and the fields so far; gives the position behind what was read, -1 where the text does not fit.
PartReader = Callable[[str, int, "_Parsed"], int]

_DAY = 86_400_000_000
_LONG = 2**63


class Overflow(ValueError):
    """A text that fits its pattern and is beyond the range of timestamps."""


class _Parsed:
    """What has been read of a text."""

    __slots__ = ("fields", "zone")

    def __init__(self) -> None:
        self.fields: Fields = {}
        self.zone: str | None = None

    def set(self, field: str, value: int) -> bool:
        """Note the value of a field; False when it has another one already."""
        return self.fields.setdefault(field, value) == value


@dataclass(frozen=True, slots=True)
class Parser:
    """A compiled pattern."""

    reader: PartReader
    layout: DatetimeLayout | None  # for texts that are as long as the pattern
    common: tuple[re.Pattern[str], tuple[Number | Fraction | NamedField, ...]] | None

    def instant(self, text: str, zone: str | None) -> int:
        """Microseconds of a text, in a zone when it names none; for zone None local time, whatever zone is named.

        Raises Unparsable or Overflow.
        """
        parsed = _Parsed()
        if not self._read_common(text, parsed) and self.reader(text, 0, parsed) != len(text):
            raise Unparsable(text)
        days, nanos = resolved(parsed.fields)
        offset = parsed.fields.get("offset")
        if offset is not None and abs(offset) > 18 * 3600:
            raise Unparsable(text)
        micros = days * _DAY + nanos // 1000
        if zone is not None:
            named = parsed.zone or (zone if offset is None else zone_ids.offset_id(offset))
            micros = _instant(micros, named)
        lowest = micros if zone is None else micros // 1_000_000 * 1_000_000
        if not lowest >= -_LONG or micros >= _LONG:
            raise Overflow(text)
        return micros

    def _read_common(self, text: str, parsed: _Parsed) -> bool:
        """Read a text in the way of most texts; False when it needs more care."""
        if self.common is None:
            return False
        expression, parts = self.common
        match = expression.fullmatch(text)
        if match is None:
            return False
        for part, piece in zip(parts, match.groups(), strict=True):
            match part:
                case Number():
                    parsed.fields[part.field] = int(piece) + (2000 if part.reduced else 0)
                case Fraction():
                    parsed.fields["nano"] = int(piece) * 10 ** (9 - len(piece))
                case NamedField():
                    parsed.fields[part.field] = _VALUES[part.field, part.full][piece.lower()]
        return True


_VALUES = {
    key: {word.lower(): datetime_words.FIRST[key[0]] + index for index, word in enumerate(words)}
    for key, words in datetime_words.WORDS.items()
}


def _common(
    parts: Sequence[PatternPart],
) -> tuple[re.Pattern[str], tuple[Number | Fraction | NamedField, ...]] | None:
    """A regular expression for texts without signs, and the parts that its groups are; None when a part is none of
    the simple ones."""
    pieces: list[str] = []
    groups: list[Number | Fraction | NamedField] = []
    for part in parts:
        match part:
            case Text():
                pieces.append(re.escape(part.text))
                continue
            case Number() if part.following:
                return None
            case Number():
                most = part.fewest if part.sign == "exceeds" else min(part.most, 18)
                # What is cut short here is followed by a digit, and then something else reads the text.
                pieces.append(
                    f"([0-9]{{{part.fewest},{most}}}+)" + ("" if part.sign == "none" else "(?![0-9])")
                )
            case Fraction():
                pieces.append(f"([0-9]{{{part.fewest},{part.most}}}+)")
            case NamedField():
                words = sorted(datetime_words.WORDS[part.field, part.full], key=len, reverse=True)
                pieces.append(f"((?>{'|'.join(words)}))")
            case _:
                return None
        groups.append(part)
    fields = [part.field if not isinstance(part, Fraction) else "nano" for part in groups]
    if len(set(fields)) < len(fields):
        return None
    return re.compile("".join(pieces), re.ASCII | re.IGNORECASE), tuple(groups)


def _instant(local: int, zone: str) -> int:
    fixed = zones.fixed_offset(zone)
    if fixed is not None:
        return local - fixed
    near = min(max(local, -_LONG + _DAY), _LONG - _DAY)
    return local - near + int(zones.instants_of(np.array([near]), zone)[0])


def beyond(parts: Sequence[PatternPart]) -> str | None:
    """Why a pattern is left to Spark, None when it is read here."""
    if any(isinstance(part, ZoneName) for part in walk(parts)):
        return "the names of zones in a date format"
    if any(isinstance(part, ZoneId) for part in walk(parts)) and not zone_ids.has_zones():
        return "the ids of zones in a date format, without the rules of all zones"
    return None


def parser_of(parts: Sequence[PatternPart]) -> Parser:
    """Compile a pattern."""
    return Parser(_sequence([_reader(part) for part in parts]), layout_of(parts), _common(parts))


# ------------------------------------------------------------------ reading


def _reader(part: PatternPart) -> PartReader:
    match part:
        case Text():
            return _text_reader(part.text)
        case Number():
            return _number_reader(part)
        case Fraction():
            return _fraction_reader(part)
        case NamedField():
            return _name_reader(part)
        case Offset():
            return lambda text, at, parsed: _read_offset(part, text, at, parsed)
        case LocalOffset():
            return lambda text, at, parsed: _read_local_offset(part.full, text, at, parsed)
        case ZoneId():
            return _read_zone_id
        case Optional():
            return _optional(_sequence([_reader(item) for item in part.parts]))
    raise AssertionError(part)


def _sequence(readers: Sequence[PartReader]) -> PartReader:
    def read(text: str, at: int, parsed: _Parsed) -> int:
        for reader in readers:
            at = reader(text, at, parsed)
            if at < 0:
                return -1
        return at

    return read


def _optional(reader: PartReader) -> PartReader:
    def read(text: str, at: int, parsed: _Parsed) -> int:
        attempt = _Parsed()
        attempt.fields, attempt.zone = dict(parsed.fields), parsed.zone
        end = reader(text, at, attempt)
        if end < 0:
            return at
        parsed.fields, parsed.zone = attempt.fields, attempt.zone
        return end

    return read


def _case_mapped(letter: str, mapped: str) -> str:
    return mapped if len(mapped) == 1 else letter


def _same(left: str, right: str) -> bool:
    """Whether two characters are the same in some case, as Java compares its 16-bit characters."""
    if left == right:
        return True
    if ord(left) > 0xFFFF or ord(right) > 0xFFFF:
        return False
    return _case_mapped(left, left.upper()) == _case_mapped(right, right.upper()) or _case_mapped(
        left, left.lower()
    ) == _case_mapped(right, right.lower())


def _matches(wanted: str, text: str, at: int) -> bool:
    piece = text[at : at + len(wanted)]
    return piece == wanted or (len(piece) == len(wanted) and all(map(_same, piece, wanted)))


def _text_reader(wanted: str) -> PartReader:
    width = len(wanted)

    def read(text: str, at: int, parsed: _Parsed) -> int:
        return at + width if _matches(wanted, text, at) else -1

    return read


def _digits_end(text: str, at: int, most: int) -> int:
    end, last = at, min(at + most, len(text))
    while end < last and "0" <= text[end] <= "9":
        end += 1
    return end


def _number_reader(part: Number) -> PartReader:
    def read(text: str, at: int, parsed: _Parsed) -> int:
        start, sign = at, text[at : at + 1]
        if sign == "" or (sign == "+" and part.sign != "exceeds") or (sign == "-" and part.sign == "none"):
            return -1
        if sign in "+-":
            at += 1
        if at + part.fewest > len(text):
            return -1
        end = _digits_end(text, at, part.most + part.following)
        if part.following:
            end = min(end, at + max(part.fewest, end - at - part.following))
        if end - at < part.fewest:
            return -1
        value = int(text[at:end])
        if sign == "-":
            if value == 0:
                return -1
            value = -value
        elif part.sign == "exceeds" and (end - at > part.fewest) != (sign == "+"):
            return -1
        if not -_LONG <= value < _LONG:
            value, end = value // 10, end - 1
        if part.reduced and end - start == 2:
            value += 2000
        return end if parsed.set(part.field, value) else -1

    return read


def _fraction_reader(part: Fraction) -> PartReader:
    def read(text: str, at: int, parsed: _Parsed) -> int:
        end = _digits_end(text, at, part.most)
        if end - at < part.fewest:
            return -1
        return end if parsed.set("nano", int(text[at:end]) * 10 ** (9 - (end - at))) else -1

    return read


def _name_reader(part: NamedField) -> PartReader:
    first = datetime_words.FIRST[part.field]
    words = sorted(
        ((word, first + index) for index, word in enumerate(datetime_words.WORDS[part.field, part.full])),
        key=lambda item: -len(item[0]),
    )

    def read(text: str, at: int, parsed: _Parsed) -> int:
        for word, value in words:
            if _matches(word, text, at):
                return at + len(word) if parsed.set(part.field, value) else -1
        return -1

    return read


def _two(text: str, at: int) -> int:
    """Two digits as a number up to 59, -1 when there are none."""
    piece = text[at : at + 2]
    if len(piece) == 2 and piece.isascii() and piece.isdigit() and int(piece) < 60:
        return int(piece)
    return -1


def _read_offset(part: Offset, text: str, at: int, parsed: _Parsed) -> int:
    if at == len(text):
        return -1
    if _matches(part.zero, text, at):
        return at + len(part.zero) if parsed.set("offset", 0) else -1
    if text[at] not in "+-":
        return -1
    hour, end = _two(text, at + 1), at + 3
    if hour < 0:
        return -1
    values = [hour, 0, 0]
    for place, wanted in ((1, part.minutes), (2, False)):
        if place == 2 and not part.seconds:
            break
        start = end + 1 if part.colons else end
        number = _two(text, start) if not part.colons or text[end : end + 1] == ":" else -1
        if number < 0:
            if wanted:
                return -1
            break
        values[place], end = number, start + 2
    if values[0] > 23:
        raise Unparsable(text)
    seconds = values[0] * 3600 + values[1] * 60 + values[2]
    return end if parsed.set("offset", -seconds if text[at] == "-" else seconds) else -1


def _digit(text: str, at: int) -> int:
    if at >= len(text):
        raise Unparsable(text)
    return ord(text[at]) - 48 if "0" <= text[at] <= "9" else -1


def _read_local_offset(full: bool, text: str, at: int, parsed: _Parsed) -> int:
    if not _matches("GMT", text, at):
        return -1
    end = at + 3
    if end == len(text) or text[end] not in "+-":
        return end if parsed.set("offset", 0) else -1
    sign = -1 if text[end] == "-" else 1
    end += 1
    hour = _digit(text, end)
    second = _digit(text, end + 1) if full or end + 1 < len(text) else -1
    values = [hour, 0, 0]
    if hour < 0 or (full and second < 0):
        return -1
    end += 1
    if second >= 0:
        values[0], end = hour * 10 + second, end + 1
    if full:
        if end >= len(text):
            raise Unparsable(text)
        if text[end] != ":":
            return -1
        tens, units = _digit(text, end + 1), _digit(text, end + 2)
        if tens < 0 or units < 0:
            return -1
        values[1], end = tens * 10 + units, end + 3
    for place in (2,) if full else (1, 2):
        # Optional, and only with both digits.
        if not (end + 2 < len(text) and text[end] == ":" and _pair(text, end + 1) >= 0):
            break
        values[place], end = _pair(text, end + 1), end + 3
    offset = sign * (values[0] * 3600 + values[1] * 60 + values[2])
    return end if parsed.set("offset", offset) else -1


def _pair(text: str, at: int) -> int:
    tens, units = _digit(text, at), _digit(text, at + 1)
    return tens * 10 + units if tens >= 0 and units >= 0 else -1


_FULL_OFFSET_Z = Offset(True, True, True, "Z")
_FULL_OFFSET_0 = Offset(True, True, True, "0")


def _read_zone_id(text: str, at: int, parsed: _Parsed) -> int:
    if at == len(text):
        return -1
    if text[at] in "+-":
        return _read_prefixed(text, at, at, parsed)
    for prefix in ("UTC", "UT", "GMT0", "GMT"):
        if _matches(prefix, text, at):
            if prefix == "GMT0":
                parsed.zone = "GMT0"
                return at + 4
            return _read_prefixed(text, at, at + len(prefix), parsed)
    longest = ""
    for name in zone_ids.regions():
        if len(name) > len(longest) and _matches(name, text, at):
            longest = name
    if longest:
        parsed.zone = zone_ids.resolve(longest)
        return at + len(longest)
    if _same(text[at], "Z"):
        parsed.zone = "Z"
        return at + 1
    return -1


def _read_prefixed(text: str, start: int, at: int, parsed: _Parsed) -> int:
    prefix = text[start:at].upper()
    if at >= len(text) or text[at] == "0" or _same(text[at], "Z"):
        parsed.zone = prefix
        return at
    attempt = _Parsed()
    end = _read_offset(_FULL_OFFSET_0 if prefix else _FULL_OFFSET_Z, text, at, attempt)
    if end < 0:
        if not prefix:
            return -1
        parsed.zone = prefix
        return at
    seconds = attempt.fields["offset"]
    if abs(seconds) > 18 * 3600:
        return -1
    parsed.zone = prefix + (zone_ids.offset_id(seconds) if seconds or not prefix else "")
    return end
