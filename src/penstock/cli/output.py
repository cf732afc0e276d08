"""Rows on stdout as a table, JSON lines, CSV or an Arrow stream, written while they arrive.

`json` is one object per line, which is what `jq` and pipes like; `csv` has a header and RFC 4180's quoting with plain
line ends; `arrow` is an IPC stream. A table on a terminal is cut to its width; in a pipe nothing is cut.
"""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from penstock import config
from penstock.cli import table
from penstock.cli.value import JsonText, csv_text, json_text
from penstock.errors import ConfigError
from penstock.spark.variant import holds_variants, variants_as_text

if TYPE_CHECKING:
    import pyarrow as pa

Row = Sequence[Any]

SAMPLE_ROWS = 1_000
"""The rows that decide how wide the columns of a table are."""


class Format(StrEnum):
    """How data is printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"


Output = Annotated[
    Format,
    typer.Option(
        "--output",
        "-o",
        metavar="FORMAT",
        help="How rows are printed: table, json, csv or arrow.",
        show_default="table",
        case_sensitive=False,
    ),
]
"""The type of a command's `--output` option; its default is `Format.TABLE`."""


@dataclass(frozen=True, slots=True)
class Written:
    """What was printed: how many rows, and whether there were more than the limit."""

    rows: int
    more: bool = False


def write_rows(
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[str],
    *,
    output: Format = Format.TABLE,
    stream: TextIO | None = None,
) -> Written:
    """Print rows that a command made itself, in the order of `columns`; a missing key is NULL.

    >>> _ = write_rows([{"name": "kafka", "jars": 4}], ["name", "jars"], output=Format.JSON)
    {"name": "kafka", "jars": 4}
    """
    values = [tuple(row.get(name) for name in columns) for row in rows]
    stream = stream or sys.stdout
    if output is Format.ARROW:
        import pyarrow as pa

        table = pa.table({name: [row[index] for row in values] for index, name in enumerate(columns)})
        return _write_arrow(table.schema, table.to_batches(), stream)
    return _WRITERS[output](tuple(columns), iter(values), stream, None)


def write_batches(
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    output: Format = Format.TABLE,
    limit: int | None = None,
    stream: TextIO | None = None,
) -> Written:
    """Print Arrow batches while they arrive, at most `limit` rows of them."""
    stream = stream or sys.stdout
    if output is Format.ARROW:
        return _write_arrow(schema, batches, stream, limit)
    return _WRITERS[output](distinct(schema.names), _rows(batches), stream, limit)


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Give columns of the same name a number, since an object cannot have a key twice.

    >>> distinct(["id", "name", "id"])
    ('id', 'name', 'id_2')
    """
    result: list[str] = []
    for name in names:
        numbered = name
        for number in itertools.count(2):
            if numbered not in result:
                break
            numbered = f"{name}_{number}"
        result.append(numbered)
    return tuple(result)


def _write_table(names: tuple[str, ...], rows: Iterator[Row], stream: TextIO, limit: int | None) -> Written:
    first = list(itertools.islice(rows, SAMPLE_ROWS if limit is None else min(limit, SAMPLE_ROWS)))
    terminal = shutil.get_terminal_size().columns if stream.isatty() else None
    layout = table.plan(names, first, terminal=terminal, color=stream.isatty() and config.wants_color())
    for line in layout.head():
        stream.write(line + "\n")
    count = 0
    for row in itertools.islice(itertools.chain(first, rows), limit):
        count += 1
        for line in layout.lines(row, count):
            stream.write(line + "\n")
    return Written(count, _is_more(rows, limit))


def _write_json(names: tuple[str, ...], rows: Iterator[Row], stream: TextIO, limit: int | None) -> Written:
    keys = [json_text(name) + ": " for name in names]
    count = 0
    for row in itertools.islice(rows, limit):
        count += 1
        stream.write("{" + ", ".join(map(str.__add__, keys, map(json_text, row))) + "}\n")
    return Written(count, _is_more(rows, limit))


def _write_csv(names: tuple[str, ...], rows: Iterator[Row], stream: TextIO, limit: int | None) -> Written:
    stream.write(",".join(map(csv_text, names)) + "\n")
    count = 0
    for row in itertools.islice(rows, limit):
        count += 1
        # A lone NULL would be an empty line, which readers skip.
        stream.write((",".join(map(csv_text, row)) or '""') + "\n")
    return Written(count, _is_more(rows, limit))


_WRITERS: dict[Format, Callable[[tuple[str, ...], Iterator[Row], TextIO, int | None], Written]] = {
    Format.TABLE: _write_table,
    Format.JSON: _write_json,
    Format.CSV: _write_csv,
}


def _write_arrow(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], stream: TextIO, limit: int | None = None
) -> Written:
    import pyarrow as pa

    if stream.isatty():
        raise ConfigError(
            "an Arrow stream is binary and this is a terminal",
            code="OUTPUT_TERMINAL",
            hint="send it to a file or a program: penstock sql ... --output arrow > rows.arrow",
        )
    count = 0
    stream.flush()
    with pa.ipc.new_stream(pa.PythonFile(stream.buffer, mode="w"), schema) as writer:
        for batch in batches:
            part = batch if limit is None else batch.slice(0, limit - count)
            writer.write_batch(part)
            count += part.num_rows
            if part.num_rows < batch.num_rows or (limit is not None and count >= limit):
                return Written(count, more=part.num_rows < batch.num_rows)
    return Written(count)


def _is_more(rows: Iterator[Row], limit: int | None) -> bool:
    return limit is not None and next(rows, None) is not None


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        yield from zip(*(_values(column) for column in batch.columns), strict=True)


def _values(column: pa.Array) -> list[Any]:
    if holds_variants(column.type):
        return [variants_as_text(value.as_py(), column.type, JsonText) for value in column]
    try:
        return list(column.to_pylist(maps_as_pydicts="lossy"))
    except (ValueError, OverflowError, TypeError):
        # Python has no date after the year 9999, and no dictionary with a struct as its key.
        import pyarrow as pa

        if pa.types.is_temporal(column.type):
            return list(column.cast(pa.string()).to_pylist())
        return list(column.to_pylist())
