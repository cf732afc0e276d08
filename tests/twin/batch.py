"""A view driven tick by tick, next to Spark's batch query over all rows: each gives rows, or the code of an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

import penstock as ps
from golden import canonical, drive
from golden.case import Change, Row, Tick, table
from penstock.data.schema import to_arrow_schema
from penstock.engine.definition import spark_parts
from penstock.spark.errors import translate

Answer = list[tuple[Any, ...]] | str

# Spark compiles its plans, and computes each expression on its own: with shared subexpressions it raises for some rows that reach none
# of them, and not when it interprets the same plan.
COMPILED = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
}


class Pair:
    """One query as a view and as a batch query. A tick that either of them refuses changes neither."""

    def __init__(self, session: ps.Session, query: str, tables: Mapping[str, str]) -> None:
        self.query = query
        self.tables = dict(tables)
        self.schemas = {name: to_arrow_schema(ddl) for name, ddl in tables.items()}
        self.held: dict[str, list[Row]] = {name: [] for name in tables}
        self._spark = session.spark
        self._flow = drive.open_flow(session, self.tables)
        self._flow.register_view("v", query)

    @property
    def asks_spark(self) -> bool:
        """Whether the view leaves a part of the query to Spark, in front of the kernel's."""
        return any(spark_parts(self._flow._graph.views["v"].view.root))

    def step(self, tick: Tick) -> tuple[Answer, Answer]:
        """Feed the changes of a tick; return Spark's answer and the view's."""
        after = {name: _after(rows, tick.get(name, ())) for name, rows in self.held.items()}
        expected = spark_answer(self._spark, self.query, self.tables, after)
        answer = self._view_answer(tick)
        if not isinstance(expected, str) and not isinstance(answer, str):
            self.held = after
        return expected, answer

    def _view_answer(self, tick: Tick) -> Answer:
        try:
            drive.step(self._flow, tick, self.schemas)
        except ps.PenstockError as error:
            return error.code
        return canonical.rows(self._flow.snapshot("v"))


def spark_answer(
    spark: SparkSession, query: str, tables: Mapping[str, str], held: Mapping[str, list[Row]]
) -> Answer:
    """Spark's answer over tables that hold these rows."""
    for name, ddl in tables.items():
        rows = table(held[name], to_arrow_schema(ddl))
        spark.createDataFrame(rows, schema=ddl).createOrReplaceTempView(name)
    try:
        return canonical.rows(spark.sql(query).toArrow())
    except Exception as error:
        return translate(error).code
    finally:
        for name in tables:
            spark.catalog.dropTempView(name)


def _after(held: list[Row], changes: tuple[Change, ...]) -> list[Row]:
    rows = list(held)
    for weight, values in changes:
        if weight > 0:
            rows.extend([values] * weight)
        else:
            # repr makes NaN equal to itself.
            rows.pop(next(index for index, own in enumerate(rows) if repr(own) == repr(values)))
    return rows
