"""The class archive as it is made and used: killed builds, damage, and the proof that the JVM maps it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from penstock import config
from penstock.spark.boot import archive_build
from penstock.spark.boot.archive import stamp
from penstock.spark.boot.java import find_java
from processes import children, descendants
from waiting import wait_for

LOWEST_PRIORITY = 19
PROGRAM = """
import penstock as ps
with ps.Session.embedded(master="local[1]") as session:
    answer = session.spark.range(4).selectExpr("sum(id) AS s").toArrow().to_pylist()
    jvm = session.spark._jvm
    pid = jvm.java.lang.ProcessHandle.current().pid()
    mapped = any(".jsa" in line and "cds" in line for line in open(f"/proc/{pid}/maps"))
    print(answer, mapped)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home of our own; builds that are still at work in the end are killed."""
    path = tmp_path_factory.mktemp("home")
    yield path
    for process in builders(path):
        process.kill()


def builders(home: Path) -> list[psutil.Process]:
    """The processes that make an archive in this home."""
    found = []
    for process in psutil.process_iter():
        try:
            if "penstock.spark.boot.archive_build" in process.cmdline() and process.environ().get(
                "PENSTOCK_HOME"
            ) == str(home):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def run(home: Path, program: str = PROGRAM, **environment: str) -> str:
    """Run a program in a fresh process; it must answer and say nothing else."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
        env={**os.environ, "PENSTOCK_HOME": str(home), **environment},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


def kill_builders(home: Path) -> None:
    """End the builds at work with the JVMs that they started, which hold the lock as long as they live."""
    for builder in builders(home):
        builder.suspend()
        family = [builder, *descendants(builder.pid)]
        for process in family:
            process.kill()
        _, alive = psutil.wait_procs(family, timeout=10)
        assert alive == []


@pytest.mark.timeout(2400)
def test_an_archive_survives_killed_builds_and_damage(home: Path, tmp_path: Path) -> None:
    cds = home / "cds"
    # The first use has no archive, works, and starts a build behind all others, which is killed half way.
    assert run(home) == "[{'s': 6}] False"
    wait_for(lambda: list(cds.glob("build-*/classes.txt")), "training", seconds=400)
    [builder] = builders(home)
    assert builder.nice() == min(os.nice(0) + archive_build.NICENESS, LOWEST_PRIORITY)
    jvms = children(builder.pid)
    builder.kill()
    builder.wait(10)
    assert list(cds.glob("*.json")) == []

    # The next one is not disturbed by what is left, and a build that may end makes an archive that is used.
    assert run(home) == "[{'s': 6}] False"
    kill_builders(home)
    build = "from penstock import config; from penstock.spark.boot import archive_build; print(archive_build.make(config.load()))"
    assert run(home, build) == "True", (cds / "build.log").read_text()
    assert list(cds.glob("build-*")) == []
    assert run(home) == "[{'s': 6}] True"
    assert builders(home) == []

    # Another Java, and be it a copy, does not take it, and the build for that one, killed too, does not touch it.
    another = shutil.copytree(find_java(config.load()).home, tmp_path / "java", symlinks=True)
    assert run(home, JAVA_HOME=str(another)) == "[{'s': 6}] False"
    wait_for(lambda: list(cds.glob("build-*/classes.txt")), "training", seconds=400)
    kill_builders(home)
    assert run(home) == "[{'s': 6}] True"

    # Something else under its name, of which even the card is convinced, is thrown away without a word and made again.
    [archive] = cds.glob("*.jsa")
    [card] = cds.glob("*.json")
    content = json.loads(card.read_text())
    archive.unlink()
    archive.write_bytes(os.urandom(1 << 20))
    content["files"][str(archive)] = stamp(archive)
    card.write_text(json.dumps(content))
    assert run(home) == "[{'s': 6}] False"
    assert len(builders(home)) == 1

    # A JVM that was still booting when its build was killed noticed when it came to reading its input.
    _, alive = psutil.wait_procs(jvms, timeout=120)
    assert alive == []
