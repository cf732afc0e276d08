"""Whether ticks cost what changed: flat in the rows of state, linear in the rows of the change.

    python benchmarks/flatness.py [--sizes 100000 1000000 10000000] [--ticks 200] [--cases aggregate join]

Results are kept, so that cases can be run one by one; the tables show all of them.
"""

from __future__ import annotations

import argparse
from typing import Any

import penstock as ps
from flows import Rig
from harness import machine, plot, publish, remember, shown, table, times
from workload import CASES

DELTAS = (10, 100, 1_000, 10_000, 100_000)


def by_state(session: ps.Session, name: str, sizes: list[int], ticks: int) -> dict[str, Any]:
    """The percentiles of a case at several sizes of state."""
    found = {}
    for rows in sizes:
        rig = Rig(session, [CASES[name]], rows)
        here = times(rig.ticks(1000, ticks))
        found[str(rows)] = [here.p50, here.p95, here.p99]
        rig.close()
    return found


def by_delta(session: ps.Session, rows: int) -> dict[str, Any]:
    """The median tick of the aggregate for changes of several sizes."""
    rig = Rig(session, [CASES["aggregate"]], rows)
    found = {}
    for size in DELTAS:
        count = 100 if size <= 1_000 else 8
        found[str(size)] = times(rig.ticks(size, count, warm=2 if size > 1_000 else 10)).p50
    rig.close()
    return found


def report(results: dict[str, Any], sizes: list[int]) -> str:
    """Both tables."""
    small, large = (f"{size / 1e6:g}M" for size in (sizes[0], sizes[-1]))
    lines = []
    for name in CASES:
        found = results.get(name)
        if found is not None:
            first, last = (found[str(size)] for size in (sizes[0], sizes[-1]))
            shown_times = [" / ".join(shown(value) for value in values) for values in (first, last)]
            lines.append([name, *shown_times, f"{last[0] / first[0]:.2f}"])
    head = ["ms per tick of 1,000 rows (p50 / p95 / p99)", small, large, "p50 ratio (goal 1.5)"]
    text = table(head, lines)
    delta = results.get("delta")
    if delta:
        rows = [
            [f"{int(size):,}", shown(value), f"{int(size) / value / 1000:.2f}M"]
            for size, value in delta.items()
        ]
        text += "\n\n" + table(
            ["changed rows per tick (aggregate)", "ms, p50", "changed rows per second"], rows
        )
    return f"{text}\n\nMeasured on: {results['machine']}."


def draw(results: dict[str, Any], sizes: list[int]) -> None:
    """Ticks by size of state, as lines."""
    lines = {
        name: [results[name][str(size)][0] for size in sizes]
        for name in CASES
        if name in results and all(str(size) in results[name] for size in sizes)
    }
    plot(
        "flatness",
        {"x": sizes, "lines": lines, "xlabel": "rows of state", "ylabel": "ms per tick of 1,000 rows, p50"},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--ticks", type=int, default=200)
    parser.add_argument("--cases", nargs="+", choices=[*CASES, "delta"], default=[*CASES, "delta"])
    options = parser.parse_args()
    sizes = options.sizes
    results = remember("flatness", {"machine": machine()})
    with ps.Session.embedded() as session:
        for name in options.cases:
            found = (
                by_delta(session, sizes[-1])
                if name == "delta"
                else by_state(session, name, sizes, options.ticks)
            )
            results = remember("flatness", {name: found})
    publish("flatness", report(results, sizes))
    draw(results, sizes)


if __name__ == "__main__":
    main()
