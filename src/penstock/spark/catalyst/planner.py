"""Ask Spark for a view's optimized plan, without touching the user's session, and translate it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.errors import SqlError, suggest
from penstock.plan import node as plan
from penstock.spark import errors
from penstock.spark.catalyst import bridge, joins, legacy, zone_rules
from penstock.spark.catalyst.translate import PlanSettings, translate_plan
from penstock.spark.catalyst.variables import bound, declare, is_dynamic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Relation:
    """A source or a view of the flow, as a query may name it."""

    name: str
    fields: plan.Fields
    metadata: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Static:
    """A table of the session that a view reads: loaded once, and again when the user asks for it."""

    name: str
    fields: plan.Fields
    frame: DataFrame


@dataclass(frozen=True, slots=True)
class PlannedView:
    """A view, the static tables it reads, and the JVM objects from which Spark can run a part of it."""

    view: plan.View
    statics: tuple[Static, ...]
    session: Any
    optimized: Any


def table(spark: SparkSession, relation: Relation) -> DataFrame:
    """Return a DataFrame without rows that stands for a relation of the flow in the user's own code."""
    from pyspark.sql import DataFrame

    return DataFrame(_empty(bridge.front(spark), spark._jsparkSession, relation), spark)


def filtered(
    spark: SparkSession, view: str, relation: Relation, columns: Sequence[int], condition: str
) -> DataFrame:
    """Return some columns of a relation's rows for which a condition holds, for a view; SqlError when Spark refuses
    the condition."""
    frame = table(spark, relation)
    try:
        frame = frame.where(condition)
    except Exception as error:
        refusal = errors.translate(error, sql=condition, spark=spark)
        refusal.where = refusal.where or errors.short(condition)
        raise errors.located(refusal, f"view '{view}', filter") from None
    return frame.select(*(frame[f"`{relation.fields[at].name.replace('`', '``')}`"] for at in columns))


def plan_view(
    spark: SparkSession,
    name: str,
    query: str | DataFrame,
    relations: Mapping[str, Relation],
    *,
    variables: Sequence[plan.Variable] = (),
) -> PlannedView:
    """Plan a view over the flow's relations; other names in the query are the session's tables, static sides of the view.

    Session variables are bound to the values that they have now, or had when the view was saved (`variables`).
    Raises SqlError when Spark does not accept the query or when it is not deterministic.
    """
    text = query if isinstance(query, str) else None
    analyzed = None
    try:
        front = bridge.front(spark)
        session = bridge.planning_session(spark)
        declare(spark, front, session, variables)
        analyzed = _adopted(spark, front, session, _analyze(front, session, query, relations), relations)
        return _optimize(spark, session, front, analyzed, name, query)
    except Exception as error:
        refusal = errors.translate(error, sql=text, spark=spark, plan=analyzed)
        if refusal.code == "SQL_UNKNOWN_TABLE":
            refusal.hint = suggest(_missing(error), relations, what="relation")
        refusal.where = refusal.where or (errors.short(text) if text else None)
        raise errors.located(refusal, f"view '{name}'") from None


def _missing(error: Exception) -> str:
    """The name that Spark did not find."""
    from pyspark.errors import PySparkException

    parameters = error.getMessageParameters() if isinstance(error, PySparkException) else None
    return str((parameters or {}).get("relationName", "")).replace("`", "")


def _optimize(
    spark: SparkSession, session: Any, front: Any, analyzed: Any, name: str, query: str | DataFrame
) -> PlannedView:
    if front.readsTimeOfDay(analyzed):
        raise SqlError(
            "the view uses current_time(), which would stay what it is now",
            code="SQL_NONDETERMINISTIC",
            hint="use now(), the time of the tick, as in hour(now()) or date_format(now(), 'HH:mm:ss')",
        )
    marker = front.relation(session, bridge.NOW, "now TIMESTAMP NOT NULL")
    analyzed = front.bindTime(analyzed, marker.queryExecution().analyzed())
    analyzed = front.cut(session, analyzed)
    statics = _statics(spark, front)
    variables = bound(spark, front, session, analyzed, query if isinstance(query, str) else None)
    optimized, text = _optimized(session, front, analyzed)
    described = bridge.described(text)
    rules, table = zone_rules.needed(front, text, described)
    legacy.leave_to_spark(described, bridge.settings(spark, front, session, legacy.SETTINGS))
    settings = replace(_settings(session), has_code=not isinstance(query, str))
    translated = translate_plan(described, settings)
    view = plan.View(
        name,
        query if isinstance(query, str) else "",
        translated.root,
        translated.order,
        translated.uses_time,
        tuple(static.name for static in statics),
        rules,
        translated.visible,
        variables,
        _metadata(front, analyzed),
        table,
    )
    return PlannedView(view, statics, session, optimized)


def _optimized(session: Any, front: Any, analyzed: Any) -> tuple[Any, str]:
    """The optimized plan and its description; a rule of Spark's that changes which rows are asked what may raise is
    not left out."""
    exclusions = bridge.user_exclusions(session, front)
    has_sessions = front.holdsSessions(analyzed)
    bridge.exclude_rules(session, exclusions, but=bridge.SESSION_RULES if has_sessions else ())
    optimized = front.optimize(session, analyzed)
    text = front.describe(session, optimized)
    if has_sessions or not joins.may_raise_for_pairs(bridge.described(text)):
        return optimized, text
    bridge.exclude_rules(session, exclusions, but=bridge.JOIN_RULES)
    optimized = front.optimize(session, analyzed)
    return optimized, front.describe(session, optimized)


def _settings(session: Any) -> PlanSettings:
    conf = session.conf()
    return PlanSettings(
        conf.get("spark.sql.session.timeZone"),
        int(conf.get("spark.sql.cteRecursionLevelLimit")),
        int(conf.get("spark.sql.cteRecursionRowLimit")),
    )


def _empty(front: Any, session: Any, relation: Relation) -> Any:
    """A Dataset without rows that stands for a relation."""
    return front.relation(session, relation.name, _ddl(relation.fields), list(relation.metadata))


def _metadata(front: Any, analyzed: Any) -> tuple[str, ...]:
    metadata = tuple(front.columnMetadata(analyzed))
    return metadata if any(column != "{}" for column in metadata) else ()


def _ddl(fields: plan.Fields) -> str:
    return bridge.ddl((item.name, item.type, item.nullable) for item in fields)


def _analyze(front: Any, session: Any, query: str | DataFrame, relations: Mapping[str, Relation]) -> Any:
    if not isinstance(query, str):
        return query._jdf.queryExecution().analyzed()
    if front.isStatement(session, query):
        # Spark runs a statement when it is asked to analyze it.
        raise SqlError(
            "a view is a query, and this is a statement that does something",
            code="SQL_NOT_A_QUERY",
            hint="write a SELECT; session.sql(...) runs statements",
        )
    dotted, dynamic = {}, is_dynamic(query)
    for relation in relations.values():
        # A name that is not in the text is not meant, unless the text is made later, and every relation costs a call
        # into the JVM.
        last = relation.name.rpartition(".")[2]
        if dynamic or last.casefold() in query.replace("``", "`").casefold():
            empty = _empty(front, session, relation)
            empty.createOrReplaceTempView(f"`{relation.name.replace('`', '``')}`")
            if "." in relation.name:
                dotted[relation.name.lower()] = empty
    if dotted:
        return front.analyze(session, query, dotted)
    return session.sql(query).queryExecution().analyzed()


def _adopted(
    spark: SparkSession, front: Any, session: Any, analyzed: Any, relations: Mapping[str, Relation]
) -> Any:
    """The plan in which tables that SQL has of the flow are the flow's relations: views of Spark's and DataFrames may
    read them."""
    tables = {name for name in front.tables(analyzed) if name in relations}
    if not tables:
        return analyzed
    jvm: Any = spark._jvm
    empty = jvm.java.util.HashMap()
    for name in tables:
        empty.put(name, _empty(front, session, relations[name]))
    return front.adopt(analyzed, empty)


def _statics(spark: SparkSession, front: Any) -> tuple[Static, ...]:
    from pyspark.sql import DataFrame

    jvm: Any = spark._jvm
    statics: dict[str, Static] = {}
    listed = list(front.statics())
    for label, leaf in zip(listed[::2], listed[1::2], strict=True):
        if label in statics:
            continue
        frame = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, leaf)
        fields = tuple(
            plan.Field(item.name(), item.dataType().catalogString(), item.nullable())
            for item in bridge.scala_list(leaf.output())
        )
        statics[label] = Static(label, fields, DataFrame(frame, spark))
    return tuple(statics.values())
