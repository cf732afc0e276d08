"""The changes of a view as Parquet files in a local folder: one file per transaction, which is there whole or not at all.

A file is named by the last tick in it and by the sink, so that its name is the mark:
`changes-000000000042-<sink>.parquet`. It is written under another name, synced and renamed. Rows have the tick in
`_tick`; with a key, `_op` says what happened to the key (`r` for a row that was there at the beginning, `i`, `u`, `d`
with the row that is gone), and without one `_weight` how often the row comes or goes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, field_validator

from penstock.data.operation import OPERATION, WEIGHT
from penstock.errors import ConfigError, DataError
from penstock.options import PathText, mistake
from penstock.sinks.base import Guarantee
from penstock.sinks.key_change import by_key
from penstock.sinks.server import ServerOptions
from penstock.sinks.view_sink import Change, ViewSink, ViewTarget, taken
from penstock.state.files import LocalFiles

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.config import Settings

TICK = "_tick"
_NAME = re.compile(r"changes-(\d+)-(\w+)\.parquet")
_HIDDEN = "_penstock"


class ParquetViewOptions(ServerOptions):
    """Where the files are."""

    path: PathText = Field(description="the folder, on a local disk; it is made when it is not there")

    @field_validator("path")
    @classmethod
    def _is_local(cls, path: str) -> str:
        if "://" in path and not path.startswith("file://"):
            raise mistake(
                "must be a local folder: change files are renamed into their place, which object stores cannot"
            )
        return path.removeprefix("file://")


class ParquetViewSink(ViewSink):
    """Files that only come and never change."""

    Options = ParquetViewOptions
    needs_key: ClassVar[bool] = False
    replaces: ClassVar[bool] = False

    options: ParquetViewOptions

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        super().__init__(options, settings)
        self._folder = Path(self.options.path).absolute()
        self._files = LocalFiles()

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.EXACTLY_ONCE

    def describe(self) -> str:
        return f"parquet change files in {self._folder}"

    def check(self, target: ViewTarget) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        from penstock.data.schema import to_arrow_field

        own = {TICK, OPERATION if target.keys else WEIGHT} & set(target.names)
        if own:
            raise ConfigError(
                f"the view has a column '{min(own)}', which change files have for themselves",
                code="FLOW_SINK_COLUMN",
                where=target.name,
                hint="give it another name in the view",
            )
        schema = pa.schema([to_arrow_field(field.name, field.type) for field in target.fields])
        try:
            parquet.write_table(schema.empty_table(), pa.BufferOutputStream())
        except pa.ArrowException as error:
            raise DataError(
                f"Parquet has no type for a column of the view: {error}",
                code="SINK_TYPE",
                where=target.name,
                hint="cast it in the view, to a string for example",
            ) from None
        if not target.overwrite and any(sink != target.id for _, sink in self._ticks()):
            raise taken(
                f"the folder {self._folder}",
                "another view or another life of this one",
                where=str(self._folder),
            )

    def open(self, target: ViewTarget) -> int | None:
        self._target = target
        self._files.make_folder(self._folder / _HIDDEN)
        if target.overwrite:
            for tick, sink in self._ticks():
                if sink != target.id:
                    self._files.remove(self._folder / _name(tick, sink))
        return max((tick for tick, sink in self._ticks() if sink == target.id), default=None)

    def replace(self, rows: pa.Table, tick: int) -> None:
        import pyarrow as pa

        if self.target.keys:
            by = pa.array(["r"] * rows.num_rows, pa.string())
            self._write(_noted(rows, tick).append_column(OPERATION, by), tick)
        else:
            self._write(
                _noted(rows, tick).append_column(WEIGHT, pa.array([1] * rows.num_rows, pa.int64())), tick
            )

    def apply(self, changes: Sequence[Change]) -> None:
        import pyarrow as pa

        self._write(pa.concat_tables([self._rows(change) for change in changes]), changes[-1].tick)

    def _rows(self, change: Change) -> pa.Table:
        import pyarrow as pa

        if not self.target.keys:
            weights = pa.array(change.rows.weights, pa.int64())
            return _noted(change.rows.table, change.tick).append_column(WEIGHT, weights)
        keyed = by_key(change.rows, self.target.keys, where=self.target.name)
        parts = (("d", keyed.deleted), ("u", keyed.updated), ("i", keyed.inserted))
        operations = pa.array([word for word, rows in parts for _ in range(rows.num_rows)], pa.string())
        return _noted(pa.concat_tables([rows for _, rows in parts]), change.tick).append_column(
            OPERATION, operations
        )

    def _write(self, rows: pa.Table, tick: int) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        content = pa.BufferOutputStream()
        parquet.write_table(rows, content, compression="zstd")
        name = _name(tick, self.target.id)
        staged = self._folder / _HIDDEN / name
        self._files.write(staged, [memoryview(content.getvalue())])
        self._files.replace(staged, self._folder / name)
        self._files.sync_folder(self._folder)

    def _ticks(self) -> list[tuple[int, str]]:
        """The last tick and the sink of each file."""
        names = self._files.names(self._folder) if self._folder.is_dir() else []
        return [(int(match[1]), match[2]) for name in names if (match := _NAME.fullmatch(name))]

    def transient(self, error: Exception) -> str | None:
        return f"{error.strerror}" if isinstance(error, OSError) else None


def _name(tick: int, sink: str) -> str:
    return f"changes-{tick:012d}-{sink}.parquet"


def _noted(rows: pa.Table, tick: int) -> pa.Table:
    import pyarrow as pa

    return rows.append_column(TICK, pa.array([tick] * rows.num_rows, pa.int64()))
