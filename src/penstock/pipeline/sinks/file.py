"""`type: file`: rows as files in a folder."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from penstock.config import Settings
from penstock.options import Others
from penstock.pipeline.node import SinkNode
from penstock.pipeline.sinks.connector import connector_options
from penstock.sinks import SINKS
from penstock.sinks.file import CsvOptions, FileOptions, FileSink


class FileNode(CsvOptions, SinkNode):
    """Writes files into a folder, local or in an object store; every reader sees each row once.

    `_op` is a column. Rows are only added: an update or a delete is a row like others.
    """

    model_config = ConfigDict(extra="forbid")
    other_options: ClassVar[Others | None] = None

    format: Literal["parquet", "csv", "json", "orc"] = Field("parquet", description="the format of the files")
    options: dict[str, Any] = Field(
        {}, description="options of Spark's writer of the format, such as `compression`"
    )

    def sink(self, settings: Settings) -> FileSink:
        kind: type[FileSink] = SINKS.load(self.format)
        model: type[FileOptions] = kind.Options
        return kind({**self.options, **connector_options(self, model)}, settings)
