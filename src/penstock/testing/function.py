"""The contract of a function plugin."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.functions.plugin import ScalarFunction
from penstock.testing.report import Report, require
from penstock.testing.rows import generated_batches


def check_function(function: ScalarFunction, *, arguments: Any = None) -> None:
    """Check a function with arguments that are made up: NULLs, the outermost values, many; `arguments` are their
    types if it does not declare them.

    It gives as many values as rows, in its type, and the same ones for the same rows however they fall into batches.
    """
    name = getattr(function.call, "__name__", "function")
    report = Report(name)
    kinds = arguments if arguments is not None else function.arguments
    if kinds is None:
        raise AssertionError(f"{name} does not declare its arguments; check it with arguments=[...]")
    schema = ", ".join(f"a{number} {kind}" for number, kind in enumerate(kinds))
    batches = generated_batches(schema)
    for what, batch in batches.items():
        with report.part(f"it takes a batch ({what})"):
            function.checked(name, batch.columns)
    if function.deterministic:
        with report.part("values do not depend on how rows fall into batches"):
            many = batches["many"].slice(0, 100)
            uncut = function.checked(name, many.columns)
            parts = [function.checked(name, part.columns) for part in (many.slice(0, 1), many.slice(1))]
            require(
                uncut.equals(pa.concat_arrays(parts)),
                "100 rows in one batch give other values than in two; write deterministic=False if chance is meant",
            )
    report.end()
