"""Schemas as users write them (Arrow, PySpark, DDL text) as one thing: a `pyarrow.Schema`.

DDL is parsed here, without a JVM, with the type names of Spark or of Arrow. Spark's types have these Arrow types:
TIMESTAMP is `timestamp[us, UTC]`, TIMESTAMP_NTZ is `timestamp[us]`, TIME is `time64[ns]`, CHAR, VARCHAR and text with a collation
are `string`, a day-time interval is `duration[us]`, every other interval is `month_day_nano_interval`, and VARIANT is the struct
of two binaries that PySpark gives. What an Arrow type does not say of Spark's (the length, the collation, the fields of an
interval) is in the metadata of the column, under `spark`. Spark has no unsigned integers: Arrow's become the next wider
signed type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import ConfigError, suggest

if TYPE_CHECKING:
    import pyarrow as pa

UTC = "UTC"

# Type name in lower case -> name of the pyarrow factory and its arguments.
_PLAIN: dict[str, tuple[str, tuple[Any, ...]]] = {
    **dict.fromkeys(("boolean", "bool"), ("bool_", ())),
    **dict.fromkeys(("tinyint", "byte", "int8"), ("int8", ())),
    **dict.fromkeys(("smallint", "short", "int16", "uint8"), ("int16", ())),
    **dict.fromkeys(("int", "integer", "int32", "uint16"), ("int32", ())),
    **dict.fromkeys(("bigint", "long", "int64", "uint32"), ("int64", ())),
    "uint64": ("decimal128", (20, 0)),
    **dict.fromkeys(("float", "real", "float32", "float16", "halffloat"), ("float32", ())),
    **dict.fromkeys(("double", "float64"), ("float64", ())),
    **dict.fromkeys(("string", "utf8", "large_string", "large_utf8", "string_view", "text"), ("string", ())),
    **dict.fromkeys(("binary", "large_binary", "bytes"), ("binary", ())),
    **dict.fromkeys(("date", "date32"), ("date32", ())),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), ("timestamp", ("us", UTC))),
    "timestamp_ntz": ("timestamp", ("us",)),
    **dict.fromkeys(("time32", "time64"), ("time64", ("ns",))),
    "duration": ("duration", ("us",)),
    "month_day_nano_interval": ("month_day_nano_interval", ()),
    **dict.fromkeys(("void", "null"), ("null", ())),
}
_DECIMAL = ("decimal", "dec", "numeric", "decimal128")
_SIZED = ("varchar", "char", "character")
_NESTED = ("array", "list", "map", "struct")
_DECLARED = b"spark"  # metadata of a column: its declared type, when Arrow's type does not say all of it
_VARIANT = {b"variant": b"true"}  # metadata by which Spark and PySpark know the struct of a VARIANT
_MOST_DIGITS = 6  # of the seconds of a TIME
PLAIN_TYPES = frozenset(_PLAIN)
"""Type names, in lower case, that are whole types."""
TYPE_NAMES = (*_PLAIN, *_DECIMAL, *_SIZED, *_NESTED, "interval", "time", "variant")

_YEAR_MONTH = ("year", "month")
_DAY_TIME = ("day", "hour", "minute", "second")


class _Type(NamedTuple):
    """A type that was read: Arrow's, and Spark's name for it."""

    arrow: pa.DataType
    spark: str


def to_arrow_schema(schema: Any) -> pa.Schema:
    """Return the Arrow schema of a `pyarrow.Schema`, a PySpark `StructType` or DDL text.

    >>> to_arrow_schema("id BIGINT NOT NULL, amount DECIMAL(10,2)").names
    ['id', 'amount']
    """
    import pyarrow as pa

    if isinstance(schema, pa.Schema):
        return schema
    if isinstance(schema, str):
        return _Ddl(schema).schema()
    if hasattr(schema, "fields") and hasattr(schema, "json"):
        return pa.schema([_field_of_json(field) for field in json.loads(schema.json())["fields"]])
    raise ConfigError(
        f"a schema cannot be made from {type(schema).__name__}",
        code="CONFIG_SCHEMA",
        hint="pass a pyarrow.Schema, a PySpark StructType or DDL such as 'id BIGINT, amount DECIMAL(10,2)'",
    )


@lru_cache(maxsize=4096)
def to_arrow_type(name: str) -> pa.DataType:
    """Return the Arrow type of a type name of Spark or of Arrow, as in `decimal(10,2)` or `int64`."""
    return _Ddl(name).single_type().arrow


@lru_cache(maxsize=4096)
def to_arrow_field(name: str, kind: str, nullable: bool = True) -> pa.Field:
    """Return a column of a type of Spark; `declared_type` gives the type back."""
    import pyarrow as pa

    arrow = to_arrow_type(kind)
    metadata = None if kind == _spark_type(arrow, name) else {_DECLARED: kind}
    return pa.field(name, arrow, nullable or pa.types.is_null(arrow), metadata)


def map_type(key: pa.DataType, value: pa.DataType | pa.Field) -> pa.DataType:
    """Return the type of a map; Arrow has no keys of VOID, and a map that has is empty, so that any type will do."""
    import pyarrow as pa

    return pa.map_(pa.bool_() if pa.types.is_null(key) else key, value)


def _inner(name: str, kind: pa.DataType, nullable: bool) -> pa.Field:
    """A part of a nested type; VOID is always nullable in Arrow, though Spark's `array()` has elements that are not."""
    import pyarrow as pa

    return pa.field(name, kind, nullable or pa.types.is_null(kind))


def to_ddl(schema: pa.Schema) -> str:
    """Return Spark's DDL for an Arrow schema.

    >>> to_ddl(to_arrow_schema("id int64 NOT NULL, tags list<utf8>"))
    'id BIGINT NOT NULL, tags ARRAY<STRING>'
    """
    return ", ".join(_column(field) for field in schema)


def declared_type(field: pa.Field) -> str:
    """Return Spark's type of a column, with what Arrow's type does not say: the length of its text, its collation, and so on.

    >>> [declared_type(field) for field in to_arrow_schema("code CHAR(4), name STRING COLLATE UTF8_LCASE, n INT")]
    ['char(4)', 'string collate UTF8_LCASE', 'int']
    """
    return _field_type(field, field.name)


def _field_type(field: pa.Field, column: str) -> str:
    declared = (field.metadata or {}).get(_DECLARED)
    return declared.decode() if declared else _spark_type(field.type, column)


def _spark_type(kind: pa.DataType, column: str) -> str:
    """Spark's own spelling: type names in small letters, names of fields as they are."""
    import pyarrow.types as t

    if t.is_struct(kind) and not is_variant(kind):
        fields = (kind.field(index) for index in range(kind.num_fields))
        return f"struct<{','.join(f'{field.name}:{_field_type(field, column)}' for field in fields)}>"
    if t.is_map(kind):
        return f"map<{_field_type(kind.key_field, column)},{_field_type(kind.item_field, column)}>"
    if t.is_list(kind) or t.is_large_list(kind):
        return f"array<{_field_type(kind.value_field, column)}>"
    return type_to_ddl(kind, column=column).lower()


def is_variant(kind: pa.DataType) -> bool:
    """Say whether a type is the struct in which Spark and PySpark write a VARIANT."""
    import pyarrow.types as t

    if not t.is_struct(kind):
        return False
    fields = {field.name: field for field in kind}
    return (
        fields.keys() == {"value", "metadata"}
        and _VARIANT.items() <= (fields["metadata"].metadata or {}).items()
    )


def _variant_type() -> pa.DataType:
    import pyarrow as pa

    return pa.struct(
        [pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False, _VARIANT)]
    )


def type_to_ddl(kind: pa.DataType, *, column: str = "value") -> str:
    """Return Spark's name for an Arrow type; one that Spark lacks is an error that names the column."""
    import pyarrow.types as t

    for is_kind, name in _ddl_names():
        if is_kind(kind):
            return name
    if t.is_decimal(kind) and kind.precision <= 38:
        return f"DECIMAL({kind.precision},{kind.scale})"
    if t.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz else "TIMESTAMP_NTZ"
    if t.is_dictionary(kind):
        return type_to_ddl(kind.value_type, column=column)
    if t.is_map(kind):
        key, item = (type_to_ddl(part, column=column) for part in (kind.key_type, kind.item_type))
        return f"MAP<{key}, {item}>"
    if t.is_struct(kind):
        if is_variant(kind):
            return "VARIANT"
        fields = (kind.field(index) for index in range(kind.num_fields))
        return f"STRUCT<{', '.join(_column(field, colon=True) for field in fields)}>"
    if t.is_time(kind):
        return f"TIME({_MOST_DIGITS})"
    if hasattr(kind, "value_type"):
        return f"ARRAY<{type_to_ddl(kind.value_type, column=column)}>"
    raise ConfigError(
        f"column '{column}' has the Arrow type {kind}, which Spark does not have",
        code="CONFIG_SCHEMA_TYPE",
        hint="cast the column to another type first",
    )


def _ddl_names() -> tuple[tuple[Any, str], ...]:
    import pyarrow.types as t

    return (
        (t.is_boolean, "BOOLEAN"),
        (t.is_int8, "TINYINT"),
        (lambda kind: t.is_int16(kind) or t.is_uint8(kind), "SMALLINT"),
        (lambda kind: t.is_int32(kind) or t.is_uint16(kind), "INT"),
        (lambda kind: t.is_int64(kind) or t.is_uint32(kind), "BIGINT"),
        (t.is_uint64, "DECIMAL(20,0)"),
        (lambda kind: t.is_float32(kind) or t.is_float16(kind), "FLOAT"),
        (t.is_float64, "DOUBLE"),
        (lambda kind: t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind), "STRING"),
        (
            lambda kind: (
                t.is_binary(kind)
                or t.is_large_binary(kind)
                or t.is_binary_view(kind)
                or t.is_fixed_size_binary(kind)
            ),
            "BINARY",
        ),
        (t.is_date, "DATE"),
        (t.is_duration, "INTERVAL DAY TO SECOND"),
        (t.is_interval, "INTERVAL"),
        (t.is_null, "VOID"),
    )


def _column(field: pa.Field, *, colon: bool = False) -> str:
    name = field.name if re.fullmatch(r"[A-Za-z_]\w*", field.name) else f"`{field.name.replace('`', '``')}`"
    comment = (field.metadata or {}).get(b"comment")
    return "".join(
        (
            f"{name}:" if colon else name,
            f" {_column_type(field)}",
            "" if field.nullable else " NOT NULL",
            " COMMENT '{}'".format(comment.decode().replace("\\", "\\\\").replace("'", "\\'"))
            if comment
            else "",
        )
    )


def _column_type(field: pa.Field) -> str:
    """The type of a column in DDL. Spark's readers refuse CHAR and VARCHAR, which are STRING here."""
    declared = (field.metadata or {}).get(_DECLARED, b"").decode()
    plain = re.sub(r"\b(?:var)?char\(\d+\)", "string", declared)
    if plain in ("", "string"):
        return type_to_ddl(field.type, column=field.name)
    return plain if "<" in plain else plain.upper()


def _field_of_json(field: dict[str, Any]) -> pa.Field:

    spark_metadata = field.get("metadata") or {}
    metadata: dict[bytes | str, str] = (
        {"comment": str(spark_metadata["comment"])} if spark_metadata.get("comment") else {}
    )
    name = _name_of_json(field["type"], spark_metadata.get("__COLLATIONS") or {}, field["name"])
    kind = _type_of_json(field["type"])
    if name != _spark_type(kind, field["name"]):
        metadata[_DECLARED] = name
    return _inner(field["name"], kind, field["nullable"]).with_metadata(metadata or None)


def _name_of_json(kind: Any, collations: Mapping[str, str], path: str) -> str:
    """Spark's name of a type of a column; `collations` has that of the text at each path, as `tags.element`."""
    if isinstance(kind, str):
        collation = collations.get(path)
        return (
            _Ddl(f"string collate {collation.rpartition('.')[2]}" if collation else kind).single_type().spark
        )
    match kind["type"]:
        case "array":
            return f"array<{_name_of_json(kind['elementType'], collations, path + '.element')}>"
        case "map":
            key = _name_of_json(kind["keyType"], collations, path + ".key")
            return f"map<{key},{_name_of_json(kind['valueType'], collations, path + '.value')}>"
        case "udt":
            return _name_of_json(kind["sqlType"], collations, path)
        case _:
            fields = [_field_of_json(field) for field in kind["fields"]]
            return f"struct<{','.join(f'{field.name}:{declared_type(field)}' for field in fields)}>"


def _type_of_json(kind: Any) -> pa.DataType:
    import pyarrow as pa

    if isinstance(kind, str):
        return to_arrow_type(kind)
    match kind["type"]:
        case "array":
            return pa.list_(_inner("element", _type_of_json(kind["elementType"]), kind["containsNull"]))
        case "map":
            value = _inner("value", _type_of_json(kind["valueType"]), kind["valueContainsNull"])
            return map_type(_type_of_json(kind["keyType"]), value)
        case "udt":
            return _type_of_json(kind["sqlType"])
        case _:
            return pa.struct([_field_of_json(field) for field in kind["fields"]])


_TOKEN = re.compile(
    r"""\s*(?:
        (?P<quoted>`(?:[^`]|``)*`)
      | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<word>\w+)
      | (?P<mark>[<>(),:\[\]=+\-/])
    )""",
    re.VERBOSE,
)


class _Ddl:
    """A recursive-descent reader of one DDL text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                at += len(text[at:]) - len(text[at:].lstrip())
                raise self._error(f"unexpected {text[at]!r}", at)
            self.tokens.append((match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
            at = match.end()
        self.next = 0

    def schema(self) -> pa.Schema:
        import pyarrow as pa

        if self._peek().lower() == "struct" and self._peek(1) == "<":
            fields = list(self.single_type().arrow)
        elif not self.tokens:
            fields = []
        else:
            fields = self._columns(end="")
        names: set[str] = set()
        for field in fields:
            if field.name in names:
                raise self._error(f"column '{field.name}' is there twice", 0)
            names.add(field.name)
        return pa.schema(fields)

    def single_type(self) -> _Type:
        kind = self._type()
        if self.next < len(self.tokens):
            raise self._unexpected("the end")
        return kind

    def _columns(self, *, end: str) -> list[pa.Field]:
        fields = [self._field()]
        while self._take(","):
            fields.append(self._field())
        if self._peek() != end:
            raise self._unexpected("',' or a column's end")
        return fields

    def _field(self) -> pa.Field:
        import pyarrow as pa

        name = self._name()
        self._take(":")
        kind, declared = self._type()
        nullable = True
        metadata = {} if declared == _spark_type(kind, name) else {_DECLARED: declared}
        while True:
            if self._words("not", "null"):
                nullable = False
            elif self._words("null"):
                nullable = True
            elif self._words("comment"):
                metadata[b"comment"] = self._string()
            else:
                return pa.field(name, kind, nullable, metadata or None)

    def _name(self) -> str:
        token, value, _ = self._token("a column name")
        if token == "quoted":
            value = value[1:-1].replace("``", "`")
        elif token != "word":
            self.next -= 1
            raise self._unexpected("a column name")
        return value

    def _string(self) -> str:
        token, value, _ = self._token("a comment in quotes")
        if token != "text":
            self.next -= 1
            raise self._unexpected("a comment in quotes")
        return re.sub(r"\\(.)", r"\1", value[1:-1])

    def _type(self) -> _Type:
        import pyarrow as pa

        token, word, at = self._token("a type")
        if token != "word":
            self.next -= 1
            raise self._unexpected("a type")
        name = word.lower()
        if name in _DECIMAL:
            return self._named(self._decimal(at))
        if name in _SIZED:
            if name == "character":
                name = "varchar" if self._words("varying") else "char"
            self._expect("(")
            length = self._number("a length")
            self._expect(")")
            return _Type(pa.string(), f"{name}({length})")
        if name in _READERS:
            return _READERS[name](self)
        if name not in _PLAIN:
            raise ConfigError(
                f"unknown type '{word}'",
                code="CONFIG_UNKNOWN_TYPE",
                where=self._location(at),
                hint=suggest(word, TYPE_NAMES, what="type"),
            )
        return self._plain(name)

    @staticmethod
    def _named(kind: pa.DataType) -> _Type:
        return _Type(kind, _spark_type(kind, ""))

    def _plain(self, name: str) -> _Type:
        import pyarrow as pa

        factory, arguments = _PLAIN[name]
        if name in ("timestamp", "duration", "time32", "time64") and self._take("["):
            # Arrow's own spelling: timestamp[us], timestamp[ns, tz=UTC], duration[us]; Spark keeps microseconds.
            zone = False
            while not self._take("]"):
                zone = self._token("']'")[1] == "tz" or zone
            if name == "timestamp":
                return self._named(pa.timestamp("us", tz=UTC if zone else None))
        if name == "string" and self._words("collate"):
            collation = self._name()
            if collation.upper() != "UTF8_BINARY":
                return _Type(pa.string(), f"string collate {collation}")
        return self._named(getattr(pa, factory)(*arguments))

    def _decimal(self, at: int) -> pa.DataType:
        import pyarrow as pa

        precision, scale = 10, 0
        if self._take("("):
            precision = self._number("a precision")
            if self._take(","):
                scale = self._number("a scale")
            self._expect(")")
        if not (1 <= precision <= 38 and scale <= precision):
            raise self._error(
                f"DECIMAL({precision},{scale}) is out of range: precision 1 to 38, scale at most precision",
                at,
            )
        return pa.decimal128(precision, scale)

    def _array(self) -> _Type:
        import pyarrow as pa

        self._expect("<")
        if self._peek(1) == ":":  # Arrow writes list<item: int64>
            self.next += 2
        kind, name = self._type()
        nullable = not self._words("not", "null")
        self._expect(">")
        return _Type(pa.list_(_inner("element", kind, nullable)), f"array<{name}>")

    def _map(self) -> _Type:
        self._expect("<")
        key, key_name = self._type()
        self._expect(",")
        value, value_name = self._type()
        nullable = not self._words("not", "null")
        self._expect(">")
        return _Type(map_type(key, _inner("value", value, nullable)), f"map<{key_name},{value_name}>")

    def _struct(self) -> _Type:
        import pyarrow as pa

        self._expect("<")
        fields = [] if self._peek() == ">" else self._columns(end=">")
        self._expect(">")
        return self._named(pa.struct(fields))

    def _time(self) -> _Type:
        import pyarrow as pa

        digits = _MOST_DIGITS
        if self._take("("):
            digits = self._number("a precision")
            if digits > _MOST_DIGITS:
                self.next -= 1
                raise self._unexpected(f"a precision from 0 to {_MOST_DIGITS}")
            self._expect(")")
        return _Type(pa.time64("ns"), f"time({digits})")

    def _variant(self) -> _Type:
        return _Type(_variant_type(), "variant")

    def _interval(self) -> _Type:
        import pyarrow as pa

        unit = self._peek().lower()
        if unit not in _YEAR_MONTH + _DAY_TIME:
            return _Type(pa.month_day_nano_interval(), "interval")
        group = _YEAR_MONTH if unit in _YEAR_MONTH else _DAY_TIME
        arrow = pa.month_day_nano_interval() if group is _YEAR_MONTH else pa.duration("us")
        self.next += 1
        if not self._words("to"):
            return _Type(arrow, f"interval {unit}")
        smaller = group[group.index(unit) + 1 :]
        last = self._peek().lower()
        if last not in smaller:
            raise self._unexpected(f"one of {', '.join(smaller)}" if smaller else "no smaller unit")
        self.next += 1
        return _Type(arrow, f"interval {unit} to {last}")

    def _peek(self, ahead: int = 0) -> str:
        at = self.next + ahead
        return self.tokens[at][1] if at < len(self.tokens) else ""

    def _take(self, mark: str) -> bool:
        taken = self._peek() == mark
        self.next += taken
        return taken

    def _words(self, *words: str) -> bool:
        taken = all(self._peek(ahead).lower() == word for ahead, word in enumerate(words))
        self.next += len(words) if taken else 0
        return taken

    def _expect(self, mark: str) -> None:
        if not self._take(mark):
            raise self._unexpected(f"'{mark}'")

    def _number(self, what: str) -> int:
        if not self._peek().isdecimal():
            raise self._unexpected(what)
        self.next += 1
        return int(self.tokens[self.next - 1][1])

    def _token(self, what: str) -> tuple[str, str, int]:
        if self.next >= len(self.tokens):
            raise self._unexpected(what)
        self.next += 1
        return self.tokens[self.next - 1]

    def _unexpected(self, wanted: str) -> ConfigError:
        if self.next < len(self.tokens):
            _, value, at = self.tokens[self.next]
            return self._error(f"expected {wanted}, got {value!r}", at)
        return self._error(f"expected {wanted}, but the text ends", len(self.text))

    def _error(self, message: str, at: int) -> ConfigError:
        return ConfigError(
            f"the schema cannot be read: {message}",
            code="CONFIG_SCHEMA_SYNTAX",
            where=self._location(at),
            hint="write columns as in 'id BIGINT NOT NULL, amount DECIMAL(10,2), tags ARRAY<STRING>'",
        )

    def _location(self, at: int) -> str:
        return f"column {at + 1} of {self.text.strip()!r}"


_READERS = {
    "array": _Ddl._array,
    "list": _Ddl._array,
    "map": _Ddl._map,
    "struct": _Ddl._struct,
    "interval": _Ddl._interval,
    "time": _Ddl._time,
    "variant": _Ddl._variant,
}
