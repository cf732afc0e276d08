"""A flow in a process that may have only so much memory; as a program it prints what the flow answers and how much state it has.

python tests/twin/limited.py SEED TICKS [MEMORY] [LIMIT]

Random ticks go through a join, an aggregate, a DISTINCT, a top-k and a window. MEMORY is the budget of the flow, 0 for none; LIMIT are the bytes that
the process may have beyond those that it has before its first tick.
"""

from __future__ import annotations

import hashlib
import json
import re
import resource
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.data.batch import DeltaBatch
from penstock.engine.registration import Prepared
from penstock.plan import node as plan
from twin.flows import FIELDS, ROWS, VIEWS, no_fragment

ROWS_PER_TICK = 5_000
KEYS = 100_000
LIMITED = {
    **{name: VIEWS[name] for name in ("named", "totals", "top", "ranked")},
    "different": plan.Aggregate(FIELDS, ROWS, (0, 1, 2), ()),
}


def changes(seed: int, ticks: int) -> list[tuple[DeltaBatch, DeltaBatch]]:
    """Rows and names; a third of the rows of a tick go in the next one."""
    random = np.random.default_rng(seed)
    made, leaving = [], pa.table({name: np.zeros(0, np.int64) for name in "kvw"})
    for number in range(ticks):
        rows = pa.table(
            {
                "k": random.integers(0, KEYS, ROWS_PER_TICK),
                "v": random.integers(-(2**40), 2**40, ROWS_PER_TICK),
                "w": random.integers(0, 1_000, ROWS_PER_TICK),
            }
        )
        weights = np.repeat([1, -1], [len(rows), len(leaving)])
        keys = random.choice(KEYS, 500, replace=False)
        names = pa.table({"k": keys, "name": [f"the name {number} of {key}" for key in keys]})
        made.append(
            (
                DeltaBatch(pa.concat_tables([rows, leaving]), weights),
                DeltaBatch(names, np.ones(len(names), np.int64)),
            )
        )
        leaving = rows.slice(0, ROWS_PER_TICK // 3)
    return made


def data_bytes() -> int:
    """What the system counts for RLIMIT_DATA."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmData:\s*(\d+) kB", status)[1]) * 1024  # type: ignore[index]


def digest(flow: ps.IncrementalFlow, name: str) -> str:
    """A digest of the rows of a view, whatever their order."""
    table = flow.snapshot(name)
    table = table.rename_columns([f"{at}" for at in range(table.num_columns)])
    ordered = table.sort_by([(column, "ascending") for column in table.column_names]).combine_chunks()
    written = pa.BufferOutputStream()
    with pa.ipc.new_stream(written, ordered.schema) as writer:
        writer.write_table(ordered)
    return hashlib.sha256(written.getvalue()).hexdigest()


def main(seed: int, ticks: int, memory: int = 0, limit: int = 0) -> None:
    """Run the ticks and print a line of JSON."""
    flow = ps.IncrementalFlow(clock=lambda: 0, memory=memory or None)
    flow.register_source("rows", "k BIGINT, v BIGINT, w BIGINT")
    flow.register_source("names", "k BIGINT, name STRING", primary_key="k")
    for name, root in LIMITED.items():
        flow._install(Prepared(plan.View(name, "", root), no_fragment), "reject")
    fed = changes(seed, ticks)
    if limit:
        resource.setrlimit(resource.RLIMIT_DATA, (data_bytes() + limit, resource.RLIM_INFINITY))
    most = begin = data_bytes()
    for rows, names in fed:
        flow.feed("rows", rows)
        flow.feed("names", names)
        flow.step()
        most = max(most, data_bytes())
    metrics = flow.metrics()
    # Reading all rows needs memory for all rows.
    resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    answers = {name: digest(flow, name) for name in LIMITED}
    print(
        json.dumps(
            {
                "answers": answers,
                "grown": most - begin,
                "state": metrics["penstock_flow_state_bytes"],
                "resident": metrics["penstock_flow_state_resident_bytes"],
            }
        )
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
