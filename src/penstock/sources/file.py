"""Files of a folder as a stream, and those that come later; Spark reads the formats of this module alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from penstock.sources.base import Context, Source, SourceFrame
from penstock.sources.spark_options import FileColumns, FilePath, SparkOptions
from penstock.spark.micro_batch import frames

_ELSEWHERE = "is for Kafka and for files of JSON and CSV"


class FileOptions(SparkOptions):
    """Where the files are, and their columns."""

    foreign: ClassVar[Mapping[str, str]] = {
        "on_bad_record": _ELSEWHERE,
        "quarantine": _ELSEWHERE,
        "max_record_bytes": "is for Kafka and for files of JSON",
    }

    path: FilePath
    columns: FileColumns = None


class FileSource(Source):
    """Files that Spark reads as they are."""

    form: ClassVar[str]
    Options: ClassVar[type[FileOptions]] = FileOptions

    options: FileOptions

    def read(self, context: Context) -> SourceFrame:
        return SourceFrame(
            frames.of_files(
                context.spark,
                self.form,
                self.options.path,
                schema=self.options.columns,
                options=self.options.spark,
            )
        )


class ParquetSource(FileSource):
    """Parquet files."""

    form = "parquet"


class OrcSource(FileSource):
    """ORC files."""

    form = "orc"


class AvroSource(FileSource):
    """Avro files."""

    form = "avro"


class TextSource(FileSource):
    """Text files, a row per line."""

    form = "text"
