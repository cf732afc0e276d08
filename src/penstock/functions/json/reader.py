"""Jackson's pull parser over one text: the same tokens, the same errors, and the same place to go on from after an error.

Spark catches errors of single fields and goes on with the next token, so that what a parser has consumed when it
fails decides about the fields behind it. The methods therefore follow the states of Jackson's parser for readers;
texts that need no leniency do not come here.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

_T = TypeVar("_T")

START_OBJECT, END_OBJECT, START_ARRAY, END_ARRAY = "{", "}", "[", "]"
FIELD_NAME, STRING, INT, FLOAT = "name", "string", "int", "float"
TRUE, FALSE, NULL = "true", "false", "null"

MAX_DEPTH = 1000
MAX_NUMBER = 1000
MAX_NAME = 50_000
_MAX_SHOWN = 256  # how much of a bad token Jackson consumes for its message

_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_PLAIN_APOSTROPHE = re.compile(r"[^'\\\x00-\x1f]*")
_DIGITS = re.compile(r"[0-9]*")
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "/": "/", "\\": "\\"}
_IDENTIFIER_START = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"})
_IDENTIFIER = _IDENTIFIER_START | {"Nd", "Mn", "Mc", "Cf"}
_ODD_NAME = frozenset("@#*-+")
NOT_A_NUMBER = frozenset({"NaN", "Infinity", "+Infinity", "-Infinity", "+INF", "-INF"})


class JsonError(Exception):
    """What Jackson refuses."""


@dataclass(frozen=True, slots=True)
class Leniency:
    """What is allowed beyond the standard."""

    comments: bool = False
    unquoted_names: bool = False
    single_quotes: bool = True
    leading_zeros: bool = False
    not_a_number: bool = True
    any_escape: bool = False
    control_characters: bool = False


@dataclass(slots=True)
class _Scope:
    """An open object or array: what it is in, its kind, how many entries have begun, and the name of the last one."""

    parent: _Scope | None
    kind: str
    depth: int
    index: int = -1
    name: str | None = None


@lru_cache(maxsize=4096)
def _identifier_part(char: str) -> bool:
    code = ord(char)
    if code > 0xFFFF:
        return False  # two surrogates for Java, and neither is a letter
    ignorable = code <= 8 or 0x0E <= code <= 0x1B or 0x7F <= code <= 0x9F
    return ignorable or unicodedata.category(char) in _IDENTIFIER


def _identifier_start(char: str) -> bool:
    return ord(char) <= 0xFFFF and unicodedata.category(char) in _IDENTIFIER_START


def joined(text: str) -> str:
    """A text in which escaped surrogates that make a pair are one character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def deeper(function: Callable[..., _T], *arguments: Any) -> _T:
    """Call a function again that was nested too deep for Python, though not for Jackson."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 20 * MAX_DEPTH)
    try:
        return function(*arguments)
    finally:
        sys.setrecursionlimit(limit)


def java_text(text: str) -> str:
    """A text as Java encodes it: a question mark for half of a surrogate pair."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


@dataclass(slots=True)
class JsonReader:
    """A text, the place in it, and the current token."""

    source: str
    leniency: Leniency
    at: int = 0
    token: str | None = None
    text: str = ""  # of a string or number
    _next: str | None = None  # the value behind a field name, which is read together with it
    _incomplete: bool = False
    _scope: _Scope = field(default_factory=lambda: _Scope(None, "", 0))

    # -------------------------------------------------------------- tokens

    def next(self) -> str | None:
        """Go to the next token; None at the end of the text."""
        if self.token == FIELD_NAME:
            return self._value_of_name()
        if self._incomplete:
            self._incomplete = False
            self._string(keep=False)
        char = self._after_blanks()
        if char == "":
            self.token = None
            return None
        if char in "}]":
            return self._close(char)
        scope = self._scope
        scope.index += 1
        if scope.kind and scope.index > 0:
            if char != ",":
                raise JsonError(f"{char!r} instead of a comma")
            char = self._after_blanks(within=True)
        in_object = scope.kind == START_OBJECT
        if in_object:
            name = self._name() if char == '"' else self._odd_name(char)
            if len(name) > MAX_NAME:
                raise JsonError("a name is too long")
            scope.name = name
            self.token = FIELD_NAME
            char = self._after_colon()
        token = self._value(char)
        if in_object:
            self._next = token
            return self.token
        if token in "{[":
            self._open(token)
        self.token = token
        return token

    def _value_of_name(self) -> str | None:
        token, self._next = self._next, None
        if token is not None and token in "{[":
            self._open(token)
        self.token = token
        return token

    def _open(self, kind: str) -> None:
        self._scope = _Scope(self._scope, kind, self._scope.depth + 1)
        if self._scope.depth > MAX_DEPTH:
            raise JsonError("nested too deep")

    def _close(self, char: str) -> str:
        if self._scope.kind != ("{" if char == "}" else "["):
            raise JsonError(f"{char!r} closes nothing")
        assert self._scope.parent is not None
        self._scope = self._scope.parent
        self.token = char
        return char

    def skip_children(self) -> None:
        """Go to the end of the object or array that begins here; nothing for other tokens."""
        if self.token not in (START_OBJECT, START_ARRAY):
            return
        depth = 1
        while True:
            token = self.next()
            if token is None:
                if self._scope.kind:
                    raise JsonError("the text ends inside of an object or array")
                return
            if token in "{[":
                depth += 1
            elif token in "}]":
                depth -= 1
                if depth == 0:
                    return

    def name(self) -> str | None:
        """The name of the field that the current token belongs to."""
        scope = self._scope
        if self.token in (START_OBJECT, START_ARRAY) and scope.parent is not None:
            scope = scope.parent
        return scope.name

    def finish(self) -> str:
        """The text of a string or number; a string is only read to its end here."""
        if self._incomplete and self.token == STRING:
            self._incomplete = False
            self._string(keep=True)
        return self.text

    # -------------------------------------------------------------- between tokens

    def _blank(self, char: str) -> bool:
        """Whether to go on behind a character between two tokens."""
        if char in " \n\r\t":
            return True
        if char < " ":
            raise JsonError("a control character between two tokens")
        if char == "/":
            self._comment()
            return True
        return False

    def _after_blanks(self, *, within: bool = False) -> str:
        source = self.source
        while self.at < len(source):
            char = source[self.at]
            self.at += 1
            if not self._blank(char):
                return char
        if within or self._scope.kind:
            raise JsonError("the text ends inside of an object or array")
        return ""

    def _after_colon(self) -> str:
        char = self._after_blanks(within=True)
        if char != ":":
            raise JsonError(f"{char!r} instead of a colon")
        return self._after_blanks(within=True)

    def _comment(self) -> None:
        if not self.leniency.comments:
            raise JsonError("a comment")
        kind = self.source[self.at : self.at + 1]
        if kind == "":
            raise JsonError("the text ends in a comment")
        self.at += 1
        if kind == "/":
            while self.at < len(self.source):
                char = self.source[self.at]
                self.at += 1
                if char in "\r\n":
                    return
                if char < " " and char != "\t":
                    raise JsonError("a control character in a comment")
            return
        if kind != "*":
            raise JsonError("no comment")
        while self.at < len(self.source):
            char = self.source[self.at]
            self.at += 1
            if char == "*" and self.source[self.at : self.at + 1] == "/":
                self.at += 1
                return
            if char < " " and char not in "\r\n\t":
                raise JsonError("a control character in a comment")
        raise JsonError("the text ends in a comment")

    # -------------------------------------------------------------- names and strings

    def _name(self) -> str:
        return self._quoted('"', keep=True)

    def _odd_name(self, char: str) -> str:
        if char == "'" and self.leniency.single_quotes:
            return self._quoted("'", keep=True)
        if not self.leniency.unquoted_names or not _name_part(char):
            raise JsonError(f"{char!r} instead of a name")
        start = self.at - 1
        while self.at < len(self.source) and _name_part(self.source[self.at]):
            self.at += 1
        return self.source[start : self.at]

    def _string(self, *, keep: bool) -> None:
        text = self._quoted('"', keep=keep)
        if keep:
            self.text = text

    def _quoted(self, quote: str, *, keep: bool) -> str:
        """Read to the closing quote; the place is behind what has failed when it fails."""
        source, plain = self.source, _PLAIN if quote == '"' else _PLAIN_APOSTROPHE
        parts: list[str] = []
        surrogates = False
        while True:
            match = plain.match(source, self.at)
            assert match is not None
            if keep:
                parts.append(match[0])
            self.at = match.end()
            if self.at >= len(source):
                raise JsonError("the text ends in a string")
            char = source[self.at]
            self.at += 1
            if char == quote:
                break
            if char == "\\":
                char = self._escaped()
                surrogates = surrogates or "\ud800" <= char <= "\udfff"
            elif not self.leniency.control_characters:
                raise JsonError("a control character in a string")
            parts.append(char)
        text = "".join(parts)
        return joined(text) if surrogates else text

    def _escaped(self) -> str:
        if self.at >= len(self.source):
            raise JsonError("the text ends in an escape")
        char = self.source[self.at]
        self.at += 1
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char == "u":
            return self._code()
        if self.leniency.any_escape or (char == "'" and self.leniency.single_quotes):
            return char
        raise JsonError(f"the escape {char!r}")

    def _code(self) -> str:
        value = 0
        for _ in range(4):
            if self.at >= len(self.source):
                raise JsonError("the text ends in an escape")
            char = self.source[self.at]
            self.at += 1
            if char not in "0123456789abcdefABCDEF":
                raise JsonError(f"the digit {char!r} in an escape")
            value = value * 16 + int(char, 16)
        return chr(value)

    # -------------------------------------------------------------- values

    def _value(self, char: str) -> str:
        if char == '"':
            self._incomplete = True
            return STRING
        if char in "{[":
            return char
        if char in "0123456789":
            return self._number("", self.at - 1)
        if char == "-":
            return self._signed()
        if char in "tfn":
            word = {"t": TRUE, "f": FALSE, "n": NULL}[char]
            self._match(word, 1)
            return word
        return self._odd_value(char)

    def _odd_value(self, char: str) -> str:
        if char == "'" and self.leniency.single_quotes:
            self.text = self._quoted("'", keep=True)
            return STRING
        if char == "N":
            return self._special("NaN", 1)
        if char == "I":
            return self._special("Infinity", 1)
        if char == "+":
            if self.at >= len(self.source):
                raise JsonError("the text ends in a number")
            following = self.source[self.at]
            self.at += 1
            return self._signed_word(following, "+")
        if _identifier_start(char):
            self._bad_token(1)
        raise JsonError(f"{char!r} instead of a value")

    def _special(self, word: str, matched: int) -> str:
        self._match(word, matched)
        if not self.leniency.not_a_number:
            raise JsonError(f"the token {word}")
        self.text = word
        return FLOAT

    def _match(self, word: str, matched: int) -> None:
        source = self.source
        while matched < len(word):
            if self.at >= len(source) or source[self.at] != word[matched]:
                self._bad_token(matched)
            self.at += 1
            matched += 1
        following = source[self.at : self.at + 1]
        if following >= "0" and following not in "]}" and _identifier_part(following):
            self._bad_token(matched)

    def _bad_token(self, length: int) -> None:
        source = self.source
        while self.at < len(source) and _identifier_part(source[self.at]):
            self.at += 1
            length += 1
            if length >= _MAX_SHOWN:
                break
        raise JsonError("a token that is no value")

    # -------------------------------------------------------------- numbers

    def _signed(self) -> str:
        start = self.at - 1
        if self.at >= len(self.source):
            raise JsonError("the text ends in a number")
        char = self.source[self.at]
        if char in "0123456789":
            return self._number("-", start)
        self.at += 1
        return self._signed_word(char, "-")

    def _signed_word(self, char: str, sign: str) -> str:
        if char == "I":
            if self.at >= len(self.source):
                raise JsonError("the text ends in a number")
            following = self.source[self.at]
            self.at += 1
            if following == "N":
                return self._special(sign + "INF", 3)
            if following == "n":
                return self._special(sign + "Infinity", 3)
        raise JsonError("a sign without a digit")

    def _number(self, sign: str, start: int) -> str:
        """A number that begins with a digit at start + len(sign)."""
        source, size = self.source, len(self.source)
        first = start + len(sign)
        end = _end_of_digits(source, first)
        if source[first] == "0" and end > first + 1:
            if not self.leniency.leading_zeros:
                self.at = first + 1
                raise JsonError("leading zeros")
            first = min(first + len(source[first:end]) - len(source[first:end].lstrip("0")), end - 1)
        # Jackson reads numbers that begin with a zero, and those at the end of the text, by another method.
        second = source[first] == "0" or source[start + len(sign)] == "0"
        integral = end - first
        fraction = exponent = 0
        floating = False
        here = end
        if source[here : here + 1] == ".":
            floating = True
            stop = _end_of_digits(source, here + 1)
            fraction = stop - here - 1
            if fraction == 0:
                self.at = min(here + 2, size) if second or stop >= size else here + 1
                raise JsonError("a decimal point without a digit")
            here = stop
        if source[here : here + 1] in ("e", "E"):
            digits = here + 1 + (source[here + 1 : here + 2] in ("+", "-"))
            stop = _end_of_digits(source, digits)
            exponent = stop - digits
            if exponent == 0:
                behind = min(digits + 1, size) if second or digits >= size else end + 1
                self.at = behind
                raise JsonError("an exponent without a digit")
            floating = True
            here = stop
        self.at = here
        if not self._scope.kind and here < size:
            if source[here] not in " \t\r\n":
                self.at += 1
                raise JsonError("a number and no blank behind it")
            self.at += source[here] != "\r"
        if integral + fraction + exponent > MAX_NUMBER:
            raise JsonError("a number is too long")
        self.text = sign + source[first:here]
        return FLOAT if floating else INT


def _name_part(char: str) -> bool:
    return char in _ODD_NAME or (char > " " and _identifier_part(char))


def _end_of_digits(source: str, start: int) -> int:
    match = _DIGITS.match(source, start)
    assert match is not None
    return match.end()
