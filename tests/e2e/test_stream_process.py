"""Streaming queries and processes: one at a time under a name, none left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from class_archive import archive_conf
from penstock.backend import JobState, open_backend
from penstock.backend.address import sqlite_url
from pipeline_process import home_in
from processes import descendants
from waiting import wait_for

PROGRAM = """
import sys, time
import penstock as ps
session = ps.Session.embedded(master="local[1]")
query = session.read_stream.rate(rows_per_second=100).write_stream.format("memory").start("ticking")
while query.last_progress is None or not query.last_progress.input_rows:
    time.sleep(0.05)
print("running", flush=True)
sys.stdin.readline()
"""


@contextmanager
def started(home: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PENSTOCK_HOME": str(home_in(home)),
            "PENSTOCK_STATE": sqlite_url(home / "state.db"),
            "PENSTOCK_CONF": archive_conf(),
        },
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def test_a_name_runs_in_one_process_and_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listening, heard = tmp_path / "bin", tmp_path / "heard"
    listening.mkdir()
    for name in ("chmod", "readlink"):
        program = listening / name
        program.write_text(f'#!/bin/sh\necho {name} "$@" >> {heard}\nexec {shutil.which(name)} "$@"\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{listening}{os.pathsep}{os.environ['PATH']}")
    with started(tmp_path) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "running\n"
        # Spark and Hadoop would start both programs for every file that a batch leaves in the checkpoint.
        lines = heard.read_text().splitlines() if heard.exists() else []
        assert [line for line in lines if line.startswith("readlink") or "/offsets/" in line] == []
        with open_backend(sqlite_url(tmp_path / "state.db")) as state:
            assert state.jobs.get("ticking").state is JobState.RUNNING
        with started(tmp_path) as second:
            _, said = second.communicate(timeout=120)
        assert second.returncode == 1
        assert f"'ticking' is owned by process {first.pid}" in said
        assert "penstock jobs stop ticking" in said
        # The program ends without a word about its query: it is stopped in order, and says nothing.
        _, said = first.communicate("\n", timeout=120)
    assert (first.returncode, said) == (0, "")
    with open_backend(sqlite_url(tmp_path / "state.db")) as state:
        assert state.jobs.get("ticking").state is JobState.STOPPED


def test_nothing_goes_on_behind_a_killed_process(tmp_path: Path) -> None:
    with started(tmp_path) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "running\n"
        family = descendants(killed.pid)
        assert family
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait(10)
    _, alive = psutil.wait_procs(family, timeout=60)
    assert alive == []
    with open_backend(sqlite_url(tmp_path / "state.db")) as state:
        wait_for(lambda: state.jobs.get("ticking").state is JobState.LOST)
    with started(tmp_path) as next_one:
        _, said = next_one.communicate("\n", timeout=120)
    assert (next_one.returncode, said) == (0, "")
