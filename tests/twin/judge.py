"""Spark's own answer for an expression, row by row where it raises, next to the kernel's."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.data.types import kernel_type
from penstock.errors import PenstockError
from penstock.functions import evaluate
from penstock.plan import node
from penstock.plan.expression import Call, Column, Expression
from penstock.spark.arrow import spark_type
from penstock.spark.catalyst import Relation, bridge, plan_view
from penstock.spark.catalyst.expressions import walk
from penstock.spark.errors import translate

Table = Mapping[str, tuple[str, Sequence[Any]]]  # column -> Spark type, values


@dataclass(frozen=True)
class Tick:
    micros: int = 0


def grid(**columns: tuple[str, Sequence[Any]]) -> Table:
    """Every combination of the columns' values."""
    rows = list(product(*(values for _, values in columns.values())))
    return {
        name: (kind, [row[index] for row in rows]) for index, (name, (kind, _)) in enumerate(columns.items())
    }


class Judge:
    """Both answers for expressions over one table."""

    def __init__(self, spark: SparkSession, table: Table, expressions: Sequence[str]) -> None:
        fields = tuple(node.Field(name, kind) for name, (kind, _) in table.items())
        text = ", ".join(f"{expression} AS e{index}" for index, expression in enumerate(expressions))
        planned = plan_view(spark, "v", f"SELECT {text} FROM t", {"t": Relation("t", fields)})
        front = bridge.front(spark)
        described = bridge.described(front.describe(planned.session, planned.optimized))
        assert described["c"] == "Project", described["c"]
        self.root = planned.view.root
        self.arrays = [pa.array(values, kernel_type(kind)) for kind, values in table.values()]
        self.length = len(self.arrays[0])
        places = {name: index for index, name in enumerate(table)}
        ddl = bridge.ddl((f"c{index}", kind, True) for index, (kind, _) in enumerate(table.values()))
        self.compiled: dict[int, Any] = {}
        self._makers: list[Any] = []
        for item in described["a"]["projectList"]:
            expression = item["e"]["k"][0] if item["e"]["c"] == "Alias" else item["e"]
            assert spark._jvm is not None
            one, pairs, all_pairs = (spark._jvm.java.util.ArrayList() for _ in range(3))
            one.add(expression["at"])
            for leaf in walk(expression):
                if leaf["c"] == "AttributeReference":
                    pairs.add(leaf["at"])
                    pairs.add(places[leaf["name"]])
            all_pairs.add(pairs)
            self._makers.append(partial(front.projection, planned.session, one, all_pairs, ddl))
        self.projections = [make() for make in self._makers]
        self.batch = pa.record_batch(
            [array.cast(spark_type(array.type)) for array in self.arrays],
            [f"c{i}" for i in range(len(places))],
        )

    def spark(self, index: int, start: int, count: int) -> list[Any]:
        """Spark's values for some rows; raises what Spark raises."""
        return self._ask(index, self.batch.slice(start, count))

    def spark_rows(self, index: int, rows: Sequence[int]) -> list[Any]:
        """Spark's values for the given rows."""
        return self._ask(index, self.batch.take(pa.array(rows, pa.int64())))

    def _ask(self, index: int, batch: pa.RecordBatch) -> list[Any]:
        message = batch.serialize().to_pybytes()
        kind = kernel_type(self.root.fields[index].type)
        schema = pa.schema([("c", spark_type(kind))])
        try:
            batches = self.projections[index].run(message)
        except Exception:
            # Makers of maps are left half-way by an error, and would refuse the next row.
            self.projections[index] = self._makers[index]()
            raise
        parts = [
            pa.ipc.read_record_batch(pa.py_buffer(bytes(part)), schema).column(0).cast(kind)
            for part in batches
        ]
        return [exact(value) for part in parts for value in listed(part)]

    def kernel(self, index: int, start: int, count: int) -> list[Any]:
        """The kernel's values for some rows; raises PenstockError."""
        assert isinstance(self.root, node.Project), self.root
        scan, expression = self.root.input, self.root.expressions[index]
        if isinstance(scan, node.KernelFirst):
            expression = _in_place(expression, scan)
            (scan,) = scan.inputs
        assert isinstance(scan, node.Scan), scan
        columns = [self.arrays[position].slice(start, count) for position in scan.columns]
        if index not in self.compiled:
            self.compiled[index] = evaluate.compile(expression)
        found = self.compiled[index](columns, count, Tick())
        assert found.type == kernel_type(self.root.fields[index].type)
        return [exact(value) for value in listed(found)]

    def differences(self, index: int) -> list[str]:
        """What differs between the two answers for one expression."""
        theirs = self.attempt(self.spark, index, 0, self.length)
        ours = self.attempt(self.kernel, index, 0, self.length)
        if not isinstance(theirs, str) and not isinstance(ours, str):
            return [
                f"{self._row(row)}: Spark {theirs[row]!r}, kernel {ours[row]!r}"
                for row in range(self.length)
                if theirs[row] != ours[row]
            ][:5]
        ours = [self.attempt(self.kernel, index, row, 1) for row in range(self.length)]
        raised = [row for row, value in enumerate(ours) if isinstance(value, str)]
        quiet = [row for row, value in enumerate(ours) if not isinstance(value, str)]
        # An error of Spark's costs a hundred times what a value does: a sample of those rows is asked for.
        asked = raised if len(raised) <= 12 else raised[:6] + raised[-6:]
        theirs = self.attempt(lambda number, rows, _: self.spark_rows(number, rows), index, quiet, 0)
        values: dict[int, list[Any] | str] = {}
        if isinstance(theirs, str):
            asked = list(range(self.length))
        else:
            values = {row: [value] for row, value in zip(quiet, theirs, strict=True)}
        values |= {row: self.attempt(self.spark, index, row, 1) for row in asked}
        return [
            f"{self._row(row)}: Spark {value!r}, kernel {ours[row]!r}"
            for row, value in sorted(values.items())
            if value != ours[row]
        ][:5]

    def attempt(self, answer: Any, index: int, start: Any, count: int = 1) -> list[Any] | str:
        """What `spark` or `kernel` answers, or the code of the error."""
        try:
            values: list[Any] = answer(index, start, count)
        except PenstockError as error:
            return error.code
        except Exception as error:
            return translate(error).code
        return values

    def condition(self, answer: Any, index: int) -> str | None:
        """Spark's error class for what `spark` or `kernel` raises for the first row; None where Spark has no name for it."""
        try:
            answer(index, 0, 1)
        except Exception as error:
            refusal = error if isinstance(error, PenstockError) else translate(error)
            name = refusal.condition or "_LEGACY"
            return None if name.startswith("_LEGACY") else name
        return "no error"

    def _row(self, row: int) -> str:
        return f"({', '.join(repr(listed(array.slice(row, 1))[0]) for array in self.arrays)})"


def _in_place(expression: Expression, source: node.KernelFirst) -> Expression:
    """An expression with those of its input in place of their columns."""
    width = len(source.inputs[0].fields)
    if isinstance(expression, Column):
        return expression if expression.index < width else source.expressions[expression.index - width]
    if isinstance(expression, Call):
        return replace(expression, args=tuple(_in_place(item, source) for item in expression.args))
    return expression


def listed(column: pa.Array) -> list[Any]:
    """The values of a column in Python; moments as numbers, because Python has only the years from 1 to 9999."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    return list(column.to_pylist())


def exact(value: Any) -> Any:
    """A value that equals another only when every bit does, NaN apart."""
    if isinstance(value, float):
        return "nan" if value != value else struct.pack(">d", value).hex()
    if isinstance(value, list | tuple):
        return [exact(item) for item in value]
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    return (type(value).__name__, value)
