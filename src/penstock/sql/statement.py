"""Our own statements, and those of Spark's whose target may be a source or an incremental view, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["source", "view"]
Option = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a relation, with points between its parts, and where it stands."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class StatementText:
    """A part of the statement that is handed on as it is, and where it begins."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class CreateSource:
    """CREATE [OR REPLACE] SOURCE [IF NOT EXISTS] name (columns) [PRIMARY KEY (..)] [WITH (..)], or name FROM TABLE
    table [WITH (..)]."""

    name: Name
    columns: StatementText
    primary_key: tuple[str, ...]
    options: Mapping[str, Option]
    replace: bool
    unless_exists: bool
    table: Name | None = None


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE [OR REPLACE] [RECURSIVE] INCREMENTAL VIEW [IF NOT EXISTS] name [(columns)] [WITH (..)] AS query.

    Only a recursive view has columns: they are those of the recursion.
    """

    name: Name
    query: StatementText
    columns: tuple[str, ...]
    options: Mapping[str, Option]
    recursive: bool
    replace: bool
    unless_exists: bool


@dataclass(frozen=True, slots=True)
class RefreshView:
    """REFRESH INCREMENTAL VIEW name [EVERY duration]."""

    name: Name
    every: str | None = None


@dataclass(frozen=True, slots=True)
class RefreshSources:
    """REFRESH SOURCE name [, name ...]."""

    names: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """DROP INCREMENTAL VIEW | SOURCE [IF EXISTS] name."""

    kind: Kind
    name: Name
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW INCREMENTAL VIEWS | SOURCES."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class Describe:
    """DESCRIBE INCREMENTAL VIEW | SOURCE name."""

    kind: Kind
    name: Name


@dataclass(frozen=True, slots=True)
class ExplainView:
    """EXPLAIN INCREMENTAL VIEW name."""

    name: Name


@dataclass(frozen=True, slots=True)
class ExplainQuery:
    """EXPLAIN INCREMENTAL query."""

    query: StatementText


@dataclass(frozen=True, slots=True)
class Insert:
    """[WITH ..] INSERT INTO [TABLE] target [(columns) | BY NAME] query; `common` are the tables of WITH, which the
    query may use."""

    target: Name
    columns: tuple[Name, ...]
    by_name: bool
    common: StatementText | None
    query: StatementText


@dataclass(frozen=True, slots=True)
class Delete:
    """DELETE FROM target [[AS] alias] [WHERE ..]."""

    target: Name
    has_alias: bool
    verb: StatementText


@dataclass(frozen=True, slots=True)
class Assignment:
    """column = expression, in an UPDATE; `start` is where the column begins and `end` is behind the expression."""

    column: Name
    expression: StatementText
    end: int


@dataclass(frozen=True, slots=True)
class Update:
    """UPDATE target [[AS] alias] SET column = expression, .. [WHERE ..]."""

    target: Name
    has_alias: bool
    verb: StatementText
    set: StatementText
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class SparkCreate:
    """A statement of Spark's that makes a table or view of this name."""

    target: Name


@dataclass(frozen=True, slots=True)
class SparkChange:
    """A statement of Spark's that changes or drops a table or view, in a way in which no source or incremental view
    is changed."""

    verb: str
    target: Name


Statement = (
    CreateSource
    | CreateView
    | RefreshView
    | RefreshSources
    | Drop
    | Show
    | Describe
    | ExplainView
    | ExplainQuery
    | Insert
    | Delete
    | Update
    | SparkCreate
    | SparkChange
)
