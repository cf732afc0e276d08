"""The contract of a transform plugin."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from penstock.data.operation import OPERATION
from penstock.data.record_batch import conformed
from penstock.data.schema import to_arrow_schema
from penstock.plugin import KeyValues, TransformPlugin, TransientValues
from penstock.testing.report import RecordedSideOutputs, Report, context, options_of, require
from penstock.testing.rows import EVERY_TYPE, generated_batches
from penstock.transforms.transaction import ValueTransaction


def check_transform(
    kind: type[TransformPlugin],
    options: Mapping[str, Any] | None = None,
    *,
    schema: Any = EVERY_TYPE,
    repeatable: bool = True,
) -> None:
    """Check a transform with rows of a schema that are made up: none, NULLs, the outermost values, many.

    What comes out fits its columns, an epoch that comes again gives the same rows (unless it is not `repeatable`),
    and so does a batch that comes again in halves, a parallel transform does not depend on how rows fall into
    batches, operations are handed on, and `terminate` is called whatever happened before.
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
            uncut = _epoch(kind, checked, taken, columns, [many], TransientValues())
            parts = [many.slice(0, 1), many.slice(1, 49), many.slice(50)]
            cut = _epoch(kind, checked, taken, columns, parts, TransientValues())
            require(
                uncut.equals(cut),
                "100 rows in one batch give other rows than in three; set parallel = False when it needs all rows in order",
            )
    if repeatable:
        with report.part("a batch that fails comes again in halves"):
            _comes_again(kind, checked, taken, batches["many"].slice(0, 100))
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


def _comes_again(kind: type[TransformPlugin], options: Any, taken: pa.Schema, batch: pa.RecordBatch) -> None:
    """Give a batch, take back what was done with it as penstock does when it cannot be taken, and give its halves."""
    halves = [batch.slice(0, batch.num_rows // 2), batch.slice(batch.num_rows // 2)]
    results = []
    for fails in (False, True):
        stored, sides = TransientValues(), RecordedSideOutputs()
        state = ValueTransaction(stored)
        plugin = _begun(kind, options, taken, state, sides)
        try:
            state.begin()
            if fails:
                with state.attempt(keep=False):
                    plugin.process_batch(batch)
                sides.batches.clear()
            out = [part.to_pylist() for half in halves if (part := plugin.process_batch(half)) is not None]
            plugin.process_checkpoint_marker(0)
            state.commit()
        finally:
            plugin.terminate()
        side_rows = [(name, part.to_pylist()) for name, part in sides.batches]
        results.append({"rows": out, "side outputs": side_rows, "state": vars(stored)})
    once, again = results
    for what, first in once.items():
        require(
            again[what] == first,
            f"{batch.num_rows} rows leave other {what} when they have come before and failed; what "
            "it remembers of rows belongs in context.state, "
            "which is set back then",
        )


def _begun(
    kind: type[TransformPlugin],
    options: Any,
    taken: pa.Schema,
    state: KeyValues,
    sides: RecordedSideOutputs | None = None,
) -> TransformPlugin:
    plugin = kind(options)
    plugin.initialize(context(taken, state, sides or RecordedSideOutputs()))
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
