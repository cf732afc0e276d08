"""Results that are many times as large as Spark's heap."""

from __future__ import annotations

import subprocess
import sys

ROWS, WIDTH = 40_000, 20_000


def test_a_result_that_is_larger_than_the_heap_is_printed() -> None:
    words = ["sql", f"SELECT id, repeat('x', {WIDTH}) AS text FROM range({ROWS})", "--output", "csv"]
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "penstock",
            *words,
            "--conf",
            "spark.driver.memory=600m",
            "--master",
            "local[2]",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"id,text\n"
        end = b"," + b"x" * WIDTH + b"\n"
        for number, line in enumerate(process.stdout):
            assert line == str(number).encode() + end
        assert process.stderr.read() == b""
    assert (process.returncode, number) == (0, ROWS - 1)
