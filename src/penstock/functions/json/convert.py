"""from_json: JSON to values of a schema, as Spark converts them.

A text that is ordinary and fits the schema is converted from its tree. All others are read token by token: what Spark
gives for a row with a bad field depends on where the parser stands when it fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

from penstock.data.types import decimal_parts, parse
from penstock.functions.java_double import nearest_float
from penstock.functions.json import reader, tree
from penstock.functions.json.reader import JsonError, JsonReader, Leniency, deeper, java_text
from penstock.functions.json.writer import FloatText, Writer, scalar_text
from penstock.functions.scalars.base import BeyondKernel

_RANGES = {
    # Jackson takes a byte without its sign too.
    "tinyint": (-128, 255),
    "smallint": (-(2**15), 2**15 - 1),
    "int": (-(2**31), 2**31 - 1),
    "bigint": (-(2**63), 2**63 - 1),
}
_WORDS = {
    "NaN": float("nan"),
    "+INF": float("inf"),
    "+Infinity": float("inf"),
    "Infinity": float("inf"),
    "-INF": float("-inf"),
    "-Infinity": float("-inf"),
}
# Java's BigDecimal takes the digits of every script.
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_MOST_DIGITS = 12  # of seconds whose microseconds are a long
_EXACT = Context(prec=1100, rounding=ROUND_HALF_UP, Emin=-(10**9), Emax=10**9)
SIMPLE = frozenset({*_RANGES, "boolean", "float", "double", "string", "date"})


# The codes that batch queries give to the reasons for which a record is bad.
MALFORMED = "DATA_MALFORMED_RECORD_IN_PARSING"
WRONG_TYPE = "DATA_CANNOT_PARSE_JSON_FIELD"
EMPTY = "SQL_EMPTY_JSON_FIELD_VALUE"
NO_ROOT = "DATA_INVALID_JSON_ROOT_FIELD"


class Bad(Exception):
    """A value that does not fit its type; a reason that is named inside of a record may have no name on its own."""

    def __init__(self, code: str = MALFORMED, inside: str | None = None) -> None:
        self.code = code
        self.inside = inside or code


class Partial(Exception):
    """A value of which a part does not fit, and why the first part does not."""

    def __init__(self, result: Any, code: str) -> None:
        self.result = result
        self.code = code


def _misfit(text: str | None = None) -> Bad:
    """A token of another type, or an empty string."""
    return Bad(inside=EMPTY if text == "" else WRONG_TYPE)


def _reason(error: Exception) -> str:
    return error.inside if isinstance(error, Bad) else MALFORMED


@dataclass(frozen=True, slots=True)
class JsonRules:
    """How to read: what is allowed, whether nested values survive in part, how dates and moments are read, and which
    Java writes numbers."""

    leniency: Leniency
    partial: bool
    java: int
    date: Callable[[str], int | None]
    moment: Callable[[str], int | None] | None = None


FromTree = Callable[[Any], Any]
FromTokens = Callable[[JsonReader], Any]


# ------------------------------------------------------------------ from a tree


def from_tree(kind: str, rules: JsonRules) -> FromTree:
    """A conversion of trees, which raises Bad for anything that does not fit."""
    parsed = parse(kind)
    match parsed.kind:
        case "struct":
            return _struct_from_tree(parsed.names, [from_tree(inner, rules) for inner in parsed.inner])
        case "array":
            return _array_from_tree(from_tree(parsed.inner[0], rules))
        case "map":
            return _map_from_tree(from_tree(parsed.inner[1], rules))
        case "string":
            return _text_from_tree(rules)
        case "boolean":
            return _boolean_from_tree
        case "double":
            return _double_from_tree(rules)
    if kind in _RANGES:
        return _integer_from_tree(kind)
    convert = _from_scalar(kind, rules)

    def other(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, FloatText):
            return convert(reader.FLOAT, value)
        if isinstance(value, str):
            return convert(reader.STRING, value)
        if isinstance(value, bool | tuple | list):
            raise Bad
        return convert(reader.INT, str(value))

    return other


def _struct_from_tree(names: tuple[str, ...], fields: list[FromTree]) -> FromTree:
    places = {name: (name, convert) for name, convert in zip(names, fields, strict=True)}
    empty: dict[str, Any] = dict.fromkeys(names)
    place_of = places.get

    def convert(value: Any) -> Any:
        if not isinstance(value, tuple):
            if value is None:
                return None
            raise Bad
        row = empty.copy()
        for key, item in value:
            place = place_of(key)
            if place is not None:
                row[key] = place[1](item)
        return row

    return convert


def _array_from_tree(element: FromTree) -> FromTree:
    def convert(value: Any) -> Any:
        if isinstance(value, list):
            return [element(item) for item in value]
        if value is None:
            return None
        raise Bad

    return convert


def _map_from_tree(inner: FromTree) -> FromTree:
    def convert(value: Any) -> Any:
        if isinstance(value, tuple):
            return [(key, inner(item)) for key, item in value]
        if value is None:
            return None
        raise Bad

    return convert


def _text_from_tree(rules: JsonRules) -> FromTree:
    def convert(value: Any) -> Any:
        if value is None or type(value) is str:
            return value
        if isinstance(value, tuple | list):
            writer = Writer(rules.java, wide_escapes=True)
            writer.tree(value)
            return writer.text()
        return scalar_text(value, rules.java, wide_escapes=True)

    return convert


def _boolean_from_tree(value: Any) -> Any:
    if value is None or value is True or value is False:
        return value
    raise Bad


def _double_from_tree(rules: JsonRules) -> FromTree:
    convert = _from_scalar("double", rules)

    def other(value: Any) -> Any:
        kind = type(value)
        if kind is FloatText:
            return float(value)
        if kind is int:
            return _integer_to_double(value)
        if value is None:
            return None
        if kind is str:
            return convert(reader.STRING, value)
        raise Bad

    return other


def _integer_from_tree(kind: str) -> FromTree:
    low, high = _RANGES[kind]

    def convert(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is int and low <= value <= high:
            return value - 256 if kind == "tinyint" and value > 127 else value
        raise Bad

    return convert


# ------------------------------------------------------------------ single values


def _from_scalar(kind: str, rules: JsonRules) -> Callable[[str, str], Any]:
    """A conversion of the text of a token; Bad for what does not fit."""
    if kind in _RANGES:
        return _to_integer(kind)
    if kind in ("float", "double"):
        return _to_floating(kind, rules.leniency.not_a_number)
    if kind == "date":
        return _to_date(rules.date)
    if kind == "timestamp":
        assert rules.moment is not None
        return _to_moment(rules.moment)
    parts = decimal_parts(kind)
    assert parts is not None, kind
    return _to_decimal(*parts)


def _to_integer(kind: str) -> Callable[[str, str], Any]:
    low, high = _RANGES[kind]

    def convert(token: str, text: str) -> int:
        if token != reader.INT:
            raise _misfit(text if token == reader.STRING else None)
        number = int(text)
        if not low <= number <= high:
            raise Bad
        return number - 256 if kind == "tinyint" and number > 127 else number

    return convert


def _integer_to_double(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def _to_floating(kind: str, words: bool) -> Callable[[str, str], Any]:
    read = float if kind == "double" else nearest_float

    def convert(token: str, text: str) -> float:
        if token == reader.INT:
            number = int(text)
            return _integer_to_double(number) if kind == "double" else read(str(number))
        if token == reader.FLOAT:
            return _WORDS[text] if text in _WORDS else read(text)
        if token != reader.STRING or text == "":
            raise _misfit(text if token == reader.STRING else None)
        if words and text in _WORDS:
            return _WORDS[text]
        raise Bad

    return convert


def _to_date(date: Callable[[str], int | None]) -> Callable[[str, str], Any]:
    def convert(token: str, text: str) -> int:
        if token != reader.STRING or text == "":
            raise _misfit(text if token == reader.STRING else None)
        days = date(text)
        if days is None:
            raise Bad("DATA_CAST")
        return days

    return convert


def _to_moment(moment: Callable[[str], int | None]) -> Callable[[str, str], Any]:
    """Text by a pattern, or a whole number of seconds."""

    def convert(token: str, text: str) -> int:
        if token == reader.INT:
            if len(text) > _MOST_DIGITS:
                raise BeyondKernel(f"{text} seconds are out of range")
            return int(text) * 1_000_000
        if token != reader.STRING or text == "":
            raise _misfit(text if token == reader.STRING else None)
        micros = moment(text)
        if micros is None:
            raise Bad("DATA_CANNOT_PARSE_TIMESTAMP")
        return micros

    return convert


def _to_decimal(precision: int, scale: int) -> Callable[[str, str], Any]:
    unit = Decimal(1).scaleb(-scale)

    def convert(token: str, text: str) -> Decimal:
        if token not in (reader.STRING, reader.INT, reader.FLOAT) or (token == reader.STRING and text == ""):
            raise _misfit(text if token == reader.STRING else None)
        if token == reader.STRING:
            text = text.replace(",", "")
        if _DECIMAL.fullmatch(text) is None:
            raise Bad
        try:
            number = Decimal(text)
            if number and number.adjusted() >= precision - scale:
                raise Bad("DATA_OVERFLOW")
            if number.adjusted() < -scale - 2:
                return Decimal(0).scaleb(-scale)
            rounded = number.quantize(unit, context=_EXACT)
        except InvalidOperation:
            raise Bad from None
        if rounded and rounded.adjusted() >= precision - scale:
            raise Bad("DATA_OVERFLOW")
        return rounded if rounded else abs(rounded)

    return convert


# ------------------------------------------------------------------ token by token


def from_tokens(kind: str, rules: JsonRules) -> FromTokens:
    """A conversion of what begins at a reader's current token; raises Bad, Partial or JsonError."""
    parsed = parse(kind)
    match parsed.kind:
        case "struct":
            fields = _places(parsed.names, [from_tokens(inner, rules) for inner in parsed.inner])
            return _expecting(reader.START_OBJECT, lambda source: read_object(source, fields, rules))
        case "array":
            element = from_tokens(parsed.inner[0], rules)
            return _expecting(reader.START_ARRAY, lambda source: _read_array(source, element, rules))
        case "map":
            inner = from_tokens(parsed.inner[1], rules)
            return _expecting(reader.START_OBJECT, lambda source: _read_map(source, inner, rules))
        case "string":
            return _reading(lambda source: _read_text(source, rules))
        case "boolean":
            return _reading(_read_boolean)
    convert = _from_scalar(kind, rules)

    def scalar(source: JsonReader) -> Any:
        token = source.token
        assert token is not None
        if token == reader.STRING:
            return convert(token, source.finish())
        return convert(token, source.text)

    return _reading(scalar)


Places = dict[str | None, tuple[str, FromTokens]]


def _places(names: tuple[str, ...], fields: list[FromTokens]) -> Places:
    return {name: (name, convert) for name, convert in zip(names, fields, strict=True)}


def _reading(convert: FromTokens) -> FromTokens:
    """A conversion that skips the name of the field and takes null as NULL."""

    def run(source: JsonReader) -> Any:
        if source.token == reader.FIELD_NAME:
            source.next()
        if source.token is None or source.token == reader.NULL:
            return None
        return convert(source)

    return run


def _expecting(token: str, convert: FromTokens) -> FromTokens:
    def run(source: JsonReader) -> Any:
        if source.token != token:
            raise _misfit(source.finish() if source.token == reader.STRING else None)
        return convert(source)

    return _reading(run)


def _read_boolean(source: JsonReader) -> bool:
    if source.token in (reader.TRUE, reader.FALSE):
        return source.token == reader.TRUE
    raise _misfit(source.finish() if source.token == reader.STRING else None)


def _read_text(source: JsonReader, rules: JsonRules) -> str:
    if source.token == reader.STRING:
        return java_text(source.finish())
    writer = Writer(rules.java, wide_escapes=True)
    writer.copy(source)
    return writer.text()


def read_object(
    source: JsonReader, fields: Places, rules: JsonRules, *, root: bool = False
) -> dict[str, Any]:
    """The fields of an object; Partial with those that fit when one does not."""
    row: dict[str, Any] = {name: None for name, _ in fields.values()}
    bad: str | None = None
    while source.next() not in (None, reader.END_OBJECT):
        place = fields.get(source.name())
        if place is None:
            source.skip_children()
            continue
        try:
            row[place[0]] = place[1](source)
        except Partial as error:
            if rules.partial:
                row[place[0]] = error.result
            elif not root:
                raise
            else:
                source.skip_children()
            bad = bad or error.code
        except (Bad, JsonError) as error:
            if not (root or rules.partial):
                raise
            bad = bad or _reason(error)
            source.skip_children()
    if bad is not None:
        raise Partial(row, bad)
    return row


def _read_map(source: JsonReader, inner: FromTokens, rules: JsonRules) -> list[tuple[str, Any]]:
    keys: list[str] = []
    values: list[Any] = []
    bad: str | None = None
    while source.next() not in (None, reader.END_OBJECT):
        keys.append(java_text(source.name() or ""))
        try:
            values.append(inner(source))
        except Partial as error:
            if not rules.partial:
                raise
            values.append(error.result)
            bad = bad or error.code
        except (Bad, JsonError) as error:
            if not rules.partial:
                raise
            bad = bad or _reason(error)
            source.skip_children()
    if len(keys) != len(values):
        raise Bad  # Spark refuses a map with fewer values than keys
    pairs = list(zip(keys, values, strict=True))
    if bad is not None:
        raise Partial(pairs, bad)
    return pairs


def _read_array(source: JsonReader, element: FromTokens, rules: JsonRules) -> list[Any]:
    values: list[Any] = []
    bad: str | None = None
    while source.next() not in (None, reader.END_ARRAY):
        try:
            values.append(element(source))
        except Partial as error:
            if not rules.partial:
                raise
            values.append(error.result)
            bad = bad or error.code
    if bad is not None:
        raise Partial(values, bad)
    return values


# ------------------------------------------------------------------ whole records


@dataclass(frozen=True, slots=True)
class ConvertedRecord:
    """A converted text: its value, and why not all of it has fitted."""

    value: Any
    bad: str | None = None


def converter(kind: str, rules: JsonRules) -> Callable[[str], ConvertedRecord]:
    """The conversion of texts to a struct, array or map; a text of nothing gives NULL, one that does not fit what fits of it."""
    parsed = parse(kind)
    fast = from_tree(kind, rules)
    single = (
        from_tree(parsed.inner[0], rules)
        if parsed.kind == "array" and parsed.inner[0].startswith("struct")
        else None
    )
    slow = _root(kind, rules)

    def convert(text: str) -> ConvertedRecord:
        try:
            value = tree.parse(text)
            if single is not None and isinstance(value, tuple):
                return ConvertedRecord([single(value)])
            return ConvertedRecord(fast(value))
        except (tree.NotOrdinary, Bad):
            return slow(text)
        except RecursionError:
            return deeper(slow, text)

    return convert


def _root(kind: str, rules: JsonRules) -> Callable[[str], ConvertedRecord]:
    parsed = parse(kind)
    begin = reader.START_ARRAY if parsed.kind == "array" else reader.START_OBJECT
    inner = [from_tokens(item, rules) for item in parsed.inner]
    fields = _places(parsed.names, inner) if parsed.kind == "struct" else {}
    single: Places | None = None
    if parsed.kind == "array" and parsed.inner[0].startswith("struct"):
        struct = parse(parsed.inner[0])
        single = _places(struct.names, [from_tokens(item, rules) for item in struct.inner])
    nothing = dict.fromkeys(parsed.names) if parsed.kind == "struct" else None

    def read(source: JsonReader) -> Any:
        if source.token == begin:
            if parsed.kind == "struct":
                return read_object(source, fields, rules, root=True)
            if parsed.kind == "map":
                return _read_map(source, inner[1], rules)
            return _read_array(source, inner[0], rules)
        if single is not None and source.token == reader.START_OBJECT:
            try:
                return [read_object(source, single, rules)]
            except Partial as error:
                raise Partial([error.result], error.code) from None
        if source.token == reader.NULL:
            raise Bad(NO_ROOT)
        raise Bad

    def convert(text: str) -> ConvertedRecord:
        source = JsonReader(text, rules.leniency)
        try:
            if source.next() is None:
                return ConvertedRecord(None)
            return ConvertedRecord(read(source))
        except Partial as error:
            return ConvertedRecord(error.result, error.code)
        except Bad as error:
            return ConvertedRecord(nothing, error.code)
        except JsonError:
            return ConvertedRecord(nothing, MALFORMED)

    return convert
