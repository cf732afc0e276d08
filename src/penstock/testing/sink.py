"""The contract of a sink plugin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.data.schema import to_arrow_schema
from penstock.plugin import SinkPlugin, TransientValues
from penstock.testing.report import RecordedSideOutputs, Report, context, options_of, require
from penstock.testing.rows import EVERY_TYPE, generated_batches

Stored = Callable[[], int | Sequence[Mapping[str, Any]]]


def check_sink(
    kind: type[SinkPlugin],
    options: Mapping[str, Any] | None = None,
    *,
    schema: Any = EVERY_TYPE,
    stored: Stored | None = None,
) -> None:
    """Check a sink with rows of a schema that are made up; `stored` returns the rows that are in the other system, or
    how many there are.

    It takes rows without any, with NULLs, with the outermost values, and many; an epoch that was cut short, and one
    that comes again after its marker, leave what the sink promises: each row once when it is `exactly_once`, else
    each at least once.
    """
    report = Report(kind.__name__)
    checked = options_of(report, kind, options)
    taken = to_arrow_schema(schema)
    life = _Life(kind, checked, taken)
    batches = generated_batches(taken)
    expected = 0
    with report.part("it begins and ends without a row"):
        life.begin()
        life.end()
    life.begin()
    for name, batch in batches.items():
        with report.part(f"it takes an epoch ({name})"):
            life.epoch([batch] if batch.num_rows else [])
            expected += batch.num_rows
    with report.part("what is stored is what came in"):
        _judge(stored, expected, exactly=True)
    three = batches["many"].slice(0, 3)
    with report.part("an epoch that was cut short comes again"):
        life.cut([three])
        life.begin()
        life.plugin.process_checkpoint_finalizer(life.number - 1)
        life.epoch([three])
        expected += 3
        _judge(stored, expected, exactly=kind.exactly_once)
    with report.part("an epoch comes again after its marker"):
        life.begin()
        life.epoch([three], number=life.number - 1)
        _judge(stored, expected, exactly=kind.exactly_once)
    with report.part("the epoch behind it is taken"):
        life.epoch([three])
        expected += 3
        _judge(stored, expected, exactly=kind.exactly_once)
        life.end()
    report.end()


class _Life:
    """Instances of a sink, one after the other, and the epochs that they write."""

    def __init__(self, kind: type[SinkPlugin], options: Any, schema: pa.Schema) -> None:
        self._kind = kind
        self._options = options
        self._schema = schema
        self._state = TransientValues()
        self._mode = "append" if "append" in kind.modes else kind.modes[0]
        self.number = 0
        self.plugin: SinkPlugin
        self._begun = False

    def begin(self) -> None:
        """A new instance, as after a restart; the one before ends."""
        if self._begun:
            self.end()
        self.plugin = self._kind(self._options)
        keys = () if self._mode == "append" else (self._schema.names[0],)
        self.plugin.initialize(
            context(self._schema, self._state, RecordedSideOutputs(), mode=self._mode, keys=keys)
        )
        self._begun = True

    def epoch(self, batches: Sequence[pa.RecordBatch], *, number: int | None = None) -> None:
        """Write an epoch to its end."""
        epoch = self.number if number is None else number
        for batch in batches:
            self.plugin.process_batch(batch)
        self.plugin.process_checkpoint_marker(epoch)
        self.plugin.process_checkpoint_finalizer(epoch)
        self.number = max(self.number, epoch + 1)

    def cut(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Write rows that no marker follows."""
        for batch in batches:
            self.plugin.process_batch(batch)
        self.end()

    def end(self) -> None:
        """End the instance."""
        self._begun = False
        self.plugin.terminate()


def _judge(stored: Stored | None, expected: int, *, exactly: bool) -> None:
    if stored is None:
        return
    stored_rows = stored()
    count = stored_rows if isinstance(stored_rows, int) else len(stored_rows)
    require(
        count == expected if exactly else count >= expected,
        f"{expected} rows were written{'' if exactly else ' at least'}, and {count} are stored",
    )
