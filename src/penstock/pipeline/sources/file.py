"""The source `file`: files of a folder, a pattern or one path, as they are now or with those that come later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from penstock.options import Count, IgnoringCase, PathText, Texts, mistake
from penstock.pipeline.columns import Columns
from penstock.pipeline.node import SourceNode
from penstock.pipeline.sources.mode import Mode, WordOrMode
from penstock.sql.files import FORMATS, extension

if TYPE_CHECKING:
    from typing import Self

    from penstock.config import Settings
    from penstock.sources.base import Source

READABLE = ("parquet", "csv", "json", "avro")
_OF_RECORDS = ("csv", "json")


class FileNode(SourceNode):
    """Reads files, each once and in the order in which they were written: those that are there, or with `mode:
    continuous` also those that come later.

    Rows have no `_op`: all of them are inserts. A file that was read and changes later is not read again.
    """

    stored_fields = frozenset({"primary_key", "path"})

    type: Literal["file"] = Field("file", description="`file`")
    path: PathText = Field(
        description="a file, a folder or a pattern, local or in an object store (`s3://...`)"
    )
    format: Annotated[Literal["parquet", "csv", "json", "avro"] | None, IgnoringCase] = Field(
        None, description="the format of the files; default: what their names end with"
    )
    columns: Columns | None = Field(
        None,
        validation_alias="schema",
        description='the columns, `{id: int64, price: "decimal(10,2)"}` or DDL; default: they are '
        "inferred at the first start and kept",
    )
    header: bool | None = Field(
        None, description="CSV only: the first line has the names of the columns; default: true"
    )
    mode: WordOrMode = Field(
        Mode.model_validate({"type": "bounded"}),
        description="`bounded`, or `{type: continuous, poll_interval: 5s}`",
    )
    recursive: bool = Field(
        False,
        description="read folders inside the folder too, whatever their names; false: only those of "
        "partitions (`day=2026-01-01/`)",
    )
    max_files: Count | None = Field(None, description="how many files one epoch reads at most")
    on_bad_record: Annotated[Literal["fail", "drop", "quarantine"], IgnoringCase] = Field(
        "fail",
        description="CSV and JSON only: a record that does not fit fails the pipeline, is dropped and "
        "counted, or is stored elsewhere",
    )
    quarantine: PathText | None = Field(
        None, description="where bad records are stored: a folder, an Iceberg table, or `topic:NAME`"
    )
    max_record_bytes: Count | None = Field(None, description="JSON only: larger records are bad records")
    options: Texts = Field(
        {}, description="options of Spark's reader of the format, such as `sep` or `timestampFormat`"
    )

    @property
    def form(self) -> str:
        """The format: as declared, or by the name."""
        return self.format or FORMATS.get(extension(self.path), "")

    @property
    def is_bounded(self) -> bool:
        return self.mode.type == "bounded"

    @property
    def poll_interval_ms(self) -> int | None:
        """How often to look for new files; None for a bounded source."""
        return self.mode.poll_interval_ms

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.form not in READABLE:
            raise mistake(
                f"the format of {self.path!r} is not clear from its name",
                hint=f"add format: {', '.join(READABLE)}",
            )
        if self.form != "csv" and self.header is not None:
            raise mistake("header is for CSV", hint="leave it out")
        sets_rule = (
            self.on_bad_record != "fail" or self.quarantine is not None or self.max_record_bytes is not None
        )
        if self.form not in _OF_RECORDS and sets_rule:
            raise mistake(
                "on_bad_record, quarantine and max_record_bytes are for CSV and JSON", hint="leave them out"
            )
        if self.form == "csv" and self.max_record_bytes is not None:
            raise mistake(
                "max_record_bytes is for JSON", hint='CSV has options: {maxCharsPerColumn: "100000"}'
            )
        if (self.on_bad_record == "quarantine") != (self.quarantine is not None):
            raise mistake(
                "quarantine and on_bad_record: quarantine belong together",
                hint="for example quarantine: bad/",
            )
        return self

    @property
    def reads(self) -> Mapping[str, Any]:
        return {**super().reads, "path": self.path, "format": self.form, "recursive": self.recursive}

    def source(self, settings: Settings) -> Source:
        from penstock.sources import SOURCES

        source: Source = SOURCES.load(self.form)(self._options(), settings)
        return source

    def _options(self) -> dict[str, Any]:
        values: dict[str, Any] = {"path": self.path, **self.options}
        if self.columns is not None:
            values["schema"] = self.columns
        if self.recursive:
            values["recursiveFileLookup"] = "true"
        if self.max_files is not None:
            values["maxFilesPerTrigger"] = str(self.max_files)
        if self.form == "csv":
            values["header"] = self.header is not False
            if extension(self.path) == ".tsv" and not {"sep", "delimiter"} & self.options.keys():
                values["sep"] = "\t"
        for name in ("on_bad_record", "quarantine", "max_record_bytes"):
            if name in self.model_fields_set:
                values[name] = getattr(self, name)
        return values
