"""The Avro schema of a topic's values: as the user gave it or as the columns are, and its id in a schema registry."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.sinks.kafka.options import KafkaOptions
from penstock.sources.schema_registry import SchemaRegistry

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class AvroValue:
    """How rows become values."""

    schema: str | None = None
    """As JSON; None: as Spark writes the columns."""
    number: int | None = None
    """The id of the schema, with which values begin in the format of schema registries; None: they do not."""

    @classmethod
    def of(cls, options: KafkaOptions, spark: SparkSession, columns: StructType) -> AvroValue:
        """Return what the options say; with a registry, the schema is there after this."""
        if options.schema_registry is None:
            return cls(options.avro_schema)
        schema = options.avro_schema or _schema_of(spark, columns, name=options.topic)
        registry = SchemaRegistry(options.schema_registry, options.schema_registry_auth)
        return cls(schema, registry.register(options.subject or f"{options.topic}-value", schema))

    def encode(self, row: Column) -> Column:
        """A row as bytes."""
        from pyspark.sql import functions as F  # as PySpark's users have it
        from pyspark.sql.avro.functions import to_avro

        value = to_avro(row, self.schema) if self.schema else to_avro(row)
        if self.number is None:
            return value
        return F.concat(F.lit(bytes(1) + self.number.to_bytes(4, "big")), value)


def _schema_of(spark: SparkSession, columns: StructType, *, name: str) -> str:
    """The schema that Spark makes of columns, with the topic's name as that of the record."""
    jvm: Any = spark._jvm
    kind = jvm.org.apache.spark.sql.types.DataType.fromJson(columns.json())
    record = re.sub(r"\W|^(?=\d)", "_", name, flags=re.ASCII)
    return str(jvm.org.apache.spark.sql.avro.SchemaConverters.toAvroType(kind, False, record, "").toString())
