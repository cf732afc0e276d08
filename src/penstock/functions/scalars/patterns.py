"""LIKE patterns and the part of Java's regular expressions that RE2, or Python's own engine, reads the same way."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from functools import lru_cache

_SPECIAL = frozenset("\\.+*?()|[]{}^$")


@dataclass(frozen=True, slots=True)
class RegexDialect:
    """How to write what Java writes otherwise: the dot, the dollar, the begin of a group, and a character in a class."""

    # Java's dot stops at any of these, others only at a line feed.
    dot: str
    # Java's dollar also stands before a final line terminator.
    dollar: str
    group: str
    in_class: frozenset[str] = frozenset("^")


# For questions of yes and no: groups are not kept, and the dollar takes the line terminator with it.
_RE2 = RegexDialect(r"[^\n\r\x{85}\x{2028}\x{2029}]", r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z", "(?:")
_PYTHON = RegexDialect(
    "[^\n\r\x85\u2028\u2029]",
    r"(?:\Z|(?=\r\n\Z)|(?<!\r)(?=\n\Z)|(?=[\r\x85\u2028\u2029]\Z))",
    "(",
    frozenset("^&~|["),
)
_CLASSES = {
    "d": "0-9",
    "w": "a-zA-Z_0-9",
    "s": r" \t\n\x0B\f\r",
}
_LITERAL_ESCAPES = frozenset("\\.+*?()|[]{}^$-/_'\"!@#%&=:;,<>~` ")


def quote(text: str) -> str:
    """The text as a literal of RE2's."""
    return "".join("\\" + char if char in _SPECIAL else char for char in text)


@lru_cache(maxsize=1024)
def like(pattern: str, escape: str) -> str | None:
    """The regular expression of a LIKE pattern, None when Spark refuses the pattern."""
    parts = [r"\A(?s:"]
    index = 0
    while index < len(pattern):
        char = pattern[index]
        if char == escape:
            if index + 1 >= len(pattern) or pattern[index + 1] not in {"_", "%", escape}:
                return None
            parts.append(quote(pattern[index + 1]))
            index += 2
            continue
        parts.append("." if char == "_" else ".*" if char == "%" else quote(char))
        index += 1
    return "".join([*parts, r")\z"])


@lru_cache(maxsize=1024)
def java_regex(pattern: str) -> str | None:
    """The same regular expression for RE2, None when it uses something in which the two differ."""
    return _translated(pattern, _RE2)


@lru_cache(maxsize=1024)
def python_regex(pattern: str) -> re.Pattern[str] | None:
    """The same regular expression for Python, with the same groups; None when it uses something in which the two differ.

    Both engines try alternatives in order. They differ in what is left in groups that have matched nothing again and
    again, so that a group which may be empty must not be repeated; and Java looks for empty matches inside of
    surrogate pairs.
    """
    compiled = python_search(pattern)
    return None if compiled is None or _empty_inside(compiled) else compiled


@lru_cache(maxsize=1024)
def python_search(pattern: str) -> re.Pattern[str] | None:
    """The same, for the question whether there is a match."""
    flags = re.ASCII
    if pattern.startswith("(?i)"):
        pattern, flags = pattern[4:], flags | re.IGNORECASE
    translated = _translated(pattern, _PYTHON)
    if translated is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile(translated, flags)
    except (re.error, Warning, OverflowError, RecursionError):
        return None


def _empty_inside(pattern: re.Pattern[str]) -> bool:
    match = pattern.match("\ue000\ue001\ue002", 1)
    return match is not None and match.end() == 1


def _may_be_empty(parts: list[str]) -> bool:
    return re.search("".join(parts), "") is not None


def _translated(pattern: str, dialect: RegexDialect) -> str | None:
    parts: list[str] = []
    opened: list[int] = []
    index, depth, size = 0, 0, len(pattern)
    repeatable = False
    while index < size:
        char = pattern[index]
        if char == "\\":
            if index + 1 >= size:
                return None
            follow = pattern[index + 1]
            if follow in _CLASSES:
                parts.append(f"[{_CLASSES[follow]}]")
            elif follow.lower() in _CLASSES:
                parts.append(f"[^{_CLASSES[follow.lower()]}]")
            elif follow in "tnrf":
                parts.append("\\" + follow)
            elif follow in _LITERAL_ESCAPES:
                parts.append(quote(follow))
            else:
                return None
            index += 2
            repeatable = True
            continue
        if char == "[":
            character_class = _character_class(pattern, index, dialect)
            if character_class is None:
                return None
            text, index = character_class
            parts.append(text)
            repeatable = True
            continue
        if char == "(":
            depth += 1
            opened.append(len(parts))
            if pattern.startswith("(?", index):
                if not pattern.startswith("(?:", index):
                    return None
                index += 2
                parts.append("(?:")
            else:
                parts.append(dialect.group)
            repeatable = False
        elif char == ")":
            depth -= 1
            if depth < 0:
                return None
            parts.append(")")
            inside = parts[opened.pop() :]
            repeatable = True
            if (
                dialect is _PYTHON
                and pattern[index + 1 : index + 2] in ("*", "+", "{")
                and _may_be_empty(inside)
            ):
                return None
        elif char in "*+?":
            if not repeatable:
                return None
            parts.append(char)
            if index + 1 < size and pattern[index + 1] == "?":
                parts.append("?")
                index += 1
            elif index + 1 < size and pattern[index + 1] in "+*{":
                return None
            repeatable = False
        elif char == "{":
            end = pattern.find("}", index)
            bounds = pattern[index + 1 : end].split(",") if end > 0 else []
            if not repeatable or not bounds or len(bounds) > 2 or not bounds[0].isdigit():
                return None
            if any(bound and (not bound.isdigit() or int(bound) > 500) for bound in bounds):
                return None
            parts.append(pattern[index : end + 1])
            index = end
            if index + 1 < size and pattern[index + 1] in "?+*{":
                return None
            repeatable = False
        elif char == ".":
            parts.append(dialect.dot)
            repeatable = True
        elif char == "^":
            parts.append(r"\A")
            repeatable = False
        elif char == "$":
            parts.append(dialect.dollar)
            repeatable = False
        elif char == "|":
            parts.append("|")
            repeatable = False
        elif char in "]}":
            return None
        else:
            parts.append(quote(char))
            repeatable = True
        index += 1
    return "".join(parts) if depth == 0 else None


def _character_class(pattern: str, start: int, dialect: RegexDialect) -> tuple[str, int] | None:
    """A simple class [abc], [a-z], [^...]: its text and where it ends."""
    index = start + 1
    parts = ["["]
    if index < len(pattern) and pattern[index] == "^":
        parts.append("^")
        index += 1
    first = index
    while index < len(pattern):
        char = pattern[index]
        if char == "]":
            if index == first:
                return None
            return "".join([*parts, "]"]), index + 1
        if char == "[" or pattern.startswith("&&", index):
            return None
        if char == "\\":
            follow = pattern[index + 1 : index + 2]
            if follow in _CLASSES:
                parts.append(_CLASSES[follow])
            elif follow and follow in "tnrf":
                parts.append("\\" + follow)
            elif follow and follow in _LITERAL_ESCAPES:
                parts.append("\\" + follow if follow in "\\]^-[" else quote(follow))
            else:
                return None
            index += 2
            continue
        parts.append("\\" + char if char in dialect.in_class else char)
        index += 1
    return None
