from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.boot import gateway, scratch


def test_a_long_log_is_rotated_while_it_is_written(tmp_path: Path) -> None:
    log = tmp_path / "jvm.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"x" * 100)
        gateway.trim(log, limit=1000)
        assert log.stat().st_size == 100
        gateway.trim(log, limit=50)
        writer.write(b"new")
    assert log.read_bytes() == b"new"
    assert (tmp_path / "jvm.log.1").stat().st_size == 100


def test_old_logs_are_deleted(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"jvm-{number}-{1000 + number}.log").touch()
    gateway._prune_logs(tmp_path)
    assert len(list(tmp_path.iterdir())) == 20
    assert not (tmp_path / "jvm-0-1000.log").exists()


def test_without_a_writable_home_the_log_is_in_the_temporary_folder(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    assert gateway._new_log(tmp_path / "home", spare=tmp_path).parent == tmp_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain.value", "plain.value"),
        ("a = b: c", "a\\ \\=\\ b\\:\\ c"),
        ("C:\\x\n", "C\\:\\\\x\\n"),
        ("grün 🚰", "gr\\u00fcn\\ \\ud83d\\udeb0"),
    ],
)
def test_settings_are_written_as_java_reads_them(text: str, expected: str) -> None:
    assert gateway._escaped(text) == expected


def test_folders_of_dead_processes_are_swept(tmp_path: Path) -> None:
    mine = scratch.make(tmp_path)
    program = f"import os, pathlib; from penstock.spark.boot import scratch; print(scratch.make(pathlib.Path({str(tmp_path)!r})).path); os._exit(0)"
    other = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert Path(other.stdout.strip()).exists()
    scratch.sweep(tmp_path)
    assert list(tmp_path.iterdir()) == [mine.path]
    assert (mine.path.stat().st_mode & 0o777) == 0o700
    mine.remove()
    assert list(tmp_path.iterdir()) == []


def test_the_death_of_a_jvm_says_how_it_ended(tmp_path: Path) -> None:
    log = tmp_path / "jvm.log"
    log.write_text(
        "ERROR Executor: java.lang.NoClassDefFoundError: first\n"
        "penstock: the thread 'dag-scheduler' ended Spark: java.lang.OutOfMemoryError: Java heap space\n"
        "\tat org.example.Some.java\n"
    )
    thrown = gateway._thrown(log)
    assert thrown == "java.lang.OutOfMemoryError: Java heap space"
    full = gateway.Death(gateway.OUT_OF_MEMORY, thrown)
    assert full.out_of_memory
    assert full.manner == "its JVM ended with code 52: java.lang.OutOfMemoryError: Java heap space"
    killed = gateway.Death(-9, thrown)
    assert not killed.out_of_memory
    assert killed.manner == "its JVM was killed (SIGKILL)"
    assert gateway._thrown(tmp_path / "missing.log") == ""
    assert gateway.death() is None
