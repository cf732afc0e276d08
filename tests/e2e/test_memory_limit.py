"""A flow with three times more state than its budget ticks right in a process that may not have memory for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from seed import SEED

PROGRAM = Path(__file__).parents[1] / "twin" / "limited.py"
TICKS = 60
BUDGET = 16_000_000
LIMIT = 64_000_000  # a tick needs memory for its delta, too


def run(*arguments: int) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(PROGRAM.parents[1]), *filter(None, sys.path)])
    # Arrow's other allocators ask for address space far ahead, which the limit counts.
    environment = {**os.environ, "PYTHONPATH": path, "ARROW_DEFAULT_MEMORY_POOL": "system"}
    return subprocess.run(
        [sys.executable, str(PROGRAM), str(SEED), str(TICKS), *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def answer(*arguments: int) -> dict[str, Any]:
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_a_flow_with_three_times_more_state_than_its_budget_ticks_right() -> None:
    limited = answer(BUDGET, LIMIT)
    assert limited["state"] > 3 * BUDGET
    assert limited["resident"] <= BUDGET
    assert limited["answers"] == answer()["answers"]


def test_without_a_budget_the_same_process_has_no_memory_for_it() -> None:
    done = run(0, LIMIT)
    assert done.returncode == 1
    assert "MemoryError" in done.stderr
