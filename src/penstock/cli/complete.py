"""What could come next in a half-typed statement: keywords, tables, columns, functions, and files inside quotes.

The words come from a `CompletionNames`, which asks the session in a background thread and never makes the prompt wait.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.sql.lexer import Kind, Token, significant, tokens

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WORDS = """
ALTER ANALYZE AND ANTI AS ASC BETWEEN BY CACHE CASE CAST CATALOGS COLUMN COLUMNS COMMENT CREATE CROSS CUBE
CURRENT_DATE CURRENT_TIMESTAMP DATABASE DATABASES DELETE DESC DESCRIBE DISTINCT DROP ELSE END EXCEPT
EXISTS EXPLAIN EXTENDED EXTERNAL FALSE FILTER FIRST FOLLOWING FROM FULL FUNCTION FUNCTIONS GLOBAL GROUP
GROUPING HAVING IF IN INCREMENTAL INNER INSERT INTERSECT INTERVAL INTO IS JOIN KEY LAST LATERAL LEFT LIKE LIMIT MATCHED
MERGE NATURAL NOT NULL NULLS OFFSET ON OR ORDER OUTER OVER OVERWRITE PARTITION PARTITIONED PIVOT PRECEDING PRIMARY
QUALIFY RANGE RECURSIVE REFRESH RENAME REPLACE RESET RIGHT RLIKE ROLLUP ROW ROWS SCHEMA SELECT SEMI SET SETS SHOW SOURCE SOURCES
TABLE TABLES TABLESAMPLE TBLPROPERTIES TEMPORARY THEN TRUE TRUNCATE UNBOUNDED UNCACHE UNION UNPIVOT UPDATE
USE USING VALUES VIEW VIEWS WHEN WHERE WINDOW WITH
"""
KEYWORDS = tuple(_WORDS.split())


@dataclass(frozen=True, slots=True)
class Candidate:
    """A word that could come next, what it is, and how many typed characters it replaces."""

    text: str
    kind: str
    replaces: int


@dataclass(slots=True)
class CompletionNames:
    """The tables, columns and functions of a session, as far as they are known."""

    tables: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    columns: Callable[[str], tuple[str, ...]] = field(default=lambda _: ())


def candidates(before: str, names: CompletionNames, after: str = "") -> Iterator[Candidate]:
    """The words that fit behind the text before the cursor, the likeliest first.

    >>> [candidate.text for candidate in candidates("SELECT * FRO", CompletionNames())]
    ['FROM']
    """
    lexed = list(tokens(before))
    last = lexed[-1] if lexed else None
    if last is not None and last.kind is Kind.UNCLOSED and last.text[0] in "'\"":
        yield from _paths(last.text[1:])
        return
    if last is not None and last.kind in (Kind.UNCLOSED, Kind.COMMENT, Kind.STRING, Kind.NUMBER):
        return
    typed = last.text if last is not None and last.kind is Kind.WORD else ""
    words = [token for token in lexed if token.kind not in (Kind.SPACE, Kind.COMMENT)]
    if typed:
        words.pop()
    yield from _matching(typed, _ordered(words, names, relations([*words, *significant(after)])))


def relations(words: list[Token]) -> dict[str, str]:
    """The relations that a statement names, by alias: {"o": "orders"}; a file keeps its quotes.

    >>> from penstock.sql.lexer import significant
    >>> relations(significant("SELECT * FROM db.orders o JOIN 'c.csv'"))
    {'o': 'db.orders', "'c.csv'": "'c.csv'"}
    """
    result = {}
    for index, token in enumerate(words):
        if token.upper not in ("FROM", "JOIN", "INTO", "UPDATE", "TABLE", "DESCRIBE"):
            continue
        end = index + 1
        while end < len(words) and (
            words[end].kind in (Kind.WORD, Kind.NAME, Kind.STRING) or words[end].text == "."
        ):
            if end > index + 1 and words[end].text != "." and words[end - 1].text != ".":
                break
            end += 1
        name = "".join(part.text for part in words[index + 1 : end])
        if end < len(words) and words[end].upper == "AS":
            end += 1
        has_alias = end < len(words) and words[end].kind is Kind.WORD and words[end].upper not in KEYWORDS
        if name:
            result[
                words[end].text if has_alias else name.rpartition(".")[2] if name[0] not in "'\"" else name
            ] = name
    return result


def _ordered(
    words: list[Token], names: CompletionNames, aliases: dict[str, str]
) -> Iterator[tuple[str, str]]:
    before = words[-1] if words else None
    if before is not None and before.text == "." and len(words) > 1:
        owner = words[-2].text.strip("`")
        yield from ((column, "column") for column in names.columns(aliases.get(owner, owner)))
        yield from (
            (table.partition(".")[2], "table") for table in names.tables if table.startswith(owner + ".")
        )
        return
    if before is not None and before.upper in ("FROM", "JOIN", "INTO", "UPDATE", "TABLE", "DESCRIBE"):
        yield from ((table, "table") for table in names.tables)
        yield from ((keyword, "keyword") for keyword in KEYWORDS)
        return
    for name in aliases.values():
        yield from ((column, "column") for column in names.columns(name))
    yield from ((alias, "table") for alias in aliases if alias[0] not in "'\"")
    yield from ((keyword, "keyword") for keyword in KEYWORDS)
    yield from ((table, "table") for table in names.tables)
    yield from ((function, "function") for function in names.functions)


def _matching(typed: str, words: Iterator[tuple[str, str]]) -> Iterator[Candidate]:
    seen = set()
    for word, kind in words:
        if (
            word.casefold().startswith(typed.casefold())
            and (word, kind) not in seen
            and (typed or kind != "keyword")
        ):
            seen.add((word, kind))
            text = word.lower() if kind == "keyword" and typed.islower() else word
            yield Candidate(text, kind, len(typed))


def _paths(typed: str) -> Iterator[Candidate]:
    folder, _, start = typed.rpartition("/")
    directory = os.path.expanduser(folder or ("/" if typed.startswith("/") else "."))
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(start) and (start.startswith(".") or not entry.name.startswith(".")):
            folder_mark = "/" if entry.is_dir() else ""
            yield Candidate(entry.name + folder_mark, "folder" if folder_mark else "file", len(start))


class NameReader:
    """Reads the names from a session in the background, again after each statement."""

    def __init__(self) -> None:
        self.names = CompletionNames(columns=self._columns_of)
        self._spark: SparkSession | None = None
        self._columns: dict[str, tuple[str, ...]] = {}
        self._lock = threading.Lock()

    def refresh(self, spark: SparkSession) -> None:
        """Learn the tables (and once the functions) in a thread of its own."""
        self._spark = spark
        self._columns.clear()
        threading.Thread(target=self._read, args=(spark,), name="penstock-names", daemon=True).start()

    def _read(self, spark: SparkSession) -> None:
        with self._lock:
            try:
                rows = spark.sql("SHOW TABLES").collect()
                self.names.tables = tuple(
                    row["tableName"]
                    for row in rows
                    if not row["tableName"].startswith(("penstock_file_", "penstock_rows_"))
                )
                if not self.names.functions:
                    shown = spark.sql("SHOW FUNCTIONS").collect()
                    self.names.functions = tuple(row[0] for row in shown if row[0][0].isalpha())
            except Exception:
                # Completion is a convenience: what is wrong shows when the statement runs.
                return

    def _columns_of(self, name: str) -> tuple[str, ...]:
        if self._spark is None:
            return ()
        if name not in self._columns:
            self._columns[name] = self._read_columns(self._spark, name)
        return self._columns[name]

    def _read_columns(self, spark: SparkSession, name: str) -> tuple[str, ...]:
        from penstock.engine.files import register_views, resolve_files

        try:
            if name[0] in "'\"":
                rewritten, files = resolve_files(f"SELECT * FROM {name}")
                register_views(spark, rewritten, files)
                return tuple(spark.table(rewritten.files[0].view).columns)
            return tuple(spark.table(name).columns)
        except Exception:
            # A name that is only half typed, or no table at all.
            return ()
