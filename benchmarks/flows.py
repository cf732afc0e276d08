"""Penstock's side of the tick benchmarks, and Spark's recomputation of the same query on cached tables."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from workload import SCHEMAS, Case, Table


class Rig:
    """A flow with one view over loaded tables."""

    def __init__(
        self,
        session: ps.Session,
        cases: Sequence[Case],
        rows: int,
        kind: type[ps.IncrementalFlow] = ps.IncrementalFlow,
        **options: Any,
    ) -> None:
        """`options` are those of the flow."""
        names = dict.fromkeys(name for case in cases for name in case.tables)
        self.tables = {name: Table(name, rows) for name in names}
        self.flow = kind(session, **options)
        for name in self.tables:
            self.flow.register_source(name, SCHEMAS[name])
        for case in cases:
            self.flow.register_view(case.name.replace(" ", "_").replace(",", "").replace("-", "_"), case.sql)
        loads = {name: ps.DeltaBatch.inserts(table.load()) for name, table in self.tables.items()}
        self.loaded = sum(len(batch) for batch in loads.values())
        self.arrow_bytes = sum(batch.table.nbytes for batch in loads.values())
        begin = time.perf_counter()
        for name, batch in loads.items():
            self.flow.feed(name, batch)
        self.flow.step()
        self.load_seconds = time.perf_counter() - begin
        gc.collect()
        gc.freeze()

    def tick(self, rows: int, deleted: float = 0.2) -> float:
        """Feed the next change of every table and step; return its milliseconds."""
        changes = {name: table.change(rows, deleted) for name, table in self.tables.items()}
        begin = time.perf_counter()
        for name, change in changes.items():
            self.flow.feed(name, ps.DeltaBatch.weighted(change))
        self.flow.step()
        return (time.perf_counter() - begin) * 1000

    def ticks(self, rows: int, count: int, *, warm: int = 20, deleted: float = 0.2) -> list[float]:
        """The milliseconds of some ticks, after a few that do not count."""
        for _ in range(warm):
            self.tick(rows, deleted)
        return [self.tick(rows, deleted) for _ in range(count)]

    @property
    def state_bytes(self) -> int:
        return int(self.flow.metrics()["penstock_flow_state_bytes"])

    def close(self) -> None:
        self.flow.close()
        gc.unfreeze()


class Recompute:
    """The tables of one size, cached in Spark."""

    def __init__(self, session: ps.Session, rows: int) -> None:
        self._spark = session.spark
        self._folder = TemporaryDirectory(prefix="penstock-bench-")
        for name in SCHEMAS:
            path = Path(self._folder.name) / f"{name}.parquet"
            write(Table(name, rows).load(), path)
            frame = self._spark.read.parquet(str(path)).cache()
            frame.count()
            frame.createOrReplaceTempView(name)

    def milliseconds(self, sql: str) -> float:
        """The time to compute all rows of a query."""
        begin = time.perf_counter()
        self._spark.sql(sql).write.format("noop").mode("overwrite").save()
        return (time.perf_counter() - begin) * 1000

    def close(self) -> None:
        self._spark.catalog.clearCache()
        for name in SCHEMAS:
            self._spark.catalog.dropTempView(name)
        self._folder.cleanup()


def write(table: pa.Table, path: Path) -> None:
    """Write a table in row groups that Spark reads on all cores."""
    pq.write_table(table, path, row_group_size=500_000)


def peak_bytes() -> int:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
