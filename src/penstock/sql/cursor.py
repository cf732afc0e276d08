"""A place in the tokens of a statement, and the errors of whoever expected something else there."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.errors import SqlError, nearest
from penstock.sql.excerpt import excerpt
from penstock.sql.lexer import Kind, Token, significant, unquote
from penstock.sql.statement import Name, Option, StatementText


class Cursor:
    """Reads a statement from left to right; `form` is how the statement is written, for hints."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = significant(text)
        if self.tokens and self.tokens[-1].text == ";":
            self.tokens.pop()
        self.at = 0
        self.form = ""

    # Looking

    def word(self, ahead: int = 0) -> str:
        """The word or symbol at or behind the place, in capitals; empty for others and at the end."""
        at = self.at + ahead
        return self.tokens[at].upper if at < len(self.tokens) else ""

    @property
    def token(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def at_words(self, *words: str) -> bool:
        """Whether these words stand here."""
        return all(self.word(ahead) == word for ahead, word in enumerate(words))

    # Reading

    def take(self, *words: str) -> bool:
        """Go behind these words if they stand here."""
        if not self.at_words(*words):
            return False
        self.at += len(words)
        return True

    def expect(self, *words: str) -> None:
        """Go behind these words; an error when something else stands here."""
        for word in words:
            if not self.take(word):
                raise self.error(f"expected {word}", choices=[word])

    def one_of(self, *words: str) -> str:
        """Go behind one of these words and return it."""
        for word in words:
            if self.take(word):
                return word
        raise self.error(f"expected {' or '.join(words)}", choices=words)

    def name(self, what: str) -> Name:
        """Read a name of one or more parts."""
        first = self.token
        if first is None or first.kind not in (Kind.WORD, Kind.NAME):
            raise self.error(f"expected the name of {what}")
        parts = [self._part()]
        end = first.end
        while self.word() == "." and self.at + 1 < len(self.tokens):
            self.at += 1
            end = self.tokens[self.at].end
            parts.append(self._part())
        return Name(".".join(parts), first.offset, end)

    def _part(self) -> str:
        token = self.tokens[self.at]
        if token.kind not in (Kind.WORD, Kind.NAME):
            raise self.error("expected a name")
        self.at += 1
        return token.text[1:-1].replace("``", "`") if token.kind is Kind.NAME else token.text

    def names(self, what: str) -> tuple[Name, ...]:
        """Read names in parentheses."""
        self.expect("(")
        result = [self.name(what)]
        while self.take(","):
            result.append(self.name(what))
        self.expect(")")
        return tuple(result)

    def options(self, names: Iterable[str]) -> dict[str, Option]:
        """Read `(name = value, ...)`; a name that is not among these is refused."""
        choices = list(names)
        result: dict[str, Option] = {}
        self.expect("(")
        while True:
            token = self.token
            if token is None or token.kind not in (Kind.WORD, Kind.NAME, Kind.STRING):
                raise self.error("expected the name of an option", choices=choices)
            key = (unquote(token.text) if token.kind is Kind.STRING else token.text.strip("`")).lower()
            if key not in choices:
                near = nearest(key, choices)
                raise self.error(
                    f"unknown option '{key}'",
                    hint=(f"did you mean '{near}'? " if near else "") + f"options are {', '.join(choices)}",
                )
            if key in result:
                raise self.error(f"option '{key}' is there twice")
            self.at += 1
            if not (self.take("=") or self.take("==")):
                raise self.error("expected =")
            result[key] = self._value()
            if self.take(")"):
                return result
            if not self.take(","):
                raise self.error("expected , or )")

    def _value(self) -> Option:
        token = self.token
        if token is None or token.kind in (Kind.SYMBOL, Kind.UNCLOSED):
            raise self.error("expected a value")
        self.at += 1
        if token.kind is Kind.STRING:
            return unquote(token.text)
        if token.kind is Kind.NUMBER:
            return float(token.text) if "." in token.text or "e" in token.text.lower() else int(token.text)
        if token.upper in ("TRUE", "FALSE"):
            return token.upper == "TRUE"
        return token.text.strip("`")

    def text_value(self, what: str) -> str:
        """Read a text in quotes."""
        token = self.token
        if token is None or token.kind is not Kind.STRING:
            raise self.error(f"expected {what}")
        self.at += 1
        return unquote(token.text)

    def rest(self, what: str) -> StatementText:
        """Read all that is left."""
        token = self.token
        if token is None:
            raise self.error(f"expected {what}")
        self.at = len(self.tokens)
        return self.piece(token.offset, self.tokens[-1].end)

    def piece(self, start: int, end: int) -> StatementText:
        """A part of the statement."""
        return StatementText(self.text[start:end], start)

    def group(self) -> tuple[int, int]:
        """Go behind a pair of parentheses; the indices of the tokens between them."""
        start = self.at + 1
        self.expect("(")
        depth = 1
        while self.at < len(self.tokens):
            depth += {"(": 1, ")": -1}.get(self.word(), 0)
            self.at += 1
            if depth == 0:
                return start, self.at - 1
        raise self.error("a parenthesis is not closed")

    def end(self) -> None:
        """An error when something is left."""
        if self.token is not None:
            raise self.error(f"'{self.token.text}' is not expected here")

    # Refusing

    def error(self, what: str, *, choices: Iterable[str] = (), hint: str | None = None) -> SqlError:
        """An error at this place, with the keyword that was probably meant."""
        token = self.token
        near = None
        if token is not None and token.kind is Kind.WORD:
            near = nearest(token.text, choices)
        if token is None:
            end = self.tokens[-1].end if self.tokens else 0
            place, what = excerpt(self.text, end), what + ", and the statement ends here"
        else:
            place = excerpt(self.text, token.offset, len(token.text.split("\n")[0]))
        advice = hint or (f"did you mean {near}? " if near else "") + (
            f"write {self.form}" if self.form else ""
        )
        return SqlError(what, code="SQL_SYNTAX", where=place, hint=advice or None)
