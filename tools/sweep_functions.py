"""Write docs/reference/functions.md: for every function of Spark, who computes it in a view, and whether the answer is Spark's.

tools/sweep_functions.py            run the sweep and write the page anew; a test says when it is not current
tools/sweep_functions.py --full     compare more calls and rows, write nothing
tools/sweep_functions.py --probe    ask Spark first how its functions can be called (tests/sweep/calls.json): after an upgrade of Spark
tools/sweep_functions.py sum abs    compare some functions, write nothing
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import penstock as ps

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "functions.md"
CONNECTORS = ("kafka", "iceberg", "postgres", "avro", "s3")  # as the tests have them: some bring functions
sys.path.insert(0, str(ROOT / "tests"))


def main() -> int:
    from sweep import probe
    from sweep.page import page, undecided
    from sweep.run import FULL, QUICK, run

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("functions", nargs="*", help="all functions when none is named")
    parser.add_argument("--full", action="store_true", help="more calls and rows")
    parser.add_argument("--probe", action="store_true", help="learn the calls anew")
    arguments = parser.parse_args()
    began = time.perf_counter()
    with ps.Session.embedded(master="local[2]", connectors=CONNECTORS) as session:
        if arguments.probe:
            probe.write(session.spark, arguments.functions or None)
        outcomes = []
        for outcome in run(session, FULL if arguments.full else QUICK, arguments.functions or None):
            outcomes.append(outcome)
            if outcome.verdict == "WRONG" or arguments.functions:
                print(outcome, flush=True)
        names = arguments.functions or probe.registry(session.spark)
    missing = list(undecided(outcomes, names))
    wrong = sum(outcome.verdict == "WRONG" for outcome in outcomes)
    print(
        f"{len(outcomes)} calls of {len(names)} functions in {time.perf_counter() - began:.0f} s: {wrong} wrong"
    )
    print(f"without an outcome: {', '.join(missing) or 'none'}")
    if not arguments.functions and not arguments.full:
        PAGE.write_text(page(outcomes), encoding="utf-8")
    return 1 if wrong or missing else 0


if __name__ == "__main__":
    sys.exit(main())
