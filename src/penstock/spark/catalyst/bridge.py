"""The few calls into the driver's JVM that planning needs, through py4j."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.data.types import parse
from penstock.spark.boot import janino

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXCLUDED = "spark.sql.optimizer.excludedRules"
NOW = "penstock.now"  # the opaque relation whose one column is the tick's time

# Rules that fold, reorder or encode what the kernel does better itself, or that ask for a physical plan.
_CATALYST = "org.apache.spark.sql.catalyst.optimizer."
_EXECUTION = "org.apache.spark.sql.execution."
EXCLUDED_RULES = (
    # Sums of unscaled longs, distinct aggregates as Expand, float keys with a normalising call: the kernel does these itself.
    _CATALYST + "DecimalAggregates",
    _CATALYST + "RewriteDistinctAggregates",
    _CATALYST + "NormalizeFloatingNumbers",
    _CATALYST + "ReplaceDeduplicateWithAggregate",
    # IS NOT NULL filters below every join, and semi joins copied to both sides: operators that cost every tick.
    _CATALYST + "InferFiltersFromConstraints",
    _CATALYST + "InferFiltersFromGenerate",
    # Limits below unions and joins, which only save work in a batch.
    _CATALYST + "LimitPushDown",
    _CATALYST + "LimitPushDownThroughWindow",
    _CATALYST + "InferWindowGroupLimit",
    # A projection with a correlated subquery goes below a limit, becomes a join there, and the ORDER BY of the limit is lost.
    _CATALYST + "PushProjectionThroughLimitAndOffset",
    # In becomes InSet, whose values are not expressions.
    _CATALYST + "OptimizeIn",
    # Scans, subqueries, shared plans and Python functions are ours to place.
    _CATALYST + "MergeScalarSubqueries",
    _CATALYST + "ReplaceCTERefWithRepartition",
    _CATALYST + "ExtractPythonUDFFromJoinCondition",
    _EXECUTION + "python.ExtractPythonUDFFromAggregate",
    _EXECUTION + "python.ExtractGroupingPythonUDFFromAggregate",
    _EXECUTION + "python.ExtractPythonUDFs",
    _EXECUTION + "python.ExtractPythonUDTFs",
    _CATALYST + "InjectRuntimeFilter",
    _EXECUTION + "dynamicpruning.PartitionPruning",
)
# Rules that decide which rows meet in a session: in a plan with session windows they are Spark's own.
SESSION_RULES = frozenset(
    {
        _CATALYST + "RewriteDistinctAggregates",
        _CATALYST + "InferFiltersFromConstraints",
    }
)
# Filters below joins decide for which pairs a condition is asked: in a plan with a join whose condition may raise
# they are Spark's own.
JOIN_RULES = frozenset({_CATALYST + "InferFiltersFromConstraints"})


def front(spark: SparkSession) -> Any:
    """Return a new instance of the Java class in Front.java."""
    return janino.instance(spark, __package__, "Front")


def planning_session(spark: SparkSession) -> Any:
    """Return a private copy of the user's JVM session: it sees the same tables, views, functions and settings.

    What planning adds to it, temporary views of the flow's relations above all, stays out of the user's session.
    """
    session = spark._jsparkSession.cloneSession()
    current = spark.catalog.currentCatalog()
    if session.catalog().currentCatalog() != current:
        session.catalog().setCurrentCatalog(current)
        schema = spark.catalog.currentDatabase()
        if schema and session.catalog().databaseExists(schema):
            session.catalog().setCurrentDatabase(schema)
    return session


def user_exclusions(session: Any, front: Any) -> list[str]:
    """Return the rules that the user leaves out, but for those without which plans are not whole: Spark keeps these, too."""
    conf = session.conf()
    rules = [rule.strip() for rule in (conf.get(_EXCLUDED, "") or "").split(",") if rule.strip()]
    needed = set(front.neededRules(session)) if rules else set()
    return [rule for rule in rules if rule not in needed]


def exclude_rules(session: Any, rules: Iterable[str], *, but: Container[str] = ()) -> None:
    """Have a planning session leave out these rules and ours, `but` some."""
    own = (rule for rule in EXCLUDED_RULES if rule not in but)
    session.conf().set(_EXCLUDED, ",".join([*rules, *own]))


def settings(spark: SparkSession, front: Any, session: Any, names: Iterable[str]) -> dict[str, str]:
    """Return the values that settings have in a session; one that this Spark does not know is left out."""
    jvm: Any = spark._jvm
    listed = jvm.java.util.ArrayList()
    for name in names:
        listed.add(name)
    return dict(front.settings(session, listed))


def ddl(fields: Iterable[tuple[str, str, bool]]) -> str:
    """Return Spark's DDL for columns given by name, type and nullability."""
    return ", ".join(
        f"{_quoted(name)} {_quoted_type(kind)}{'' if nullable else ' NOT NULL'}"
        for name, kind, nullable in fields
    )


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _quoted_type(kind: str) -> str:
    """A type whose fields may have any name."""
    parsed = parse(kind)
    if not parsed.inner:
        return kind
    inner = [_quoted_type(part) for part in parsed.inner]
    if parsed.kind == "struct":
        inner = [f"{_quoted(name)}:{part}" for name, part in zip(parsed.names, inner, strict=True)]
    return f"{parsed.kind}<{','.join(inner)}>"


def scala_list(seq: Any) -> list[Any]:
    """Return the elements of a Scala sequence."""
    return [seq.apply(index) for index in range(seq.size())]


def described(text: str) -> Mapping[str, Any]:
    """Return the decoded plan that Front.describe gave."""
    plan: Mapping[str, Any] = json.loads(text)
    return plan
