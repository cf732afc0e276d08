"""PySpark's converters of NumPy values and its literals, asked without importing what nobody uses.

PySpark offers every argument of every call into the JVM to converters, and they find out whether NumPy is installed by importing
PySpark's test utilities, and with them pandas: half a second of every start. A value can only be NumPy's when somebody
has imported NumPy. `lit` does the same for every literal and column, and most literals are plain values of Python.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

PLAIN = (str, int, float, bool, bytes, type(None))


def lighten() -> None:
    """Put lighter ones in their places."""
    _lighten_converters()
    _lighten_literals()


def _lighten_literals() -> None:
    from pyspark.sql import Column, functions
    from pyspark.sql.functions import builtin
    from pyspark.sql.utils import is_remote

    original = builtin.lit
    if hasattr(original, "of_penstock"):
        return

    @functools.wraps(original)
    def lit(col: Any) -> Any:
        if isinstance(col, Column):
            return col
        return (
            builtin._invoke_function("lit", col) if type(col) in PLAIN and not is_remote() else original(col)
        )

    lit.of_penstock = True  # type: ignore[attr-defined]  # functions have no fields that mypy knows
    functions.lit = builtin.lit = lit


def _lighten_converters() -> None:
    from py4j.protocol import INPUT_CONVERTER
    from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

    class LazyScalarConverter(NumpyScalarConverter):
        def can_convert(self, obj: Any) -> bool:
            numpy = sys.modules.get("numpy")
            return numpy is not None and isinstance(obj, numpy.generic)

    class LazyArrayConverter(NumpyArrayConverter):
        def can_convert(self, obj: Any) -> bool:
            numpy = sys.modules.get("numpy")
            return numpy is not None and isinstance(obj, numpy.ndarray) and obj.ndim == 1

    lighter = {NumpyScalarConverter: LazyScalarConverter, NumpyArrayConverter: LazyArrayConverter}
    for position, converter in enumerate(INPUT_CONVERTER):
        if type(converter) in lighter:
            INPUT_CONVERTER[position] = lighter[type(converter)]()
