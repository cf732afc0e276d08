"""The files that a query names in the place of tables: where they are, how they are read, what is wrong with them.

Everything that can be wrong with a path is found here without Spark, so that the command line can say so at once.
"""

from __future__ import annotations

import difflib
import glob
import gzip
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import SqlError
from penstock.sql.excerpt import excerpt
from penstock.sql.files import FORMATS, FileReference, Rewritten, extension, rewrite_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://?")
_GLOB = re.compile(r"[*?\[\]{}]")
_LOOKED_AT = 1_000
"""How many files of a folder are looked at to learn its format."""
_PEEKED = 1_000_000
"""How many bytes of a JSON file are looked at to learn its layout."""


@dataclass(frozen=True, slots=True)
class File:
    """A file, folder or pattern that exists (as far as one can see from here) and how Spark reads it."""

    path: str
    format: str
    options: Mapping[str, str]


def resolve_files(query: str) -> tuple[Rewritten, tuple[File, ...]]:
    """Find the files that a query names; a path that cannot be read is an error at its place in the query."""
    rewritten = rewrite_files(query)
    return rewritten, tuple(resolve(reference, query) for reference in rewritten.files)


def register_views(spark: SparkSession, rewritten: Rewritten, files: tuple[File, ...]) -> None:
    """Give each file the view by which the rewritten query knows it."""
    for reference, file in zip(rewritten.files, files, strict=True):
        frame = spark.read.format(file.format).options(**file.options).load(file.path)
        frame.createOrReplaceTempView(reference.view)


def resolve(reference: FileReference, query: str) -> File:
    """Return how to read what a reference names."""
    where = excerpt(query, reference.start, reference.end - reference.start)
    if _SCHEME.match(reference.path) and not reference.path.startswith("file:"):
        form = reference.format or _refuse_format(reference.path, where)
        return File(reference.path, form, _options(form, reference, None))
    path = _absolute(reference.path)
    if os.path.exists(path):
        literal = re.sub(_GLOB, lambda mark: "\\" + mark.group(), path)
        form_of_path = _folder_format(path, where) if os.path.isdir(path) else reference.format
        form = form_of_path or _refuse_format(path, where)
        return File(literal, form, _options(form, reference, path))
    if not _GLOB.search(path):
        raise _missing(path, where)
    matches = sorted(glob.glob(path, recursive=True))
    if not matches and "{" not in path:
        raise SqlError(
            f"no file matches '{path}'",
            code="SQL_FILE_MISSING",
            where=where,
            hint="check the folder and the pattern",
        )
    first = matches[0] if matches else None
    form = reference.format or (first and FORMATS.get(extension(first))) or _refuse_format(path, where)
    return File(path, form, _options(form, reference, first))


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(re.sub(r"^file:(//)?(?=/)", "", path)))


def _options(form: str, reference: FileReference, sample: str | None) -> dict[str, str]:
    if form == "csv":
        return {"header": "true", "inferSchema": "true", "sep": reference.separator}
    if form == "json" and sample is not None and os.path.isfile(sample) and spans_lines(sample):
        return {"multiLine": "true"}
    return {}


def spans_lines(path: str) -> bool:
    """Whether a JSON file is one document over several lines instead of one object per line."""
    try:
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
            start = file.read(_PEEKED).lstrip()
    except OSError:
        return False
    line, newline, _ = start.partition(b"\n")
    if line.startswith(b"["):
        return True
    try:
        json.loads(line or b"{}")
    except ValueError:
        # Without a line's end in sight this is one long object, which both ways of reading understand.
        return bool(newline)
    return False


def _folder_format(path: str, where: str) -> str:
    """The format of the files in a folder, unless they differ."""
    seen: dict[str, str] = {}
    looked = 0
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name[0] not in "._")
        for name in sorted(names):
            if name[0] in "._":
                continue
            looked += 1
            form = FORMATS.get(extension(name))
            if form:
                seen.setdefault(form, os.path.join(folder, name))
        if looked >= _LOOKED_AT:
            break
    if len(seen) == 1:
        return next(iter(seen))
    if not seen:
        message, hint = f"there are no files to read in the folder '{path}'", _readable()
    else:
        message = f"the folder '{path}' mixes formats: {', '.join(sorted(seen))}"
        hint = f"name one kind, as in '{path}/*.{sorted(seen)[0]}'"
    raise SqlError(message, code="SQL_FILE_FORMAT", where=where, hint=hint)


def _refuse_format(path: str, where: str) -> str:
    kind = extension(path)
    message = f"files with the extension '{kind}' cannot be read" if kind else f"'{path}' has no extension"
    raise SqlError(message, code="SQL_FILE_FORMAT", where=where, hint=_readable())


def _readable() -> str:
    return (
        f"readable are {' '.join(FORMATS)}, text also compressed (.gz, .bz2, .zst, ...), and folders of them"
    )


def _missing(path: str, where: str) -> SqlError:
    folder = Path(path).parent
    while not folder.is_dir():
        folder = folder.parent
    below = Path(path).relative_to(folder).parts
    if len(below) > 1:
        message = f"no file '{path}': the folder '{folder / below[0]}' does not exist"
    else:
        message = f"no file '{path}'"
    return SqlError(message, code="SQL_FILE_MISSING", where=where, hint=_nearest(folder, below[0]))


def _nearest(folder: Path, name: str) -> str:
    entries = sorted(entry.name + "/" * entry.is_dir() for entry in folder.iterdir() if entry.name[0] != ".")
    near = difflib.get_close_matches(name, entries, n=1, cutoff=0.6)
    readable = [entry for entry in entries if entry.endswith("/") or extension(entry) in FORMATS]
    shown = ", ".join(readable[:8]) + (f" and {len(readable) - 8} more" if len(readable) > 8 else "")
    there = f"in '{folder}' there is {shown}" if readable else f"there is nothing to read in '{folder}'"
    return f"did you mean '{near[0]}'? {there}" if near else there
