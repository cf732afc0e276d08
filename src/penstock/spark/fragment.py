"""Run the parts of a view that the kernel leaves to Spark: single expressions, or one operator, never the whole view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.data.types import kernel_type
from penstock.data.user_types import from_user
from penstock.errors import DataError, PenstockError
from penstock.plan import node as plan
from penstock.spark import errors
from penstock.spark.arrow import spark_type, to_arrow, to_frame
from penstock.spark.catalyst import bridge
from penstock.spark.catalyst.planner import PlannedView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_ROWS = 65_536  # of one Arrow message through py4j
_NOW = "timestamp"


class Fragments:
    """The Spark side of one planned view; what it prepares is kept for the next tick."""

    def __init__(self, spark: SparkSession, planned: PlannedView) -> None:
        self._spark = spark
        self._planned = planned
        self._front = bridge.front(spark)
        self._front.describe(planned.session, planned.optimized)  # numbers the places
        self._projections: dict[tuple[int, ...], Any] = {}

    def expressions(
        self, node: plan.Spark, columns: Sequence[pa.Array], length: int, micros: int
    ) -> list[pa.Array]:
        """Evaluate the expressions of a stateless node over rows; the result has one column per expression.

        Costs a few milliseconds and no Spark job, except for Python functions.
        """
        kinds = [item.type for item in node.fields[len(columns) :]]
        used = sorted({index for binding in node.bindings for _, index in binding if index >= 0})
        position = {index: count for count, index in enumerate(used)}
        pairs = [
            [number for place, index in binding for number in (place, position.get(index, len(used)))]
            for binding in node.bindings
        ]
        fields = node.inputs[0].fields
        arguments = [columns[index] for index in used]
        arguments.append(pa.repeat(pa.scalar(micros, kernel_type(_NOW)), length))
        names = [fields[index].type for index in used] + [_NOW]
        try:
            return self._evaluated(node, pairs, arguments, names, kinds)
        except Exception as error:
            failure = self._translated(error, node)
            if isinstance(failure, DataError) and used:
                bad = self._first_bad(node, pairs, arguments, names, kinds)
                shown = ", ".join(f"{fields[index].name}={columns[index][bad].as_py()!r}" for index in used)
                failure.message += f" for the row ({shown})"
            raise failure from None

    def operator(
        self, node: plan.Spark, inputs: Sequence[Sequence[pa.Array]], lengths: Sequence[int], micros: int
    ) -> tuple[list[pa.Array], int]:
        """Run an operator over all rows of its inputs, each row as often as it occurs; return the columns and the
        number of rows."""
        try:
            frame = self._grafted(node, inputs, lengths, micros, rows=False)
            if not node.fields:
                return [], frame.count()
            table = to_arrow(frame)
        except Exception as error:
            raise self._translated(error, node) from None
        columns = [_kernel(table.column(index), item.type) for index, item in enumerate(node.fields)]
        return columns, table.num_rows

    def generated(
        self, node: plan.Spark, columns: Sequence[pa.Array], length: int, micros: int
    ) -> tuple[pa.Array, list[pa.Array]]:
        """Run a stateless operator over rows: for each row it gives, the position of the input row, and its columns."""
        try:
            frame = self._grafted(node, [columns], [length], micros, rows=True)
            table = to_arrow(frame)
        except Exception as error:
            raise self._translated(error, node) from None
        extra = table.column_names.index(_ROW)
        positions = [index for index in range(table.num_columns) if index != extra]
        values = [
            _kernel(table.column(index), item.type)
            for index, item in zip(positions, node.fields, strict=True)
        ]
        return _in_one_chunk(table.column(extra)), values

    # ------------------------------------------------------------------ inside

    def _translated(self, error: Exception, node: plan.Spark) -> PenstockError:
        """What Spark raises, with the place in the view's text: that of the expression when the node has only one."""
        spot = None
        if node.bindings and len(node.path) == 1:
            spot = errors.spot_of_expression(self._front.at(node.path[0]))
        return errors.translate(error, sql=self._planned.view.sql or None, spot=spot)

    def _first_bad(
        self,
        node: plan.Spark,
        pairs: Sequence[Sequence[int]],
        arguments: Sequence[pa.Array],
        names: Sequence[str],
        kinds: Sequence[str],
    ) -> int:
        """The first row that Spark refuses, found by halves; what is not about a row is raised."""
        low, high = 0, len(arguments[0])
        while high - low > 1:
            middle = (low + high) // 2
            half = [column.slice(low, middle - low) for column in arguments]
            try:
                self._evaluated(node, pairs, half, names, kinds)
                low = middle
            except Exception as error:
                failure = self._translated(error, node)
                if not isinstance(failure, DataError):
                    raise failure from None
                high = middle
        return low

    def _evaluated(
        self,
        node: plan.Spark,
        pairs: Sequence[Sequence[int]],
        arguments: Sequence[pa.Array],
        names: Sequence[str],
        kinds: Sequence[str],
    ) -> list[pa.Array]:
        """The expressions over their arguments (there is always one, the time): in the driver, unless they need a job."""
        if self._front.needsJob(_java_list(self._spark, node.path)):
            return self._by_job(node, pairs, arguments, names, kinds)
        return self._in_place(node, pairs, arguments, names, kinds)

    def _in_place(
        self,
        node: plan.Spark,
        pairs: Sequence[Sequence[int]],
        arguments: Sequence[pa.Array],
        names: Sequence[str],
        kinds: Sequence[str],
    ) -> list[pa.Array]:
        if node.path not in self._projections:
            ddl = bridge.ddl((f"c{index}", kind, True) for index, kind in enumerate(names))
            lists = [_java_list(self._spark, items) for items in pairs]
            self._projections[node.path] = self._front.projection(
                self._planned.session,
                _java_list(self._spark, node.path),
                _java_list(self._spark, lists),
                ddl,
            )
        projection = self._projections[node.path]
        schema = pa.schema([(f"c{index}", spark_type(kernel_type(kind))) for index, kind in enumerate(kinds)])
        batch = pa.record_batch(
            [_cast(column, spark_type(column.type)) for column in arguments],
            [f"c{i}" for i in range(len(arguments))],
        )
        batches: list[pa.RecordBatch] = []
        for start in range(0, batch.num_rows, _MOST_ROWS):
            message = batch.slice(start, _MOST_ROWS).serialize().to_pybytes()
            batches.extend(
                pa.ipc.read_record_batch(pa.py_buffer(bytes(part)), schema)
                for part in projection.run(message)
            )
        table = pa.Table.from_batches(batches, schema)
        return [
            _cast(_in_one_chunk(table.column(index)), kernel_type(kind)) for index, kind in enumerate(kinds)
        ]

    def _by_job(
        self,
        node: plan.Spark,
        pairs: Sequence[Sequence[int]],
        arguments: Sequence[pa.Array],
        names: Sequence[str],
        kinds: Sequence[str],
    ) -> list[pa.Array]:
        length = len(arguments[0])
        numbered = [*arguments, pa.array(range(length), pa.int64())]
        source = self._relation(numbered, [*names, "bigint"], length)
        lists = [_java_list(self._spark, items) for items in pairs]
        grown = self._front.projectPlan(
            _java_list(self._spark, node.path), _java_list(self._spark, lists), source
        )
        table = to_arrow(self._frame(grown))
        order = _in_one_chunk(table.column(len(kinds)))
        ranked = table.take(pa.compute.sort_indices(order))
        return [_kernel(ranked.column(index), kind) for index, kind in enumerate(kinds)]

    def _grafted(
        self,
        node: plan.Spark,
        inputs: Sequence[Sequence[pa.Array]],
        lengths: Sequence[int],
        micros: int,
        *,
        rows: bool,
    ) -> Any:
        operator = self._front.at(node.path[0])
        if len(node.path) > 1:
            operator = self._front.narrowed(operator, _java_list(self._spark, node.path[1:]))
        count = len(node.cut) or operator.children().size()
        relations = []
        for child, columns, length in zip(node.inputs, inputs, lengths, strict=True):
            kinds = [field.type for field in child.fields]
            numbered = list(columns)
            if rows:
                numbered.append(pa.array(range(length), pa.int64()))
                kinds.append("bigint")
            relations.append(self._relation(numbered, kinds, length, last=_ROW if rows else None))
        grown = self._front.graft(
            operator,
            _java_list(self._spark, node.cut),
            _java_list(self._spark, relations[:count]),
            _java_list(self._spark, relations[count:]),
            micros,
        )
        return self._frame(grown)

    def _relation(
        self, columns: Sequence[pa.Array], kinds: Sequence[str], length: int, *, last: str | None = None
    ) -> Any:
        """Rows as a Catalyst relation of columns of these types."""
        present, types = (columns, kinds) if columns else ([pa.nulls(length, pa.int8())], ["tinyint"])
        names = [f"c{index}" for index in range(len(present))]
        if last is not None:
            names[-1] = last
        frame: Any = to_frame(self._spark, present, names, types)
        return frame._jdf.queryExecution().optimizedPlan()

    def _frame(self, grown: Any) -> Any:
        from pyspark.sql import DataFrame

        jvm: Any = self._spark._jvm
        dataset = jvm.org.apache.spark.sql.classic.Dataset.ofRows(self._spark._jsparkSession, grown)
        return DataFrame(dataset, self._spark)


_ROW = "penstock_row"


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)


def _in_one_chunk(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else combined.chunk(0)


def _kernel(column: pa.ChunkedArray, kind: str) -> pa.Array:
    values = from_user(_in_one_chunk(column), kind, name=kind, where="Spark")
    return _cast(values, kernel_type(kind))


def _java_list(spark: SparkSession, items: Sequence[Any]) -> Any:
    jvm: Any = spark._jvm
    listed = jvm.java.util.ArrayList()
    for item in items:
        listed.add(item)
    return listed
