"""Find out whether a text is one of our statements, or one of Spark's that may be about a source or an incremental view.

    CREATE SOURCE orders (id BIGINT, amount DECIMAL(10,2)) PRIMARY KEY (id) WITH (dedup = true)
    CREATE INCREMENTAL VIEW totals AS SELECT ...

What is none of these is for Spark alone, and nothing of it is understood here.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import nearest
from penstock.sql.cursor import Cursor
from penstock.sql.lexer import Kind
from penstock.sql.statement import (
    Assignment,
    CreateSource,
    CreateView,
    Delete,
    Describe,
    Drop,
    ExplainQuery,
    ExplainView,
    Insert,
    Name,
    RefreshSources,
    RefreshView,
    Show,
    SparkChange,
    SparkCreate,
    Statement,
    StatementText,
    Update,
)

SOURCE_OPTIONS = ("dedup", "retain", "on_missing_delete", "lateness", "event_time")
TABLE_OPTIONS = ("retain",)
VIEW_OPTIONS = ("on_error",)

_SOURCE = "CREATE SOURCE name (column TYPE, ...) [PRIMARY KEY (column)] [WITH (option = value)]"
_TABLE_SOURCE = "CREATE SOURCE name FROM TABLE catalog.schema.table [WITH (retain = 'used')]"
_VIEW = "CREATE INCREMENTAL VIEW name AS SELECT ..."
_RECURSIVE = "CREATE RECURSIVE INCREMENTAL VIEW name AS SELECT ... UNION ALL SELECT ... FROM name ..."

# What may follow CREATE [OR REPLACE] in Spark; a word that is none of these and looks like one of ours was meant to be it.
_SPARK_CREATES = {
    "TABLE", "VIEW", "TEMPORARY", "TEMP", "GLOBAL", "EXTERNAL", "FUNCTION", "DATABASE", "SCHEMA", "NAMESPACE", "INDEX", "ROLE",
    "MATERIALIZED", "STREAMING", "FLOW", "VARIABLE", "METRIC", "CATALOG",
}  # fmt: skip


def parse(text: str) -> Statement | None:
    """Return the statement, None when it is for Spark alone; SqlError when it is ours and wrong.

    >>> parse("DROP SOURCE IF EXISTS orders")
    Drop(kind='source', name=Name(text='orders', start=22, end=28), if_exists=True)
    >>> parse("SELECT 1") is None
    True
    """
    cursor = Cursor(text)
    reader = _READERS.get(cursor.word())
    return None if reader is None else reader(cursor)


def is_of_flows(statement: Statement | None) -> bool:
    """Whether a statement is about sources and incremental views, whatever they are called."""
    ours = (
        CreateSource
        | CreateView
        | RefreshView
        | RefreshSources
        | Drop
        | Show
        | Describe
        | ExplainView
        | ExplainQuery
    )
    return isinstance(statement, ours)


def _create(cursor: Cursor) -> Statement | None:
    cursor.expect("CREATE")
    replace = cursor.take("OR", "REPLACE")
    recursive = cursor.take("RECURSIVE")
    if cursor.take("SOURCE"):
        if recursive:
            cursor.at -= 2
            raise cursor.error("a source is not recursive", hint=f"write {_SOURCE}")
        return _create_source(cursor, replace)
    if cursor.take("INCREMENTAL"):
        cursor.form = _RECURSIVE if recursive else _VIEW
        cursor.expect("VIEW")
        return _create_view(cursor, replace, recursive)
    if recursive:
        cursor.form = _RECURSIVE
        raise cursor.error("expected INCREMENTAL VIEW", choices=["INCREMENTAL"])
    if cursor.word() not in _SPARK_CREATES and cursor.token is not None:
        near = nearest(cursor.word(), ("SOURCE", "INCREMENTAL", "RECURSIVE"))
        if near is not None:
            cursor.form = _SOURCE if near == "SOURCE" else _VIEW
            raise cursor.error(f"there is no CREATE {cursor.token.text}", choices=[near])
    return _spark_create(cursor)


def _spark_create(cursor: Cursor) -> Statement | None:
    for word in ("GLOBAL", "TEMPORARY", "TEMP", "EXTERNAL", "MATERIALIZED", "STREAMING"):
        cursor.take(word)
    if not (cursor.take("TABLE") or cursor.take("VIEW")):
        return None
    cursor.take("IF", "NOT", "EXISTS")
    target = _some_name(cursor)
    return None if target is None else SparkCreate(target)


def _create_source(cursor: Cursor, replace: bool) -> CreateSource:
    cursor.form = _SOURCE
    unless_exists = _if_not_exists(cursor, replace)
    name = cursor.name("the source")
    if cursor.take("FROM"):
        return _source_of_table(cursor, name, replace=replace, unless_exists=unless_exists)
    if cursor.word() != "(":
        raise cursor.error("expected the columns of the source in parentheses, or FROM TABLE")
    first, last = cursor.group()
    columns, key = _columns(cursor, first, last)
    options: dict[str, str | int | float | bool] = {}
    while cursor.token is not None:
        if cursor.take("PRIMARY"):
            cursor.expect("KEY")
            if key:
                raise cursor.error("the primary key is there twice")
            key = tuple(column.text for column in cursor.names("a column"))
        elif cursor.take("WITH"):
            options = cursor.options(SOURCE_OPTIONS)
        else:
            raise cursor.error(f"'{cursor.token.text}' is not expected here", choices=["PRIMARY", "WITH"])
    return CreateSource(name, columns, key, options, replace, unless_exists)


def _source_of_table(cursor: Cursor, name: Name, *, replace: bool, unless_exists: bool) -> CreateSource:
    cursor.form = _TABLE_SOURCE
    cursor.expect("TABLE")
    table = cursor.name("the table")
    options = cursor.options(TABLE_OPTIONS) if cursor.take("WITH") else {}
    cursor.end()
    return CreateSource(name, StatementText("", table.start), (), options, replace, unless_exists, table)


def _columns(cursor: Cursor, first: int, last: int) -> tuple[StatementText, tuple[str, ...]]:
    """The columns between two parentheses without what says PRIMARY KEY, which may stand behind a column or as an
    entry of its own."""
    start, end = cursor.tokens[first - 1].end, cursor.tokens[last].offset
    text = cursor.text[start:end]
    key: tuple[str, ...] = ()
    behind, depth, entry = cursor.at, 0, first
    for at in range(first, last):
        token = cursor.tokens[at]
        depth += {"(": 1, "<": 1, ")": -1, ">": -1, ">>": -2, ">>>": -3}.get(token.upper, 0)
        if token.text == "," and depth == 0:
            entry = at + 1
        if depth or token.upper != "PRIMARY" or cursor.tokens[at + 1].upper != "KEY":
            continue
        cursor.at = at
        if key:
            raise cursor.error(
                "the primary key is there twice", hint="a key of several columns is PRIMARY KEY (a, b)"
            )
        cursor.at = at + 2
        if at == entry:
            key = tuple(column.text for column in cursor.names("a column"))
            blank = cursor.tokens[max(at - 1, first)].offset  # with the comma before it
        else:
            key = (cursor.tokens[entry].text.strip("`"),)
            blank = token.offset
        until = cursor.tokens[cursor.at - 1].end
        blanked = "".join(char if char == "\n" else " " for char in cursor.text[blank:until])
        text = text[: blank - start] + blanked + text[until - start :]
    cursor.at = behind
    return StatementText(text, start), key


def _create_view(cursor: Cursor, replace: bool, recursive: bool) -> CreateView:
    unless_exists = _if_not_exists(cursor, replace)
    name = cursor.name("the view")
    columns: tuple[str, ...] = ()
    if cursor.word() == "(":
        if not recursive:
            raise cursor.error(
                "an incremental view has the columns of its query", hint="name them there: SELECT x AS name"
            )
        columns = tuple(column.text for column in cursor.names("a column"))
    options = cursor.options(VIEW_OPTIONS) if cursor.take("WITH") else {}
    cursor.expect("AS")
    query = cursor.rest("a SELECT")
    return CreateView(name, query, columns, options, recursive, replace, unless_exists)


def _if_not_exists(cursor: Cursor, replace: bool) -> bool:
    if not cursor.at_words("IF", "NOT", "EXISTS"):
        return False
    if replace:
        raise cursor.error("OR REPLACE and IF NOT EXISTS exclude each other", hint="leave one of them out")
    return cursor.take("IF", "NOT", "EXISTS")


def _refresh(cursor: Cursor) -> Statement | None:
    cursor.expect("REFRESH")
    cursor.form = "REFRESH INCREMENTAL VIEW name [EVERY '1 minute'], or REFRESH SOURCE name"
    if cursor.word() == "SOURCE" and cursor.word(1) not in ("", ".", "/"):
        return _refresh_sources(cursor)
    if cursor.word() in ("TABLE", "FUNCTION") or not cursor.take("INCREMENTAL"):
        # Spark takes any other text for a path.
        _refuse_near(cursor, "INCREMENTAL", "SOURCE")
        return None
    cursor.expect("VIEW")
    name = cursor.name("the view")
    every = cursor.text_value("a duration, such as '1 minute'") if cursor.take("EVERY") else None
    cursor.end()
    return RefreshView(name, every)


def _refresh_sources(cursor: Cursor) -> RefreshSources:
    cursor.expect("SOURCE")
    names = [cursor.name("the source")]
    while cursor.take(","):
        names.append(cursor.name("the source"))
    cursor.end()
    return RefreshSources(tuple(names))


def _drop(cursor: Cursor) -> Statement | None:
    cursor.expect("DROP")
    cursor.form = "DROP INCREMENTAL VIEW [IF EXISTS] name, or DROP SOURCE [IF EXISTS] name"
    incremental = cursor.take("INCREMENTAL")
    if incremental or cursor.word() == "SOURCE":
        kind = cursor.one_of("VIEW", "SOURCE") if incremental else cursor.one_of("SOURCE")
        if_exists = cursor.take("IF", "EXISTS")
        name = cursor.name(f"the {kind.lower()}")
        cursor.end()
        return Drop("view" if kind == "VIEW" else "source", name, if_exists)
    if cursor.word() in ("TABLE", "VIEW"):
        verb = f"DROP {cursor.one_of('TABLE', 'VIEW')}"
        cursor.take("IF", "EXISTS")
        return _spark_change(cursor, verb)
    _refuse_near(cursor, "INCREMENTAL", "SOURCE")
    return None


def _show(cursor: Cursor) -> Statement | None:
    cursor.expect("SHOW")
    cursor.form = "SHOW INCREMENTAL VIEWS, or SHOW SOURCES"
    if cursor.take("INCREMENTAL"):
        kind = cursor.one_of("VIEWS", "SOURCES")
    elif cursor.take("SOURCES"):
        kind = "SOURCES"
    else:
        _refuse_near(cursor, "INCREMENTAL", "SOURCES")
        return None
    cursor.end()
    return Show("view" if kind == "VIEWS" else "source")


def _describe(cursor: Cursor) -> Statement | None:
    cursor.at += 1
    cursor.form = "DESCRIBE INCREMENTAL VIEW name, or DESCRIBE SOURCE name"
    if cursor.take("INCREMENTAL"):
        kind = cursor.one_of("VIEW", "SOURCE")
    elif cursor.word() == "SOURCE" and cursor.word(1) not in ("", "."):
        kind = cursor.one_of("SOURCE")
    else:
        if cursor.word(1) == "VIEW":
            _refuse_near(cursor, "INCREMENTAL")
        return None
    name = cursor.name(f"the {kind.lower()}")
    cursor.end()
    return Describe("view" if kind == "VIEW" else "source", name)


def _explain(cursor: Cursor) -> Statement | None:
    cursor.expect("EXPLAIN")
    cursor.form = "EXPLAIN INCREMENTAL SELECT ..., or EXPLAIN INCREMENTAL VIEW name"
    if not cursor.take("INCREMENTAL"):
        _refuse_near(cursor, "INCREMENTAL")
        return None
    if cursor.take("VIEW"):
        name = cursor.name("the view")
        cursor.end()
        return ExplainView(name)
    return ExplainQuery(cursor.rest("a SELECT"))


def _with(cursor: Cursor) -> Statement | None:
    """WITH .. INSERT INTO ..; a query is Spark's."""
    depth = 0
    for at, token in enumerate(cursor.tokens):
        depth += {"(": 1, ")": -1}.get(token.upper, 0)
        if depth == 0 and token.upper in ("SELECT", "FROM", "VALUES", "TABLE"):
            return None
        if depth == 0 and token.upper == "INSERT" and cursor.tokens[at - 1].text == ")":
            common = cursor.piece(cursor.tokens[0].offset, token.offset)
            cursor.at = at
            return _insert_into(cursor, common)
    return None


def _insert(cursor: Cursor) -> Statement | None:
    return _insert_into(cursor, None)


def _insert_into(cursor: Cursor, common: StatementText | None) -> Statement | None:
    cursor.expect("INSERT")
    if not (overwrites := cursor.take("OVERWRITE")) and not cursor.take("INTO"):
        return None
    cursor.take("TABLE")
    target = _some_name(cursor)
    if target is None:
        return None
    if overwrites:
        return SparkChange("INSERT OVERWRITE", target)
    columns: tuple[Name, ...] = ()
    by_name = cursor.take("BY", "NAME")
    if cursor.word() == "(" and cursor.word(1) not in ("SELECT", "WITH", "VALUES", "FROM", "TABLE", "("):
        columns = cursor.names("a column")
    if cursor.token is None:
        return None
    return Insert(target, columns, by_name, common, cursor.rest("VALUES or a SELECT"))


def _delete(cursor: Cursor) -> Statement | None:
    cursor.expect("DELETE")
    verb = cursor.piece(cursor.tokens[0].offset, cursor.tokens[0].end)
    if not cursor.take("FROM") or (target := _some_name(cursor)) is None:
        return None
    return Delete(target, _alias(cursor), verb)


def _update(cursor: Cursor) -> Statement | None:
    cursor.expect("UPDATE")
    verb = cursor.piece(cursor.tokens[0].offset, cursor.tokens[0].end)
    if (target := _some_name(cursor)) is None:
        return None
    has_alias = _alias(cursor)
    if cursor.word() != "SET":
        return None
    begin = cursor.tokens[cursor.at]
    cursor.expect("SET")
    assignments = [_assignment(cursor)]
    while cursor.take(","):
        assignments.append(_assignment(cursor))
    return Update(target, has_alias, verb, cursor.piece(begin.offset, begin.end), tuple(assignments))


def _assignment(cursor: Cursor) -> Assignment:
    cursor.form = "UPDATE name SET column = value, ... [WHERE ...]"
    column = cursor.name("a column")
    if not (cursor.take("=") or cursor.take("==")):
        raise cursor.error("expected =")
    first, depth = cursor.at, 0
    while cursor.token is not None and not (depth == 0 and cursor.word() in (",", "WHERE")):
        depth += {"(": 1, ")": -1, "[": 1, "]": -1}.get(cursor.word(), 0)
        cursor.at += 1
    if cursor.at == first:
        raise cursor.error("expected a value")
    start, end = cursor.tokens[first].offset, cursor.tokens[cursor.at - 1].end
    return Assignment(column, cursor.piece(start, end), end)


def _alias(cursor: Cursor) -> bool:
    """Go behind the alias of a target."""
    if cursor.take("AS"):
        cursor.at += 1
        return True
    token = cursor.token
    if token is None or token.kind not in (Kind.WORD, Kind.NAME) or token.upper in ("WHERE", "SET"):
        return False
    cursor.at += 1
    return True


def _merge(cursor: Cursor) -> Statement | None:
    cursor.expect("MERGE")
    return _spark_change(cursor, "MERGE INTO") if cursor.take("INTO") else None


def _truncate(cursor: Cursor) -> Statement | None:
    cursor.expect("TRUNCATE")
    return _spark_change(cursor, "TRUNCATE TABLE") if cursor.take("TABLE") else None


def _alter(cursor: Cursor) -> Statement | None:
    cursor.expect("ALTER")
    if cursor.word() not in ("TABLE", "VIEW"):
        return None
    verb = f"ALTER {cursor.one_of('TABLE', 'VIEW')}"
    target = _some_name(cursor)
    if target is None:
        return None
    if cursor.take("RENAME", "TO"):
        renamed = _some_name(cursor)
        return None if renamed is None else SparkCreate(renamed)
    return SparkChange(verb, target)


def _spark_change(cursor: Cursor, verb: str) -> SparkChange | None:
    target = _some_name(cursor)
    return None if target is None else SparkChange(verb, target)


def _some_name(cursor: Cursor) -> Name | None:
    """A name if one stands here; what else may stand here is Spark's to read."""
    token = cursor.token
    if token is None or token.kind not in (Kind.WORD, Kind.NAME):
        return None
    if token.upper == "IDENTIFIER" and cursor.word(1) == "(":
        return None
    return cursor.name("a table")


def _refuse_near(cursor: Cursor, *words: str) -> None:
    """An error when a word looks like one of ours."""
    token = cursor.token
    if token is None or token.kind is not Kind.WORD or token.upper in _NEAR_BUT_SPARKS:
        return
    near = nearest(token.text, words)
    if near is not None:
        raise cursor.error(f"'{token.text}' is not expected here", choices=[near])


_NEAR_BUT_SPARKS = {"TABLES", "SCHEMAS", "VIEWS", "COLUMNS", "FUNCTIONS", "SOURCE"}

_READERS: dict[str, Callable[[Cursor], Statement | None]] = {
    "CREATE": _create,
    "REFRESH": _refresh,
    "DROP": _drop,
    "SHOW": _show,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "EXPLAIN": _explain,
    "WITH": _with,
    "INSERT": _insert,
    "DELETE": _delete,
    "UPDATE": _update,
    "MERGE": _merge,
    "TRUNCATE": _truncate,
    "ALTER": _alter,
}
