"""Runs the whole suite in two processes side by side: what shares one Spark session with the longest test of the rest, and everything else.

Either half leaves a core idle for half of its time, waiting for servers, triggers and processes. The output of the first half
is shown as it comes, that of the second one in the end. Fails when one of them does.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile

LONGEST = "tests/e2e/test_golden_recordings.py"
HALVES = (("tests/spark", LONGEST), ("tests", "--ignore=tests/spark", f"--ignore={LONGEST}"))


def main() -> int:
    """Run both halves to their ends; an interrupt ends both."""
    # Both halves are repeated with one seed.
    os.environ.setdefault("PENSTOCK_TEST_SEED", str(random.SystemRandom().randrange(2**32)))
    command = [sys.executable, "-m", "pytest", *sys.argv[1:]]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as later:
        shown, hidden = HALVES
        with subprocess.Popen([*command, *hidden], stdout=later, stderr=subprocess.STDOUT) as second:
            try:
                first = subprocess.run([*command, *shown], check=False).returncode
                print("the other half:", flush=True)
                code = second.wait()
            except KeyboardInterrupt:
                code = first = second.wait()
        later.seek(0)
        print(later.read(), flush=True)
    return first or code


if __name__ == "__main__":
    sys.exit(main())
