"""What a streaming plan can do: its output modes, and the same query over all that its sources hold now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError
from penstock.spark import janino
from penstock.spark.errors import translate
from penstock.spark.fault import faults

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MODES = ("append", "update", "complete")


def refusals(frame: DataFrame) -> dict[str, str | None]:
    """Return for every output mode why the query cannot do it, or None when it can."""
    jvm: Any = frame.sparkSession._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    plan = frame._jdf.queryExecution().analyzed()
    found: dict[str, str | None] = {}
    for mode in MODES:
        wanted = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode.capitalize())()
        try:
            checker.checkForStreaming(plan, wanted)
        except Exception as error:
            found[mode] = _reason(error)
        else:
            found[mode] = None
    return found


def shape(frame: DataFrame) -> list[tuple[str, str]]:
    """Return what of the query its checkpoint depends on: ("source", where it reads) and ("state", what it keeps)."""
    spark = frame.sparkSession
    streams = janino.instance(spark, __package__, "Streams")
    return [(str(kind), str(text)) for kind, text in streams.shape(frame._jdf.queryExecution().analyzed())]


def _reason(error: Exception) -> str:
    """Why Spark refuses a mode, in the words that name the operation and not the mode again."""
    for fault in faults(error):
        if fault.parameters.get("operation"):
            return f"the query has {fault.parameters['operation']}".replace(
                "streaming aggregations", "aggregates"
            )
    return translate(error).message


def as_batch(frame: DataFrame) -> DataFrame:
    """Return the query as a batch over all that is there; without watermarks, so every window is complete."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    spark = frame.sparkSession
    streams = janino.instance(spark, __package__, "Streams")
    plan = frame._jdf.queryExecution().analyzed()
    endless = sorted(set(streams.streamingOnly(plan)))
    if endless:
        raise ConfigError(
            f"once reads all that is there, but the source '{endless[0]}' has no end",
            code="STREAM_ONCE_ENDLESS",
            hint="use Trigger.available_now() or Trigger.processing_time(...)",
        )
    return ClassicDataFrame(streams.batch(spark._jsparkSession, plan), spark)
