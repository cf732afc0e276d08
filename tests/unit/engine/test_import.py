"""What a session imports, because every command waits for it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import penstock.engine.session
late = ("penstock.streaming", "penstock.sinks", "penstock.sources", "penstock.backend", "pyspark", "pyarrow", "numpy")
print(sorted(name for name in sys.modules if name.startswith(late)))
"""


def test_a_session_imports_nothing_of_streams_before_one_is_asked_for() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
