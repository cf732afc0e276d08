"""get_json_object: Spark's JSON paths, and their evaluation over a tree or token by token."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from penstock.functions.json import reader, tree
from penstock.functions.json.reader import JsonError, JsonReader, Leniency, deeper, java_text
from penstock.functions.json.writer import FloatText, Writer, raw, scalar_text

# What Hive allowed and Spark's path and key functions still do.
HIVE = Leniency(single_quotes=True, control_characters=True, not_a_number=False)

KEY, SUBSCRIPT, WILDCARD = "key", "subscript", "*"
RAW, QUOTED, FLATTEN = "raw", "quoted", "flatten"
Step = str | int | tuple[str]  # an instruction, an index, or a name in a tuple
Path = tuple[Step, ...]

_BLANK = re.compile(r"[ \t\n\x0b\f\r]*")
_NAME = re.compile(r"[^.\[]+")
_QUOTED_NAME = re.compile(r"[^']+")
_INDEX = re.compile(r"[0-9]+")
_LARGEST = 2**63 - 1


@lru_cache(maxsize=1024)
def parse(text: str) -> Path | None:
    """The steps of a path, None when it is none; OverflowError for an index beyond 64 bits."""
    if not text.startswith("$"):
        return None
    steps: list[Step] = []
    at = 1
    while True:
        step = _step(text, at)
        if step is None:
            return tuple(steps) if _blank(text, at) == len(text) else None
        steps.extend(step[0])
        at = step[1]


def _blank(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    assert match is not None
    return match.end()


def _step(text: str, at: int) -> tuple[tuple[Step, ...], int] | None:
    """One step from a place on: the instructions and where it ends. Words and patterns skip blanks before them,
    single characters do not."""
    begin = _blank(text, at)
    for word in (".*", "['*']"):
        if text.startswith(word, begin):
            return (WILDCARD,), begin + len(word)
    if text.startswith(".", at) and (match := _NAME.match(text, _blank(text, at + 1))) is not None:
        return (KEY, (match[0],)), match.end()
    if (
        text.startswith("['", begin)
        and (match := _QUOTED_NAME.match(text, _blank(text, begin + 2))) is not None
        and text.startswith("']", match.end())
    ):
        return (KEY, (match[0],)), match.end() + 2
    if not text.startswith("[", at):
        return None
    if text.startswith("*]", at + 1):
        return (SUBSCRIPT, WILDCARD), at + 3
    match = _INDEX.match(text, _blank(text, at + 1))
    if match is None:
        return None
    index = int(match[0])
    if index > _LARGEST:
        raise OverflowError(match[0])
    return ((SUBSCRIPT, index), match.end() + 1) if text.startswith("]", match.end()) else None


def find(text: str, path: Path, java: int) -> str | None:
    """What a path finds in a text, None when that is nothing or the text is no JSON."""
    try:
        return _find(text, path, java)
    except RecursionError:
        return deeper(_find, text, path, java)


def _find(text: str, path: Path, java: int) -> str | None:
    try:
        value = tree.parse(text)
    except tree.NotOrdinary:
        return _find_by_token(text, path, java)
    return _find_in_tree(value, path, java)


# ------------------------------------------------------------------ over a tree


def _find_in_tree(value: Any, path: Path, java: int) -> str | None:
    try:
        writer = Writer(java, wide_escapes=True)
        return writer.text() if _evaluate(value, path, RAW, writer) else None
    except JsonError:
        return None


def _evaluate(value: Any, path: Path, style: str, writer: Writer) -> bool:
    """Write what a path finds in a value; says whether anything was found."""
    if not path:
        return _write_value(value, style, writer)
    if isinstance(value, tuple):
        if path[0] != KEY:
            return False
        name = path[1]
        rest = path[2:]
        return any(
            item is not None and _evaluate(item, rest, style, writer) for key, item in value if (key,) == name
        )
    if not isinstance(value, list) or path[0] != SUBSCRIPT:
        return False
    if path[1] == WILDCARD:
        return _write_items(value, path[2:], style, writer)
    assert isinstance(path[1], int)
    rest = path[2:]
    if path[1] >= len(value):
        return False
    return _evaluate(value[path[1]], rest, QUOTED if rest[:2] == (SUBSCRIPT, WILDCARD) else style, writer)


def _write_value(value: Any, style: str, writer: Writer) -> bool:
    if isinstance(value, str) and style == RAW and not isinstance(value, FloatText):
        writer.raw(value)
        return True
    if isinstance(value, list) and style == FLATTEN:
        hits = [_evaluate(item, (), style, writer) for item in value]
        return any(hits)
    writer.tree(value)
    return True


def _write_items(items: list[Any], rest: Path, style: str, writer: Writer) -> bool:
    """The wildcard over an array, with Hive's ways to write one or several results."""
    if rest[:2] == (SUBSCRIPT, WILDCARD):
        writer.start("[")
        hits = [_evaluate(item, rest[2:], FLATTEN, writer) for item in items]
        writer.end("]")
        return any(hits)
    if style == QUOTED:
        writer.start("[")
        hits = [_evaluate(item, rest, QUOTED, writer) for item in items]
        writer.end("]")
        return any(hits)
    buffer = Writer(writer.java, wide_escapes=False)
    buffer.start("[")
    count = sum([_evaluate(item, rest, QUOTED if style == RAW else FLATTEN, buffer) for item in items])
    buffer.end("]")
    return _several(buffer.text(), count, writer)


def _several(text: str, count: int, writer: Writer) -> bool:
    if count:
        text = text if count > 1 else text[1:-1]
        writer.value(raw(text) if writer.wide_escapes else text)
    return count > 0


# ------------------------------------------------------------------ token by token


def _find_by_token(text: str, path: Path, java: int) -> str | None:
    source = JsonReader(text, HIVE)
    writer = Writer(java, wide_escapes=True)
    try:
        source.next()
        return writer.text() if _read(source, path, RAW, writer) else None
    except JsonError:
        return None


def _read(source: JsonReader, path: Path, style: str, writer: Writer) -> bool:
    token = source.token
    if not path:
        return _copy_value(source, style, writer)
    if token == reader.START_OBJECT and path[0] == KEY:
        return _read_fields(source, path[1:], style, writer)
    if token == reader.START_ARRAY and path[0] == SUBSCRIPT and len(path) > 1:
        rest = path[2:]
        if path[1] == WILDCARD:
            return _read_items(source, rest, style, writer)
        assert isinstance(path[1], int)
        return _read_item(
            source, path[1], rest, QUOTED if rest[:2] == (SUBSCRIPT, WILDCARD) else style, writer
        )
    if token == reader.FIELD_NAME and (source.name(),) == path[0]:
        return source.next() != reader.NULL and _read(source, path[1:], style, writer)
    source.skip_children()
    return False


def _copy_value(source: JsonReader, style: str, writer: Writer) -> bool:
    if source.token == reader.STRING and style == RAW:
        writer.raw(source.finish())
        return True
    if source.token == reader.START_ARRAY and style == FLATTEN:
        is_hit = False
        while source.next() != reader.END_ARRAY:
            is_hit |= _read(source, (), style, writer)
        return is_hit
    writer.copy(source)
    return True


def _read_fields(source: JsonReader, path: Path, style: str, writer: Writer) -> bool:
    is_hit = False
    while source.next() != reader.END_OBJECT:
        if is_hit:
            source.skip_children()
        else:
            is_hit = _read(source, path, style, writer)
    return is_hit


def _read_item(source: JsonReader, index: int, rest: Path, style: str, writer: Writer) -> bool:
    token = source.next()
    while index > 0 and token != reader.END_ARRAY:
        source.skip_children()
        token = source.next()
        index -= 1
    if source.token == reader.END_ARRAY:
        return False
    is_hit = _read(source, rest, style, writer)
    while source.next() != reader.END_ARRAY:
        source.skip_children()
    return is_hit


def _read_items(source: JsonReader, rest: Path, style: str, writer: Writer) -> bool:
    is_hit = False
    if rest[:2] == (SUBSCRIPT, WILDCARD) or style == QUOTED:
        below = (rest[2:], FLATTEN) if rest[:2] == (SUBSCRIPT, WILDCARD) else (rest, QUOTED)
        writer.start("[")
        while source.next() != reader.END_ARRAY:
            is_hit |= _read(source, *below, writer)
        writer.end("]")
        return is_hit
    buffer = Writer(writer.java, wide_escapes=False)
    buffer.start("[")
    count = 0
    while source.next() != reader.END_ARRAY:
        count += _read(source, rest, QUOTED if style == RAW else FLATTEN, buffer)
    buffer.end("]")
    return _several(buffer.text(), count, writer)


# ------------------------------------------------------------------ the other functions of this kind


def fields(text: str, names: tuple[str | None, ...], java: int) -> tuple[str | None, ...]:
    """json_tuple: the values of an object's fields as text; all NULL for what is no object."""
    try:
        return _tuple_of_tree(tree.parse(text), names, java)
    except (tree.NotOrdinary, RecursionError):
        pass
    source = JsonReader(text, HIVE)
    try:
        return _tuple_by_token(source, names, java)
    except JsonError:
        return (None,) * len(names)


def _tuple_of_tree(value: Any, names: tuple[str | None, ...], java: int) -> tuple[str | None, ...]:
    row: list[str | None] = [None] * len(names)
    if not isinstance(value, tuple):
        return tuple(row)
    for key, item in value:
        if item is None or key not in names:
            continue
        if isinstance(item, str) and not isinstance(item, FloatText):
            written: str = item
        elif isinstance(item, tuple | list):
            writer = Writer(java, wide_escapes=True)
            writer.tree(item)
            written = writer.text()
        else:
            written = scalar_text(item, java, wide_escapes=True)
        row = [written if name == key else old for name, old in zip(names, row, strict=True)]
    return tuple(row)


def _tuple_by_token(source: JsonReader, names: tuple[str | None, ...], java: int) -> tuple[str | None, ...]:
    row: list[str | None] = [None] * len(names)
    if source.next() != reader.START_OBJECT:
        return tuple(row)
    while source.next() != reader.END_OBJECT:
        key = source.name()
        if source.token == reader.FIELD_NAME and key in names and source.next() != reader.NULL:
            writer = Writer(java, wide_escapes=True)
            if source.token == reader.STRING:
                writer.raw(source.finish())
            else:
                writer.copy(source)
            row = [writer.text() if name == key else old for name, old in zip(names, row, strict=True)]
        source.skip_children()
    return tuple(row)


def array_length(text: str) -> int | None:
    """json_array_length: how many elements the outermost array has, None for what is no array."""
    try:
        value = tree.parse(text)
    except tree.NotOrdinary:
        return _count_by_token(JsonReader(text, HIVE))
    return len(value) if isinstance(value, list) else None


def _count_by_token(source: JsonReader) -> int | None:
    try:
        if source.next() != reader.START_ARRAY:
            return None
        count = 0
        while source.next() != reader.END_ARRAY:
            count += 1
            source.skip_children()
        return count
    except JsonError:
        return None


def object_keys(text: str) -> list[str] | None:
    """json_object_keys: the keys of the outermost object, None for what is no object."""
    try:
        value = tree.parse(text)
    except tree.NotOrdinary:
        return _keys_by_token(JsonReader(text, HIVE))
    return [key for key, _ in value] if isinstance(value, tuple) else None


def _keys_by_token(source: JsonReader) -> list[str] | None:
    keys: list[str] = []
    try:
        if source.next() != reader.START_OBJECT:
            return None
        while True:
            token = source.next()
            if token == reader.FIELD_NAME:
                token = source.next()
            name = source.name()
            if token is None or name is None:
                return keys
            keys.append(java_text(name))
            source.skip_children()
    except JsonError:
        return None
