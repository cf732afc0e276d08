"""What Spark remembers of the stages that ran: their RDDs, their tasks, their executors.

The status store is there without the web page. Its lists come over as JSON in one call each.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_TASKS = 100_000
RECENT_EXECUTIONS = 100
CATCH_UP_MILLISECONDS = 2_000


@dataclass(frozen=True, slots=True)
class RanStage:
    """A stage that has run to its end, by Spark's number."""

    number: int
    attempt: int
    tasks: int
    rdds: frozenset[int]


def finished_stages(spark: SparkSession) -> list[RanStage]:
    """Return the stages that ended well, as far back as Spark remembers; skipped ones did not run."""
    context: Any = spark.sparkContext
    _catch_up(spark)
    quantiles = context._gateway.new_array(context._jvm.double, 0)
    listed = _as_json(spark, _store(spark).stageList(None, False, False, quantiles, None))
    return [
        RanStage(stage["stageId"], stage["attemptId"], stage["numTasks"], frozenset(stage["rddIds"]))
        for stage in listed
        if stage["status"] == "COMPLETE"
    ]


def result_stage(spark: SparkSession, metrics: frozenset[int]) -> int | None:
    """Return the number of the stage that gave the rows of the query whose plan has these metrics, if it ran."""
    store: Any = spark._jsparkSession.sharedState().statusStore()
    first = max(0, store.executionsCount() - RECENT_EXECUTIONS)
    for execution in reversed(_as_json(spark, store.executionsList(first, RECENT_EXECUTIONS))):
        if metrics.isdisjoint(metric["accumulatorId"] for metric in execution["metrics"]):
            continue
        numbers = {int(number) for number in execution["jobs"]}
        jobs = [job for job in _as_json(spark, _store(spark).jobsList(None)) if job["jobId"] in numbers]
        if jobs:
            return int(max(max(jobs, key=lambda job: job["jobId"])["stageIds"]))
    return None


def records_read(spark: SparkSession, tag: str) -> int:
    """Return how many records the jobs of a tag have read from files and other sources."""
    _catch_up(spark)
    jobs = set(spark.sparkContext._jsc.sc().statusTracker().getJobIdsForTag(tag))
    listed = _as_json(spark, _store(spark).jobsList(None))
    stages = {number for job in listed if job["jobId"] in jobs for number in job["stageIds"]}
    context: Any = spark.sparkContext
    quantiles = context._gateway.new_array(context._jvm.double, 0)
    return sum(
        int(stage["inputRecords"])
        for stage in _as_json(spark, _store(spark).stageList(None, False, False, quantiles, None))
        if stage["stageId"] in stages
    )


def ran_on(spark: SparkSession, stage: RanStage) -> Mapping[str, tuple[int, ...]]:
    """Return which partitions of a stage each executor computed."""
    partitions: dict[str, list[int]] = {}
    for task in _as_json(spark, _store(spark).taskList(stage.number, stage.attempt, MOST_TASKS)):
        if task["status"] == "SUCCESS":
            partitions.setdefault(task["executorId"], []).append(task["partitionId"])
    return {name: tuple(sorted(partitions[name])) for name in sorted(partitions)}


def executors(spark: SparkSession) -> Mapping[str, str]:
    """Return the executors by id, with the host and port of each."""
    return {
        executor["id"]: executor["hostPort"]
        for executor in _as_json(spark, _store(spark).executorList(False))
    }


def _catch_up(spark: SparkSession) -> None:
    """Wait until the store has heard of what has just ended: events reach it through a queue."""
    from py4j.protocol import Py4JJavaError

    with contextlib.suppress(Py4JJavaError):
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(CATCH_UP_MILLISECONDS)


def _store(spark: SparkSession) -> Any:
    return spark.sparkContext._jsc.sc().statusStore()


def _as_json(spark: SparkSession, value: Any) -> Any:
    jvm: Any = spark.sparkContext._jvm
    mapper = jvm.com.fasterxml.jackson.databind.ObjectMapper()
    scala = getattr(jvm, "com.fasterxml.jackson.module.scala.DefaultScalaModule$")
    mapper.registerModule(getattr(scala, "MODULE$"))
    return json.loads(mapper.writeValueAsString(value))
