"""A thousand ticks at constant size: neither state nor ticks may grow.

    python benchmarks/churn.py [--rows 1000000] [--ticks 1000] [--changed 1000]

All six queries of the tick benchmark are views of one flow. Half of each change inserts rows, the other half deletes older ones.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import penstock as ps
from flows import Rig
from harness import machine, plot, publish, shown, table, times
from workload import CASES, SIX


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--ticks", type=int, default=1_000)
    parser.add_argument("--changed", type=int, default=1_000)
    options = parser.parse_args()
    found: list[float] = []
    state: list[float] = []
    with ps.Session.embedded() as session:
        rig = Rig(session, [CASES[name] for name in SIX], options.rows)
        for part in range(10):
            found += rig.ticks(options.changed, options.ticks // 10, warm=20 if part == 0 else 0, deleted=0.5)
            state.append(rig.state_bytes / 1e6)
        rig.close()
    parts = [times(list(part)) for part in np.array_split(np.array(found), 10)]
    lines = [
        [f"{(at + 1) * options.ticks // 10:,}", str(part), f"{shown(state[at])} MB"]
        for at, part in enumerate(parts)
    ]
    head = ["after ticks", "ms per tick of all six views (p50 / p95 / p99)", "state"]
    publish("churn", f"{table(head, lines)}\n\nMeasured on: {machine()}.")
    drawing: dict[str, Any] = {
        "x": [(at + 1) * options.ticks // 10 for at in range(10)],
        "lines": {"p50, ms": [part.p50 for part in parts], "p99, ms": [part.p99 for part in parts]},
        "xscale": "linear",
        "xlabel": "ticks",
        "ylabel": "ms per tick of all six views",
    }
    plot("churn", drawing)


if __name__ == "__main__":
    main()
