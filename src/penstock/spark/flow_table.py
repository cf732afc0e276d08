"""The sources and views of a flow as tables of a Spark session, which are read when a query runs.

A table is a temporary view without rows. While Spark optimizes a query, a rule of ours (`FlowTables.java`) asks for
the rows of the tables that it reads. The first question of a query pins all tables at one tick, and the others get
their rows from there.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.data.conform import conform_to
from penstock.errors import InternalError, PenstockError
from penstock.plan.node import Fields
from penstock.spark.arrow import to_frame
from penstock.spark.boot import janino
from penstock.spark.catalyst import bridge
from penstock.spark.errors.flow_table import encoded

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Pin = Callable[[], Mapping[str, Callable[[], "pa.Table"]]]
"""Gives, for the tick of now, what reads each table later."""
MOST_PINNED = 16
"""Queries whose tables stay pinned although their end was not reported: their optimization has failed."""


@dataclass(frozen=True, slots=True)
class _FlowTable:
    """A table that Spark knows: its fields in the flow, and the types of its columns in Spark."""

    fields: Fields
    kinds: tuple[str, ...]


@dataclass(slots=True)
class _Pinned:
    """The tables of one query, and those that it has asked for."""

    readers: Mapping[str, Callable[[], pa.Table]]
    frames: dict[str, Any] = field(default_factory=dict)


class PinnedTables:
    """The tables of the queries that Spark optimizes now, each query at one tick. Its questions come in threads of Spark."""

    def __init__(self, pin: Pin, frame: Callable[[str, pa.Table], Any]) -> None:
        """`frame` makes a Dataset of the rows of a table."""
        self._pin = pin
        self._frame = frame
        self._queries: OrderedDict[str, _Pinned] = OrderedDict()
        self._lock = threading.Lock()  # not held while rows are read: a tick may be under way

    def dataset(self, query: str, name: str) -> Any:
        """The Dataset of a table for a query: the same one whenever it asks, and of the same tick as its others."""
        with self._lock:
            pinned = self._queries.get(query)
        if pinned is None:
            fresh = _Pinned(self._pin())
            with self._lock:
                pinned = self._queries.setdefault(query, fresh)
                while len(self._queries) > MOST_PINNED:
                    self._queries.popitem(last=False)
        with self._lock:
            dataset = pinned.frames.get(name)
        if dataset is None:
            fresh_dataset = self._frame(name, pinned.readers[name]())
            with self._lock:
                dataset = pinned.frames.setdefault(name, fresh_dataset)
        return dataset

    def release(self, query: str) -> None:
        """Forget a query, which is optimized."""
        with self._lock:
            self._queries.pop(query, None)


class FlowTables:
    """The tables of one flow in one session."""

    def __init__(self, spark: SparkSession, pin: Pin) -> None:
        self._spark = spark
        self._flow = uuid.uuid4().hex
        self._java = janino.instance(spark, __package__, "FlowTables")
        self._tables: dict[str, _FlowTable] = {}
        # Around `_tables`; not held while Spark works, which asks in other threads.
        self._lock = threading.Lock()
        self._pinned = PinnedTables(pin, self._dataset)
        self._rule = self._install()

    def _install(self) -> Any:
        from pyspark import java_gateway

        start: Any = java_gateway.ensure_callback_server_started
        start(self._spark.sparkContext._gateway)
        return self._java.install(self._spark._jsparkSession, self._flow, _RuleCallback(self._answer))

    def show(self, relations: Mapping[str, Fields]) -> None:
        """Let Spark know exactly these tables."""
        with self._lock:
            tables = dict(self._tables)
        for name, table in tables.items():
            if relations.get(name) != table.fields:
                self._drop(name)
        for name, fields in relations.items():
            if name not in tables or tables[name].fields != fields:
                self._create(name, fields)

    def kinds(self, name: str) -> tuple[str, ...]:
        """The types of the columns of a table in Spark."""
        return self._table(name).kinds

    def taken(self, name: str) -> bool:
        """Whether Spark has a table or view of this name that is none of ours."""
        if not self._spark.catalog.tableExists(_quoted(name)) and not (
            "." in name and self._spark.catalog.tableExists(name)
        ):
            return False
        return not self._java.isTable(self._spark._jsparkSession, self._flow, name)

    def close(self) -> None:
        """Take the tables out of the session; a Spark that is gone has none."""
        with contextlib.suppress(Exception):
            with self._lock:
                names = list(self._tables)
            for name in names:
                self._drop(name)
            self._java.uninstall(self._spark._jsparkSession, self._rule)

    def _create(self, name: str, fields: Fields) -> None:
        ddl = bridge.ddl((item.name, item.type, item.nullable) for item in fields)
        dataset = self._java.table(self._spark._jsparkSession, self._flow, name, ddl)
        kinds = tuple(item.dataType().catalogString() for item in dataset.schema().fields())
        dataset.createOrReplaceTempView(_quoted(name))
        with self._lock:
            self._tables[name] = _FlowTable(fields, kinds)

    def _drop(self, name: str) -> None:
        with self._lock:
            self._tables.pop(name, None)
        if self._java.isTable(self._spark._jsparkSession, self._flow, name):
            self._spark.catalog.dropTempView(name)

    def _answer(self, query: str, name: str | None) -> Any:
        """The Dataset of a table for a query, or an error as text; without a name the query is done."""
        try:
            if name is None:
                self._pinned.release(query)
                return None
            return self._pinned.dataset(query, name)
        except PenstockError as error:
            return encoded(error)
        except Exception as error:
            return encoded(InternalError(f"{type(error).__name__}: {error}", where=f"table '{name}'"))

    def _dataset(self, name: str, rows: pa.Table) -> Any:
        frame: Any = numbered_frame(self._spark, rows, self._table(name).kinds)
        return frame._jdf

    def _table(self, name: str) -> _FlowTable:
        with self._lock:
            return self._tables[name]


def numbered_frame(
    spark: SparkSession, rows: pa.Table, kinds: Sequence[str], *, number: str | None = None
) -> DataFrame:
    """Rows as a DataFrame with columns of these types; `number` names a last column with the position of each row."""
    import pyarrow as pa

    names = list(rows.column_names)
    wanted = [(name, kind, True) for name, kind in zip(names, kinds, strict=True)]
    columns = list(conform_to(rows, wanted, where="a table of the flow"))
    types = list(kinds)
    if number is not None:
        columns.append(pa.array(range(rows.num_rows), pa.int64()))
        names.append(number)
        types.append("bigint")
    return to_frame(spark, columns, names, types)


def with_char_lengths(frame: DataFrame, declared: Sequence[str]) -> DataFrame:
    """The columns with the lengths of CHAR and VARCHAR, by which Spark compares them; `declared` are types of the
    first columns."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    columns = [F.col(_quoted(name)) for name in frame.columns]
    for at, kind in enumerate(declared):
        if "char(" in kind:
            columns[at] = columns[at].alias(frame.columns[at], metadata={_CHAR: kind})
    return frame.select(*columns)


_CHAR = "__CHAR_VARCHAR_TYPE_STRING"  # Spark's own key


class _RuleCallback:
    """The Python side of the rule."""

    def __init__(self, answer: Callable[[str, str | None], Any]) -> None:
        self._answer = answer

    def apply(self, query: str, name: str | None) -> Any:
        return self._answer(query, name)

    class Java:
        implements = ("java.util.function.BiFunction",)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
