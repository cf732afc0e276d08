"""Runs the whole suite: parts with a process each, two side by side, each lane taking the next part when it is free.

A part leaves a core idle for half of its time, waiting for servers, triggers and processes. The longest come first, and the output
of a part is shown when it has ended. Fails when one of them does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic

GOLDEN = "tests/e2e/test_golden_recordings.py"
PARTS = (
    ("tests/spark",),
    ("tests/e2e", f"--ignore={GOLDEN}"),
    ("tests/property",),
    (GOLDEN,),
    ("tests/docs",),
    ("tests/unit",),
)
LANES = 2


@dataclass
class Running:
    """The processes that are there, which an interrupt ends."""

    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    ending: bool = False

    def run(self, part: tuple[str, ...]) -> int:
        """Run one part to its end, show what it printed, and return its exit code."""
        started = monotonic()
        with tempfile.TemporaryFile() as output:
            command = [sys.executable, "-m", "pytest", "--durations=10", *sys.argv[1:], *part]
            if self.ending:
                return 1
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            self.processes.append(process)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = code = os.waitstatus_to_exitcode(status)
            output.seek(0)
            shown = output.read().decode(errors="replace")
        computed = usage.ru_utime + usage.ru_stime
        took = f"{monotonic() - started:.0f} s, {computed:.0f} s of the processor"
        print(f"{' '.join(part)}: exit code {code} after {took}\n{shown}", flush=True)
        return code

    def end(self) -> None:
        """Start no further part, and wait for those that the same interrupt has reached."""
        self.ending = True
        for process in self.processes:
            process.wait()


def main() -> int:
    """Run all parts to their ends; an interrupt ends them."""
    running = Running()
    with ThreadPoolExecutor(LANES) as lanes:
        codes = [lanes.submit(running.run, part) for part in PARTS]
        try:
            return int(any(code.result() for code in codes))
        except KeyboardInterrupt:
            running.end()
            return 130


if __name__ == "__main__":
    sys.exit(main())
