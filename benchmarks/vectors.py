"""The k nearest of many vectors, kept by a vector view beside a search of all vectors.

    python benchmarks/vectors.py [--rows 1000000] [--width 128] [--changed 1000] [--ticks 100] [--queries 1]

Each tick replaces the vectors of some rows, by primary key. The other side has all vectors in one matrix with their lengths beside it, writes the same
changes into it, and searches it with one matrix product and a partition.
"""

from __future__ import annotations

import argparse
import gc
import os
import time

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import penstock as ps
from harness import machine, publish, shown, table, times

Matrix = npt.NDArray[np.float32]
_LOAD = 100_000  # rows per tick while the source is filled


def batch(ids: npt.NDArray[np.int64], vectors: Matrix) -> pa.Table:
    """Rows to feed."""
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    titles = pa.array([f"title {number}" for number in ids.tolist()])
    return pa.table({"doc_id": pa.array(ids), "title": titles, "vec": lists})


def search(vectors: Matrix, lengths: Matrix, queries: Matrix, k: int) -> list[list[int]]:
    """The rows that are nearest to each query by cosine, by a search of all."""
    scores = (vectors @ queries.T) / lengths[:, None]
    first = np.argpartition(-scores, k, axis=0)[:k]
    return [sorted(column.tolist(), key=lambda row: -scores[row, at]) for at, column in enumerate(first.T)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, default in (("rows", 1_000_000), ("width", 128), ("changed", 1_000), ("ticks", 100)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--queries", type=int, default=1)
    options = parser.parse_args()
    rng = np.random.default_rng(7)
    vectors = rng.standard_normal((options.rows, options.width), dtype=np.float32)
    queries = rng.standard_normal((options.queries, options.width), dtype=np.float32)
    lengths = np.linalg.norm(vectors, axis=1)
    flow = ps.IncrementalFlow()
    flow.register_source("docs", "doc_id BIGINT, title STRING, vec ARRAY<FLOAT>", primary_key="doc_id")
    spec = ps.VectorViewSpec(
        source="docs", id="doc_id", embedding="vec", query=queries, k=10, payload=["title"]
    )
    flow.register_vector_view("similar", spec)
    begin = time.perf_counter()
    for start in range(0, options.rows, _LOAD):
        ids = np.arange(start, min(start + _LOAD, options.rows))
        flow.tick("docs", batch(ids, vectors[ids]))
    loaded = time.perf_counter() - begin
    gc.collect()
    gc.freeze()
    ticks, processor, views, searches = [], [], [], []
    warm = max(options.ticks // 10, 2)
    load_average = os.getloadavg()[0]
    for number in range(warm + options.ticks):
        ids = rng.choice(options.rows, options.changed, replace=False)
        fresh = rng.standard_normal((options.changed, options.width), dtype=np.float32)
        change = batch(ids, fresh)
        begin, used = time.perf_counter(), time.process_time()
        summary = flow.tick("docs", change)
        tick, used = (time.perf_counter() - begin) * 1000, (time.process_time() - used) * 1000
        begin = time.perf_counter()
        vectors[ids], lengths[ids] = fresh, np.linalg.norm(fresh, axis=1)
        nearest = search(vectors, lengths, queries, 10) if number % 10 == 0 else None
        if number >= warm:
            ticks.append(tick)
            processor.append(used)
            views.append(summary.views["similar"].duration_ms)
        if nearest is not None:
            searches.append((time.perf_counter() - begin) * 1000)
            rows = flow.snapshot("similar").to_pylist()
            kept = [[row["doc_id"] for row in rows if row["query"] == at] for at in range(options.queries)]
            assert kept == nearest, "the view is not what the search gives"
    head = ["", "ms (p50 / p95 / p99)"]
    lines = [
        ["a tick, all of it", str(times(ticks))],
        ["the same, time of the processor", str(times(processor))],
        ["of which the view", str(times(views))],
        ["a search of all vectors (NumPy, float32)", str(times(searches))],
    ]
    state = flow.metrics()["penstock_flow_state_bytes"] / 1e6
    text = (
        f"{options.rows:,} vectors of {options.width} floats, {options.changed:,} replaced per tick, {options.queries} query, k = 10; "
        f"filled in {loaded:.1f} s, state {shown(state)} MB of which {vectors.nbytes / 1e6:.0f} MB are the vectors.\n\n"
        f"{table(head, lines)}\n\nMeasured on: {machine()} (at the first tick {load_average:.1f})."
    )
    publish("vectors", text)


if __name__ == "__main__":
    main()
