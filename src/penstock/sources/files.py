"""Files of JSON and CSV as streams in which bad records are told apart from good ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError
from penstock.sources import bad_record
from penstock.sources.bad_record import BadPoint, BadRecords, split
from penstock.sources.csv_record import WhyNotCsv
from penstock.sources.decimal_text import lossy, narrowed, widened
from penstock.sources.json_record import CORRUPT, PARSED, JsonDecoder
from penstock.spark.micro_batch import frames

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMATS = ("json", "csv")
FILE = "_file"


def decided_by_spark(form: str, asked: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Whether Spark's own reader is to deal with bad records: of other formats, or because the user gave it a `mode`."""
    own = form not in FORMATS or "mode" in {name.lower() for name in options}
    if own and asked:
        raise ConfigError(
            f"{next(iter(asked))} is for Kafka and for files of JSON and CSV"
            if form not in FORMATS
            else "mode is Spark's way to deal with bad records, and on_bad_record is ours",
            code="SOURCE_OPTION_VALUE",
            hint="leave it out" if form not in FORMATS else "leave one of them out",
        )
    return own


def has_lines(form: str, options: Mapping[str, Any]) -> bool:
    """Whether a record is a line of UTF-8, so that it can be kept as it came."""
    given = {name.lower(): str(value).lower() for name, value in options.items()}
    return form == "csv" or (given.get("multiline") != "true" and not {"encoding", "charset"} & set(given))


def refuse_without_lines(rule: BadRecords) -> None:
    """Refuse what can only be done with records that are lines."""
    if rule != BadRecords():
        raise ConfigError(
            "on_bad_record and max_record_bytes work on JSON with a record per line, in UTF-8",
            code="SOURCE_OPTION_VALUE",
            hint="leave out multiLine and encoding, or read with Spark's own mode=...",
        )


def json_lines(
    spark: SparkSession, path: str, *, schema: Any, options: Mapping[str, Any], rule: BadRecords
) -> tuple[DataFrame, BadPoint]:
    """Return files with a JSON object per line; lines with nothing on them are none."""
    from pyspark.sql import functions as F

    wanted = frames.columns_of_files(spark, "json", path, schema=schema, options=options)
    folders = frames.folders_of_files(spark, path, wanted, options)
    lines = frames.of_files(spark, "text", path, schema=frames.text_and(folders), options=options).where(
        F.btrim("value", F.lit(" \t\r")) != ""
    )
    decoder = JsonDecoder(frames.without(wanted, folders.names), options)
    text = small = F.col("value")
    large = F.lit(False)
    if rule.max_bytes is not None:
        large = F.octet_length(text) > rule.max_bytes
        small = F.when(~large, text)
    parsed = lines.withColumn(PARSED, decoder.parse(small)).withColumn(FILE, F.col("_metadata.file_path"))
    wrong = large | F.coalesce(decoder.is_bad(small, F.col(PARSED)), F.lit(False))
    watched = parsed.select(PARSED, FILE, *folders.names, bad_record.column(wrong, text, file=F.col(FILE)))
    good, point = split(watched, rule, place="file", why=decoder.why(rule.max_bytes))
    return good.select(*decoder.columns(F.col(PARSED)), *folders.names).select(
        *_order(wanted, folders)
    ), point


def csv_rows(
    spark: SparkSession, path: str, *, schema: Any, options: Mapping[str, Any], rule: BadRecords
) -> tuple[DataFrame, BadPoint]:
    """Return the rows of CSV files."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    if rule.max_bytes is not None:
        raise ConfigError(
            "max_record_bytes is for Kafka and for files of JSON",
            code="SOURCE_OPTION_VALUE",
            hint="CSV has Spark's maxCharsPerColumn",
        )
    wanted = frames.columns_of_files(spark, "csv", path, schema=schema, options=options)
    folders = frames.folders_of_files(spark, path, wanted, options)
    own = frames.without(wanted, folders.names)
    wide = StructType([*widened(own).fields, StructField(CORRUPT, StringType()), *folders.fields])
    told = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    rows = frames.of_files(spark, "csv", path, schema=wide, options=told)
    fields = F.struct(*[F.col(f"`{name}`") for name in own.names])
    parsed = rows.withColumn(PARSED, fields).withColumn(FILE, F.col("_metadata.file_path"))
    loss = lossy(F.col(PARSED), own)
    # Columns that nobody asks for are not parsed, and a record would be bad in one query and good in another. In JSON, because CSV of nothing
    # but NULLs is NULL.
    wrong = F.col(CORRUPT).isNotNull() & (F.length(F.to_json(PARSED)) >= 0)
    raw = F.coalesce(F.col(CORRUPT), F.to_csv(PARSED))
    watched = parsed.select(
        PARSED,
        FILE,
        *folders.names,
        bad_record.column(wrong if loss is None else wrong | loss, raw, file=F.col(FILE)),
    )
    given = {name.lower(): value for name, value in options.items()}
    why = WhyNotCsv(
        own.json(), str(given.get("sep", given.get("delimiter", ","))), str(given.get("quote", '"'))
    )
    good, point = split(watched, rule, place="file", why=why)
    columns = [each.alias(name) for name, each in narrowed(F.col(PARSED), own).items()]
    return good.select(*columns, *folders.names).select(*_order(wanted, folders)), point


def _order(wanted: StructType, folders: StructType) -> list[Column]:
    """The columns in the order in which they were asked for; those of folders that were not, behind them."""
    from pyspark.sql import functions as F

    names = [*wanted.names, *[name for name in folders.names if name not in wanted.names]]
    return [F.col(f"`{name}`") for name in names]
