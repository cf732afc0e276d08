"""Ticks of 1,000 changed rows on ten million rows of state, beside Pathway, Krishiv, and recomputation by DuckDB and Spark.

    python benchmarks/ticks.py [--rows 10000000] [--peer-rows 1000000] [--ticks 300] [--cases aggregate join] [--engines penstock spark]

Penstock, Spark and DuckDB run at `--rows`, penstock and Spark by turns in one process. Krishiv and Pathway are fed row by row or recompute all rows, and run at `--peer-rows`,
with penstock beside them at that size. Results are kept, so that cases can be run one by one; the table shows all of them.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import penstock as ps
from flows import Recompute, Rig
from harness import Times, machine, publish, remember, run_peer, shown, table, times
from workload import CASES, SIX, Case

PEER_TICKS = {"duckdb": 5, "krishiv": 3, "pathway": 20}
ENGINES = ["penstock", "spark", *PEER_TICKS]
TURNS = 3


def ours(
    session: ps.Session, case: Case, rows: int, ticks: int, spark: Recompute | None = None
) -> dict[str, Any]:
    """Penstock's ticks, in turn with Spark's recomputation."""
    found: dict[str, Any] = {}
    rig = Rig(session, [case], rows)
    try:
        milliseconds = rig.ticks(1000, ticks if spark is None else ticks // TURNS)
        if spark is not None:
            spark.milliseconds(case.sql)  # the first one does not count
            recomputed = [spark.milliseconds(case.sql)]
            for _ in range(TURNS - 1):
                time.sleep(1)  # until the JVM has compiled and collected what it had begun
                milliseconds += rig.ticks(1000, ticks // TURNS)
                recomputed.append(spark.milliseconds(case.sql))
            found["spark"] = {"ms": recomputed}
        found["penstock"] = {"ms": milliseconds, "state": rig.state_bytes, "arrow": rig.arrow_bytes}
        return found
    finally:
        rig.close()


def measure(
    session: ps.Session, case: Case, options: argparse.Namespace, spark: Recompute | None
) -> dict[str, Any]:
    """One case with everything beside it."""
    found: dict[str, Any] = {"rows": options.rows, "peer_rows": options.peer_rows, "machine": machine()}
    if "penstock" in options.engines:
        found |= ours(session, case, options.rows, options.ticks, spark)
        found["penstock_small"] = ours(session, case, options.peer_rows, 60)["penstock"]
    for peer, ticks in PEER_TICKS.items():
        if peer not in options.engines:
            continue
        rows = options.rows if peer == "duckdb" else options.peer_rows
        asked = {"case": case.name, "rows": rows, "ticks": ticks}
        found[peer] = run_peer(peer, f"{peer}_ticks.py", asked, timeout=options.timeout)
    return found


def cell(found: dict[str, Any] | None, ours: Times) -> str:
    """A peer's median, and how many times as long as ours it takes."""
    if found is None:
        return "not measured"
    if "error" in found:
        return f"no answer ({found['error']})"
    p50 = times(found["ms"]).p50
    return f"{shown(p50)} ({p50 / ours.p50:,.1f}x)"


def report(results: dict[str, Any]) -> str:
    """All results as a table."""
    lines = []
    for name, found in results.items():
        here = times(found["penstock"]["ms"])
        small = times(found["penstock_small"]["ms"])
        lines.append(
            [
                name,
                str(here),
                f"{CASES[name].goal:g}",
                f"{here.p99 / here.p50:.1f}",
                cell(found.get("spark"), here),
                cell(found.get("duckdb"), here),
                shown(small.p50),
                cell(found.get("pathway"), small),
                cell(found.get("krishiv"), small),
                f"{found['penstock']['state'] / found['penstock']['arrow']:.1f}",
            ]
        )
    first = next(iter(results.values()))
    rows, peer_rows = f"{first['rows'] / 1e6:g}M", f"{first['peer_rows'] / 1e6:g}M"
    head = [
        "ms per tick",
        f"penstock, {rows} (p50 / p95 / p99)",
        "goal p50",
        "p99 / p50",
        f"Spark, {rows}",
        f"DuckDB, {rows}",
        f"penstock, {peer_rows}",
        f"Pathway, {peer_rows}",
        f"Krishiv, {peer_rows}",
        "state / Arrow",
    ]
    return f"{table(head, lines)}\n\nMeasured on: {first['machine']}."


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--peer-rows", type=int, default=1_000_000)
    parser.add_argument("--ticks", type=int, default=300)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(SIX))
    parser.add_argument("--timeout", type=float, default=120, help="seconds that a peer may take for a case")
    parser.add_argument(
        "--engines", nargs="+", choices=ENGINES, default=ENGINES, help="spark only beside penstock"
    )
    options = parser.parse_args()
    results: dict[str, Any] = {}
    with ps.Session.embedded() as session:
        spark = Recompute(session, options.rows) if "spark" in options.engines else None
        for name in options.cases:
            known = remember("ticks", {}).get(name, {})
            results = remember("ticks", {name: known | measure(session, CASES[name], options, spark)})
        if spark is not None:
            spark.close()
    publish("ticks", report({name: results[name] for name in SIX if "penstock" in results.get(name, {})}))


if __name__ == "__main__":
    main()
