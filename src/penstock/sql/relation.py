"""Find the relations that a query reads, and give them other names.

    WITH large AS (SELECT * FROM raw.orders WHERE amount > 9) SELECT * FROM large JOIN customers USING (id)

reads `raw.orders` and `customers`: a name that WITH binds is no relation of its own, and neither are table functions, nor what
follows the FROM of `extract(day FROM at)`, `trim(BOTH 'x' FROM name)` or `a IS DISTINCT FROM b`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.sql.lexer import Kind, Token, significant, unquote

BEGINS_QUERY = {"SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE"}
ENDS_LIST = {
    "SELECT", "WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "UNION",
    "INTERSECT", "EXCEPT", "MINUS", "WINDOW", "QUALIFY", "VALUES", "|>", "SET", "WHEN", ";",
}  # fmt: skip
NO_ALIAS = ENDS_LIST | {
    "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "SEMI", "ANTI", "NATURAL", "LATERAL", "ON", "USING", "PIVOT",
    "UNPIVOT", "INSERT", "FOR", "TIMESTAMP", "VERSION", "WATERMARK", "TABLESAMPLE", "MAP", "REDUCE", "WITH", "ASOF",
}  # fmt: skip
_SET_OPERATIONS = {"UNION", "INTERSECT", "EXCEPT", "MINUS", "ALL", "DISTINCT"}
_HAS_ITS_OWN_FROM = {"EXTRACT", "TRIM", "SUBSTR", "SUBSTRING", "OVERLAY", "POSITION"}


@dataclass(frozen=True, slots=True)
class RelationName:
    """The name by which a query reads a relation: its parts without quotes, and its place in the text, from `start` to `end`."""

    parts: tuple[str, ...]
    start: int
    end: int
    alias_at: int | None
    """Where an alias could stand; None when it has one."""

    @property
    def name(self) -> str:
        """The parts with dots between them."""
        return ".".join(self.parts)

    @property
    def qualifier(self) -> str:
        """What its columns are qualified by when it has no alias."""
        return self.parts[-1]


@dataclass(frozen=True, slots=True)
class Position:
    """A token that must be a relation: the first of a name, a string or a table function."""

    index: int
    bound: frozenset[str]
    """The names that WITH binds there, in lower case."""
    bare: bool = False
    """Whether it stands behind TABLE, where no alias may follow."""


def relations(text: str) -> tuple[RelationName, ...]:
    """Return the relations that a query reads by their names, in the order of the text, each as often as it stands there.

    >>> [relation.name for relation in relations("SELECT * FROM a.b JOIN (SELECT * FROM `c d`) USING (id)")]
    ['a.b', 'c d']
    """
    words = significant(text)
    candidates = (_relation(words, position) for position in positions(words))
    return tuple(relation for relation in candidates if relation is not None)


def read_names(text: str, names: Mapping[str, str]) -> tuple[str, ...]:
    """Return which of the names a query reads; `names` says how each, in lower case, was declared.

    >>> read_names("SELECT * FROM ORDERS, lake.db.stores", {"orders": "Orders"})
    ('Orders',)
    """
    read = (names.get(relation.name.lower()) for relation in relations(text))
    return tuple(dict.fromkeys(name for name in read if name is not None))


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Return the query with relations under other names: from a name in lower case to an identifier.

    Columns that are qualified by the old name, or by its last part, are found as before.

    >>> print(renamed("SELECT raw.orders.id FROM raw.orders WHERE orders.amount > 9", {"raw.orders": "n1"}))
    SELECT `orders`.id FROM n1 AS `orders` WHERE orders.amount > 9

    A query whose relations keep their names stays as it is, so that errors show what was written.

    >>> print(renamed("SELECT id FROM Orders", {"orders": "orders"}))
    SELECT id FROM Orders
    """
    words = significant(text)
    everything = relations(text)
    ours = [
        relation
        for relation in everything
        if names.get(relation.name.lower(), relation.name).lower() != relation.name.lower()
    ]
    edits: list[tuple[int, int, str]] = []
    taken: dict[str, set[str]] = {}
    for relation in everything:
        taken.setdefault(relation.qualifier.lower(), set()).add(relation.name.lower())
    qualifiers: dict[tuple[str, ...], str] = {}
    for relation in ours:
        edits.append((relation.start, relation.end, _identifier(names[relation.name.lower()])))
        if relation.alias_at is None:
            continue
        parts = tuple(part.lower() for part in relation.parts)
        alias = relation.qualifier
        if len(taken[alias.lower()]) > 1 and any(_qualified(words, parts)):
            alias = relation.name
        qualifiers[parts] = alias
        edits.append((relation.alias_at, relation.alias_at, f" AS {quoted(alias)}"))
    inside = {relation.start for relation in everything}
    for parts, alias in qualifiers.items():
        for start, end in _qualified(words, parts):
            if start not in inside and len(parts) > 1:
                edits.append((start, end, quoted(alias)))
    return apply_edits(text, sorted(edits))


def texts_of_call(text: str, function: str) -> tuple[str, ...]:
    """Return the texts that a query hands to a function as its first argument, each once.

    >>> texts_of_call("SELECT * FROM a WHERE is_member('vip', id) OR IS_MEMBER('staff', id)", "is_member")
    ('vip', 'staff')
    """
    words = significant(text)
    calls = zip(words, words[1:], words[2:], strict=False)
    texts = (
        unquote(argument.text)
        for name, opened, argument in calls
        if name.upper == function.upper() and opened.text == "(" and argument.kind is Kind.STRING
    )
    return tuple(dict.fromkeys(texts))


def quoted(name: str) -> str:
    """A name in backquotes."""
    return f"`{name.replace('`', '``')}`"


def apply_edits(text: str, edits: list[tuple[int, int, str]]) -> str:
    """The text with pieces replaced: start, end and the new text of each, in the order of the text."""
    parts, last = [], 0
    for start, end, piece in edits:
        parts += [text[last:start], piece]
        last = end
    return "".join([*parts, text[last:]])


@dataclass(slots=True)
class _Level:
    """What is known inside one pair of parentheses: does a query or a list of relations stand here?"""

    query: bool
    listing: bool = False  # in a FROM clause, where a comma brings the next relation
    expected: bool = False  # the next token must be a relation
    values: bool = False  # in an inline table, where a comma brings the next row
    bound: set[str] = field(default_factory=set)
    binding: str | None = None  # the name of the WITH clause whose query comes next
    recursive: bool = False
    body_end: int = -1  # where the last query of the WITH clause ended
    binds: str | None = None  # the name that is bound in the level around this one when this one ends


def positions(words: list[Token]) -> list[Position]:
    """Return where relations must stand in a statement."""
    first = words[0].upper if words else ""
    if first in ("SHOW", "DELETE"):
        # Their FROM names a namespace or a table to change, never something to read.
        return []
    result = []
    levels = [_Level(query=True)]
    for index, token in enumerate(words):
        level = levels[-1]
        expected, level.expected = level.expected, False
        before = words[index - 1].upper if index else ""
        # Behind a dot, and in backquotes, there are no keywords.
        word = "" if before == "." else token.upper
        if word == "(":
            levels.append(_opened(words, index, levels, expected))
        elif word == ")":
            if len(levels) > 1:
                name = levels.pop().binds
                if name is not None:
                    levels[-1].bound.add(name)
                    levels[-1].body_end = index
        elif word == "," and level.body_end == index - 1:
            level.binding = _name_of(words[index + 1]).lower() if index + 1 < len(words) else None
        elif word == ",":
            level.expected = level.listing and not level.values
        elif word == "WITH" and _begins_with(words, index):
            level.recursive = _is_recursive(words, index)
            level.binding = _name_of(words[index + 1 + level.recursive]).lower()
        elif word == "LATERAL":
            is_view = index + 1 < len(words) and words[index + 1].upper == "VIEW"
            # Lateral views stand behind all relations of their clause.
            level.listing = level.listing and not is_view
            level.expected = expected and not is_view
        elif word == "VALUES" and expected:
            level.values = True
        elif expected and token.kind in (Kind.WORD, Kind.NAME, Kind.STRING):
            result.append(Position(index, _bound(levels)))
        elif level.query and _begins_relation(words, index, first):
            level.listing = level.expected = True
            level.values = False
        elif word == "TABLE" and _is_table_query(words, index, level):
            opened = words[index + 1].text == "("
            result.append(Position(index + 1 + opened, _bound(levels), bare=True))
        elif word in ENDS_LIST:
            level.listing = level.values = False
            level.query = level.query or word == "SELECT"
        elif level.values and _is_alias(words, index):
            level.values = False
    return result


def _opened(words: list[Token], index: int, levels: list[_Level], expected: bool) -> _Level:
    around = levels[-1]
    inside = words[index + 1].upper if index + 1 < len(words) else ""
    before = words[index - 1].upper if index else ""
    if around.binding is not None and (inside in BEGINS_QUERY or inside == "(" or before == "AS"):
        name, around.binding = around.binding, None
        if around.recursive:
            around.bound.add(name)
        return _Level(query=True, binds=name)
    if before in _HAS_ITS_OWN_FROM:
        return _Level(query=False)
    if inside in BEGINS_QUERY:
        return _Level(query=True)
    return _Level(query=expected, listing=expected, expected=expected)


def _bound(levels: list[_Level]) -> frozenset[str]:
    return frozenset[str]().union(*(level.bound for level in levels))


def _begins_with(words: list[Token], index: int) -> bool:
    """Whether a WITH binds names, and is not that of options or of `GROUP BY ... WITH ROLLUP`."""
    after = words[index + 1 : index + 3]
    return (
        len(after) == 2
        and after[0].kind in (Kind.WORD, Kind.NAME)
        and after[0].upper not in ("ROLLUP", "CUBE")
    )


def _is_recursive(words: list[Token], index: int) -> bool:
    after = words[index + 1 : index + 3]
    return (
        after[0].upper == "RECURSIVE" and after[1].kind in (Kind.WORD, Kind.NAME) and after[1].upper != "AS"
    )


def _name_of(token: Token) -> str:
    return token.text[1:-1].replace("``", "`") if token.kind is Kind.NAME else token.text


def _begins_relation(words: list[Token], index: int, first: str) -> bool:
    before = words[index - 1].upper if index else ""
    if before == ".":
        return False
    match words[index].upper:
        case "FROM":
            return before != "DISTINCT"
        case "JOIN":
            return True
        case "USING":
            return first == "MERGE"
    return False


def _is_table_query(words: list[Token], index: int, level: _Level) -> bool:
    """Whether `TABLE name` stands there: a whole query, or an argument of a table function (`TABLE(name)` too)."""
    after = words[index + 1 : index + 3]
    if not after:
        return False
    before = words[index - 1].upper if index else ""
    begins = index == 0 or before in ("(", ",", "=>") or before in _SET_OPERATIONS
    if not begins or (before == "," and level.query):
        return False
    if after[0].text == "(":
        is_name = len(after) > 1 and after[1].kind in (Kind.WORD, Kind.NAME)
        return is_name and after[1].upper not in BEGINS_QUERY
    return after[0].kind in (Kind.WORD, Kind.NAME)


def _is_alias(words: list[Token], index: int) -> bool:
    """Whether a word names the inline table before it: behind AS, or behind a value without an operator between them."""
    before = words[index - 1]
    if words[index].upper == "AS":
        return True
    ends_value = before.text == ")" or before.kind in (Kind.NUMBER, Kind.STRING)
    return ends_value and words[index].kind in (Kind.WORD, Kind.NAME)


def _relation(words: list[Token], position: Position) -> RelationName | None:
    """The relation by its name at a position; None for strings, table functions and names that WITH binds."""
    index = position.index
    start = words[index]
    if start.kind is Kind.STRING:
        return None
    if start.upper == "IDENTIFIER" and [word.text for word in words[index + 1 : index + 4 : 2]] == ["(", ")"]:
        if words[index + 2].kind is not Kind.STRING:
            return None
        parts = tuple(
            _name_of(word) for word in significant(unquote(words[index + 2].text)) if word.text != "."
        )
        last = index + 3
    else:
        parts, last = _parts(words, index)
        if last + 1 < len(words) and words[last + 1].text == "(":
            return None
    if not parts or (len(parts) == 1 and parts[0].lower() in position.bound):
        return None
    sampled = behind_sample(words, last)
    alias_at = None if position.bare or has_alias(words, sampled + 1) else words[sampled].end
    return RelationName(parts, start.offset, words[last].end, alias_at)


def _parts(words: list[Token], index: int) -> tuple[tuple[str, ...], int]:
    """The parts of the dotted name at an index, and the index of its last token."""
    parts = [_name_of(words[index])]
    while (
        index + 2 < len(words)
        and words[index + 1].text == "."
        and words[index + 2].kind in (Kind.WORD, Kind.NAME)
    ):
        index += 2
        parts.append(_name_of(words[index]))
    return tuple(parts), index


def _qualified(words: list[Token], parts: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """The offsets of a dotted name in lower case wherever a column, or `*`, follows it."""
    for index, token in enumerate(words):
        if token.kind not in (Kind.WORD, Kind.NAME) or (index and words[index - 1].text == "."):
            continue
        name, last = _parts(words, index)
        star = [word.text for word in words[last + 1 : last + 3]] == [".", "*"]
        if len(name) + star > len(parts) and tuple(part.lower() for part in name[: len(parts)]) == parts:
            yield token.offset, words[index + 2 * (len(parts) - 1)].end


def behind_sample(words: list[Token], index: int) -> int:
    """The index of the last token before an alias may stand: behind a TABLESAMPLE clause, if there is one."""
    if index + 2 >= len(words) or words[index + 1].upper != "TABLESAMPLE" or words[index + 2].text != "(":
        return index
    end = _behind(words, index + 2) - 1
    if end + 4 < len(words) and words[end + 1].upper == "REPEATABLE" and words[end + 2].text == "(":
        return _behind(words, end + 2) - 1
    return end if end < len(words) else index


def has_alias(words: list[Token], index: int) -> bool:
    """Whether the token at an index is an alias, or the AS before one."""
    if index >= len(words):
        return False
    token = words[index]
    return token.kind is Kind.NAME or (token.kind is Kind.WORD and token.upper not in NO_ALIAS)


def _behind(words: list[Token], index: int) -> int:
    """The index behind the parenthesis that closes the one at an index; the end when nothing does."""
    depth = 0
    for end in range(index, len(words)):
        depth += {"(": 1, ")": -1}.get(words[end].text, 0)
        if depth == 0:
            return end + 1
    return len(words)


def _identifier(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else quoted(name)
