"""The contract of a source plugin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.data.record_batch import conformed
from penstock.data.schema import to_arrow_schema
from penstock.plugin import SourcePlugin, TransientValues
from penstock.testing.report import (
    Broken,
    RecordedSideOutputs,
    Report,
    context,
    options_of,
    require,
    through_json,
)


@dataclass(frozen=True, slots=True)
class _Epoch:
    start: Any
    end: Any
    rows: pa.Table


def check_source(
    kind: type[SourcePlugin], options: Mapping[str, Any] | None = None, *, limit: int = 3, epochs: int = 5
) -> pa.Table:
    """Check a source that has some rows to give, with epochs of `limit` rows; return the rows of those epochs.

    Rows fit the schema, offsets can be stored, the limit is kept, an epoch can be read again after others and by
    another instance, the finalizer may be called twice, and `terminate` is called whatever happened before.
    """
    report = Report(kind.__name__)
    checked = options_of(report, kind, options)
    source = _TestedSource(kind, checked)
    read: list[_Epoch] = []
    with report.part("it declares its columns"):
        declared = kind(checked).schema
        require(declared is not None, 'schema is None; write schema = "id BIGINT, name STRING"')
        source.schema = to_arrow_schema(declared)
    if source.schema is None:
        report.end()
    with report.part("it begins and ends without a row"):
        source.begin()
        source.plugin.terminate()
    with report.part("rows come epoch by epoch"):
        read = source.epochs(limit, epochs)
        require(
            bool(read), "read(None, limit) gave no rows; give the check options with which there are some"
        )
    with report.part("an epoch is read again as it was, after the ones behind it"):
        for epoch in reversed(read):
            source.repeat(epoch)
        source.plugin.terminate()
    with report.part("another instance reads an epoch again as it was"):
        for epoch in read:
            source.begin()
            source.repeat(epoch)
            # After a restart nobody knows whether the finalizer was called before the crash.
            source.plugin.process_checkpoint_marker(0)
            source.plugin.process_checkpoint_finalizer(0)
            source.plugin.process_checkpoint_finalizer(0)
            source.plugin.terminate()
    report.end()
    return pa.concat_tables([epoch.rows for epoch in read])


class _TestedSource:
    def __init__(self, kind: type[SourcePlugin], options: Any) -> None:
        self._kind = kind
        self._options = options
        self._state = TransientValues()
        self.schema: pa.Schema = None
        self.plugin: SourcePlugin

    def begin(self) -> None:
        """A new instance, as after a restart."""
        self.plugin = self._kind(self._options)
        self.plugin.initialize(context(self.schema, self._state, RecordedSideOutputs()))

    def epochs(self, limit: int, most: int) -> list[_Epoch]:
        """Read from the beginning, epoch by epoch."""
        self.begin()
        epochs: list[_Epoch] = []
        offset = None
        for number in range(most):
            rows, end = self._read(offset, limit)
            if not rows.num_rows:
                break
            require(
                rows.num_rows <= limit,
                f"read({offset!r}, {limit}) gave {rows.num_rows} rows, more than the limit",
            )
            require(
                end != offset, f"read({offset!r}, {limit}) gave rows, and the offset behind them is the same"
            )
            epochs.append(_Epoch(offset, end, rows))
            self.plugin.process_checkpoint_marker(number)
            self.plugin.process_checkpoint_finalizer(number)
            offset = end
        return epochs

    def repeat(self, epoch: _Epoch) -> None:
        """Read an epoch again, by its offset and the number of its rows."""
        parts, offset, left = [], epoch.start, epoch.rows.num_rows
        while left:
            rows, offset = self._read(offset, left)
            if not rows.num_rows:
                raise Broken(
                    f"read({epoch.start!r}, {epoch.rows.num_rows}) gave {epoch.rows.num_rows - left} rows, "
                    f"before {epoch.rows.num_rows}"
                )
            parts.append(rows)
            left -= rows.num_rows
        again = pa.concat_tables(parts)
        require(
            again.equals(epoch.rows),
            f"read({epoch.start!r}, {epoch.rows.num_rows}) gave {again.to_pylist()[:3]}, and before {epoch.rows.to_pylist()[:3]}",
        )

    def _read(self, offset: Any, limit: int) -> tuple[pa.Table, Any]:
        answer = self.plugin.read(offset, limit)
        require(
            isinstance(answer, tuple) and len(answer) == 2,
            f"read returned {type(answer).__name__}; return (batches, offset)",
        )
        batches, end = answer
        batches = [batches] if isinstance(batches, pa.RecordBatch) else batches
        rows = [conformed(batch, self.schema, where="read") for batch in batches]
        return pa.Table.from_batches(rows, schema=self.schema), through_json(end, "the offset")
