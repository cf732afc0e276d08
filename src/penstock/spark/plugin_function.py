"""Functions of plugins in a session of Spark's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.functions.plugin import ScalarFunction, installed_functions
from penstock.spark.errors.flow_table import encoded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_installed(spark: SparkSession) -> None:
    """Make the functions of installed packages known to SQL."""
    for name, function in installed_functions().items():
        register(spark, name, function)


def register(spark: SparkSession, name: str, function: ScalarFunction) -> None:
    """Make a function known to SQL by a name."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    arrow_udf: Any = vars(F)["arrow_udf"]
    udf = arrow_udf(_called(name, function), function.returns)
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
