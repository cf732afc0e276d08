"""Ctrl-C and SIGTERM end `penstock sql` at once, and leave no JVM behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from processes import descendants, is_java, wait_for_work

ENDLESS = "SELECT count(*) FROM range(1000000000000) a CROSS JOIN range(1000000)"
# What waits for the query waits for ever. This is no measurement: a busy machine needs many times what one at rest does.
SECONDS = 20.0


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "sql", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for child in descendants(process.pid) if process.poll() is None else []:
            child.kill()
        process.kill()
        process.communicate()


def wait_for_java(process: subprocess.Popen[str]) -> list[psutil.Process]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        jvms = [child for child in descendants(process.pid) if is_java(child)]
        if jvms:
            return jvms
        time.sleep(0.05)
    raise AssertionError("no JVM started")


def running_still(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that do not end soon; one that has, and that init has not reaped yet, has ended."""
    _, alive = psutil.wait_procs(processes, timeout=SECONDS)
    return [one for one in alive if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


def end(process: subprocess.Popen[str], number: int) -> tuple[int, float]:
    started = time.monotonic()
    process.send_signal(number)
    code = process.wait(timeout=60)
    return code, time.monotonic() - started


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_running_query(number: int, code: int) -> None:
    with running(f"SELECT 'ready'; {ENDLESS}", "-o", "csv") as process:
        assert process.stdout is not None
        while process.stdout.readline().strip() != "ready":
            assert process.poll() is None
        java = wait_for_java(process)
        wait_for_work(java[0])
        got, seconds = end(process, number)
        assert got == code
        assert seconds < SECONDS
        assert running_still(java) == []
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize("delay", [0, 0.03, 0.06, 0.1, 0.5])
def test_ctrl_c_while_spark_starts(delay: float) -> None:
    with running("SELECT 1") as process:
        java = wait_for_java(process)
        time.sleep(delay)
        got, _ = end(process, signal.SIGINT)
        assert got == 130
        assert running_still(java) == []
