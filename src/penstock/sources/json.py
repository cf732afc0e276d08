"""Files with a JSON object per line as a stream that tells bad records from good ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import model_validator

from penstock.options import mistake
from penstock.sources import bad_record, first_start
from penstock.sources.bad_record import MaxRecordBytes, split
from penstock.sources.base import Source, SourceContext, SourceFrame
from penstock.sources.json_record import PARSED, JsonDecoder
from penstock.sources.record_file import FILE, RecordFileOptions, in_order
from penstock.spark.micro_batch import frames

if TYPE_CHECKING:
    from typing import Self


class JsonOptions(RecordFileOptions):
    """Where the files are, and what happens with lines that do not fit."""

    max_record_bytes: MaxRecordBytes = None

    @property
    def has_lines(self) -> bool:
        """Whether a record is a line of UTF-8, so that it can be stored as it came."""
        multiline = str(self.spark_option("multiline")).lower() == "true"
        return (
            not multiline and self.spark_option("encoding") is None and self.spark_option("charset") is None
        )

    @model_validator(mode="after")
    def _needs_lines(self) -> Self:
        if not self.has_lines and self.rule != bad_record.BadRecords():
            raise mistake(
                "on_bad_record and max_record_bytes work on JSON with a record per line, in UTF-8",
                hint="leave out multiLine and encoding, or read with Spark's own mode=...",
            )
        return self


class JsonSource(Source):
    """Lines of JSON; a line that is blank is no record."""

    Options = JsonOptions

    options: JsonOptions

    def read(self, context: SourceContext) -> SourceFrame:
        spark, path, options = context.spark, self.options.path, self.options.spark
        columns = first_start.columns(
            context,
            self.options.columns,
            lambda: frames.columns_of_files(spark, "json", path, schema=None, options=options),
        )
        if self.options.mode is None and self.options.has_lines:
            return self._lines(context, columns)
        if self.options.mode is None:
            options = {**options, "mode": "FAILFAST"}
        files = frames.of_files(spark, "json", path, schema=columns, options=options)
        return SourceFrame(first_start.only_earlier(context, files))

    def _lines(self, context: SourceContext, columns: Any) -> SourceFrame:
        from pyspark.sql import functions as F

        spark, path, options, rule = context.spark, self.options.path, self.options.spark, self.options.rule
        schema = frames.columns_of_files(spark, "json", path, schema=columns, options=options)
        folders = frames.folders_of_files(spark, path, schema, options)
        files = frames.of_files(spark, "text", path, schema=frames.text_and(folders), options=options)
        lines = first_start.only_earlier(context, files).where(F.btrim("value", F.lit(" \t\r")) != "")
        decoder = JsonDecoder(frames.without(schema, folders.names), options)
        text = small = F.col("value")
        large = F.lit(False)
        if rule.max_bytes is not None:
            large = F.octet_length(text) > rule.max_bytes
            small = F.when(~large, text)
        parsed = lines.withColumn(PARSED, decoder.parse(small)).withColumn(FILE, F.col("_metadata.file_path"))
        is_bad = large | F.coalesce(decoder.is_bad(small, F.col(PARSED)), F.lit(False))
        checked = parsed.select(
            PARSED, FILE, *folders.names, bad_record.column(spark, is_bad, text, file=F.col(FILE))
        )
        good, tap = split(checked, rule, position="file", why=decoder.why(rule.max_bytes))
        values = dict(zip(decoder.schema.names, decoder.columns(F.col(PARSED)), strict=True))
        return SourceFrame(good.select(*in_order(schema, folders, values)), tap)
