"""What happens with records that cannot be read: the query fails, or they are dropped and counted, or kept elsewhere."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.errors import ConfigError, DataError, suggest
from penstock.spark.micro_batch import tap

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from penstock.spark.errors.cause import Fault
    from penstock.spark.micro_batch.tap import EpochPlan

ACTIONS = ("fail", "drop", "quarantine")
BAD = "_penstock_bad"
TASK = "_penstock_task"
MARK = "PENSTOCK_BAD_RECORD "
SHOWN_BYTES = 64 << 10
"""How much of a record that fails a query travels with the error."""

PLACE = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "key": "binary",
    "file": "string",
}
"""Where a record was; what a source does not have is NULL."""
QUARANTINE = {"reason": "string", **PLACE, "raw": "binary", "query": "string", "epoch": "bigint"}
"""The columns of a quarantine, the same for all sources."""

Why = Callable[[bytes | None], str]
"""Says in a few words why a record cannot be read."""


@dataclass(frozen=True, slots=True)
class BadRecords:
    """What a reader was told to do with bad records."""

    action: str = "fail"
    quarantine: str | None = None
    max_bytes: int | None = None

    @classmethod
    def of(cls, action: Any, quarantine: Any, max_bytes: Any) -> BadRecords:
        """Check what the user wrote."""
        wanted = str(action).lower()
        if wanted not in ACTIONS:
            raise ConfigError(
                f"unknown on_bad_record {action!r}",
                code="SOURCE_OPTION_VALUE",
                hint=suggest(wanted, ACTIONS, what="action"),
            )
        if (wanted == "quarantine") != (quarantine is not None):
            raise ConfigError(
                'on_bad_record="quarantine" needs a place'
                if quarantine is None
                else f'quarantine belongs to on_bad_record="quarantine", and it is {wanted!r}',
                code="SOURCE_OPTION_VALUE",
                hint='for example on_bad_record="quarantine", quarantine="bad/" (Parquet files), '
                '"lake.db.bad" (an Iceberg table) or "topic:bad"',
            )
        if max_bytes is not None and (
            isinstance(max_bytes, bool) or not str(max_bytes).isdigit() or int(max_bytes) < 1
        ):
            raise ConfigError(
                f"max_record_bytes must be a whole number above 0, got {max_bytes!r}",
                code="SOURCE_OPTION_VALUE",
            )
        return cls(
            wanted,
            None if quarantine is None else str(quarantine),
            None if max_bytes is None else int(max_bytes),
        )


@dataclass(frozen=True, slots=True)
class Evolving:
    """A column of decoded records whose decoder can learn while a query runs."""

    alias: str
    column: Callable[[], DataFrame]
    """The source with the column as it is computed by now."""
    learn: Callable[[tuple[Fault, ...]], bool]
    """Learn from what stopped a batch; False when there is nothing to learn from it."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class BadPoint:
    """The point of a plan at which bad records leave it."""

    name: str
    rule: BadRecords
    place: str
    """The field between whose bounds the bad records of an epoch lie."""
    why: Why
    kafka: Mapping[str, Any]
    """The options of the Kafka source, from which a topic for the quarantine takes its servers."""
    evolving: Evolving | None = None

    def count(self, plan: EpochPlan) -> int:
        """Return how many bad rows an epoch had that has been written."""
        counted = plan.counted(self.name)
        if counted is not None:
            return int(counted[1])
        rows = plan.rows(self.name)
        return 0 if rows is None else rows.where(f"{BAD} IS NOT NULL").count()

    def rows(self, plan: EpochPlan, *, all_read: bool) -> DataFrame | None:
        """Return the bad rows of an epoch that has been written, or None when it has none."""
        from pyspark.sql import functions as F

        read, found, first, last = plan.counted(self.name) or (0, 0, None, None)
        known = all_read and read > 0
        if known and not found:
            return None
        rows = plan.rows(self.name)
        if rows is None:
            return None
        outside = f"_{self.place}"
        if known and outside in rows.columns:
            # In front of the parser, so that only the records between the bad ones are parsed again.
            rows = rows.where(F.col(outside).between(first, last))
        bad = plan.detached(rows.where(F.col(BAD).isNotNull()))
        return None if not known and bad.isEmpty() else bad


def split(
    frame: DataFrame,
    rule: BadRecords,
    *,
    place: str,
    why: Why,
    kafka: Mapping[str, Any] | None = None,
    evolving: Evolving | None = None,
) -> tuple[DataFrame, BadPoint]:
    """Return the rows of a frame whose column `_penstock_bad` is NULL, and the point at which the others leave it.

    `place` is the field of that column, an offset or a file, between whose bounds the bad records of an epoch lie.
    """
    from pyspark.sql import functions as F

    point = BadPoint(f"bad_{uuid.uuid4().hex[:12]}", rule, place, why, dict(kafka or {}), evolving)
    bad = F.col(BAD)
    if rule.action == "fail":
        # There is nothing to count, and an observation keeps Spark from compiling the plan as a whole. But the check may not be moved in front
        # of the parser, or records are parsed once more for each use, and nothing may be moved past the check, as a filter of the user would
        # be that no bad record passes: what may differ from run to run, even by name only, stays where it is.
        here = F.spark_partition_id()
        checked = F.when(bad.isNull(), F.col(TASK) == here).otherwise(_refusal(point.name))
        return frame.withColumn(TASK, here).where(checked), point
    where = bad.getField(place)
    watched = tap.named(
        frame,
        point.name,
        [F.count(F.lit(1)), F.count(bad), F.min(where), F.max(where)],
    )
    return watched.where(bad.isNull()), point


def column(condition: Column, raw: Column, **place: Column) -> Column:
    """Return the column that holds a record's place and bytes when it is bad, and NULL otherwise."""
    from pyspark.sql import functions as F

    fields = [place.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in PLACE.items()]
    return F.when(condition, F.struct(*fields, raw.cast("binary").alias("raw"))).alias(BAD)


def _refusal(name: str) -> Column:
    from pyspark.sql import functions as F

    bad = F.col(BAD)
    raw = bad.getField("raw")
    told = F.to_json(
        F.struct(
            tap.mark(name).alias("point"),
            *[bad.getField(each).alias(each) for each in ("topic", "partition", "offset", "file")],
            F.octet_length(raw).alias("bytes"),
            F.base64(F.substring(raw, 1, SHOWN_BYTES)).alias("raw"),
        )
    )
    return F.raise_error(F.concat(F.lit(MARK), told, F.lit("\n")))


def refused(faults: tuple[Fault, ...], points: Mapping[str, BadPoint]) -> DataError | None:
    """Return the error about a bad record, when that is what has failed."""
    told = next((fault.message.partition(MARK)[2] for fault in faults if MARK in fault.message), None)
    if told is None:
        return None
    try:
        found = json.JSONDecoder().raw_decode(told)[0]
        point = points[tap.marked(found["point"])]
    except (ValueError, KeyError):
        return None
    raw = base64.b64decode(found.get("raw") or "")
    reason = (
        point.why(raw)
        if len(raw) == found.get("bytes") or point.rule.max_bytes is not None
        else f"it does not fit the schema ({found.get('bytes')} bytes)"
    )
    at = (
        f"topic {found['topic']}, partition {found['partition']}, offset {found['offset']}"
        if "topic" in found
        else unquote(str(found.get("file"))).removeprefix("file://")
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
    made = StructType.fromDDL(", ".join(f"{name} {kind}" for name, kind in QUARANTINE.items()))
    assert isinstance(made, StructType)
    return made


def kept(bad: DataFrame, point: BadPoint, *, query: str, epoch: int, records: bool) -> DataFrame:
    """Return bad rows as those of a quarantine, or as records with headers when it is a topic."""
    from pyspark.sql import functions as F

    each = bad.select(
        f"{BAD}.*",
        F.udf(point.why, "string", useArrow=True)(F.col(BAD).getField("raw")).alias("reason"),
        F.lit(query).alias("query"),
        F.lit(epoch).cast("bigint").alias("epoch"),
    )
    if not records:
        return each.select(*QUARANTINE)
    headers = [
        F.struct(
            F.lit(f"penstock.{name}").alias("key"), F.col(name).cast("string").cast("binary").alias("value")
        )
        for name in ("reason", "topic", "partition", "offset", "file", "query", "epoch")
    ]
    known = F.filter(F.array(*headers), lambda header: header.getField("value").isNotNull())
    return each.select("key", F.col("raw").alias("value"), known.alias("headers"))
