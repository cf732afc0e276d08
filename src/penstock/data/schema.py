"""Schemas as users write them (Arrow, PySpark, DDL text) as one thing: a `pyarrow.Schema`.

DDL is parsed here, without a JVM, with the type names of Spark or of Arrow. Spark's types have these Arrow types:
TIMESTAMP is `timestamp[us, UTC]`, TIMESTAMP_NTZ is `timestamp[us]`, CHAR and VARCHAR are `string`, a day-time interval is
`duration[us]`, and every other interval is `month_day_nano_interval`. Spark has no unsigned integers: Arrow's become the
next wider signed type.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

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
    "duration": ("duration", ("us",)),
    "month_day_nano_interval": ("month_day_nano_interval", ()),
    **dict.fromkeys(("void", "null"), ("null", ())),
}
_DECIMAL = ("decimal", "dec", "numeric", "decimal128")
_SIZED = ("varchar", "char", "character")
_NESTED = ("array", "list", "map", "struct")
_DECLARED = b"spark"  # metadata of a text column: its declared type, when that is more than STRING
TYPE_NAMES = (*_PLAIN, *_DECIMAL, *_SIZED, *_NESTED, "interval")

_YEAR_MONTH = {"year", "month"}
_DAY_TIME = {"day", "hour", "minute", "second"}


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


def to_arrow_type(name: str) -> pa.DataType:
    """Return the Arrow type of a type name of Spark or of Arrow, as in `decimal(10,2)` or `int64`."""
    return _Ddl(name).single_type()


def to_ddl(schema: pa.Schema) -> str:
    """Return Spark's DDL for an Arrow schema.

    >>> to_ddl(to_arrow_schema("id int64 NOT NULL, tags list<utf8>"))
    'id BIGINT NOT NULL, tags ARRAY<STRING>'
    """
    return ", ".join(_column(field) for field in schema)


def declared_type(field: pa.Field) -> str:
    """Return Spark's type of a column, with the length or collation of its text, which Arrow's type does not say.

    >>> [declared_type(field) for field in to_arrow_schema("code CHAR(4), name STRING COLLATE UTF8_LCASE, n INT")]
    ['char(4)', 'string collate UTF8_LCASE', 'int']
    """
    declared = (field.metadata or {}).get(_DECLARED)
    return declared.decode() if declared else _spark_type(field.type, field.name)


def _spark_type(kind: pa.DataType, column: str) -> str:
    """Spark's own spelling: type names in small letters, names of fields as they are."""
    import pyarrow.types as t

    if t.is_struct(kind):
        fields = (kind.field(index) for index in range(kind.num_fields))
        return f"struct<{','.join(f'{field.name}:{_spark_type(field.type, column)}' for field in fields)}>"
    if t.is_map(kind):
        return f"map<{_spark_type(kind.key_type, column)},{_spark_type(kind.item_type, column)}>"
    if t.is_list(kind) or t.is_large_list(kind):
        return f"array<{_spark_type(kind.value_type, column)}>"
    return type_to_ddl(kind, column=column).lower()


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
        fields = (kind.field(index) for index in range(kind.num_fields))
        return f"STRUCT<{', '.join(_column(field, colon=True) for field in fields)}>"
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
            f" {type_to_ddl(field.type, column=field.name)}",
            "" if field.nullable else " NOT NULL",
            " COMMENT '{}'".format(comment.decode().replace("\\", "\\\\").replace("'", "\\'"))
            if comment
            else "",
        )
    )


def _field_of_json(field: dict[str, Any]) -> pa.Field:
    import pyarrow as pa

    spark_metadata = field.get("metadata") or {}
    metadata: dict[bytes | str, str] = (
        {"comment": str(spark_metadata["comment"])} if spark_metadata.get("comment") else {}
    )
    collation = (spark_metadata.get("__COLLATIONS") or {}).get(field["name"])
    if collation:
        metadata[_DECLARED] = f"string collate {collation.rpartition('.')[2]}"
    elif isinstance(field["type"], str) and field["type"].startswith(
        ("char(", "varchar(", "string collate ")
    ):
        metadata[_DECLARED] = field["type"]
    return pa.field(field["name"], _type_of_json(field["type"]), field["nullable"], metadata or None)


def _type_of_json(kind: Any) -> pa.DataType:
    import pyarrow as pa

    if isinstance(kind, str):
        return to_arrow_type(kind)
    match kind["type"]:
        case "array":
            return pa.list_(pa.field("element", _type_of_json(kind["elementType"]), kind["containsNull"]))
        case "map":
            value = pa.field("value", _type_of_json(kind["valueType"]), kind["valueContainsNull"])
            return pa.map_(_type_of_json(kind["keyType"]), value)
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
        self.declared = ""  # of the type read last, when it is text with a length or a collation

    def schema(self) -> pa.Schema:
        import pyarrow as pa

        if self._peek().lower() == "struct" and self._peek(1) == "<":
            fields = list(self.single_type())
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

    def single_type(self) -> pa.DataType:
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
        self.declared = ""
        kind = self._type()
        nullable = True
        metadata = {_DECLARED: self.declared} if self.declared and kind == pa.string() else {}
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

    def _type(self) -> pa.DataType:
        import pyarrow as pa

        token, word, at = self._token("a type")
        if token != "word":
            self.next -= 1
            raise self._unexpected("a type")
        name = word.lower()
        if name in _DECIMAL:
            return self._decimal(at)
        if name in _SIZED:
            if name == "character":
                name = "varchar" if self._words("varying") else "char"
            self._expect("(")
            self.declared = f"{name}({self._number('a length')})"
            self._expect(")")
            return pa.string()
        if name in ("array", "list"):
            return self._array()
        if name == "map":
            return self._map()
        if name == "struct":
            return self._struct()
        if name == "interval":
            return self._interval()
        if name not in _PLAIN:
            raise ConfigError(
                f"unknown type '{word}'",
                code="CONFIG_UNKNOWN_TYPE",
                where=self._location(at),
                hint=suggest(word, TYPE_NAMES, what="type"),
            )
        return self._plain(name)

    def _plain(self, name: str) -> pa.DataType:
        import pyarrow as pa

        factory, arguments = _PLAIN[name]
        if name in ("timestamp", "duration") and self._take("["):
            # Arrow's own spelling: timestamp[us], timestamp[ns, tz=UTC], duration[us]; Spark keeps microseconds.
            zone = False
            while not self._take("]"):
                zone = self._token("']'")[1] == "tz" or zone
            return pa.timestamp("us", tz=UTC if zone else None) if name == "timestamp" else pa.duration("us")
        if name == "string" and self._words("collate"):
            self.declared = f"string collate {self._name()}"
        return getattr(pa, factory)(*arguments)

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

    def _array(self) -> pa.DataType:
        import pyarrow as pa

        self._expect("<")
        if self._peek(1) == ":":  # Arrow writes list<item: int64>
            self.next += 2
        kind = self._type()
        nullable = not self._words("not", "null")
        self._expect(">")
        return pa.list_(pa.field("element", kind, nullable))

    def _map(self) -> pa.DataType:
        import pyarrow as pa

        self._expect("<")
        key = self._type()
        self._expect(",")
        value = self._type()
        nullable = not self._words("not", "null")
        self._expect(">")
        return pa.map_(key, pa.field("value", value, nullable))

    def _struct(self) -> pa.DataType:
        import pyarrow as pa

        self._expect("<")
        fields = [] if self._peek() == ">" else self._columns(end=">")
        self._expect(">")
        return pa.struct(fields)

    def _interval(self) -> pa.DataType:
        import pyarrow as pa

        unit = self._peek().lower()
        if unit not in _YEAR_MONTH | _DAY_TIME:
            return pa.month_day_nano_interval()
        group = _YEAR_MONTH if unit in _YEAR_MONTH else _DAY_TIME
        self.next += 1
        if self._words("to"):
            if self._peek().lower() not in group:
                raise self._unexpected(f"one of {', '.join(sorted(group))}")
            self.next += 1
        return pa.month_day_nano_interval() if group is _YEAR_MONTH else pa.duration("us")

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
