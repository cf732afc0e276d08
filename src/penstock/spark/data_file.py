"""Data files of Iceberg tables on a local disk, read and written by Arrow: a small change needs no job of Spark.

Columns are found by their ids, as Iceberg does it. A file that needs more than that (a column that is not in it or
has another type by now, ids that it does not have, values inside of values) is left to Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.data.types import decimal_parts

if TYPE_CHECKING:
    import pyarrow as pa

FIELD_ID = b"PARQUET:field_id"
CODECS = {"zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "uncompressed": "none", "lz4": "lz4"}
"""What tables call the ways to compress, and what Arrow does."""


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of a table: its name, its type in Spark, and its id."""

    name: str
    kind: str
    id: int


def local_path(location: str) -> Path | None:
    """Where a file is on this machine; None when it is elsewhere.

    >>> local_path("file:/lake/db/t/data/a%20b.parquet")
    PosixPath('/lake/db/t/data/a%20b.parquet')
    >>> local_path("s3://lake/db/t/data/1.parquet") is None
    True
    """
    path = location.removeprefix("file:")
    if path.startswith("//"):
        path = "/" + path.lstrip("/") if path.startswith("///") else ""
    return Path(path) if path.startswith("/") else None


def file_type(kind: str) -> pa.DataType | None:
    """The type in which files have the values of a type of Spark; None of a type that is left to Spark."""
    import pyarrow as pa

    parts = decimal_parts(kind)
    if parts is not None:
        return pa.decimal128(*parts)
    return {
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }.get(kind)


def read_columns(path: Path, columns: Sequence[FileColumn]) -> pa.Table | None:
    """The rows of a file without deletes; None when the file is left to Spark."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        ids = [(field.metadata or {}).get(FIELD_ID) for field in schema]
        if None in ids or len(set(schema.names)) < len(schema.names):
            return None
        fields = {int(number): field for number, field in zip(ids, schema, strict=True) if number is not None}
        chosen = [fields.get(column.id) for column in columns]
        kinds = [file_type(column.kind) for column in columns]
        if any(
            kind is None or field is None or field.type != kind
            for field, kind in zip(chosen, kinds, strict=True)
        ):
            return None
        names = [field.name for field in chosen if field is not None]
        if not names:
            return None
        rows = file.read(columns=names).select(names)
    return rows.rename_columns([column.name for column in columns]).replace_schema_metadata(None)


def write_columns(path: Path, rows: Sequence[pa.Array], columns: Sequence[FileColumn], *, codec: str) -> None:
    """Write a file with these rows, as Iceberg describes it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [
            pa.field(column.name, array.type, nullable=True, metadata={FIELD_ID: str(column.id).encode()})
            for column, array in zip(columns, rows, strict=True)
        ]
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.Table.from_arrays(list(rows), schema=schema),
        path,
        compression=CODECS[codec],
        store_schema=False,
        store_decimal_as_integer=True,
    )
