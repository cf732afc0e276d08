"""The contract of a transform plugin."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from penstock.data.operation import OPERATION
from penstock.data.record_batch import conformed
from penstock.data.schema import to_arrow_schema
from penstock.plugin import TransformPlugin, TransientValues
from penstock.testing.report import Report, Sides, context, options_of, require
from penstock.testing.rows import EVERY_TYPE, generated_batches


def check_transform(
    kind: type[TransformPlugin],
    options: Mapping[str, Any] | None = None,
    *,
    schema: Any = EVERY_TYPE,
    repeatable: bool = True,
) -> None:
    """Check a transform with rows of a schema that are made up: none, NULLs, the outermost values, many.

    What comes out fits its columns, an epoch that comes again gives the same rows (unless it is not `repeatable`), a parallel transform does not
    depend on how rows fall into batches, operations are handed on, and `terminate` is called whatever happened before.
    """
    report = Report(kind.__name__)
    checked = options_of(report, kind, options)
    taken = to_arrow_schema(schema)
    columns: pa.Schema = None
    with report.part("its columns are known before rows come"):
        columns = _columns(kind, checked, taken)
    if columns is None:
        report.end()
    batches = generated_batches(taken)
    for name, batch in batches.items():
        with report.part(f"it takes a batch ({name})"):
            state = TransientValues()
            before = copy.deepcopy(state)
            rows = _epoch(kind, checked, taken, columns, [batch], state)
            again = _epoch(kind, checked, taken, columns, [batch], before)
            require(
                not repeatable or again.equals(rows),
                f"the same epoch gave other rows: {again.to_pylist()[:3]}, and before {rows.to_pylist()[:3]}",
            )
    if kind.parallel and repeatable:
        with report.part("rows do not depend on how they fall into batches"):
            many = batches["many"].slice(0, 100)
            whole = _epoch(kind, checked, taken, columns, [many], TransientValues())
            parts = [many.slice(0, 1), many.slice(1, 49), many.slice(50)]
            cut = _epoch(kind, checked, taken, columns, parts, TransientValues())
            require(
                whole.equals(cut),
                "100 rows in one batch give other rows than in three; set parallel = False when it needs all rows in order",
            )
    if kind.schema is None and OPERATION not in taken.names:
        with report.part(f"the column {OPERATION} is handed on"):
            with_operations = taken.append(pa.field(OPERATION, pa.string()))
            out = _columns(kind, checked, with_operations)
            require(
                OPERATION in out.names, f"it comes in, and the columns that go out are {', '.join(out.names)}"
            )
    with report.part("it ends after an epoch that was cut short"):
        plugin = _begun(kind, checked, taken, TransientValues())
        plugin.process_batch(batches["one row"])
        plugin.terminate()
    report.end()


def run_transform(
    kind: type[TransformPlugin],
    options: Mapping[str, Any] | None = None,
    rows: Iterable[Mapping[str, Any]] = (),
    *,
    schema: Any = None,
) -> list[dict[str, Any]]:
    """Return the rows that come out for some that go in, as one epoch; their types are guessed without a `schema`."""
    report = Report(kind.__name__)
    checked = options_of(report, kind, options)
    report.end()
    batch = pa.RecordBatch.from_pylist(list(rows), schema=None if schema is None else to_arrow_schema(schema))
    columns = _columns(kind, checked, batch.schema)
    result = _epoch(kind, checked, batch.schema, columns, [batch], TransientValues())
    return [dict(row) for row in result.to_pylist()]


def _begun(
    kind: type[TransformPlugin], options: Any, taken: pa.Schema, state: TransientValues
) -> TransformPlugin:
    plugin = kind(options)
    plugin.initialize(context(taken, state, Sides()))
    return plugin


def _columns(kind: type[TransformPlugin], options: Any, taken: pa.Schema) -> pa.Schema:
    plugin = _begun(kind, options, taken, TransientValues())
    try:
        if plugin.schema is not None:
            return to_arrow_schema(plugin.schema)
        out = plugin.process_batch(pa.RecordBatch.from_pylist([], schema=taken))
        return taken if out is None else conformed(out, out.schema, where="process_batch").schema
    finally:
        plugin.terminate()


def _epoch(
    kind: type[TransformPlugin],
    options: Any,
    taken: pa.Schema,
    columns: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    state: TransientValues,
) -> pa.Table:
    """An epoch in the life of an instance."""
    plugin = _begun(kind, options, taken, state)
    try:
        out = [plugin.process_batch(batch) for batch in batches]
        plugin.process_checkpoint_marker(0)
        plugin.process_checkpoint_finalizer(0)
    finally:
        plugin.terminate()
    rows = [conformed(batch, columns, where="process_batch") for batch in out if batch is not None]
    return pa.Table.from_batches(rows, schema=columns).combine_chunks()
