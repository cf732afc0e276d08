"""The piece of a query that raised an exception without a place, found by evaluating its constant expressions again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.boot import janino
from penstock.spark.errors.cause import Spot, spot_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def analyzed(frame: DataFrame) -> Any:
    """Return the analyzed plan of a DataFrame, in which a place is searched for; None when Spark has ended."""
    try:
        return frame._jdf.queryExecution().analyzed()
    except Exception:  # the search for a place must not hide the error that it is for
        return None


def spot_of_expression(expression: Any) -> Spot | None:
    """Return the piece of the query that an expression of Catalyst comes from, if it knows."""
    contexts = list(expression.origin().getQueryContext())
    return spot_of(contexts[0]) if contexts else None


def find_spot(spark: SparkSession, plan: Any, error: BaseException) -> Spot | None:
    """Return the smallest expression of an analyzed plan that raises what the optimizer raised, or None."""
    origin = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    if origin is None:
        return None
    try:
        context = janino.instance(spark, __package__, "Place").of(spark._jsparkSession, plan, origin)
        return None if context is None else spot_of(context)
    except Exception:  # the search for a place must not hide the error that it is for
        return None
