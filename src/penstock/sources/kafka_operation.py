"""What a record of Kafka does to the row with its key: by a header, by Debezium's envelope, or because it has no value.

The result is the column `_op`: `i`, `u` or `d`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from penstock.data.operation import DELETE, INSERT, UPDATE
from penstock.errors import ConfigError
from penstock.sources.avro_record import AvroDecoder, AvroKeys
from penstock.sources.decimal_text import narrowed
from penstock.sources.json_record import DOES_NOT_FIT, JsonDecoder

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

    from penstock.sources.bad_record import Why

Operations = Literal["none", "header", "upsert", "debezium"]

HEADER = "dbz.op"
OF_DEBEZIUM = {"c": INSERT, "r": INSERT, "u": UPDATE, "d": DELETE}
"""What Debezium writes: create, read (of a snapshot), update, delete."""
OF_HEADERS = {**OF_DEBEZIUM, INSERT: INSERT}
PAYLOAD = "payload"


def of_header(headers: Column, value: Column, *, without: str = INSERT) -> Column:
    """Return the operation that a header says. NULL is unknown.

    Without the header a record without a value is a delete; `without` is what others are.
    """
    from pyspark.sql import functions as F

    named = F.filter(headers, lambda header: header.getField("key") == HEADER)
    word = F.try_element_at(named, F.lit(-1)).getField("value").cast("string")
    without_header = F.when(value.isNull(), F.lit(DELETE)).otherwise(F.lit(without))
    return F.when(word.isNull(), without_header).otherwise(_translated(word, OF_HEADERS))


def of_key(key: Column, columns: Mapping[str, DataType], avro: AvroKeys | None = None) -> dict[str, Column]:
    """Return the columns of a primary key out of the key of a record: JSON, of one column also the plain value, or
    Avro. NULL cannot be read."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructField, StructType

    text = key.cast("string")
    fields = [StructField(name, kind) for name, kind in columns.items()]
    if not fields:
        return {}
    parsed = F.from_json(text, StructType([*fields, StructField(PAYLOAD, StructType(fields))]))
    values = {
        name: F.coalesce(parsed.getField(name), parsed.getField(PAYLOAD).getField(name)) for name in columns
    }
    if len(columns) == 1:
        [(name, kind)] = columns.items()
        quoted = F.get_json_object(F.concat(F.lit("["), text, F.lit("]")), "$[0]")
        plain = F.when(text.startswith('"'), quoted).otherwise(text).try_cast(kind)
        values[name] = F.when(text.startswith("{"), values[name]).otherwise(plain)
    if avro is None:
        return values
    return {
        name: F.when(avro.has_form(key), avro.value(key, name, kind, alone=len(columns) == 1)).otherwise(
            values[name]
        )
        for name, kind in columns.items()
    }


@dataclass(frozen=True, slots=True)
class EnvelopeDecoder:
    """Change events of Debezium as rows: those before a delete, those after everything else."""

    inner: JsonDecoder | AvroDecoder
    names: tuple[str, ...]
    """The columns of the rows."""

    @classmethod
    def of_json(cls, row: StructType) -> EnvelopeDecoder:
        """Events in JSON, with or without the schema that Kafka Connect writes beside them."""
        from pyspark.sql.types import StringType, StructField, StructType

        event = [
            StructField("op", StringType()),
            StructField("before", row),
            StructField("after", row),
        ]
        return cls(
            JsonDecoder(StructType([*event, StructField(PAYLOAD, StructType(event))])), tuple(row.names)
        )

    @classmethod
    def of_avro(cls, decoder: AvroDecoder) -> EnvelopeDecoder:
        """Events in Avro, whose schema is that of the envelope."""
        fields = {field["name"]: field["type"] for field in decoder.reader["fields"]}
        rows = [
            part
            for name in ("before", "after")
            for part in _union(fields.get(name))
            if isinstance(part, Mapping) and part.get("type") == "record"
        ]
        if not rows or not {"op", "before", "after"} <= fields.keys():
            raise ConfigError(
                "the Avro schema is not one of Debezium's change events: it has no op, before and after",
                code="AVRO_SCHEMA",
                hint='operations="header" reads rows without an envelope',
            )
        return cls(decoder, tuple(field["name"] for field in rows[0]["fields"]))

    @property
    def alias(self) -> str:
        """The name of the column with all that is in a value."""
        return self.inner.alias

    def parse(self, value: Column) -> Column:
        """Return one column with all that is in a value."""
        return self.inner.parse(value)

    def is_bad(self, value: Column, parsed: Column) -> Column:
        """Return whether a value is there and is no event with a row."""
        from pyspark.sql import functions as F

        no_event = self.operation(parsed).isNull() | self._row(parsed).isNull()
        return F.coalesce(self.inner.is_bad(value, parsed), F.lit(False)) | (value.isNotNull() & no_event)

    def columns(self, parsed: Column) -> list[Column]:
        """Return the columns of the row."""
        row = self._row(parsed)
        return [row.getField(name).alias(name) for name in self.names]

    def operation(self, parsed: Column) -> Column:
        """Return what the event does; NULL for what changes no row."""
        return _translated(self._field(parsed, "op"), OF_DEBEZIUM)

    def why(self, max_bytes: int | None) -> Why:
        """Return what says why a value is bad."""
        return WhyNoEvent(self.inner.why(max_bytes))

    def _row(self, parsed: Column) -> Column:
        from pyspark.sql import functions as F

        before, after = self._field(parsed, "before"), self._field(parsed, "after")
        return F.when(self._field(parsed, "op") == "d", before).otherwise(after)

    def _field(self, parsed: Column, name: str) -> Column:
        from pyspark.sql import functions as F

        if isinstance(self.inner, AvroDecoder):
            return parsed.getField(name)
        fields = narrowed(parsed, self.inner.schema)
        return F.coalesce(fields[name], fields[PAYLOAD].getField(name))


@dataclass(frozen=True, slots=True)
class WhyNoEvent:
    """Says why bytes are no change event."""

    inner: Why

    def __call__(self, raw: bytes | None) -> str:
        reason = self.inner(raw)
        is_general = reason == DOES_NOT_FIT
        return f"{reason}, or is no change event of a row (op c, r, u or d)" if is_general else reason


def _translated(word: Column, words: Mapping[str, str]) -> Column:
    from pyspark.sql import functions as F

    return F.element_at(F.create_map(*[F.lit(text) for pair in words.items() for text in pair]), word)


def _union(kind: Any) -> Sequence[Any]:
    return kind if isinstance(kind, list) else [kind]
