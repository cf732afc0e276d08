"""A view as a table of an embedded vector database (LanceDB), whose vectors applications search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from penstock.errors import ConfigError
from penstock.options import PathText
from penstock.sinks.base import Guarantee
from penstock.sinks.key_change import summed
from penstock.sinks.require import require_package
from penstock.sinks.server import ServerOptions
from penstock.sinks.view_sink import Change, ViewSink, ViewTarget, taken

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.config import Settings
    from penstock.sinks.lance import LanceTable


class VectorViewOptions(ServerOptions):
    """Where the vectors are."""

    uri: PathText = Field(description="the folder of the LanceDB database; it is made when it is not there")
    table: str = Field(description="the table; it is made when it is not there")
    embedding: str = Field(
        description="the column of the view that is searched, ARRAY<FLOAT> or ARRAY<DOUBLE>"
    )
    dimensions: int = Field(gt=0, description="how many numbers its vectors have")


class VectorViewSink(ViewSink):
    """The rows of the view; a change that was interrupted makes the next start write all rows again."""

    Options = VectorViewOptions

    options: VectorViewOptions

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        require_package("lancedb", extra="lance")
        super().__init__(options, settings)
        self._table: LanceTable | None = None

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.EXACTLY_ONCE

    def describe(self) -> str:
        return f"LanceDB table {self.options.table} in {self.options.uri}"

    def check(self, target: ViewTarget) -> None:
        if len(target.keys) != 1:
            raise ConfigError(
                f"rows of a LanceDB table have a key of one column, and not ({', '.join(target.keys)})",
                code="FLOW_SINK_OPTION",
                where=target.name,
                hint="make one of them in the view, as concat_ws('/', query, doc_id)",
            )
        if self.options.embedding not in target.names:
            raise ConfigError(
                f"the view has no column '{self.options.embedding}'",
                code="FLOW_UNKNOWN_COLUMN",
                where=target.name,
                hint=f"its columns are {', '.join(target.names)}",
            )
        table = self._of(target)
        if table.open() is None and table.count_rows() and not table.is_known() and not target.overwrite:
            raise taken(f"the table {self.options.table}", None, where=self.describe())

    def open(self, target: ViewTarget) -> int | None:
        self._target = target
        self._table = self._of(target)
        return self._table.open()

    def replace(self, rows: pa.Table, tick: int) -> None:
        assert self._table is not None, "the sink was not opened"
        self._table.replace(rows, tick)

    def apply(self, changes: Sequence[Change]) -> None:
        assert self._table is not None, "the sink was not opened"
        self._table.apply(summed(changes), changes[-1].tick)

    def forget(self, target: ViewTarget) -> None:
        table = self._of(target)
        table.open()
        table.forget()

    def close(self) -> None:
        self._table = None

    def _of(self, target: ViewTarget) -> LanceTable:
        import pyarrow as pa

        from penstock.data.schema import to_arrow_field
        from penstock.sinks.lance import LanceTable

        return LanceTable(
            self.options.uri,
            self.options.table,
            sink=target.id,
            schema=pa.schema([to_arrow_field(field.name, field.type) for field in target.fields]),
            key=target.keys[0],
            embedding=self.options.embedding,
            dimensions=self.options.dimensions,
        )
