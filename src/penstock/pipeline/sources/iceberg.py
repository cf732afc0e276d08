"""The source `iceberg`: the rows of a table, and those that are appended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from penstock.options import Count, Texts, mistake
from penstock.pipeline.node import SourceNode
from penstock.pipeline.sources.mode import Mode, WordOrMode

if TYPE_CHECKING:
    from typing import Self

    from penstock.config import Settings
    from penstock.sources.base import Source


class IcebergNode(SourceNode):
    """Reads the rows of a lake table, and then those that are appended to it.

    Rows have no `_op`: all of them are inserts. Rows that are deleted or replaced in the table end the pipeline,
    unless `only_appends: false` leaves such snapshots out.
    """

    stored_fields = frozenset({"primary_key", "table"})

    type: Literal["iceberg"] = Field("iceberg", description="`iceberg`")
    table: str = Field(description="`catalog.schema.table`")
    mode: WordOrMode = Field(
        Mode.model_validate({"type": "continuous"}),
        description="`continuous`: the rows that are there and those that are appended, every "
        "`poll_interval`; `bounded`: those that are there",
    )
    max_rows: Count | None = Field(
        None, description="about how many rows one epoch reads at most; files are read whole"
    )
    max_files: Count | None = Field(None, description="how many files one epoch reads at most")
    only_appends: bool = Field(
        True,
        description="fail when rows are deleted or replaced, which a stream of appends does not show; "
        "false: such snapshots are left out",
    )
    options: Texts = Field({}, description="options of Iceberg's source in Spark")

    @property
    def is_bounded(self) -> bool:
        return self.mode.type == "bounded"

    @property
    def poll_interval_ms(self) -> int | None:
        """How often to look for new rows; None for a bounded source."""
        return self.mode.poll_interval_ms

    @model_validator(mode="after")
    def _names_a_table(self) -> Self:
        if not self.table.strip():
            raise mistake("table is empty", hint="write catalog.schema.table")
        return self

    @property
    def reads(self) -> Mapping[str, Any]:
        return {**super().reads, "table": self.table}

    def source(self, settings: Settings) -> Source:
        from penstock.sources.table import IcebergSource

        values: dict[str, str] = {"table": self.table, **self.options}
        if self.max_rows is not None:
            values["streaming-max-rows-per-micro-batch"] = str(self.max_rows)
        if self.max_files is not None:
            values["streaming-max-files-per-micro-batch"] = str(self.max_files)
        if not self.only_appends:
            values |= {
                "streaming-skip-delete-snapshots": "true",
                "streaming-skip-overwrite-snapshots": "true",
            }
        return IcebergSource({**values, "ends": self.is_bounded}, settings)
