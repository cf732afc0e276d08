"""What a streaming plan can do: its output modes, and the same query over all that its sources hold now."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError
from penstock.spark.boot import janino
from penstock.spark.errors import translate
from penstock.spark.errors.cause import faults

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MODES = ("append", "update", "complete")
SOURCE = "source"
"""What in a shape says where the query reads."""


def refusals(frame: DataFrame) -> dict[str, str | None]:
    """Return for every output mode why the query cannot do it, or None when it can."""
    jvm: Any = frame.sparkSession._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    plan = frame._jdf.queryExecution().analyzed()
    reasons: dict[str, str | None] = {}
    for mode in MODES:
        output_mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode.capitalize())()
        try:
            checker.checkForStreaming(plan, output_mode)
        except Exception as error:
            reasons[mode] = _reason(error)
        else:
            reasons[mode] = None
    return reasons


def shape(frame: DataFrame) -> list[tuple[str, str]]:
    """Return what of the query its checkpoint depends on: ("source", where it reads) and ("state", what it keeps)."""
    spark = frame.sparkSession
    streams = janino.instance(spark, __package__, "Streams")
    return [(str(kind), str(text)) for kind, text in streams.shape(frame._jdf.queryExecution().analyzed())]


def named(shape: Sequence[tuple[str, str]], names: Sequence[str]) -> list[tuple[str, str]]:
    """Return a shape whose sources have names too, so that two of one kind cannot take each other's place.

    >>> named([("source", "kafka a"), ("state", "x"), ("source", "table")], ["orders", "stores"])
    [('source', 'kafka a as orders'), ('state', 'x'), ('source', 'table as stores')]
    """
    if sum(kind == SOURCE for kind, _ in shape) != len(names):
        return list(shape)
    left = iter(names)
    return [(kind, f"{text} as {next(left)}" if kind == SOURCE else text) for kind, text in shape]


def _reason(error: Exception) -> str:
    """Why Spark refuses a mode, in the words that name the operation and not the mode again."""
    for fault in faults(error):
        if fault.parameters.get("operation"):
            return f"the query has {fault.parameters['operation']}".replace(
                "streaming aggregations", "aggregates"
            )
    return translate(error).message


def follows_clock(frame: DataFrame) -> bool:
    """Whether time alone changes what a query keeps: timers of processing time, and state with a time to live."""
    streams = janino.instance(frame.sparkSession, __package__, "Streams")
    return bool(streams.followsClock(frame._jdf.queryExecution().analyzed()))


@contextlib.contextmanager
def opened(spark: SparkSession, relation: Any, folder: str) -> Iterator[Any]:
    """A source of a plan, as Spark opens it, to be asked for offsets; `folder` is for notes that nobody reads later."""
    jvm: Any = spark._jvm
    # Sources look for the session of their thread, and a thread that has only started a query has none.
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    stream = relation.table().newScanBuilder(relation.extraOptions()).build().toMicroBatchStream(folder)
    try:
        yield stream
    finally:
        stream.stop()


@dataclass(frozen=True, slots=True)
class PlannedSource:
    """A source of a plan that has options of its own, with which it was made."""

    source: str
    options: Mapping[str, str]
    key: str
    relation: Any
    """Spark's own node of the plan."""


def readings(frame: DataFrame) -> list[PlannedSource]:
    """Return the sources of a streaming plan that have options of their own, in the order of the plan."""
    streams = janino.instance(frame.sparkSession, __package__, "Streams")
    return [
        PlannedSource(
            str(relation.sourceName()),
            dict(relation.extraOptions().asCaseSensitiveMap()),
            str(streams.key(relation)),
            relation,
        )
        for relation in streams.relations(frame._jdf.queryExecution().analyzed())
    ]


def analyzed(frame: DataFrame) -> str:
    """Return Spark's analyzed plan of a query, for people."""
    return str(frame._jdf.queryExecution().analyzed().toString())


def refuse_endless(frame: DataFrame) -> None:
    """Refuse a query that reads a source without an end, such as made-up rows, where all that is there is wanted."""
    streams = janino.instance(frame.sparkSession, __package__, "Streams")
    endless = sorted(set(streams.streamingOnly(frame._jdf.queryExecution().analyzed())))
    if endless:
        raise ConfigError(
            f"once reads all that is there, but the source '{endless[0]}' has no end",
            code="STREAM_ONCE_ENDLESS",
            hint="use Trigger.available_now() or Trigger.processing_time(...)",
        )


def as_batch(frame: DataFrame, more: Mapping[str, Mapping[str, str]] | None = None) -> DataFrame:
    """Return the query as a batch over all that is there; without watermarks, so every window is complete.

    `more` gives further options to sources, by the keys of their `PlannedSource`s.
    """
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    refuse_endless(frame)
    spark = frame.sparkSession
    streams = janino.instance(spark, __package__, "Streams")
    plan = frame._jdf.queryExecution().analyzed()
    options = {key: dict(options) for key, options in (more or {}).items()}
    return ClassicDataFrame(streams.batch(spark._jsparkSession, plan, _java(spark, options)), spark)


def replaced(frame: DataFrame, fresh: DataFrame, name: str) -> DataFrame:
    """Return a query in which a column of its source is computed as in `fresh`, a projection of the same source."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    spark = frame.sparkSession
    streams = janino.instance(spark, __package__, "Streams")
    plans = [query._jdf.queryExecution().analyzed() for query in (frame, fresh)]
    return ClassicDataFrame(streams.replaced(spark._jsparkSession, *plans, name), spark)


def _java(spark: SparkSession, value: Any) -> Any:
    """Return dictionaries as Java's maps."""
    if not isinstance(value, dict):
        return value
    jvm: Any = spark._jvm
    java_map = jvm.java.util.HashMap()
    for key, item in value.items():
        java_map.put(key, _java(spark, item))
    return java_map
