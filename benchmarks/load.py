"""The initial load: ten million rows into a flow with the aggregate and the join, its speed and its memory.

python benchmarks/load.py [--rows 10000000]
"""

from __future__ import annotations

import argparse
import gc
import time

import psutil

import penstock as ps
from flows import Rig
from harness import machine, publish, table
from workload import CASES


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    options = parser.parse_args()
    with ps.Session.embedded() as session:
        Rig(session, [CASES["aggregate"], CASES["join"]], 10_000).close()
        gc.collect()
        before = psutil.Process().memory_info().rss
        begin = time.perf_counter()
        rig = Rig(session, [CASES["aggregate"], CASES["join"]], options.rows)
        whole = time.perf_counter() - begin
        held = psutil.Process().memory_info().rss - before
        line = [
            f"{rig.loaded:,}",
            f"{rig.load_seconds:.1f} s",
            f"{rig.loaded / rig.load_seconds / 1e6:.2f}M",
            f"{rig.arrow_bytes / 1e6:,.0f} MB",
            f"{rig.state_bytes / 1e6:,.0f} MB",
            f"{rig.state_bytes / rig.arrow_bytes:.2f}",
            f"{held / 1e6:,.0f} MB",
        ]
        rig.close()
    head = [
        "rows",
        "load",
        "rows per second (goal 2M)",
        "Arrow",
        "state",
        "state / Arrow (goal 2.5)",
        "process grew by",
    ]
    publish("load", f"{table(head, [line])}\n\nMeasured on: {machine()}; {whole:.1f} s with making the data.")


if __name__ == "__main__":
    main()
