"""What Jackson's generators write: separators, escapes, and numbers in the form of the type that they were read as."""

from __future__ import annotations

import math
import re

from penstock.functions.java_double import double_text
from penstock.functions.json import reader
from penstock.functions.json.reader import JsonError, JsonReader

_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_SPECIAL = re.compile(r'["\\\x00-\x1f]')
_SPECIAL_OR_WIDE = re.compile(r'["\\\x00-\x1f\ud800-\udfff\U00010000-\U0010ffff]')
_SURROGATE = re.compile("[\ud800-\udfff]")


def quoted(text: str, *, wide_escapes: bool) -> str:
    """A string in quotes; writers of bytes escape what is two characters in Java.

    >>> quoted('a"\\x01', wide_escapes=False)
    '"a\\\\"\\\\u0001"'
    """
    special = _SPECIAL_OR_WIDE if wide_escapes else _SPECIAL
    if special.search(text) is None:
        return f'"{text}"'
    return f'"{special.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    if char in _SHORT:
        return _SHORT[char]
    units = char.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def raw(text: str) -> str:
    """A text as it is; half of a surrogate pair cannot be written as UTF-8."""
    if _SURROGATE.search(text) is not None:
        raise JsonError("half of a surrogate pair")
    return text


def number_text(token: str, text: str, java: int) -> str:
    """A number as the generator writes what the parser has read."""
    if token == reader.INT:
        return str(int(text))
    value = float(text)
    written = double_text(value, java)
    return f'"{written}"' if math.isinf(value) or value != value else written


class Writer:
    """A generator of JSON, for bytes (UTF-8) or for characters."""

    __slots__ = ("_counts", "_named", "_parts", "_scopes", "java", "wide_escapes")

    def __init__(self, java: int, *, wide_escapes: bool) -> None:
        self.java = java
        self.wide_escapes = wide_escapes
        self._parts: list[str] = []
        self._scopes: list[str] = [""]
        self._counts = [0]
        self._named = False

    def text(self) -> str:
        """All that was written."""
        return "".join(self._parts)

    def raw(self, text: str) -> None:
        """Write a text as it is, without a separator."""
        self._parts.append(raw(text) if self.wide_escapes else text)

    def value(self, text: str) -> None:
        """Write the text of a value, with the separator that belongs before it."""
        scope = self._scopes[-1]
        if scope == "{":
            if not self._named:
                raise JsonError("a value without a name")
            self._named = False
            self._parts.append(":")
        elif self._counts[-1]:
            self._parts.append("," if scope else " ")
        self._counts[-1] += 1
        self._parts.append(text)

    def string(self, text: str) -> None:
        self.value(quoted(text, wide_escapes=self.wide_escapes))

    def name(self, text: str) -> None:
        if self._scopes[-1] != "{" or self._named:
            raise JsonError("a name that is not expected")
        if self._counts[-1]:
            self._parts.append(",")
        self._parts.append(quoted(text, wide_escapes=self.wide_escapes))
        self._named = True

    def start(self, scope: str) -> None:
        self.value(scope)
        self._scopes.append(scope)
        self._counts.append(0)

    def end(self, closing: str) -> None:
        if self._scopes[-1] != ("[" if closing == "]" else "{"):
            raise JsonError("an end that is not expected")
        self._scopes.pop()
        self._counts.pop()
        self._named = False
        self._parts.append(closing)

    def copy(self, source: JsonReader) -> None:
        """Write the value at the reader's current token, with all that is inside of it."""
        if source.token == reader.FIELD_NAME:
            self.name(source.name() or "")
            source.next()
        self._event(source)
        if source.token not in (reader.START_OBJECT, reader.START_ARRAY):
            return
        depth = 1
        while depth:
            token = source.next()
            if token is None:
                return
            self._event(source)
            if token in "{[":
                depth += 1
            elif token in "}]":
                depth -= 1

    def _event(self, source: JsonReader) -> None:
        token = source.token
        if token is None:
            raise JsonError("nothing to copy")
        if token in "{[":
            self.start(token)
        elif token in "}]":
            self.end(token)
        elif token == reader.FIELD_NAME:
            self.name(source.name() or "")
        elif token == reader.STRING:
            self.string(source.finish())
        elif token in (reader.INT, reader.FLOAT):
            self.value(number_text(token, source.text, self.java))
        else:
            self.value(token)

    def tree(self, value: object) -> None:
        """Write a value of `tree.parse`."""
        if isinstance(value, tuple):
            self.start("{")
            for name, item in value:
                self.name(name)
                self.tree(item)
            self.end("}")
        elif isinstance(value, list):
            self.start("[")
            for item in value:
                self.tree(item)
            self.end("]")
        else:
            self.value(scalar_text(value, self.java, wide_escapes=self.wide_escapes))


class FloatText(str):
    """A number with a point or an exponent, as it stands in the text."""

    __slots__ = ()


def scalar_text(value: object, java: int, *, wide_escapes: bool) -> str:
    """The text of a string, number, truth value or null of a tree."""
    if isinstance(value, FloatText):
        return number_text(reader.FLOAT, value, java)
    if isinstance(value, str):
        return quoted(value, wide_escapes=wide_escapes)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
