"""The words of an error: the place in the query, plain names, Spark's first sentence."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.spark.errors.cause import Fault, Spot
from penstock.sql.excerpt import excerpt
from penstock.sql.files import Rewritten

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked of Spark, for the words of the error: the text that it saw, the user's, and how to find other names.

    `spot` is the piece of the query that raised it, when Spark names none.
    """

    seen: Rewritten | None = None
    sql: str | None = None
    spark: SparkSession | None = None
    spot: Spot | None = None

    @property
    def text(self) -> str:
        """The text that Spark saw."""
        return (self.sql or "") if self.seen is None else self.seen.sql

    def locate(self, offset: int) -> int:
        """The offset in the user's text of one in the text that Spark saw."""
        return offset if self.seen is None else self.seen.original(offset)


# What Spark says about another function or setting is the hint, in our words.
_TOLERANT = re.compile(r"\s*(?:Use (?:the SQL function )?`\w+|If necessary set |To avoid this error, use `)")


def sentence(fault: Fault) -> str:
    """The first line of Spark's text, without its class, its state, its plans and its hint."""
    text = re.sub(r"^\s*\[[A-Z0-9_.]+\]\s*", "", fault.message)
    text = re.split(r"\s*SQLSTATE: |; line \d+ pos \d+", text)[0].strip()
    text = re.sub(r"\b(?:org\.apache|java|javax|scala)\.(?:\w+\.)+(?=[A-Z])", "", text.split("\n")[0])
    text = re.sub(r"(?<=\w)#\d+L?\b", "", text)  # the numbers that Catalyst gives to columns
    return _TOLERANT.split(text)[0].strip().rstrip(".;")


def where(fault: Fault, question: Question) -> str | None:
    """Where Spark says that the error is: in the query, a view, or a Python program."""
    if question.sql is not None and fault.line is not None and fault.column is not None:
        return _misread(fault.line, fault.column, fault, question)
    spots = fault.spots or ((question.spot,) if question.spot is not None else ())
    return next((_spot(spot, question) for spot in spots), None)


def _misread(line: int, column: int, fault: Fault, question: Question) -> str:
    """The place at which the parser stopped: in the query, or in another text, as that of EXECUTE IMMEDIATE."""
    assert question.sql is not None
    own = question.text
    text = own if fault.text is None else fault.text
    offset = sum(len(text_line) + 1 for text_line in text.split("\n")[: line - 1]) + column - 1
    if text.strip() == own.strip():
        text, offset = question.sql, question.locate(offset)
    token = fault.parameters.get("error", "").strip("'")
    length = len(token) if text.startswith(token, offset) else 1
    return excerpt(text, min(offset, len(text)), length)


def _spot(spot: Spot, question: Question) -> str:
    if spot.call_site:
        return f"{spot.call_site}, in {spot.fragment}"
    if spot.view:
        return f"view {spot.view}, in {short(spot.fragment)}"
    if question.sql is None or spot.start is None or spot.stop is None:
        return short(spot.fragment)
    first, last = spot.start, spot.stop
    if question.text[first : last + 1] != spot.fragment:
        # The place is one in another text: that of EXECUTE IMMEDIATE, or the body of a function.
        if question.text.count(spot.fragment) != 1:
            return short(spot.fragment)
        first = question.text.index(spot.fragment)
        last = first + len(spot.fragment) - 1
    start, stop = question.locate(first), question.locate(last)
    if start == 0 and stop >= len(question.sql.rstrip()) - 1:
        return short(question.sql)
    return excerpt(question.sql, start, max(1, min(stop + 1, len(question.sql)) - start))


def short(text: str) -> str:
    """A text on one line, cut when it is long."""
    line = " ".join(text.split())
    return line if len(line) <= 100 else line[:99] + "…"


def plain_name(quoted: str) -> str:
    """`o`.`name` as o.name."""
    return ".".join(part.replace("``", "`") for part in re.findall(r"`((?:[^`]|``)*)`", quoted)) or quoted


def names(quoted: str) -> list[str]:
    """The names in a list such as [`o`.`id`, `name`]."""
    return [plain_name(name) for name in re.findall(r"(?:`(?:[^`]|``)*`\.?)+", quoted)]


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """The choice that looks most like a name, if one does."""
    folded = {choice.casefold(): choice for choice in choices}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    return folded[near[0]] if near else None


def ask(question: Question, statement: str, column: str) -> list[str]:
    """One column of what Spark answers to a statement, for a hint; nothing when it cannot answer."""
    if question.spark is None:
        return []
    try:
        return [str(row[column]) for row in question.spark.sql(statement).collect()]
    except Exception:  # a hint must not hide the error it is for
        return []
