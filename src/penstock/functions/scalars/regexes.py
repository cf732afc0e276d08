"""Patterns: LIKE, several LIKEs, and what splits, replaces and extracts by a regular expression; the pattern is
constant or comes with each row.

A constant regular expression is looked at when the view is planned. One of a row may be beyond what Java's and the
kernel's dialects share: `BeyondKernel` is raised then, and Spark is asked for that delta.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.types import kernel_type
from penstock.functions.scalars import patterns
from penstock.functions.scalars.base import (
    AnsiError,
    BeyondKernel,
    Build,
    ByRow,
    Check,
    Columns,
    Compiled,
    Datum,
    Scalar,
    TickLike,
    array,
    both,
    constant,
    only,
    row_wise,
    rows_of,
)
from penstock.plan.expression import Call, Literal

# The code that batch queries give to the same mistake.
BAD_PATTERN = "SQL_INVALID_FORMAT"
_BEYOND = "a regular expression beyond what Java's and the kernel's dialects share"


# ------------------------------------------------------------------ LIKE


@lru_cache(maxsize=4096)
def _like_regex(pattern: str, escape: str) -> re.Pattern[str] | None:
    """A LIKE pattern for Python, None when Spark refuses its escapes."""
    parts = []
    index = 0
    while index < len(pattern):
        char = pattern[index]
        if char == escape:
            following = pattern[index + 1 : index + 2]
            if following == "" or following not in {"_", "%", escape}:
                return None
            parts.append(re.escape(following))
            index += 2
            continue
        parts.append("." if char == "_" else ".*" if char == "%" else re.escape(char))
        index += 1
    return re.compile("".join(parts), re.DOTALL)


def _escapes(pattern: str, escape: str) -> str:
    """Spark's error class for a LIKE pattern whose escapes it refuses."""
    pairs = re.sub(f"{re.escape(escape)}[_%{re.escape(escape)}]", "", pattern)
    return f"INVALID_FORMAT.ESC_{'AT_THE_END' if pairs.find(escape) == len(pairs) - 1 else 'IN_THE_MIDDLE'}"


def _like(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    escape = call.option("escapeChar", "\\")
    wanted = call.args[1]
    subject_of, pattern_of = args
    if isinstance(wanted, Literal):
        if wanted.value is None:
            return lambda columns, length, tick: pa.scalar(None, pa.bool_())
        pattern = patterns.like(wanted.value, escape)
        return lambda columns, length, tick: pc.match_substring_regex(
            subject_of(columns, length, tick), pattern=pattern
        )

    def twin(text: str, pattern: str) -> bool:
        compiled = _like_regex(pattern, escape)
        if compiled is None:
            raise AnsiError(f"the escapes of the pattern {pattern!r}", BAD_PATTERN, _escapes(pattern, escape))
        return compiled.fullmatch(text) is not None

    return lambda columns, length, tick: rows_of(
        call, twin, [subject_of(columns, length, tick), pattern_of(columns, length, tick)], length, pa.bool_()
    )


def _like_check(call: Call) -> str | None:
    wanted = call.args[1]
    if not isinstance(wanted, Literal) or wanted.value is None:
        return None
    pattern = patterns.like(wanted.value, call.option("escapeChar", "\\"))
    return None if pattern is not None else "a LIKE pattern with an escape that Spark refuses"


def _likes(*, every: bool, negated: bool) -> Build:
    """LIKE ALL and LIKE ANY over constant patterns."""

    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        regexes = [patterns.like(pattern, "\\") for pattern in call.option("patterns")]
        combine = pc.and_kleene if every else pc.or_kleene
        (argument,) = args

        def run(columns: Columns, length: int, tick: TickLike) -> Datum:
            value = argument(columns, length, tick)
            result = None
            for regex in regexes:
                matched = pc.match_substring_regex(value, pattern=regex)
                matched = pc.invert(matched) if negated else matched
                result = matched if result is None else combine(result, matched)
            return result

        return run

    return build


def _likes_check(call: Call) -> str | None:
    texts = call.option("patterns")
    if not texts or any(not isinstance(item, str) or patterns.like(item, "\\") is None for item in texts):
        return f"{call.name} with a pattern that is NULL or that Spark refuses"
    return None


# ------------------------------------------------------------------ regular expressions


def _regex(call: Call) -> re.Pattern[str]:
    compiled = patterns.python_regex(constant(call, 1))
    assert compiled is not None
    return compiled


def _regex_check(call: Call) -> str | None:
    """Why a constant regular expression is left to Spark."""
    pattern = call.args[1]
    if not isinstance(pattern, Literal):
        return None
    if pattern.value is None:
        return f"{call.name} with a regular expression that is NULL"
    return None if patterns.python_regex(pattern.value) is not None else _BEYOND


def _rows_check(call: Call) -> str | None:
    """The reason for those rows that only Spark can compute, where an argument behind the text comes with each row."""
    return None if _are_constant(call) else ByRow(_BEYOND)


def _are_constant(call: Call) -> bool:
    return all(isinstance(item, Literal) and item.value is not None for item in call.args[1:])


def _row_regex(pattern: str) -> re.Pattern[str]:
    compiled = patterns.python_regex(pattern)
    if compiled is None:
        raise BeyondKernel(f"the regular expression {pattern!r} is not of both dialects")
    return compiled


def matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """The matches in a text as Java finds them: behind an empty match it goes on with the next character."""
    at = 0
    while at <= len(text):
        match = pattern.search(text, at)
        if match is None:
            return
        yield match
        at = match.end() + (match.end() == match.start())


def _finder(pattern: re.Pattern[str]) -> Callable[[str], Iterator[re.Match[str]]]:
    if pattern.search("") is None:
        return pattern.finditer
    return lambda text: matches(pattern, text)


def _over_subject(
    make: Callable[[Call, re.Pattern[str]], Callable[[str], Any]], of_row: Callable[..., Any]
) -> Build:
    """A function of a text whose other arguments are constants, or come with each row."""
    by_row = row_wise(of_row)

    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        if not _are_constant(call):
            return by_row(call, args)
        twin = make(call, _regex(call))
        kind = kernel_type(call.type)
        (argument, *_) = args
        return lambda columns, length, tick: rows_of(
            call, twin, [argument(columns, length, tick)], length, kind
        )

    return build


def _rlike(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    if not _are_constant(call):
        return row_wise(_matches_of_row)(call, args)
    pattern = patterns.java_regex(constant(call, 1))
    (argument, *_) = args
    if pattern is None:
        regex = _regex(call)

        def twin(text: str) -> bool:
            return regex.search(text) is not None

        return lambda columns, length, tick: rows_of(
            call, twin, [argument(columns, length, tick)], length, pa.bool_()
        )
    return lambda columns, length, tick: pc.match_substring_regex(
        argument(columns, length, tick), pattern=pattern
    )


def _matches_of_row(text: str, pattern: str) -> bool:
    compiled = patterns.python_search(pattern)
    if compiled is None:
        raise BeyondKernel(f"the regular expression {pattern!r} is not of both dialects")
    return compiled.search(text) is not None


def _rlike_check(call: Call) -> str | None:
    if _are_constant(call) and patterns.java_regex(constant(call, 1)) is not None:
        return None
    return _regex_check(call)


def _extract(call: Call, pattern: re.Pattern[str]) -> Callable[[str], str]:
    group = constant(call, 2)

    def twin(text: str) -> str:
        match = pattern.search(text)
        return "" if match is None else match[group] or ""

    return twin


def _extract_of_row(text: str, pattern: str, group: int) -> str:
    match = _with_group(pattern, group).search(text)
    return "" if match is None else match[group] or ""


def _extract_all(call: Call, pattern: re.Pattern[str]) -> Callable[[str], list[str]]:
    group, find = constant(call, 2), _finder(pattern)
    return lambda text: [match[group] or "" for match in find(text)]


def _extract_all_of_row(text: str, pattern: str, group: int) -> list[str]:
    return [match[group] or "" for match in matches(_with_group(pattern, group), text)]


def _with_group(pattern: str, group: int) -> re.Pattern[str]:
    """A regular expression of a row; whether Spark refuses a group that it does not have depends on the text."""
    compiled = _row_regex(pattern)
    if not 0 <= group <= compiled.groups:
        raise BeyondKernel(f"the regular expression {pattern!r} has no group {group}")
    return compiled


def _group_check(call: Call) -> str | None:
    if _are_constant(call) and not 0 <= constant(call, 2) <= _regex(call).groups:
        return f"{call.name} of a group that the regular expression does not have"
    return None


def _place(call: Call, pattern: re.Pattern[str]) -> Callable[[str], int]:
    def twin(text: str) -> int:
        match = pattern.search(text)
        return 0 if match is None else match.start() + 1

    return twin


def _place_of_row(text: str, pattern: str, group: int) -> int:
    match = _row_regex(pattern).search(text)
    return 0 if match is None else match.start() + 1


# ------------------------------------------------------------------ replacing


def replacement(text: str, groups: int) -> tuple[str | int, ...] | None:
    """The parts of a replacement as Java reads them, texts and numbers of groups; None for what it refuses.

    >>> replacement(r"a$1b\\$", 1)
    ('a', 1, 'b$')
    """
    parts: list[str | int] = []
    literal = ""
    index = 0
    while index < len(text):
        char = text[index]
        index += 1
        if char not in "\\$":
            literal += char
            continue
        if index >= len(text):
            return None
        if char == "\\":
            literal += text[index]
            index += 1
            continue
        if not "0" <= text[index] <= "9" or int(text[index]) > groups:
            return None
        number = int(text[index])
        index += 1
        while index < len(text) and "0" <= text[index] <= "9" and number * 10 + int(text[index]) <= groups:
            number = number * 10 + int(text[index])
            index += 1
        parts += [literal, number]
        literal = ""
    return tuple(part for part in (*parts, literal) if part != "")


def _replace(call: Call, pattern: re.Pattern[str]) -> Callable[[str], str]:
    parts = replacement(constant(call, 2), pattern.groups)
    assert parts is not None
    find = _finder(pattern)
    return lambda text: _replaced(text, find(text), parts)


def _replaced(text: str, occurrences: Iterator[re.Match[str]], parts: tuple[str | int, ...]) -> str:
    written: list[str] = []
    at = 0
    for match in occurrences:
        written.append(text[at : match.start()])
        written.extend((match[part] or "") if isinstance(part, int) else part for part in parts)
        at = match.end()
    return text if not at and not written else "".join(written) + text[at:]


_replacement_of_row = lru_cache(maxsize=4096)(replacement)


def _replace_of_row(text: str, pattern: str, instead: str, position: int) -> str:
    compiled = _row_regex(pattern)
    parts = _replacement_of_row(instead, compiled.groups)
    if parts is None or position != 1:
        raise BeyondKernel("a replacement that Spark refuses, or from a later position")
    return _replaced(text, matches(compiled, text), parts)


def _replace_check(call: Call) -> str | None:
    instead, position = call.args[2:]
    if isinstance(position, Literal) and position.value != 1:
        return "regexp_replace from a later position"
    if _are_constant(call) and isinstance(instead, Literal):
        parts = replacement(instead.value, _regex(call).groups)
        return None if parts is not None else "regexp_replace with a replacement that Spark refuses"
    return None


# ------------------------------------------------------------------ splitting


def _split_at(pattern: re.Pattern[str], text: str, limit: int) -> list[str]:
    parts: list[str] = []
    at = 0
    for match in matches(pattern, text):
        if limit > 0 and len(parts) >= limit - 1:
            break
        if match.end() == 0:
            continue  # nothing before an empty match at the begin
        parts.append(text[at : match.start()])
        at = match.end()
    return [*parts, text[at:]] if at or parts else [text]


def _characters(text: str, limit: int) -> list[str]:
    """Every character on its own, the last of a limited number with all that follows."""
    if text == "":
        return [""]
    count = len(text) if limit <= 0 or limit > len(text) else limit
    return [*text[: count - 1], text[count - 1 :]]


def _split(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    if not isinstance(call.args[1], Literal):
        return row_wise(_split_of_row)(call, args)
    kind = kernel_type(call.type)
    delimiter = constant(call, 1)
    argument, _, limit_of = args
    limit = call.args[2]
    plain = plain_text(delimiter)
    if plain and isinstance(limit, Literal) and limit.value is not None and limit.value <= 0:
        return lambda columns, length, tick: _split_plainly(
            argument(columns, length, tick), plain, length, kind
        )
    if delimiter == "":
        twin: Callable[[str, int], list[str]] = _characters
    else:
        pattern = _regex(call)

        def twin(text: str, count: int) -> list[str]:
            return _split_at(pattern, text, count)

    return lambda columns, length, tick: rows_of(
        call, twin, [argument(columns, length, tick), limit_of(columns, length, tick)], length, kind
    )


def _split_of_row(text: str, pattern: str, limit: int) -> list[str]:
    return _characters(text, limit) if pattern == "" else _split_at(_row_regex(pattern), text, limit)


def _split_plainly(value: Datum, delimiter: str, length: int, kind: pa.DataType) -> Datum:
    constant_value = isinstance(value, pa.Scalar)
    parts = pc.split_pattern(array(value, 1 if constant_value else length), pattern=delimiter)
    parts = parts.cast(kind)
    return parts[0] if constant_value else parts


def plain_text(pattern: str) -> str | None:
    """The text that a regular expression stands for when it is nothing else."""
    text = re.sub(r"\\([^0-9A-Za-z])", lambda match: "" + match[1], pattern)
    special = re.search(r"(?<!\\)(?:\\\\)*[.+*?()|\[\]{}^$]|\\[0-9A-Za-z]|\\$", pattern)
    return text if special is None and pattern else None


def _split_check(call: Call) -> str | None:
    pattern = call.args[1]
    if not isinstance(pattern, Literal):
        return ByRow(_BEYOND)
    return None if pattern.value == "" else _regex_check(call)


_TEXT: Check = only("string", first=2)

FUNCTIONS: dict[str, Scalar] = {
    "Like": Scalar(_like, both(_TEXT, _like_check)),
    "LikeAll": Scalar(_likes(every=True, negated=False), _likes_check),
    "NotLikeAll": Scalar(_likes(every=True, negated=True), _likes_check),
    "LikeAny": Scalar(_likes(every=False, negated=False), _likes_check),
    "NotLikeAny": Scalar(_likes(every=False, negated=True), _likes_check),
    "RLike": Scalar(_rlike, both(_TEXT, _rlike_check, _rows_check)),
    "RegExpExtract": Scalar(
        _over_subject(_extract, _extract_of_row), both(_TEXT, _regex_check, _group_check, _rows_check)
    ),
    "RegExpExtractAll": Scalar(
        _over_subject(_extract_all, _extract_all_of_row), both(_TEXT, _regex_check, _group_check, _rows_check)
    ),
    "RegExpInStr": Scalar(_over_subject(_place, _place_of_row), both(_TEXT, _regex_check, _rows_check)),
    "RegExpReplace": Scalar(
        _over_subject(_replace, _replace_of_row), both(_TEXT, _regex_check, _replace_check, _rows_check)
    ),
    "StringSplit": Scalar(_split, both(_TEXT, _split_check)),
}
