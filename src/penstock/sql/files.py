"""Files in the place of tables: finds `FROM 'path'` in a query and replaces it by a name.

    SELECT o.id FROM 'data/orders.parquet' o JOIN 'customers.csv' USING (id)

Only a string where a relation must stand is a file; all other strings stay as they are, also behind the `FROM` of
`extract(day FROM '2020-01-01')`, `trim(BOTH 'x' FROM 'xax')` or `a IS DISTINCT FROM 'b'`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

from penstock.sql.lexer import Kind, Token, significant, unquote

FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".orc": "orc",
    ".avro": "avro",
}
"""The extensions that can be read, with Spark's name of the format."""

COMPRESSIONS = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".xz", ".deflate")
"""What may follow the extension of a text format."""


@dataclass(frozen=True, slots=True)
class FileReference:
    """A file in the place of a table: the path as written, where it stands, and the name that replaced it."""

    path: str
    start: int
    end: int
    view: str

    @property
    def format(self) -> str | None:
        """Spark's name of the format that the extension says, or None: a folder, or something unknown."""
        return FORMATS.get(extension(self.path))

    @property
    def separator(self) -> str:
        """What stands between the columns of a text file."""
        return "\t" if extension(self.path) == ".tsv" else ","


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A query whose file references are names now, with the way back to the text that the user wrote."""

    sql: str
    files: tuple[FileReference, ...]
    edits: tuple[tuple[int, int, str], ...] = field(default=(), repr=False)

    def original(self, offset: int) -> int:
        """The offset in the user's text of an offset in `sql`; inside a replaced piece it is the piece's beginning."""
        shift = 0
        for start, end, text in self.edits:
            if offset < start + shift:
                break
            if offset < start + shift + len(text):
                return start
            shift += len(text) - (end - start)
        return offset - shift


def rewrite_files(query: str) -> Rewritten:
    """Replace each file reference by the name of a view, aliased to the file's stem when it has no alias.

    >>> print(rewrite_files("SELECT orders.id FROM 'data/orders.parquet' WHERE kind = 'a.csv'").sql)
    SELECT orders.id FROM penstock_file_959ef7bfb993 AS `orders` WHERE kind = 'a.csv'
    """
    if "'" not in query and '"' not in query:
        return Rewritten(query, ())
    words = significant(query)
    files: list[FileReference] = []
    edits: list[tuple[int, int, str]] = []
    for index in _relations(words):
        token = words[index]
        path = unquote(token.text)
        view = "penstock_file_" + hashlib.sha256(path.encode()).hexdigest()[:12]
        files.append(FileReference(path, token.offset, token.end, view))
        edits.append((token.offset, token.end, view))
        last = _skip_sample(words, index)
        if not _has_alias(words, last + 1):
            end = words[last].end
            edits.append((end, end, f" AS `{stem(path).replace('`', '``')}`"))
    return Rewritten(_apply(query, edits), tuple(files), tuple(edits))


def extension(path: str) -> str:
    """The extension that decides the format, without what a compression adds.

    >>> extension("logs/day.json.gz"), extension("s3://bucket/folder/")
    ('.json', '')
    """
    name = path.rstrip("/").rpartition("/")[2].lower()
    for compression in COMPRESSIONS:
        name = name.removesuffix(compression)
    dot = name.rfind(".")
    return name[dot:] if dot >= 0 and not name.endswith("*") else ""


def stem(path: str) -> str:
    """The name by which a file's columns can be qualified: the last part of the path that is a plain name.

    >>> stem("data/orders.csv.gz"), stem("data/2024/*.parquet"), stem("*.csv")
    ('orders', '2024', 'files')
    """
    for part in reversed(path.split("/")):
        name = part.split(".")[0] if not part.startswith(".") else ""
        if name and not re.search(r"[*?\[\]{}~:]", name):
            return name
    return "files"


@dataclass(slots=True)
class _Level:
    """What is known inside one pair of parentheses: does a query or a list of relations stand here?"""

    query: bool
    listing: bool = False  # in a FROM clause, where a comma brings the next relation
    expected: bool = False  # the next token must be a relation


_BEGINS_QUERY = {"SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE"}
_ENDS_LIST = {
    "SELECT", "WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "UNION",
    "INTERSECT", "EXCEPT", "MINUS", "WINDOW", "QUALIFY", "VALUES", "|>", "SET", "WHEN", ";",
}  # fmt: skip
_NO_ALIAS = _ENDS_LIST | {
    "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "SEMI", "ANTI", "NATURAL", "LATERAL", "ON", "USING", "PIVOT",
    "UNPIVOT", "INSERT", "FOR", "TIMESTAMP", "VERSION", "WATERMARK", "TABLESAMPLE", "MAP", "REDUCE",
}  # fmt: skip


def _relations(words: list[Token]) -> list[int]:
    """The indices of the strings that stand where a relation must."""
    first = words[0].upper if words else ""
    if first in ("SHOW", "DELETE"):
        # Their FROM names a namespace or a table to change, never something to read.
        return []
    indices = []
    levels = [_Level(query=True)]
    for index, token in enumerate(words):
        level = levels[-1]
        expected, level.expected = level.expected, False
        word = token.upper
        if token.kind is Kind.STRING:
            if expected:
                indices.append(index)
        elif word == "(":
            levels.append(_opened(words, index, expected))
        elif word == ")":
            if len(levels) > 1:
                levels.pop()
        elif word == "," and level.listing:
            level.expected = True
        elif level.query and _begins_relation(words, index, first):
            level.listing = level.expected = True
        elif word in _ENDS_LIST:
            level.listing = False
        elif word == "LATERAL" and expected:
            level.expected = True
    return indices


def _opened(words: list[Token], index: int, expected: bool) -> _Level:
    inside = words[index + 1].upper if index + 1 < len(words) else ""
    before = words[index - 1].upper if index else ""
    if inside in _BEGINS_QUERY and not (inside == "FROM" and before == "TRIM"):
        return _Level(query=True)
    return _Level(query=expected, listing=expected, expected=expected)


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


def _skip_sample(words: list[Token], index: int) -> int:
    """The index of the last token before an alias may stand: behind a TABLESAMPLE clause, if there is one."""
    if index + 2 >= len(words) or words[index + 1].upper != "TABLESAMPLE" or words[index + 2].text != "(":
        return index
    depth = 0
    for end in range(index + 2, len(words)):
        depth += {"(": 1, ")": -1}.get(words[end].text, 0)
        if depth == 0:
            return end
    return index


def _has_alias(words: list[Token], index: int) -> bool:
    if index >= len(words):
        return False
    token = words[index]
    return token.kind is Kind.NAME or (token.kind is Kind.WORD and token.upper not in _NO_ALIAS)


def _apply(query: str, edits: list[tuple[int, int, str]]) -> str:
    parts, last = [], 0
    for start, end, text in edits:
        parts += [query[last:start], text]
        last = end
    return "".join([*parts, query[last:]])
