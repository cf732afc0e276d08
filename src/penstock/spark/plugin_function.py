"""Functions of plugins in a session of Spark's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.data.schema import declared_type, to_arrow_schema
from penstock.errors import PenstockError
from penstock.functions.plugin import LOG, ScalarFunction, installed_functions
from penstock.spark.errors.flow_table import encoded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_installed(spark: SparkSession) -> None:
    """Make the functions of installed packages known to SQL."""
    from pyspark.errors import PySparkException

    for name, function in installed_functions().items():
        try:
            register(spark, name, function)
        except PySparkException as error:
            LOG.warning("Spark does not take the function '%s' of a plugin: %s", name, error)


def register(spark: SparkSession, name: str, function: ScalarFunction) -> None:
    """Make a function known to SQL by a name."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    arrow_udf: Any = vars(F)["arrow_udf"]
    [returned] = to_arrow_schema(f"value {function.returns}")
    udf = arrow_udf(_called(name, function), declared_type(returned))
    spark.udf.register(name, udf if function.deterministic else udf.asNondeterministic())


def _called(name: str, function: ScalarFunction) -> Callable[..., Any]:
    import pyarrow as pa

    def call(*arrays: Any) -> Any:
        try:
            return function.checked(name, arrays)
        except PenstockError as error:
            raise RuntimeError(encoded(error)) from error

    # PySpark looks at the types of what it registers: arrays in, an array out.
    call.__annotations__ = {"arrays": pa.Array, "return": pa.Array}
    return call
