"""A query's stages: what runs between two exchanges, in how many partitions, which stage reads from which, and who ran them.

Before a query has run this is Spark's first plan; afterwards it is the plan that adaptive execution ended with, with the
partitions that there really were. Stage 0 gives the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from penstock.spark.status import RanStage, executors, finished_stages, ran_on, result_stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Kind = Literal["result", "shuffle", "broadcast", "subquery", "cache"]
WIDEST = 140
"""Longer operators are cut in the text; `StageOperator.detail` has all of it."""


@dataclass(frozen=True, slots=True)
class StageOperator:
    """One operator with Spark's name for it; `reads` is the stage that a read gets its rows from."""

    name: str
    detail: str = ""
    children: tuple[StageOperator, ...] = ()
    reads: int | None = None
    reused: bool = False
    subqueries: tuple[int, ...] = ()

    def walk(self) -> Iterator[StageOperator]:
        """This operator and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Stage:
    """What one set of tasks does; `tasks` says, after the run, which executor computed which partitions."""

    number: int
    kind: Kind
    partitions: int | None
    root: StageOperator
    spark_stage: int | None = None
    tasks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[int, ...]:
        """The stages that this one needs."""
        numbers = [
            number
            for operator in self.root.walk()
            for number in (operator.reads, *operator.subqueries)
            if number is not None
        ]
        return tuple(dict.fromkeys(numbers))


@dataclass(frozen=True, slots=True)
class Stages:
    """All stages of a query; `str()` draws them."""

    stages: tuple[Stage, ...]
    final: bool
    executors: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [] if self.final else ["Not run yet: partitions and operators may change while it runs."]
        for stage in self.stages:
            many = "?" if stage.partitions is None else stage.partitions
            kind = "" if stage.kind in ("result", "shuffle") else f", {stage.kind}"
            lines.append(f"{'=' * 15}Stage {stage.number} (partitions={many}{kind}){'=' * 15}")
            lines += _drawn(stage.root, 0)
        ran = self._ran()
        if ran:
            lines += ["", "Executors (stage/{partitions}):", *ran]
        return "\n".join(lines)

    def _ran(self) -> list[str]:
        names = dict.fromkeys(name for stage in self.stages for name in stage.tasks)
        lines = []
        for name in names:
            parts = [
                f"{stage.number}/{{{_spans(stage.tasks[name])}}}"
                for stage in self.stages
                if name in stage.tasks
            ]
            place = self.executors.get(name)
            lines.append(f"  {name}{f' ({place})' if place else ''}: {', '.join(parts)}")
        return lines


def stages_of(frame: DataFrame, *, result_rdd: int | None = None) -> Stages:
    """Return the stages of a DataFrame; `result_rdd` is the RDD of its last stage, when someone knows it."""
    spark = frame.sparkSession
    plan = frame._jdf.queryExecution().executedPlan()
    cutter = _StageCutter()
    cutter.stage("result", plan)
    final = _is_final(plan)
    drafts = cutter.finished()
    if not final:
        return Stages(tuple(draft.stage for draft in drafts), final=False)
    finished = finished_stages(spark)
    if result_rdd is None:
        last = result_stage(spark, frozenset(cutter.metrics))
        result_run = next((stage for stage in finished if stage.number == last), None)
        if result_run is not None and drafts[0].stage.partitions in (None, result_run.tasks):
            drafts[0] = replace(drafts[0], ran=result_run)
    else:
        drafts[0] = replace(drafts[0], rdds=frozenset((result_rdd,)))
    return _with_tasks(spark, drafts, finished, first=result_rdd is not None)


def _with_tasks(
    spark: SparkSession, drafts: list[_Draft], finished: list[RanStage], *, first: bool
) -> Stages:
    stages = []
    for draft in drafts:
        stage = draft.stage
        ran = draft.ran or _matching(finished, draft.rdds, stage.partitions, first=first)
        if ran is not None:
            many = ran.tasks if stage.partitions is None else stage.partitions
            stage = replace(stage, spark_stage=ran.number, tasks=ran_on(spark, ran), partitions=many)
        stages.append(stage)
    by_name = executors(spark)
    used = {name for stage in stages for name in stage.tasks}
    return Stages(
        tuple(stages), final=True, executors={name: by_name[name] for name in used if name in by_name}
    )


def _matching(
    finished: list[RanStage], rdds: frozenset[int], partitions: int | None, *, first: bool
) -> RanStage | None:
    """The run of a stage: it computed one of its RDDs, all partitions of it, and not just some for a ticket."""
    matching = [stage for stage in finished if stage.rdds & rdds]
    complete = [stage for stage in matching if partitions is None or stage.tasks == partitions]
    matching = complete or matching
    if not matching:
        return None
    return (min if first else max)(matching, key=lambda stage: stage.number)


def _drawn(operator: StageOperator, depth: int) -> list[str]:
    text = f"{operator.name} {operator.detail}".strip()
    text = text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"
    if operator.reads is not None:
        text += f" <- stage {operator.reads}{' (reused)' if operator.reused else ''}"
    if operator.subqueries:
        text += f" (subquery: stage {', '.join(map(str, operator.subqueries))})"
    below = [line for child in operator.children for line in _drawn(child, depth + 1)]
    return [f"{'  ' * depth}{text}", *below]


def _spans(numbers: tuple[int, ...]) -> str:
    """0,1,2,5 as 0-2,5."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


# Nodes that only wrap another one: how to get at it.
_WRAPPERS = {
    "AdaptiveSparkPlanExec": lambda node: node.executedPlan(),
    "ResultQueryStageExec": lambda node: node.plan(),
    "TableCacheQueryStageExec": lambda node: node.plan(),
    "WholeStageCodegenExec": lambda node: node.child(),
    "InputAdapter": lambda node: node.child(),
    "ColumnarToRowExec": lambda node: node.child(),
    "RowToColumnarExec": lambda node: node.child(),
}
# Operators that bring all rows into one partition by a shuffle of their own.
_GATHERING = ("TakeOrderedAndProjectExec", "CollectLimitExec", "CollectTailExec")


@dataclass(frozen=True, slots=True)
class _Draft:
    stage: Stage
    rdds: frozenset[int]
    ran: RanStage | None = None


class _StageCutter:
    """Cuts a physical plan at its exchanges; each becomes one stage, however often it is read."""

    def __init__(self) -> None:
        self._drafts: list[_Draft | None] = []
        self._numbers: dict[tuple[str, int], int] = {}
        self._rdds: list[set[int]] = []
        self.metrics: set[int] = set()
        """The metrics of the result stage: Spark knows by them which run was of this plan."""

    def finished(self) -> list[_Draft]:
        return [draft for draft in self._drafts if draft is not None]

    def stage(self, kind: Kind, plan: Any, writer: Any = None, *, ran: bool = False) -> int:
        """Add the stage of a plan, once; `writer` is the exchange that takes its rows, which `ran` already or not."""
        key = (kind, (writer or _unwrapped(plan)).id())
        if key in self._numbers:
            return self._numbers[key]
        number = self._numbers[key] = len(self._drafts)
        self._drafts.append(None)
        self._rdds.append(set())
        root = self._operator(plan)
        if writer is not None:
            root = StageOperator(_name(writer), _detail(writer), (root,))
            if kind == "shuffle" and ran:
                self._rdds[-1] = {int(writer.shuffleDependency().rdd().id())}
        stage = Stage(number, kind, _partitions(plan), root)
        self._drafts[number] = _Draft(stage, frozenset(self._rdds.pop()))
        return number

    def _operator(self, wrapped: Any) -> StageOperator:
        node = _unwrapped(wrapped)
        name = _class(node)
        if name in ("ShuffleQueryStageExec", "AQEShuffleReadExec", "ShuffleExchangeExec"):
            return self._shuffle_read(node, name)
        if name in ("BroadcastQueryStageExec", "BroadcastExchangeExec"):
            exchange, reused = _exchange(node)
            number = self.stage("broadcast", exchange.child(), exchange)
            return StageOperator("BroadcastRead", reads=number, reused=reused)
        if name == "ReusedExchangeExec":
            return replace(self._operator(node.child()), reused=True)
        subqueries = tuple(
            self.stage("subquery", _subquery_plan(query)) for query in _items(node.subqueries())
        )
        if len(self._rdds) == 1:
            self.metrics |= {int(metric.id()) for metric in _items(node.metrics().values().toSeq())}
        if name == "InMemoryTableScanExec":
            number = self.stage("cache", node.relation().cachedPlan())
            self._rdds[-1] |= _leaf_rdds(node)
            return StageOperator(_name(node), _detail(node), reads=number, subqueries=subqueries)
        if name in _GATHERING and _partitions(node.child()) != 1:
            number = self.stage("shuffle", node.child())
            read = StageOperator("ShuffleRead", "SinglePartition", reads=number)
            return StageOperator(_name(node), _detail(node), (read,), subqueries=subqueries)
        children = _items(node.children())
        if not children:
            self._rdds[-1] |= _leaf_rdds(node)
        return StageOperator(
            _name(node),
            _detail(node),
            tuple(self._operator(child) for child in children),
            subqueries=subqueries,
        )

    def _shuffle_read(self, node: Any, name: str) -> StageOperator:
        detail = _detail(node) if name == "AQEShuffleReadExec" else ""
        ran = _has_run(node)
        if ran:
            # Only what has run has an RDD to recognise it by; asking earlier would run it.
            self._rdds[-1] |= _leaf_rdds(node)
        exchange, reused = _exchange(node)
        number = self.stage("shuffle", exchange.child(), exchange, ran=ran)
        return StageOperator("ShuffleRead", detail, reads=number, reused=reused)


def _class(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _name(node: Any) -> str:
    return str(node.nodeName()).strip()


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _unwrapped(node: Any) -> Any:
    while (inner := _WRAPPERS.get(_class(node))) is not None:
        node = inner(node)
    return node


def _exchange(node: Any) -> tuple[Any, bool]:
    """The exchange behind a read, and whether another read had it first."""
    reused = False
    while True:
        name = _class(node)
        if name == "AQEShuffleReadExec":
            node = node.child()
        elif name in ("ShuffleQueryStageExec", "BroadcastQueryStageExec"):
            node = node.plan()
        elif name == "ReusedExchangeExec":
            node, reused = node.child(), True
        else:
            return node, reused


def _subquery_plan(node: Any) -> Any:
    while _class(node).startswith(("Subquery", "ReusedSubquery")):
        node = node.child()
    return node


def _is_final(plan: Any) -> bool:
    """Without adaptive execution a plan never changes, and whether it ran is seen by its tasks."""
    return _class(plan) != "AdaptiveSparkPlanExec" or "isFinalPlan=true" in plan.simpleString(1)


def _has_run(node: Any) -> bool:
    while _class(node) == "AQEShuffleReadExec":
        node = node.child()
    return _class(node).endswith("QueryStageExec") and bool(node.isMaterialized())


def _partitions(wrapped: Any) -> int | None:
    """How many tasks compute a plan, as far as it is known before it runs."""
    node = _unwrapped(wrapped)
    name = _class(node)
    if name == "AQEShuffleReadExec":
        return int(node.partitionSpecs().size())
    if name in ("ShuffleQueryStageExec", "ShuffleExchangeExec"):
        return int(_exchange(node)[0].outputPartitioning().numPartitions())
    if name == "ReusedExchangeExec":
        return _partitions(node.child())
    if name.startswith("Broadcast") and name.endswith(("ExchangeExec", "StageExec")):
        return None
    if name in _GATHERING:
        return 1
    children = _items(node.children())
    if not children:
        return _leaf_partitions(node)
    counts = [many for child in children if (many := _partitions(child)) is not None]
    if not counts:
        return None
    match name:
        case "UnionExec":
            return sum(counts)
        case "CartesianProductExec":
            return counts[0] * counts[-1]
        case "CoalesceExec":
            return min(int(node.numPartitions()), counts[0])
    return max(counts)


def _leaf_partitions(node: Any) -> int | None:
    if _class(node) == "InMemoryTableScanExec" and not _is_cached(node):
        return _partitions(node.relation().cachedPlan())
    rdd = _leaf_rdd(node)
    return None if rdd is None else int(rdd.getNumPartitions())


def _is_cached(node: Any) -> bool:
    return bool(node.relation().cacheBuilder().isCachedColumnBuffersLoaded())


def _leaf_rdds(node: Any) -> set[int]:
    if _class(node) == "InMemoryTableScanExec" and not _is_cached(node):
        return set()
    rdd = _leaf_rdd(node)
    return set() if rdd is None else {int(rdd.id())}


def _leaf_rdd(node: Any) -> Any:
    """The RDD that a leaf reads from; none when making it would have to run something first."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if node.subqueries().size():
        return None
    try:
        return node.inputRDDs().head()
    except (Py4JError, PySparkException):
        pass
    try:
        return node.execute()
    except (Py4JError, PySparkException):
        return None


def _detail(node: Any) -> str:
    """Spark's line about a node without its name, expression ids and what is always the same."""
    text = str(node.simpleString(25))
    text = re.sub(r"^FileScan \S+", "", text).removeprefix(str(node.nodeName())).strip()
    text = re.sub(r"#\d+L?", "", text)
    text = re.sub(r",? \[plan_id=\d+\]|, ENSURE_REQUIREMENTS", "", text)
    text = re.sub(r"(Reused)?(Subquery )+subquery, \[id=\]", "subquery", text)
    text = re.sub(r" Batched: \w+, DataFilters: \[.*\], Format: [\w.]+,", "", text)
    text = re.sub(r", (PartitionFilters|PushedFilters|DataFilters): \[\]", "", text)
    return re.sub(r", ReadSchema: .*$", "", text).strip()
