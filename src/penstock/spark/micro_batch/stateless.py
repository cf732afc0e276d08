"""Queries over rows that come in batches, each planned for one batch alone: their columns, and whether that is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.spark.boot import janino
from penstock.spark.no_rows import no_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def empty_stream(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return a streaming DataFrame with these columns, to plan queries over it; it cannot be run."""
    return no_rows(spark, schema, streams=True)


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query over empty streams, as Spark understands it."""

    schema: StructType | None
    """Its columns; None when Spark does not even plan it over streams."""
    memory: str | None
    """What in it depends on rows of other batches, in words; None when every batch can be taken alone."""
    is_volatile: bool = False
    """Whether it asks for the time or for random values."""


def planned(query: Callable[[], DataFrame]) -> PlannedQuery:
    """Return what a query over empty streams gives and whether it needs more than one batch; `query` plans it, and
    raises what Spark raises."""
    from pyspark.errors import AnalysisException

    try:
        frame = query()
    except AnalysisException as error:
        if error.getCondition() == "INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY":
            return PlannedQuery(None, "a subquery over rows that come in batches")
        raise
    java = janino.instance(frame.sparkSession, __package__, "Stateless")
    reason = java.memory(frame._jdf.queryExecution().analyzed())
    return PlannedQuery(frame.schema, None if reason is None else str(reason), is_volatile(frame))


def is_volatile(frame: DataFrame) -> bool:
    """Whether the plan of a frame asks for the time or for random values, so that it may say something else when it
    is planned again."""
    java = janino.instance(frame.sparkSession, __package__, "Stateless")
    return bool(java.isVolatile(frame._jdf.queryExecution().analyzed()))


def fixed(frame: DataFrame, *, time_ms: int, seed: int) -> DataFrame:
    """Return a frame in which `now()` and its kin are a given time, and random values begin with a seed: planned
    again, it says the same."""
    from pyspark.sql import DataFrame

    spark = frame.sparkSession
    java = janino.instance(spark, "penstock.spark.catalyst", "Front")
    plan = java.fixed(frame._jdf.queryExecution().analyzed(), time_ms * 1000, seed)
    jvm: Any = spark._jvm
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)


def first_time_ms(spark: SparkSession, query: str) -> int | None:
    """When the epoch that a streaming query of a session writes was begun for the first time, as its checkpoint has
    it; None for no such query."""
    running = spark._jsparkSession.streams().get(query)
    if running is None:
        return None
    return int(running.streamingQuery().lastExecution().offsetSeqMetadata().batchTimestampMs())


def carried(query: DataFrame, rows: DataFrame, operation: str) -> DataFrame | None:
    """Return a query with the column of operations, which it does not read, carried along; None when it does more
    than project and filter.

    An update that does not pass a filter becomes a delete, and deletes pass. `rows` are those that the query reads,
    as `rows.drop(operation)` gave them.
    """
    from pyspark.sql import DataFrame

    spark = query.sparkSession
    java = janino.instance(spark, __package__, "Stateless")
    plans = (query._jdf.queryExecution().analyzed(), rows._jdf.queryExecution().analyzed())
    frame = java.carried(spark._jsparkSession, *plans, operation)
    return None if frame is None else DataFrame(frame, spark)


def passes_columns(query: DataFrame, rows: DataFrame, names: Sequence[str]) -> bool:
    """Whether columns of a query are those of the rows that it reads, as they are, and no row is made into several."""
    java = janino.instance(query.sparkSession, __package__, "Stateless")
    plans = (query._jdf.queryExecution().analyzed(), rows._jdf.queryExecution().analyzed())
    return bool(java.passes(*plans, list(names)))


def origins(query: DataFrame, rows: DataFrame) -> dict[str, frozenset[str] | None]:
    """Return for each column of a query that projects and filters the columns that it is made of, of the rows that it reads.

    None for a column that is made of something else, such as a random number.
    """
    java = janino.instance(query.sparkSession, __package__, "Stateless")
    plans = (query._jdf.queryExecution().analyzed(), rows._jdf.queryExecution().analyzed())
    made_of = [None if names is None else frozenset(map(str, names)) for names in java.origins(*plans)]
    return dict(zip(query.columns, made_of, strict=True))


@contextmanager
def relations(spark: SparkSession, frames: Mapping[str, DataFrame]) -> Iterator[None]:
    """Let queries of a session see DataFrames, also those of other sessions, under names that it must not have yet."""
    java = janino.instance(spark, __package__, "Relations")
    names, plans = list(frames), [frame._jdf.logicalPlan() for frame in frames.values()]
    try:
        java.put(spark._jsparkSession, names, plans)
        yield
    finally:
        java.drop(spark._jsparkSession, names)


def query(spark: SparkSession, text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
    """Return a query over DataFrames by their names.

    Its plan is the analyzed one: Spark looks for what is observed in a frame in the plan as it was given, where a name hides it.
    """
    from pyspark.sql import DataFrame

    java = janino.instance(spark, __package__, "Relations")
    plans = [frame._jdf.logicalPlan() for frame in frames.values()]
    return DataFrame(java.query(spark._jsparkSession, text, list(frames), plans), spark)


def of_session(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """Return a DataFrame in another session of the same Spark."""
    from pyspark.sql import DataFrame

    if frame.sparkSession is spark:
        return frame
    jvm: Any = spark._jvm
    dataset = jvm.org.apache.spark.sql.classic.Dataset
    return DataFrame(dataset.ofRows(spark._jsparkSession, frame._jdf.logicalPlan()), spark)
