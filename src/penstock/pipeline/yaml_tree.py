"""YAML as a tree in which every key and every value has its place.

It is YAML 1.2's core schema: `yes`, `no`, `on` and dates are text. Keys are text, and none is there twice. Anchors
and merge keys (`<<`) are resolved, within bounds: a small file cannot become a huge tree.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import yaml

from penstock.pipeline.problem import Problem
from penstock.pipeline.spec import Place

LARGEST_FILE = 1 << 20
"""In bytes."""
MOST_VALUES = 200_000
"""How many values a file may have, with all that its anchors repeat."""
DEEPEST = 64
"""How deep mappings and lists may be nested."""

_NULLS = ("", "~", "null", "Null", "NULL")
_TRUTHS = {word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}
_INTEGER = re.compile(r"[-+]?[0-9]{1,400}|0o[0-7]{1,400}|0x[0-9a-fA-F]{1,400}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]{1,400}|[0-9]{1,300}(?:\.[0-9]{0,400})?)(?:[eE][-+]?[0-9]{1,4})?")
_SPECIAL = {".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}
_TAGS = {"str": "!!str", "int": "!!int", "float": "!!float", "bool": "!!bool", "null": "!!null", "map": "!!map", "seq": "!!seq"}  # fmt: skip
_PREFIX = "tag:yaml.org,2002:"
_INVISIBLE_AS = {
    "\ufeff": "nothing",
    "\u2028": "the end of a line",
    "\u2029": "the end of a line",
    "\x85": "the end of a line",
}
_INVISIBLE = re.compile(f"[{''.join(_INVISIBLE_AS)}]")
"""Invisible characters: a name with one is another name, and editors count lines differently than YAML."""
_SURROGATE = re.compile("[\ud800-\udfff]")


class WrittenInt(int):
    """A whole number that is written in another way than it is shown, as `007`: in a text it is what the user wrote."""

    text: str

    def __new__(cls, number: int, text: str) -> Self:
        self = super().__new__(cls, number)
        self.text = text
        return self

    def __getnewargs__(self) -> tuple[int, str]:  # type: ignore[override]  # what copies are made of
        return int(self), self.text

    def __str__(self) -> str:
        return self.text


class WrittenFloat(float):
    """A number that is written in another way than it is shown, as `1.10`."""

    text: str

    def __new__(cls, number: float, text: str) -> Self:
        self = super().__new__(cls, number)
        self.text = text
        return self

    def __getnewargs__(self) -> tuple[float, str]:  # type: ignore[override]
        return float(self), self.text

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, eq=False)
class YamlScalar:
    """A text, number, truth value or null."""

    text: str
    place: Place
    plain: bool = False
    """Whether it is written without quotes, so that `5` is a number."""
    style: str | None = None
    indent: int = 0
    """Of a block (`|`): how many blanks are before its lines."""
    raw: str | None = None
    """The text as the file has it, when variables were filled in."""
    filled: frozenset[str] = frozenset()
    """What variables gave."""
    variables: frozenset[str] = frozenset()
    """The variables that gave it."""
    is_unfilled: bool = False
    """Whether a variable in it has no value, so that the text is not what is meant."""

    @property
    def value(self) -> Any:
        """The value; a text that has been filled in is always a text."""
        return resolved(self.text) if self.plain and self.raw is None else self.text

    @property
    def written(self) -> str:
        """The text as the file has it."""
        return self.text if self.raw is None else self.raw

    def place_at(self, offset: int) -> Place:
        """The place of a part of the text, as exactly as the way it is written allows."""
        if self.raw is not None and not self.raw.startswith(self.text[:offset]):
            return self.place
        line, column = self.text.count("\n", 0, offset), offset - (self.text.rfind("\n", 0, offset) + 1)
        if self.style == "|":
            return Place(self.place.path, self.place.line + 1 + line, self.indent + column + 1)
        if "\n" in self.written or "\\" in self.written or self.style == ">" or self.indent < 0:
            return self.place
        quote = 0 if self.style is None else 1
        return Place(self.place.path, self.place.line, self.place.column + quote + offset)


@dataclass(frozen=True, slots=True, eq=False)
class MappingTree:
    """Keys with their values, in the order of the file."""

    entries: tuple[tuple[YamlScalar, Tree], ...]
    place: Place

    def get(self, name: str) -> Tree | None:
        """The value of a key."""
        return next((value for key, value in self.entries if key.text == name), None)

    def key(self, name: str) -> YamlScalar | None:
        """A key, with its place."""
        return next((key for key, _ in self.entries if key.text == name), None)


@dataclass(frozen=True, slots=True, eq=False)
class SequenceTree:
    """A list."""

    items: tuple[Tree, ...]
    place: Place


Tree = YamlScalar | MappingTree | SequenceTree


def plain(tree: Tree, *, written: bool = False) -> Any:
    """Return a tree as Python's dictionaries, lists and values; `written`: with variables as the file has them."""
    match tree:
        case MappingTree():
            return {
                (key.written if written else key.text): plain(value, written=written)
                for key, value in tree.entries
            }
        case SequenceTree():
            return [plain(item, written=written) for item in tree.items]
        case YamlScalar():
            return tree.written if written and tree.raw is not None else tree.value


def places(tree: Tree, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Place]]:
    """Give the place of every value in a tree by its path; of a value in a mapping, that of its key."""
    match tree:
        case MappingTree():
            for key, value in tree.entries:
                yield (*path, key.text), key.place
                yield from places(value, (*path, key.text))
        case SequenceTree():
            for index, item in enumerate(tree.items):
                yield (*path, index), item.place
                yield from places(item, (*path, index))


def place_in(tree: Tree, path: tuple[str | int, ...]) -> Place:
    """The place of the value at a path; of the nearest value around it when there is none."""
    return value_in(tree, path).place


def value_in(tree: Tree, path: tuple[str | int, ...]) -> Tree:
    """The value at a path, or the nearest one around it."""
    for part in path:
        inner = tree.get(part) if isinstance(tree, MappingTree) and isinstance(part, str) else None
        if isinstance(tree, SequenceTree) and isinstance(part, int) and part < len(tree.items):
            inner = tree.items[part]
        if inner is None:
            break
        tree = inner
    return tree


def filled_in(tree: Tree) -> frozenset[str]:
    """What variables gave in a tree."""
    match tree:
        case MappingTree():
            parts = (part for entry in tree.entries for part in entry)
            return frozenset().union(*map(filled_in, parts))
        case SequenceTree():
            return frozenset().union(*map(filled_in, tree.items))
    return tree.filled


def describe(tree: Tree) -> str:
    """What a value is, for people."""
    match tree:
        case MappingTree():
            return "a mapping"
        case SequenceTree():
            return "a list"
    return "nothing" if tree.value is None else f"'{tree.written}'"


def decode(data: bytes, path: str) -> str | Problem:
    """Return the text of a file, or what is wrong with its bytes."""
    start = Place(path, 1, 1)
    if len(data) > LARGEST_FILE:
        text = f"the file has more than {LARGEST_FILE:,} bytes"
        return Problem(
            start, text, "put rows of tests and long scripts into files of their own", "PIPELINE_FILE"
        )
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return Problem(start, "the file is UTF-16", "save it as UTF-8", "PIPELINE_FILE")
    zero = data.find(b"\0")
    if zero >= 0:
        place = _place_of_byte(data, zero, path)
        return Problem(place, "the file is binary", "a pipeline is a text file in YAML", "PIPELINE_FILE")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = _place_of_byte(data, error.start, path)
        text = f"byte 0x{data[error.start]:02x} is no UTF-8"
        return Problem(place, text, "save the file as UTF-8", "PIPELINE_FILE")


def _place_of_byte(data: bytes, offset: int, path: str) -> Place:
    before = data[:offset]
    line = before[before.rfind(b"\n") + 1 :]
    return Place(path, before.count(b"\n") + 1, len(line.decode("utf-8", "replace")) + 1)


def parse(text: str, path: str) -> tuple[Tree | None, list[Problem]]:
    """Return the tree of a text, None when it has none, and everything that is wrong with it."""
    composer = _Composer(text, path)
    return composer.document(), composer.problems


class _Composer:
    """Makes the tree out of the events of PyYAML's parser."""

    def __init__(self, text: str, path: str) -> None:
        self.path = path
        self.text = text
        self.lines = text.splitlines()
        self.events: Iterator[Any] = iter(yaml.parse(text, Loader=yaml.SafeLoader))
        self.problems: list[Problem] = []
        self.anchors: dict[str, Tree] = {}
        self.open: list[str] = []
        self.sizes: dict[str, int] = {}
        """How many values each anchor has."""
        self.values = 0
        self.last = Place(path, 1, 1)

    def document(self) -> Tree | None:
        """The tree of the only document."""
        strange = _INVISIBLE.search(self.text, self.text.startswith("\ufeff"))
        if strange is not None:
            place = self._place_of_character(strange.start())
            text = f"the character {_character(strange.group())} is not allowed: it looks like {_INVISIBLE_AS[strange.group()]}"
            hint = f'remove it; in a text in double quotes, "\\u{ord(strange.group()):04X}" is it'
            self.problems.append(_syntax(place, text, hint))
            return None
        try:
            return self._document()
        except _Stop:
            return None
        except yaml.reader.ReaderError as error:
            place = self._place_of_character(error.position)
            self.problems.append(
                _syntax(place, f"the character {_character(error.character)} is not allowed", "remove it")
            )
        except yaml.MarkedYAMLError as error:
            self.problems.append(self._of_parser(error))
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            self.problems.append(_syntax(self.last, str(error), "check the line and the one before it"))
        return None

    def _document(self) -> Tree | None:
        tree: Tree | None = None
        documents = 0
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    place = self._at(event)
                    text = "a second document begins here, and a file is one pipeline"
                    self.problems.append(_syntax(place, text, "put it into a file of its own"))
                    return tree
                tree = self._tree(next(self.events), 0)
        if documents == 0 or (isinstance(tree, YamlScalar) and tree.plain and tree.text == ""):
            text = "there is nothing in the file"
            hint = "a pipeline has sources and sinks; penstock init writes one"
            self.problems.append(Problem(Place(self.path, 1, 1), text, hint, "PIPELINE_FILE"))
            return None
        return tree

    def _tree(self, event: Any, depth: int) -> Tree:
        place = self.last = self._at(event)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor, place)
        if depth > DEEPEST:
            text = f"more than {DEEPEST} mappings and lists in each other"
            raise self._stop(_syntax(place, text, "a pipeline needs no more than a handful"))
        anchor, before = event.anchor, self.values
        self._count(1, place)
        if anchor is not None:
            self.open.append(anchor)
        if isinstance(event, yaml.ScalarEvent):
            tree: Tree = self._scalar(event, place)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._refuse_tag(event, place)
            tree = SequenceTree(tuple(self._items(depth)), place)
        else:
            self._refuse_tag(event, place)
            tree = MappingTree(tuple(self._entries(depth)), place)
        if anchor is not None:
            self.open.remove(anchor)
            self.anchors[anchor] = tree
            self.sizes[anchor] = self.values - before
        return tree

    def _items(self, depth: int) -> Iterator[Tree]:
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            yield self._tree(event, depth + 1)

    def _entries(self, depth: int) -> list[tuple[YamlScalar, Tree]]:
        own: dict[str, tuple[YamlScalar, Tree]] = {}
        merged: dict[str, tuple[YamlScalar, Tree]] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self._tree(event, depth + 1)
            value = self._tree(next(self.events), depth + 1)
            if not isinstance(key, YamlScalar):
                text = f"{describe(key)} cannot be a name"
                hint = "names are text; put ${VAR} and what begins with { or [ in quotes"
                self.problems.append(_syntax(key.place, text, hint))
            elif key.text == "<<" and key.plain:
                for name, entry in self._merged(value, key.place):
                    merged.setdefault(name, entry)
            elif key.text in own:
                line = own[key.text][0].place.line
                text = f"'{key.text}' is here twice, first in line {line}"
                self.problems.append(_syntax(key.place, text, "remove one of them, or give it another name"))
            else:
                own[key.text] = (key, value)
        return list({**merged, **own}.values()) if merged else list(own.values())

    def _merged(self, value: Tree, place: Place) -> Iterator[tuple[str, tuple[YamlScalar, Tree]]]:
        for tree in value.items if isinstance(value, SequenceTree) else (value,):
            if isinstance(tree, MappingTree):
                yield from ((key.text, (key, inner)) for key, inner in tree.entries)
            else:
                text = f"<< merges mappings, and this is {describe(tree)}"
                self.problems.append(_syntax(place, text, "write <<: *name of an anchor on a mapping"))

    def _alias(self, anchor: str | None, place: Place) -> Tree:
        if anchor in self.open:
            text = f"the anchor &{anchor} contains itself"
            raise self._stop(_syntax(place, text, f"remove *{anchor} here"))
        if anchor is None or anchor not in self.anchors:
            names = ", ".join(f"&{name}" for name in self.anchors) or "none"
            raise self._stop(
                _syntax(place, f"there is no anchor &{anchor}", f"anchors before this line: {names}")
            )
        self._count(self.sizes[anchor], place)
        return self.anchors[anchor]

    def _count(self, values: int, place: Place) -> None:
        """Count values before anything is made of them."""
        self.values += values
        if self.values > MOST_VALUES:
            text = f"more than {MOST_VALUES:,} values, counting what anchors repeat"
            raise self._stop(
                _syntax(place, text, "put rows of tests into fewer tests, and use fewer anchors")
            )

    def _scalar(self, event: Any, place: Place) -> YamlScalar:
        style = event.style or None
        is_plain = style is None
        if event.tag is not None:
            tag = event.tag.removeprefix(_PREFIX)
            if tag == "str" or event.tag == "!":
                is_plain = False
            elif tag in _TAGS:
                is_plain = True
            else:
                self._refuse_tag(event, place)
        if surrogate := _SURROGATE.search(event.value):
            text = f"the text has {_character(surrogate.group())}, which is half of a character"
            self.problems.append(_syntax(place, text, "write the whole character, or remove it"))
        indent = 0
        if style == "|":
            indent = self._indent(event)
        elif event.start_mark.line != event.end_mark.line:
            indent = -1
        return YamlScalar(event.value, place, is_plain, style, indent)

    def _indent(self, event: Any) -> int:
        block = self.lines[event.start_mark.line + 1 : max(event.end_mark.line, event.start_mark.line + 2)]
        first = next((line for line in block if line.strip()), "")
        text = event.value.lstrip("\n").split("\n")[0]
        return max(len(first) - len(text), 0)

    def _refuse_tag(self, event: Any, place: Place) -> None:
        if event.tag is None or event.tag.removeprefix(_PREFIX) in _TAGS or event.tag == "!":
            return
        tag = "!!" + event.tag.removeprefix(_PREFIX) if event.tag.startswith(_PREFIX) else event.tag
        self.problems.append(
            _syntax(place, f"unknown tag {tag}", "remove it; the fields themselves say their types")
        )

    def _stop(self, problem: Problem) -> _Stop:
        self.problems.append(problem)
        return _Stop()

    def _at(self, event: Any) -> Place:
        return self._of_mark(event.start_mark)

    def _of_mark(self, mark: Any) -> Place:
        return Place(self.path, mark.line + 1, mark.column + 1)

    def _place_of_character(self, position: int) -> Place:
        before = self.text[:position].replace("\r\n", "\n").replace("\r", "\n")
        return Place(self.path, before.count("\n") + 1, len(before) - before.rfind("\n"))

    def _of_parser(self, error: yaml.MarkedYAMLError) -> Problem:
        mark = error.problem_mark or error.context_mark
        place = self.last if mark is None else self._of_mark(mark)
        line = self.lines[place.line - 1] if place.line <= len(self.lines) else ""
        reason = error.problem or error.context or "not valid YAML"
        began = error.context_mark
        if began is not None and began.line + 1 != place.line:
            reason += f" ({error.context} that begins in line {began.line + 1})"
        return _syntax(place, f"not valid YAML: {reason}", _advice(error, line))


class _Stop(Exception):
    """Nothing more can be read."""


def _syntax(place: Place, text: str, hint: str) -> Problem:
    return Problem(place, text, hint, "PIPELINE_YAML")


def _advice(error: yaml.MarkedYAMLError, line: str) -> str:
    message = f"{error.context or ''} {error.problem or ''}"
    if "\\t" in message or (line[: len(line) - len(line.lstrip())].count("\t")):
        return "indent with blanks; YAML takes no tabs"
    if "${" in line and ("{" in message or "flow" in message):
        return 'within braces, put ${VAR} in quotes: "${VAR}"'
    if "mapping values are not allowed" in message:
        return "indent the line as those around it; a text with ': ' in it needs quotes"
    if "escape" in message:
        return "in double quotes a backslash is written twice; single quotes take it as it is"
    if "quoted scalar" in message:
        return "close the quote"
    if "flow mapping" in message or "flow sequence" in message or "flow node" in message:
        return "close the bracket that is open, and put commas between its parts"
    if "could not find expected ':'" in message or "simple key" in message:
        return "a name needs ': ' behind it; a text of several lines begins with |"
    if "cannot start any token" in message:
        return "put a text that begins with this character in quotes"
    if "block" in message:
        return "indent the line as those beside it"
    return "check the line and the one before it; a text with special characters needs quotes"


def _character(character: Any) -> str:
    code = character if isinstance(character, int) else ord(character)
    return f"U+{code:04X}"


def resolved(text: str) -> Any:
    """Return the value of a text without quotes; a number remembers how it is written.

    >>> resolved("5"), resolved("true"), resolved("yes"), resolved("~")
    (5, True, 'yes', None)
    >>> resolved("007"), str(resolved("007"))
    (7, '007')
    """
    if text in _NULLS:
        return None
    if text in _TRUTHS:
        return _TRUTHS[text]
    if _INTEGER.fullmatch(text):
        integer = int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        return integer if str(integer) == text else WrittenInt(integer, text)
    if _FLOAT.fullmatch(text) or text.lower() in _SPECIAL:
        number = _SPECIAL[text.lower()] if text.lower() in _SPECIAL else float(text)
        return number if str(number) == text else WrittenFloat(number, text)
    return text
