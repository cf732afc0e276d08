"""Rows of a file for a source, read without Spark: Parquet, CSV, JSON or Arrow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.operation import WEIGHT
from penstock.data.rows import to_arrow
from penstock.data.schema import to_arrow_field
from penstock.errors import ConfigError, DataError
from penstock.plan.node import Field
from penstock.sql.files import extension

READABLE = (".parquet", ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".arrow", ".feather")


def read_rows(path: Path, fields: Sequence[Field]) -> pa.Table:
    """The rows of a file, with columns of the types of a source where the file does not say them."""
    form = extension(str(path))
    if form not in READABLE:
        raise ConfigError(
            f"'{path}' has the extension '{form}'" if form else f"'{path}' has no extension",
            code="ROWS_FILE",
            hint=f"readable are {' '.join(READABLE)}",
        )
    try:
        table = _read(path, form, fields)
    except FileNotFoundError:
        raise ConfigError(f"no file '{path.absolute()}'", code="ROWS_FILE") from None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, OSError) as error:
        text = str(error).strip().split("\n")[0]
        raise DataError(f"cannot read '{path}': {text}", code="ROWS_FILE") from None
    return _in_utc(table, fields)


def _read(path: Path, form: str, fields: Sequence[Field]) -> pa.Table:
    if form == ".parquet":
        from pyarrow import parquet

        return parquet.read_table(path)
    if form in (".arrow", ".feather"):
        from pyarrow import feather

        with path.open("rb") as file:
            is_file = file.read(6) == b"ARROW1"
        if is_file:
            return feather.read_table(path)
        with pa.ipc.open_stream(path.read_bytes()) as reader:
            return reader.read_all()
    if form in (".csv", ".tsv"):
        return _csv(path, "\t" if form == ".tsv" else ",", fields)
    return _json(path, fields)


def _csv(path: Path, separator: str, fields: Sequence[Field]) -> pa.Table:
    from pyarrow import csv

    return csv.read_csv(
        path,
        parse_options=csv.ParseOptions(delimiter=separator, newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=_types(fields),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _json(path: Path, fields: Sequence[Field]) -> pa.Table:
    from pyarrow import json as arrow_json

    if path.suffix != ".gz" and path.read_bytes()[:1000].lstrip().startswith(b"["):
        return to_arrow(json.loads(path.read_text(encoding="utf-8")))
    # A column of the schema that the file does not have would be one of NULLs.
    names = arrow_json.read_json(path).column_names
    schema = pa.schema([(name, kind) for name, kind in _types(fields).items() if name in names])
    return arrow_json.read_json(path, parse_options=arrow_json.ParseOptions(explicit_schema=schema))


def _types(fields: Sequence[Field]) -> dict[str, pa.DataType]:
    """The types of columns that texts are read as; times are recognised, with or without a zone."""
    kinds = {field.name: to_arrow_field(field.name, field.type).type for field in fields}
    plain = {name: kind for name, kind in kinds.items() if not pa.types.is_timestamp(kind)}
    return {name: kind for name, kind in plain.items() if not pa.types.is_nested(kind)} | {WEIGHT: pa.int64()}


def _in_utc(table: pa.Table, fields: Sequence[Field]) -> pa.Table:
    """Times without a zone in a column with one are times of UTC."""
    zoned = {field.name for field in fields if field.type == "timestamp"}
    for at, field in enumerate(table.schema):
        if field.name in zoned and pa.types.is_timestamp(field.type) and field.type.tz is None:
            table = table.set_column(at, field.name, pc.assume_timezone(table.column(at), "UTC"))
    return table
