"""PySpark's converters of NumPy values, asked without importing what nobody uses.

PySpark offers every argument of every call into the JVM to them, and they find out whether NumPy is installed by importing
PySpark's test utilities, and with them pandas: half a second of every start. A value can only be NumPy's when somebody
has imported NumPy.
"""

from __future__ import annotations

import sys
from typing import Any


def lighten() -> None:
    """Put converters in their places that look at the modules which are loaded instead."""
    from py4j.protocol import INPUT_CONVERTER
    from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

    class Scalar(NumpyScalarConverter):
        def can_convert(self, obj: Any) -> bool:
            numpy = sys.modules.get("numpy")
            return numpy is not None and isinstance(obj, numpy.generic)

    class Array(NumpyArrayConverter):
        def can_convert(self, obj: Any) -> bool:
            numpy = sys.modules.get("numpy")
            return numpy is not None and isinstance(obj, numpy.ndarray) and obj.ndim == 1

    lighter = {NumpyScalarConverter: Scalar, NumpyArrayConverter: Array}
    for place, known in enumerate(INPUT_CONVERTER):
        if type(known) in lighter:
            INPUT_CONVERTER[place] = lighter[type(known)]()
