"""LIKE patterns and the part of Java's regular expressions that RE2 reads the same way."""

from __future__ import annotations

from functools import lru_cache

_SPECIAL = frozenset("\\.+*?()|[]{}^$")
# Java's dot stops at any of these, RE2's only at a line feed.
_DOT = r"[^\n\r\x{85}\x{2028}\x{2029}]"
# Java's dollar also stands before a final line terminator.
_DOLLAR = r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z"
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
    parts: list[str] = []
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
            character_class = _character_class(pattern, index)
            if character_class is None:
                return None
            text, index = character_class
            parts.append(text)
            repeatable = True
            continue
        if char == "(":
            depth += 1
            if pattern.startswith("(?", index):
                if not pattern.startswith("(?:", index):
                    return None
                index += 2
            parts.append("(?:")
            repeatable = False
        elif char == ")":
            depth -= 1
            if depth < 0:
                return None
            parts.append(")")
            repeatable = True
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
            parts.append(_DOT)
            repeatable = True
        elif char == "^":
            parts.append(r"\A")
            repeatable = False
        elif char == "$":
            parts.append(_DOLLAR)
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


def _character_class(pattern: str, start: int) -> tuple[str, int] | None:
    """A simple class [abc], [a-z], [^...]: its text for RE2 and where it ends."""
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
        parts.append("\\" + char if char == "^" else char)
        index += 1
    return None
