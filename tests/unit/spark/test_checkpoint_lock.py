"""The lock of a checkpoint on a local disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import StateError
from penstock.spark.micro_batch import checkpoint_lock

HOLDER = """
import sys
from penstock.spark.micro_batch import checkpoint_lock
lock = checkpoint_lock.acquire(sys.argv[1])
print("up", flush=True)
sys.stdin.read()
"""


def test_one_at_a_time(tmp_path: Path) -> None:
    first = checkpoint_lock.acquire(str(tmp_path / "new"))
    assert first is not None
    with pytest.raises(StateError, match="another query uses this checkpoint"):
        checkpoint_lock.acquire((tmp_path / "new").as_uri())
    first.release()
    again = checkpoint_lock.acquire((tmp_path / "new").as_uri())
    assert again is not None
    again.release()


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(StateError):
            checkpoint_lock.acquire(str(tmp_path))
        holder.kill()
        holder.wait()
    lock = checkpoint_lock.acquire(str(tmp_path))
    assert lock is not None
    lock.release()


def test_object_stores_have_none() -> None:
    assert checkpoint_lock.acquire("s3://bucket/checkpoint") is None
