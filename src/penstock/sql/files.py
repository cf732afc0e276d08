"""Files in the place of tables: finds `FROM 'path'` in a query and replaces it by a name.

    SELECT o.id FROM 'data/orders.parquet' o JOIN 'customers.csv' USING (id)

Only a string where a relation must stand is a file; all other strings stay as they are, also behind the `FROM` of
`extract(day FROM '2020-01-01')`, `trim(BOTH 'x' FROM 'xax')` or `a IS DISTINCT FROM 'b'`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

from penstock.sql.lexer import Kind, significant, unquote
from penstock.sql.relation import apply_edits, behind_sample, has_alias, positions, quoted

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
    for position in positions(words):
        token = words[position.index]
        if token.kind is not Kind.STRING:
            continue
        path = unquote(token.text)
        view = "penstock_file_" + hashlib.sha256(path.encode()).hexdigest()[:12]
        files.append(FileReference(path, token.offset, token.end, view))
        edits.append((token.offset, token.end, view))
        last = behind_sample(words, position.index)
        if not has_alias(words, last + 1):
            end = words[last].end
            edits.append((end, end, f" AS {quoted(stem(path))}"))
    return Rewritten(apply_edits(query, edits), tuple(files), tuple(edits))


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
