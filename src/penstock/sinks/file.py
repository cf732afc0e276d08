"""Rows as files in a folder, local or in an object store, exactly once for every reader.

The sink writes an epoch's files below `_penstock/`, which readers skip, and then moves them to names that hold the query and the
epoch; an empty file `_penstock/<query>/<epoch>` says that the move is complete. An epoch that comes again after a crash is
skipped when that mark exists; otherwise the files that were already moved are deleted first.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import ConfigDict, Field

from penstock.options import Names, Options, Others, PathText
from penstock.sinks.base import Epoch, Guarantee, Sink, Target, counted
from penstock.sinks.evolution import refuse_incompatible
from penstock.spark.filesystem import Folder
from penstock.spark.reader import absolute

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from penstock.config import Settings

OWN = "_penstock"
SCHEMA = f"{OWN}/schema.json"
ID = 36
"""How long the id of a query is; behind it stands the name of the node in a pipeline."""


class FileOptions(Options):
    """Where the files are, and how they are arranged."""

    model_config = ConfigDict(extra="allow")
    other_options: ClassVar[Others | None] = Others(
        "", "options of Spark's writer of this format, such as `compression`"
    )

    path: PathText = Field(description="the folder, local or in an object store (`s3://...`)")
    partition_by: Names = Field((), description="columns by whose values the files are arranged in folders")


class CsvOptions(FileOptions):
    """Options of CSV files."""

    header: bool = Field(True, description="write the names of the columns into the first line of each file")


class FileSink(Sink):
    """Files of one format; options that are not ours go to Spark's writer."""

    form: ClassVar[str]
    fixed_columns: ClassVar[bool] = False
    modes: ClassVar[frozenset[str]] = frozenset({"append"})
    Options: ClassVar[type[FileOptions]] = FileOptions
    takes_operations: ClassVar[bool] = True

    options: FileOptions

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        super().__init__(options, settings)
        self.path = absolute(self.options.path)
        self.partition_by = self.options.partition_by

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.EXACTLY_ONCE

    def check(self, target: Target) -> None:
        folder = Folder(target.spark, self.path)
        if folder.exists(SCHEMA):
            from pyspark.sql.types import StructType

            existing: StructType | None = StructType.fromJson(json.loads(folder.read(SCHEMA)))
        else:
            existing = self._schema_of_files(target, folder)
        if existing is None:
            return
        refuse_incompatible(
            existing, target.schema, where=self.path, fixed=self.fixed_columns, apart=self.partition_by
        )

    def check_connection(self, target: Target) -> None:
        Folder(target.spark, self.path).exists(SCHEMA)

    def open(self, target: Target) -> None:
        self._target = target
        self._folder = Folder(target.spark, self.path)
        self._query = _short(target.query)
        self._marks = f"{OWN}/{self._query}"
        self._committed = max(
            (int(name) for name in self._folder.names(self._marks) if name.isdigit()), default=-1
        )
        self._first = True
        self._folder.write(SCHEMA, target.schema.json())

    def write(self, epoch: Epoch) -> int | None:
        if epoch.number <= self._committed:
            return 0
        name = f"part-{epoch.number:09d}-{self._query[:13].replace('-', '')}{self._query[ID:]}"
        if self._first:
            self._sweep(name)
        staging = f"{OWN}/staging-{self._query}"
        frame, rows = counted(epoch.frame)
        writer = frame.write.format(self.form).mode("overwrite").options(**self._writer_options())
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer.save(f"{self.path.rstrip('/')}/{staging}")
        written = rows()
        if written:
            self._publish(staging, name)
        self._folder.write(f"{self._marks}/{epoch.number}", "")
        if self._committed >= 0:
            self._folder.delete(f"{self._marks}/{self._committed}")
        self._folder.delete(staging)
        self._committed = epoch.number
        return written

    def describe(self) -> str:
        return f"{self.form} files in {self.path}"

    def _writer_options(self) -> dict[str, Any]:
        return dict(self.options.model_extra or {})

    def _sweep(self, name: str) -> None:
        """Delete what a run that was cut short may have moved already of the epoch that comes now."""
        for path in list(self._folder.walk()):
            if path.rpartition("/")[2].startswith(name) and not path.startswith(OWN):
                self._folder.delete(path)
        self._first = False

    def _publish(self, staging: str, name: str) -> None:
        files = sorted(path for path in self._folder.walk(staging) if _is_data(path))
        for number, path in enumerate(files):
            folder, _, file = path.removeprefix(f"{staging}/").rpartition("/")
            ending = file[file.index(".") :]
            self._folder.move(path, f"{folder}/{name}-{number:05d}{ending}".lstrip("/"))

    def _schema_of_files(self, target: Target, folder: Folder) -> StructType | None:
        """The schema of files that something else wrote here; only formats that say it themselves have one."""
        if self.form not in ("parquet", "orc") or not any(
            _is_data(path) and not path.startswith("_") for path in folder.walk()
        ):
            return None
        schema: StructType = target.spark.read.format(self.form).load(self.path).schema
        return schema


def _short(query: str) -> str:
    """The id of a query, with a number for what stands behind it: names of files and folders cannot have every character.

    >>> _short("q-1"), _short("0b9d3c1e-4a57-4b5e-9d4f-0f6f3a6f1c55-out")
    ('q-1', '0b9d3c1e-4a57-4b5e-9d4f-0f6f3a6f1c55-35b71c74')
    """
    node = query[ID:]
    return f"{query[:ID]}-{zlib.crc32(node.encode()):08x}" if node else query


def _is_data(path: str) -> bool:
    return not path.rpartition("/")[2].startswith(("_", "."))


class ParquetSink(FileSink):
    """Parquet files."""

    form = "parquet"


class OrcSink(FileSink):
    """ORC files."""

    form = "orc"


class JsonSink(FileSink):
    """Files with a JSON object per line."""

    form = "json"


class CsvSink(FileSink):
    """CSV files with a header, unless the option `header` says otherwise."""

    form = "csv"
    fixed_columns = True
    Options = CsvOptions

    options: CsvOptions

    def _writer_options(self) -> dict[str, Any]:
        return {"header": self.options.header, **super()._writer_options()}
