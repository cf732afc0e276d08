"""TPC-H: each of the 22 queries as a view under refreshes of 0.1% of the rows, beside Spark's recomputation on cached tables.

    python benchmarks/tpch.py [--scale 1] [--ticks 7] [--queries q01 q02]

A refresh inserts, updates and deletes rows of every table but nation and region, a third each. Every query has a flow of its own
with the tables that it reads, so that a tick counts everything: validation, the sources' own state, and the view.
Results are kept, so that queries can be run one by one; the table shows all of them.
"""

from __future__ import annotations

import argparse
import gc
import math
import re
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from harness import HERE, machine, median_of, plot, publish, remember, shown, table, times

sys.path.insert(0, str(HERE.parent / "tests"))
from golden import tpch  # the queries live with the tests

SHARE = 0.001


class Changes:
    """The rows of one table at the start, and its changes; no row is touched twice."""

    def __init__(self, name: str, rows: pa.Table, ticks: int) -> None:
        self._random = np.random.default_rng(1)
        each = 0 if name in tpch.FIXED else max(1, round(rows.num_rows * SHARE / 3))
        order = self._random.permutation(rows.num_rows)
        held, touched = order[: each * ticks], order[each * ticks : 3 * each * ticks]
        self.start = rows.take(pa.array(np.sort(order[each * ticks :])))
        # The rows of each tick: inserts, then updates, then deletes.
        self.ticks = [
            self._change(*(rows.take(pa.array(part)) for part in parts))
            for parts in zip(
                np.split(held, ticks),
                np.split(touched[: each * ticks], ticks),
                np.split(touched[each * ticks :], ticks),
                strict=True,
            )
        ]

    def _change(self, inserted: pa.Table, updated: pa.Table, deleted: pa.Table) -> pa.Table:
        after = updated
        names = [name for name in updated.column_names if not name.endswith(("key", "number"))]
        for name in self._random.choice(names, size=min(2, len(names)), replace=False):
            other = updated.column(name).take(pa.array(self._random.permutation(updated.num_rows)))
            after = after.set_column(after.column_names.index(name), after.schema.field(name), other)
        parts = [(inserted, 1), (updated, -1), (after, 1), (deleted, -1)]
        return pa.concat_tables(
            part.append_column("_weight", pa.array(np.full(part.num_rows, weight))) for part, weight in parts
        ).combine_chunks()


def reads(query: str) -> list[str]:
    """The tables that a query names."""
    return [name for name in tpch.ddl() if re.search(rf"\b{name}\b", query)]


def flow_ticks(session: ps.Session, name: str, changes: Mapping[str, Changes], ticks: int) -> dict[str, Any]:
    """Load the tables of a query, and tick."""
    query = tpch.QUERIES[name]
    names = reads(query)
    flow = ps.IncrementalFlow(session)
    for source in names:
        flow.register_source(source, tpch.ddl()[source])
    flow.register_view(name, query)
    begin = time.perf_counter()
    for source in names:
        flow.feed(source, changes[source].start)
    flow.step()
    load = time.perf_counter() - begin
    gc.collect()
    found = []
    for number in range(ticks):
        fed = {
            source: changes[source].ticks[number]
            for source in names
            if changes[source].ticks[number].num_rows
        }
        begin = time.perf_counter()
        for source, change in fed.items():
            flow.feed(source, ps.DeltaBatch.weighted(change))
        flow.step()
        found.append((time.perf_counter() - begin) * 1000)
    result = {
        "ms": found[1:] if ticks > 2 else found,
        "load": load,
        "state": flow.metrics()["penstock_flow_state_bytes"],
        "arrow": sum(changes[source].start.nbytes for source in names),
        "tier": flow.explain(name).tier,
        "machine": machine(),
    }
    flow.close()
    return result


def recompute_ms(session: ps.Session, query: str) -> float:
    """The median time of Spark on cached tables."""

    def once() -> float:
        begin = time.perf_counter()
        session.spark.sql(query).write.format("noop").mode("overwrite").save()
        return (time.perf_counter() - begin) * 1000

    return median_of(once, 3)


def cached(session: ps.Session, tables: Mapping[str, pa.Table], folder: Path) -> Iterator[str]:
    """Show the tables to Spark, cached."""
    for name, rows in tables.items():
        path = folder / f"cached-{name}.parquet"
        pq.write_table(rows, path, row_group_size=500_000)
        frame = session.spark.read.parquet(str(path)).cache()
        frame.count()
        frame.createOrReplaceTempView(name)
        yield name


def report(results: dict[str, Any], scale: float) -> str:
    """All results as a table."""
    lines, ratios = [], []
    for name, found in results.items():
        p50 = times(found["ms"]).p50
        ratios.append(found["spark"] / p50)
        lines.append(
            [
                name,
                shown(p50),
                shown(max(found["ms"])),
                shown(found["spark"]),
                f"{ratios[-1]:.1f}x",
                f"{found['load']:.1f} s",
                f"{found['state'] / 1e6:,.0f} MB",
                f"{found['state'] / found['arrow']:.1f}",
                found["tier"],
            ]
        )
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    head = [
        f"TPC-H, SF {scale:g}",
        "tick, p50 ms",
        "slowest",
        "Spark, ms",
        "faster",
        "load",
        "state",
        "state / Arrow",
        "tier",
    ]
    faster = sum(ratio > 1 for ratio in ratios)
    return (
        f"{table(head, lines)}\n\n**{faster} of {len(ratios)} faster than Spark's recomputation, geometric mean {mean:.1f}x.**\n\n"
        f"Measured on: {next(iter(results.values()))['machine']}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--ticks", type=int, default=7)
    parser.add_argument("--queries", nargs="+", choices=list(tpch.QUERIES), default=list(tpch.QUERIES))
    options = parser.parse_args()
    key = f"tpch-{options.scale:g}"
    results: dict[str, Any] = remember(key, {})
    with TemporaryDirectory(prefix="penstock-tpch-") as folder, ps.Session.embedded() as session:
        wanted = {name for query in options.queries for name in reads(tpch.QUERIES[query])}
        generated = tpch.generate(Path(folder), options.scale)
        changes = {
            name: Changes(name, generated[name], options.ticks) for name in generated if name in wanted
        }
        del generated
        for name in options.queries:
            found = flow_ticks(session, name, changes, options.ticks)
            results = remember(key, {name: found | {"spark": math.nan}})
            print(name, shown(times(found["ms"]).p50), file=sys.stderr, flush=True)
        list(cached(session, {name: change.start for name, change in changes.items()}, Path(folder)))
        for name in options.queries:
            spark = recompute_ms(session, tpch.QUERIES[name])
            results = remember(key, {name: results[name] | {"spark": spark}})
    ordered = {
        name: results[name]
        for name in tpch.QUERIES
        if name in results and not math.isnan(results[name]["spark"])
    }
    publish("tpch", report(ordered, options.scale))
    plot(
        "tpch",
        {
            "x": list(ordered),
            "lines": {
                "penstock, one tick": [times(found["ms"]).p50 for found in ordered.values()],
                "Spark, recomputed": [found["spark"] for found in ordered.values()],
            },
            "xscale": "linear",
            "yscale": "log",
            "xlabel": f"TPC-H at scale factor {options.scale:g}, 0.1% of the rows changed",
            "ylabel": "ms",
        },
    )


if __name__ == "__main__":
    main()
