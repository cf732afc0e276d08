"""An exact lexer of Spark SQL text, and the split of a script into its statements.

It knows where strings, quoted names and comments begin and end, as Spark's own lexer does, and nothing about grammar.
Every character belongs to exactly one token, so the tokens of a text joined together are the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What a token is."""

    SPACE = "space"
    COMMENT = "comment"
    STRING = "string"
    NAME = "name"  # in backquotes
    WORD = "word"  # a keyword or a bare name
    NUMBER = "number"
    SYMBOL = "symbol"
    UNCLOSED = "unclosed"  # a string, name or comment whose end is missing


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text and where it begins."""

    kind: Kind
    text: str
    offset: int

    @property
    def end(self) -> int:
        """The offset after the token."""
        return self.offset + len(self.text)

    @property
    def upper(self) -> str:
        """The text of a word or symbol in capitals, and nothing for all others: a quoted `FROM` is no keyword."""
        return self.text.upper() if self.kind in (Kind.WORD, Kind.SYMBOL) else ""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a script: its text without the `;`, where it begins, and whether a `;` ended it."""

    text: str
    offset: int
    ended: bool


# A hint (/*+ ... */) is not a comment for Spark, and a backslash before a line's end continues a -- comment.
_TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<comment>--(?:\\\n|[^\r\n])*+\r?\n?)
    | (?P<block>/\*(?!\+))
    | (?P<string>[rR]'[^']*+'|[rR]"[^"]*+"|'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+")
    | (?P<dollar>\$[A-Za-z]*\$)
    | (?P<name>`(?:[^`]|``)*+`)
    | (?P<number>(?:\d+\.\d*+|\.\d++|\d++)(?:[eE][+-]?\d++)?+(?:BD|[LSYFD])?+(?!\w))
    | (?P<word>[A-Za-z]+://[\w/\-.?=&\#%]+|\w+)
    | (?P<unclosed>['"`])
    | (?P<symbol>/\*\+|\*/|<=>|>>>|<>|!=|<=|>=|==|!<|!>|<<|>>|\|\||\|>|->|=>|::|:=|.)
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_BLOCK = re.compile(r"/\*(?!\+)|\*/")


def tokens(text: str) -> Iterator[Token]:
    """Cut the text into tokens.

    >>> [token.text for token in tokens("SELECT 'a;b' -- c") if token.kind is not Kind.SPACE]
    ['SELECT', "'a;b'", '-- c']
    """
    offset = 0
    while offset < len(text):
        match = _TOKEN.match(text, offset)
        assert match is not None, "the last alternative takes any character"
        group = match.lastgroup or "symbol"
        if group == "block":
            kind, end = _block_comment(text, offset)
        elif group == "dollar":
            kind, end = _dollar_string(text, match)
        elif group == "unclosed":
            kind, end = Kind.UNCLOSED, len(text)
        else:
            kind, end = Kind(group), match.end()
        yield Token(kind, text[offset:end], offset)
        offset = end


def significant(text: str) -> list[Token]:
    """The tokens that mean something: all but space and comments."""
    return [token for token in tokens(text) if token.kind not in (Kind.SPACE, Kind.COMMENT)]


def split(script: str) -> list[Statement]:
    """Cut a script into statements at each `;` that is not in a string, a comment or a `BEGIN ... END` block.

    >>> [statement.text for statement in split("SELECT 1; SELECT ';' -- no; \\n")]
    ['SELECT 1', "SELECT ';' -- no;"]
    """
    statements: list[Statement] = []
    words: list[Token] = []
    for token in significant(script):
        if token.text == ";" and _depth(words) == 0:
            if words:
                statements.append(_statement(script, words, token.offset, ended=True))
            words = []
        else:
            words.append(token)
    if words:
        statements.append(_statement(script, words, len(script), ended=False))
    return statements


def is_complete(script: str) -> bool:
    """Whether everything typed so far is ended: what a prompt asks before it runs a statement."""
    statements = split(script)
    return all(statement.ended for statement in statements)


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """The line and the column of an offset, both counted from 1.

    >>> line_and_column("SELECT 1,\\n  2", 12)
    (2, 3)
    """
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def unquote(literal: str) -> str:
    """The value of a string literal, with Spark's escapes.

    >>> unquote("'it''s'"), unquote(r"r'a\\b'")
    ("it's", 'a\\\\b')
    """
    if literal[0] in "rR":
        return literal[2:-1]
    if literal[0] == "$":
        return literal[literal.index("$", 1) + 1 : literal.rindex("$", 0, len(literal) - 1)]
    quote, inner = literal[0], literal[1:-1]
    return _ESCAPE.sub(lambda match: _unescape(match.group(), quote), inner)


_ESCAPE = re.compile(r"\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}|\\[0-3][0-7]{2}|\\.|''|\"\"", re.DOTALL)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def _unescape(escape: str, quote: str) -> str:
    if escape[0] != "\\":
        return quote if escape[0] == quote else escape
    if len(escape) == 2:
        return _ESCAPED.get(escape[1], escape[1])
    return chr(int(escape[1:], 8)) if escape[1].isdigit() else chr(int(escape[2:], 16))


def _block_comment(text: str, offset: int) -> tuple[Kind, int]:
    depth = 0
    for mark in _BLOCK.finditer(text, offset):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return Kind.COMMENT, mark.end()
    return Kind.UNCLOSED, len(text)


def _dollar_string(text: str, opening: re.Match[str]) -> tuple[Kind, int]:
    closing = text.find(opening.group(), opening.end())
    return (Kind.UNCLOSED, len(text)) if closing < 0 else (Kind.STRING, closing + len(opening.group()))


def _depth(words: list[Token]) -> int:
    """How many `BEGIN` and `CASE` of a compound statement are open.

    The other blocks need no counting: each ends with its own name (`END IF`, `END LOOP`), which nothing else does.
    """
    if not _is_compound(words):
        return 0
    depth = 0
    for position, token in enumerate(words):
        before = words[position - 1].upper if position else ""
        after = words[position + 1].upper if position + 1 < len(words) else ""
        if before == "." or (token.upper == "CASE" and before == "END"):
            continue
        if token.upper in ("BEGIN", "CASE"):
            depth += 1
        elif token.upper == "END" and after not in ("IF", "WHILE", "LOOP", "REPEAT", "FOR"):
            depth -= 1
    return max(depth, 0)


def _is_compound(words: list[Token]) -> bool:
    start = [token.upper for token in words[:3]]
    return start[:1] == ["BEGIN"] or start[1:] == [":", "BEGIN"]


def _statement(script: str, words: list[Token], end: int, *, ended: bool) -> Statement:
    start = words[0].offset
    return Statement(script[start:end].rstrip(), start, ended)
