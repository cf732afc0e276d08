"""Avro as rows: Spark's own decoder, plain or in the format of schema registries.

In a registry's format a record begins with a zero byte and the id of the schema it was written with. Spark's decoder knows one
writer's schema, so a topic with several has a decoder for each, chosen by the first five bytes. An id that no decoder has stops
the batch before anything is written; the registry returns its schema, and the batch runs again with one decoder more.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError
from penstock.sources.json_record import PARSED
from penstock.sources.schema_registry import Registered, SchemaRegistry

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import DataType

    from penstock.spark.errors.cause import Fault

OK = "_penstock_ok"
MARK = "PENSTOCK_NEW_SCHEMA "
HEAD = 5
LONGEST = 64 << 20
"""No string of a record is longer: a damaged length must not take all of the memory."""


def text_of(schema: Any) -> str:
    """Return the JSON text of an Avro schema: the text itself, a dictionary, or the path of a file."""
    if isinstance(schema, Mapping | list):
        return json.dumps(schema)
    text = str(os.fspath(schema))
    if text.lstrip().startswith(("{", "[", '"')):
        return text
    path = Path(text).expanduser()
    if not path.is_file():
        raise ConfigError(
            f"no Avro schema in {text!r}",
            code="AVRO_SCHEMA",
            hint='give it as JSON, as a dictionary, or as the path of a file: schema="orders.avsc"',
        )
    return path.read_text(encoding="utf-8")


def parsed(spark: SparkSession, texts: tuple[str, ...], *, where: str | None = None) -> Any:
    """Return Avro's own object of the last schema; those before it are what it refers to."""
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark._jvm
    for name in ("string", "bytes"):
        limit = f"org.apache.avro.limits.{name}.maxLength"
        if jvm.java.lang.System.getProperty(limit) is None:
            jvm.java.lang.System.setProperty(limit, str(LONGEST))
    parser = jvm.org.apache.avro.Schema.Parser()
    try:
        return [parser.parse(text) for text in texts][-1]
    except Py4JJavaError as error:
        reason = str(error.java_exception.getMessage()).split("\n")[0]
        raise ConfigError(f"this is not an Avro schema: {reason}", code="AVRO_SCHEMA", where=where) from None


def as_record(schema: Any) -> dict[str, Any]:
    """Return the JSON of a schema, which must be a record."""
    record = json.loads(schema.toString())
    if not isinstance(record, dict) or record.get("type") != "record":
        raise ConfigError(
            "values need the Avro schema of a record, whose fields are the columns", code="AVRO_SCHEMA"
        )
    return record


@dataclass(slots=True)
class AvroDecoder:
    """Avro records as rows of a reader's schema; `writers` are the schemas by id, None for plain Avro."""

    spark: SparkSession
    reader: dict[str, Any]
    registry: SchemaRegistry | None = None
    writers: dict[int, str] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    """Why records of an id cannot be read."""
    keys: AvroKeys | None = None
    """What decodes the keys of records, when they are Avro, too."""
    alias: str = field(default_factory=lambda: f"{PARSED}_{uuid.uuid4().hex[:12]}")

    def parse(self, value: Column) -> Column:
        """Return the column of a decoded record, whose field `_penstock_ok` is NULL when it is bad."""
        from pyspark.sql import functions as F
        from pyspark.sql.avro.functions import from_avro

        # A field that no writer has: its default is there when the record could be read.
        fields = [*self.reader["fields"], {"name": OK, "type": "boolean", "default": True}]
        options = {"mode": "PERMISSIVE", "avroSchema": json.dumps({**self.reader, "fields": fields})}
        if self.registry is None:
            return from_avro(value, json.dumps(self.reader), options)
        head, body = F.substring(value, 1, HEAD), F.substring(value, HEAD + 1, (1 << 31) - 1)
        unknown = F.raise_error(F.concat(F.lit(MARK), F.hex(head), F.lit("\n")))
        nothing = from_avro(F.lit(None).cast("binary"), json.dumps(self.reader), options)
        decoded = F.when(value.isNull() | (F.octet_length(head) < HEAD), nothing)
        for number, writer in self.writers.items():
            decoded = decoded.when(head == F.lit(_head(number)), from_avro(body, writer, options))
        for number in self.reasons:
            decoded = decoded.when(head == F.lit(_head(number)), nothing)
        return decoded.when(F.substring(head, 1, 1) == F.lit(b"\0"), unknown).otherwise(nothing)

    def is_bad(self, value: Column, parsed: Column) -> Column:
        """Return whether a value is there and could not be decoded."""
        return value.isNotNull() & parsed.getField(OK).isNull()

    def columns(self, parsed: Column) -> list[Column]:
        """Return the columns of a decoded record."""
        return [parsed.getField(field["name"]).alias(field["name"]) for field in self.reader["fields"]]

    def why(self, max_bytes: int | None) -> WhyNotAvro:
        """Return what says why a value is bad."""
        return WhyNotAvro(max_bytes, self.registry is not None, self.reasons)

    def learn(self, number: int, registered: Registered | None) -> None:
        """Remember the schema of an id, or why it cannot be used."""
        if registered is None:
            self.reasons[number] = f"its schema, id {number}, is not in the registry"
        elif registered.kind != "AVRO":
            self.reasons[number] = f"its schema, id {number}, is not Avro but {registered.kind}"
        else:
            writer = parsed(self.spark, registered.texts, where=f"schema id {number}")
            problem = self._incompatible(writer)
            if problem is None:
                self.writers[number] = str(writer.toString())
            else:
                self.reasons[number] = (
                    f"it was written with schema id {number}, which does not fit: {problem}"
                )

    def learn_from(self, faults: tuple[Fault, ...]) -> bool:
        """Ask the registry for an id that stopped a batch; False when that is not what has failed."""
        head = next((fault.message.partition(MARK)[2] for fault in faults if MARK in fault.message), "")
        if self.registry is None or len(head) < 2 * HEAD:
            return False
        number = int(head[2 : 2 * HEAD], 16)
        if number in self.writers or number in self.reasons:
            return False
        self.learn(number, self.registry.schema(number))
        return True

    def _incompatible(self, writer: Any) -> str | None:
        jvm: Any = self.spark._jvm
        reader = jvm.org.apache.avro.Schema.Parser().parse(json.dumps(self.reader))
        result = jvm.org.apache.avro.SchemaCompatibility.checkReaderWriterCompatibility(
            reader, writer
        ).getResult()
        if str(result.getCompatibility().toString()) == "COMPATIBLE":
            return None
        return "; ".join(_described(problem) for problem in result.getIncompatibilities())


@dataclass(frozen=True, slots=True)
class AvroKeys:
    """Keys of records in a registry's format; `schemas` are those of the subject of the keys, by id."""

    schemas: Mapping[int, str]

    def has_form(self, key: Column) -> Column:
        """Return whether a key has the format, which neither JSON nor a plain value has."""
        from pyspark.sql import functions as F

        return F.substring(key, 1, 1) == F.lit(b"\0")

    def value(self, key: Column, name: str, kind: DataType, *, alone: bool) -> Column:
        """Return a column out of a key: a field, or the key itself when it is the only one. NULL cannot be read."""
        from pyspark.sql import functions as F
        from pyspark.sql.avro.functions import from_avro

        head, body = F.substring(key, 1, HEAD), F.substring(key, HEAD + 1, (1 << 31) - 1)
        nothing = F.lit(None).cast(kind)
        value = F.when(key.isNull(), nothing)
        for number, text in self.schemas.items():
            schema = json.loads(text)
            is_record = isinstance(schema, dict) and schema.get("type") == "record"
            if not alone and not is_record:
                continue
            if is_record and name not in [field["name"] for field in schema["fields"]]:
                continue
            decoded = from_avro(body, text, {"mode": "PERMISSIVE"})
            part = decoded.getField(name) if is_record else decoded
            value = value.when(head == F.lit(_head(number)), part.try_cast(kind))
        return value.otherwise(nothing)


def with_key_schemas(spark: SparkSession, registry: SchemaRegistry, subjects: list[str]) -> AvroKeys | None:
    """Return what decodes keys; None when the registry has no Avro schema of the subjects."""
    registered = [schema for name in subjects for schema in registry.all(name) if schema.kind == "AVRO"]
    schemas = {schema.id: str(parsed(spark, schema.texts).toString()) for schema in registered}
    return AvroKeys(schemas) if schemas else None


@dataclass(frozen=True, slots=True)
class WhyNotAvro:
    """Says why bytes could not be decoded."""

    max_bytes: int | None
    wire: bool
    reasons: Mapping[int, str]

    def __call__(self, raw: bytes | None) -> str:
        if raw is None:
            return "it has no value"
        value = bytes(raw)
        if self.max_bytes is not None and len(value) > self.max_bytes:
            return f"it is larger than max_record_bytes={self.max_bytes}"
        if not self.wire:
            return "it is not Avro of this schema: cut short, damaged, or written with another one"
        if len(value) < HEAD:
            return f"it is too short for the id of a schema ({len(value)} bytes)"
        if value[0] != 0:
            return f"it begins with the byte 0x{value[0]:02x}, not with the 0x00 of a registry's format"
        number = int.from_bytes(value[1:HEAD], "big")
        return self.reasons.get(number, f"it is not Avro of schema id {number}: cut short or damaged")


def with_writers(
    spark: SparkSession, schema: Any, registry: SchemaRegistry | None, subjects: list[str]
) -> AvroDecoder:
    """Return a decoder that knows the schemas of the subjects; without a schema, the newest is the reader's."""
    newest: Registered | None = None
    if schema is None:
        assert registry is not None
        newest = next((latest for name in subjects if (latest := registry.latest(name)) is not None), None)
        if newest is None:
            raise ConfigError(
                f"the schema registry has no subject {' or '.join(map(repr, subjects))}",
                code="SCHEMA_REGISTRY_SUBJECT",
                where=registry.location,
                hint="name it with subject=..., or give the columns with schema=...",
            )
    texts = (text_of(schema),) if newest is None else newest.texts
    decoder = AvroDecoder(spark, as_record(parsed(spark, texts)), registry)
    writers = [] if registry is None else [schema for name in subjects for schema in registry.all(name)]
    for registered in writers:
        decoder.learn(registered.id, registered)
    return decoder


def _head(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big")


def _described(problem: Any) -> str:
    field = str(problem.getLocation()).removeprefix("/fields/")
    return f"{problem.getType()} at {field} ({problem.getMessage()})"
