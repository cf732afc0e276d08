"""Files of a folder as a stream, and those that come later; Spark reads the formats of this module alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from penstock.sources import first_start
from penstock.sources.base import Source, SourceContext, SourceFrame
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

    def read(self, context: SourceContext) -> SourceFrame:
        spark, path, options = context.spark, self.options.path, self.options.spark
        schema = first_start.columns(
            context,
            self.options.columns,
            lambda: frames.columns_of_files(spark, self.form, path, schema=None, options=options),
        )
        files = frames.of_files(spark, self.form, path, schema=schema, options=options)
        return SourceFrame(first_start.only_earlier(context, files))


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
