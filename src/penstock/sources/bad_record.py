"""What happens with records that cannot be read: the query fails, or it drops and counts them, or it stores them elsewhere."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import unquote

from pydantic import Field, ValidationInfo, field_validator

from penstock.errors import DataError
from penstock.options import Count, IgnoringCase, PathText, mistake
from penstock.sources.spark_options import SparkOptions
from penstock.spark.boot import janino
from penstock.spark.micro_batch import tap as taps

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.spark.errors.cause import Fault
    from penstock.spark.micro_batch.tap import EpochPlan

BAD = "_penstock_bad"
TASK = "_penstock_task"
MARK = "PENSTOCK_BAD_RECORD "
SHOWN_BYTES = 64 << 10
"""How much of a record that fails a query travels with the error."""

POSITION = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "key": "binary",
    "file": "string",
}
"""Where a record was; what a source does not have is NULL."""
QUARANTINE = {"reason": "string", **POSITION, "raw": "binary", "query": "string", "epoch": "bigint"}
"""The columns of a quarantine, the same for all sources."""

Why = Callable[[bytes | None], str]
"""Says in a few words why a record cannot be read."""


MaxRecordBytes = Annotated[
    Count | None, Field(description="larger records are bad records; default: there is no limit")
]


class BadRecordOptions(SparkOptions):
    """What happens with records that do not fit."""

    on_bad_record: Annotated[Literal["fail", "drop", "quarantine"], IgnoringCase] = Field(
        "fail",
        description="what happens with a record that does not fit: it fails the query (`fail`), is dropped and counted (`drop`), "
        "or is stored elsewhere (`quarantine`); see [Bad records](../how-to/bad-records.md)",
    )
    quarantine: PathText | None = Field(
        None,
        validate_default=True,
        description="where bad records are stored: a folder for Parquet files, an Iceberg table, or `topic:NAME`",
    )

    @field_validator("quarantine")
    @classmethod
    def _belongs_to_its_action(cls, quarantine: str | None, info: ValidationInfo) -> str | None:
        action = info.data.get("on_bad_record")
        if action is not None and (action == "quarantine") != (quarantine is not None):
            raise mistake(
                'needs a place when on_bad_record="quarantine"'
                if quarantine is None
                else f'belongs to on_bad_record="quarantine", and it is {action!r}',
                hint='for example on_bad_record="quarantine", quarantine="bad/" (Parquet files), '
                '"lake.db.bad" (an Iceberg table) or "topic:bad"',
            )
        return quarantine

    @property
    def rule(self) -> BadRecords:
        """What happens with bad records, as one value."""
        return BadRecords(self.on_bad_record, self.quarantine, getattr(self, "max_record_bytes", None))

    @property
    def sets_rule(self) -> bool:
        """Whether an option of the user sets what happens with bad records."""
        return not self.model_fields_set.isdisjoint({"on_bad_record", "quarantine", "max_record_bytes"})


@dataclass(frozen=True, slots=True)
class BadRecords:
    """What happens with bad records."""

    action: str = "fail"
    quarantine: str | None = None
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Evolving:
    """A column of decoded records whose decoder can learn while a query runs."""

    alias: str
    column: Callable[[], DataFrame]
    """The source with the column as it is computed by now."""
    learn: Callable[[tuple[Fault, ...]], bool]
    """Learn from what stopped a batch; False when there is nothing to learn from it."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class BadRecordTap:
    """The tap of a plan at which bad records leave it."""

    name: str
    rule: BadRecords
    position: str
    """The field, an offset or a file, between whose bounds the bad records of an epoch lie."""
    why: Why
    kafka: Mapping[str, Any]
    """The options of the Kafka source, from which a topic for the quarantine takes its servers."""
    evolving: Evolving | None = None

    def count(self, plan: EpochPlan) -> int:
        """Return how many bad rows an epoch had that has been written."""
        counts = plan.counted(self.name)
        if counts is not None:
            return int(counts[1])
        rows = plan.rows(self.name)
        return 0 if rows is None else rows.where(f"{BAD} IS NOT NULL").count()

    def rows(self, plan: EpochPlan, *, all_read: bool) -> DataFrame | None:
        """Return the bad rows of an epoch that has been written, or None when it has none."""
        from pyspark.sql import functions as F

        read, bad_count, first, last = plan.counted(self.name) or (0, 0, None, None)
        is_counted = all_read and read > 0
        if is_counted and not bad_count:
            return None
        rows = plan.rows(self.name)
        if rows is None:
            return None
        outside = f"_{self.position}"
        if is_counted and outside in rows.columns:
            # In front of the parser, so that only the records between the bad ones are parsed again.
            rows = rows.where(F.col(outside).between(first, last))
        bad = plan.detached(rows.where(F.col(BAD).isNotNull()))
        return None if not is_counted and bad.isEmpty() else bad


def split(
    frame: DataFrame,
    rule: BadRecords,
    *,
    position: str,
    why: Why,
    kafka: Mapping[str, Any] | None = None,
    evolving: Evolving | None = None,
) -> tuple[DataFrame, BadRecordTap]:
    """Return the rows of a frame whose column `_penstock_bad` is NULL, and the tap at which the others leave it.

    `position` is the field of that column, an offset or a file, between whose bounds the bad records of an epoch lie.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    tap = BadRecordTap(f"bad_{uuid.uuid4().hex[:12]}", rule, position, why, dict(kafka or {}), evolving)
    if rule.action == "fail":
        # Nothing is counted here, so there is no observation, which would keep Spark from compiling the plan as a whole.
        java = _java(frame.sparkSession)
        rows = java.refusing(frame._jdf, BAD, TASK, MARK, taps.mark(tap.name), SHOWN_BYTES)
        return DataFrame(rows, frame.sparkSession), tap
    bad = F.col(BAD)
    where = bad.getField(position)
    counted = taps.named(
        frame,
        tap.name,
        [F.count(F.lit(1)), F.count(bad), F.min(where), F.max(where)],
    )
    return counted.where(bad.isNull()), tap


def column(spark: SparkSession, condition: Column, raw: Column, **position: Column) -> Column:
    """Return the column that holds a record's position and bytes when it is bad, and NULL otherwise."""
    from pyspark.sql import Column

    fields = {name: column._jc for name, column in position.items()}
    java = _java(spark).column(condition._jc, raw._jc, fields, list(POSITION), list(POSITION.values()), BAD)
    return Column(java)


def _java(spark: SparkSession) -> Any:
    return janino.instance(spark, __package__, "BadRecords")


def refused(faults: tuple[Fault, ...], bad_taps: Mapping[str, BadRecordTap]) -> DataError | None:
    """Return the error about a bad record, when that is what has failed."""
    text = next((fault.message.partition(MARK)[2] for fault in faults if MARK in fault.message), None)
    if text is None:
        return None
    try:
        details = json.JSONDecoder(strict=False).raw_decode(text)[0]  # base64 may have lines
        tap = bad_taps[taps.marked(details["point"])]
    except (ValueError, KeyError):
        return None
    size = None if "bytes" not in details else int(details["bytes"])
    raw = None if size is None else base64.b64decode(details.get("raw") or "")
    reason = (
        tap.why(raw)
        if raw is None or len(raw) == size or tap.rule.max_bytes is not None
        else f"it does not fit the schema ({size} bytes)"
    )
    at = (
        f"topic {details['topic']}, partition {details['partition']}, offset {details['offset']}"
        if "topic" in details
        else unquote(str(details.get("file"))).removeprefix("file://")
    )
    return DataError(
        f"a record cannot be read: {reason}",
        code="DATA_BAD_RECORD",
        where=at,
        hint='on_bad_record="drop" leaves such records out and counts them; '
        'on_bad_record="quarantine", quarantine="bad/" keeps them there',
    )


def columns(*, records: bool) -> StructType:
    """Return the columns of a quarantine, or of records with headers when it is a topic."""
    from pyspark.sql.types import StructType

    if records:
        return StructType().add("key", "binary").add("value", "binary")
    schema = StructType.fromDDL(", ".join(f"{name} {kind}" for name, kind in QUARANTINE.items()))
    assert isinstance(schema, StructType)
    return schema


def quarantined(bad: DataFrame, tap: BadRecordTap, *, query: str, epoch: int, records: bool) -> DataFrame:
    """Return bad rows as those of a quarantine, or as records with headers when it is a topic."""
    from pyspark.sql import functions as F

    rows = bad.select(
        f"{BAD}.*",
        F.udf(tap.why, "string", useArrow=True)(F.col(BAD).getField("raw")).alias("reason"),
        F.lit(query).alias("query"),
        F.lit(epoch).cast("bigint").alias("epoch"),
    )
    if not records:
        return rows.select(*QUARANTINE)
    headers = [
        F.struct(
            F.lit(f"penstock.{name}").alias("key"), F.col(name).cast("string").cast("binary").alias("value")
        )
        for name in ("reason", "topic", "partition", "offset", "file", "query", "epoch")
    ]
    not_null = F.filter(F.array(*headers), lambda header: header.getField("value").isNotNull())
    return rows.select("key", F.col("raw").alias("value"), not_null.alias("headers"))
