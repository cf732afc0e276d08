"""CSV files as a stream that tells bad records from good ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from penstock.sources import bad_record, first_start
from penstock.sources.bad_record import split
from penstock.sources.base import Source, SourceContext, SourceFrame
from penstock.sources.csv_record import WhyNotCsv
from penstock.sources.decimal_text import lossy, narrowed, widened
from penstock.sources.json_record import CORRUPT, PARSED
from penstock.sources.record_file import FILE, RecordFileOptions, in_order
from penstock.spark.micro_batch import frames


class CsvOptions(RecordFileOptions):
    """Where the files are, and what happens with lines that do not fit."""

    foreign: ClassVar[Mapping[str, str]] = {
        "max_record_bytes": "is for Kafka and for files of JSON; CSV has Spark's maxCharsPerColumn"
    }

    header: bool = Field(True, description="the first line of each file has the names of the columns")


class CsvSource(Source):
    """Rows of CSV files."""

    Options = CsvOptions

    options: CsvOptions

    def read(self, context: SourceContext) -> SourceFrame:
        spark, path, options = context.spark, self.options.path, self._spark_options()
        columns = first_start.columns(
            context,
            self.options.columns,
            lambda: frames.columns_of_files(spark, "csv", path, schema=None, options=options),
        )
        if self.options.mode is None:
            return self._records(context, columns)
        files = frames.of_files(spark, "csv", path, schema=columns, options=options)
        return SourceFrame(first_start.only_earlier(context, files))

    def _records(self, context: SourceContext, columns: Any) -> SourceFrame:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructField, StructType

        spark, path, options = context.spark, self.options.path, self._spark_options()
        schema = frames.columns_of_files(spark, "csv", path, schema=columns, options=options)
        folders = frames.folders_of_files(spark, path, schema, options)
        own = frames.without(schema, folders.names)
        wide = StructType([*widened(own).fields, StructField(CORRUPT, StringType()), *folders.fields])
        permissive = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        files = frames.of_files(spark, "csv", path, schema=wide, options=permissive)
        rows = first_start.only_earlier(context, files)
        fields = F.struct(*[F.col(f"`{name}`") for name in own.names])
        parsed = rows.select("*", fields.alias(PARSED), F.col("_metadata.file_path").alias(FILE))
        # Spark does not parse columns that the query does not use, and a record would be bad in one query and good in
        # another: so all are used here. As text, because CSV of nothing but NULLs is NULL, and JSON takes Spark a
        # third of a second to bring up.
        is_corrupt = F.col(CORRUPT).isNotNull() & (F.length(F.col(PARSED).cast("string")) >= 0)
        loses_digits = lossy(F.col(PARSED), own)
        is_bad = is_corrupt if loses_digits is None else is_corrupt | loses_digits
        raw = F.coalesce(F.col(CORRUPT), F.to_csv(PARSED))
        checked = parsed.select(
            PARSED, FILE, *folders.names, bad_record.column(spark, is_bad, raw, file=F.col(FILE))
        )
        good, tap = split(checked, self.options.rule, position="file", why=self._why(own.json()))
        values = {name: column.alias(name) for name, column in narrowed(F.col(PARSED), own).items()}
        return SourceFrame(good.select(*in_order(schema, folders, values)), tap)

    def _spark_options(self) -> dict[str, object]:
        return {"header": self.options.header, **self.options.spark}

    def _why(self, schema: str) -> WhyNotCsv:
        separator = self.options.spark_option("sep") or self.options.spark_option("delimiter") or ","
        quote = self.options.spark_option("quote")
        return WhyNotCsv(schema, str(separator), '"' if quote is None else str(quote))
