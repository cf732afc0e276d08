"""Expectations: conditions that rows should meet, counted, and acted upon where they do not.

A condition that is NULL for a row is not met, as with the constraints of Delta tables (SQL's own CHECK lets such rows pass): say
`amount IS NULL OR amount > 0` where NULL is well.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from penstock.data.operation import DELETE, OPERATION
from penstock.errors import ConfigError, DataError, PenstockError
from penstock.sinks.column import column
from penstock.spark.errors import located, translate
from penstock.spark.errors.cause import faults
from penstock.spark.observed import Observed
from penstock.spark.operation import passing
from penstock.transforms.base import ERROR, INPUT, Transform, TransformContext
from penstock.transforms.expectation import Action, ExpectOptions
from penstock.transforms.failure import good_columns, input_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.config import Settings

_MET, _ROWS = "penstock_met", "penstock_rows"
_SHOWN = 1_000


class ExpectTransform(Transform):
    """Counts the rows that fail expectations, and drops, refuses or marks them.

    Deletes pass, for they may have no values but their key. An update that is dropped or marked deletes the row that
    it was before.
    """

    Options = ExpectOptions
    keeps_columns = True

    options: ExpectOptions

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        super().__init__(options, settings)
        self._observed: Observed | None = None
        self._mark = ""
        self._failing: dict[str, DataFrame] = {}
        self._node = ""

    def apply(self, rows: DataFrame, context: TransformContext) -> DataFrame:
        from pyspark.sql import functions as F  # as PySpark's users have it

        self._node, self._mark = context.name, uuid.uuid4().hex
        conditions = {name: self._condition(rows, name) for name in self.options.expectations}
        self._failing = {name: rows.where(~conditions[name]) for name in self._with("fail")}
        checked = rows
        for name in self._failing:
            # A filter, for Spark leaves out a column that nobody reads. What is observed above it keeps later filters
            # from running first.
            text = F.concat(F.lit(f"{self._mark} {name}: "), input_of(rows.columns))
            checked = checked.where(F.when(conditions[name], F.lit(True)).otherwise(F.raise_error(text)))
        met = {name: F.col(f"`{_MET}`._{at}") for at, name in enumerate(conditions)}
        states = F.struct(*[condition.alias(f"_{at}") for at, condition in enumerate(conditions.values())])
        counts = {name: F.count_if(~met[name]) for name in met if name not in self._failing}
        self._observed = Observed(checked.withColumn(_MET, states), counts or {_ROWS: F.count(F.lit(1))})
        out = self._observed.frame
        if self._with("drop"):
            out = passing(out, reduce(and_, (met[name] for name in self._with("drop"))))
        if not self._with("quarantine"):
            return out.drop(_MET)
        reasons = F.concat_ws(
            "; ",
            *[
                # Not the condition: it may have what a variable gave, and the letters are stored.
                F.when(~met[name], F.lit(f"fails '{name}'"))
                for name in self._with("quarantine")
            ],
        )
        failed = reasons != F.lit("")
        if OPERATION in rows.columns:  # an update that is dropped is a delete by now
            failed = failed & ~column(OPERATION).eqNullSafe(DELETE)
        return out.select(
            *good_columns(rows, failed, keys=context.keys),
            F.when(failed, reasons).alias(ERROR),
            F.when(failed, input_of(rows.columns)).alias(INPUT),
        )

    def counts(self) -> Mapping[str, int]:
        observed, self._observed = self._observed, None
        if observed is None:
            return {}
        return {
            name: int(count) for name, count in observed.values().items() if name in self.options.expectations
        }

    def failure(self, error: BaseException) -> PenstockError | None:
        match = next(
            (
                row_match
                for fault in faults(error)
                if self._mark
                and (row_match := re.search(rf"{self._mark} (.*?): (\{{.*\}})", fault.message, re.DOTALL))
            ),
            None,
        )
        if match is None:
            return None
        name, row = match[1], match[2]
        example = row if len(row) <= _SHOWN else f"{row[:_SHOWN]}..."
        return DataError(
            f"{self._number(name)} of the epoch fail the expectation '{name}' of {self._node}, "
            f"{self._text(name)}; one of them is {example}",
            code="EXPECTATION_FAILED",
            hint="correct the rows where they come from, or have them stored with `action: quarantine`",
        )

    def _number(self, name: str) -> str:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            count = self._failing[name].count()
        except (PySparkException, Py4JError):  # the rows cannot be read once more
            return "rows"
        return "1 row" if count == 1 else f"{count} rows"

    def _with(self, action: Action) -> list[str]:
        return [
            name for name, expectation in self.options.expectations.items() if expectation.action == action
        ]

    def _text(self, name: str) -> str:
        return " ".join(self.options.expectations[name].condition.split())

    def _condition(self, rows: DataFrame, name: str) -> Column:
        """The condition as a column that is never NULL; refused when Spark does not understand it over these rows."""
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as F
        from pyspark.sql.types import BooleanType

        text, where = self.options.expectations[name].condition, f"expectation '{name}' of {self._node}"
        try:
            condition = F.expr(text)
            kind = rows.select("*", condition).schema[-1].dataType
        except PySparkException as error:
            raise located(translate(error, sql=text, spark=rows.sparkSession), where) from None
        if not isinstance(kind, BooleanType):
            raise ConfigError(
                f"the condition is {kind.simpleString()}, and should be true or false",
                code="EXPECTATION_TYPE",
                where=where,
                hint="write a comparison, such as `amount > 0`",
            )
        met = F.coalesce(condition, F.lit(False))
        return met if OPERATION not in rows.columns else met | column(OPERATION).eqNullSafe(DELETE)
