"""A pipeline in a process of its own, as a user runs it, that can be killed at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from class_archive import archive_conf
from penstock import config
from processes import descendants


def home_in(folder: Path) -> Path:
    """A home of the test's own, with what starts Spark quickly from that of the user."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    for name in ("cds", "java", "jars"):
        shared = config.load().home / name
        if shared.exists() and not (home / name).exists():
            (home / name).symlink_to(shared)
    return home


class PipelineProcess:
    """`penstock run FILE`; the state is in `folder`, and so is what all runs have said."""

    def __init__(self, folder: Path, text: str, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.file = folder / "pipeline.yaml"
        self.file.write_text(text)
        self.log = folder / "run.log"
        self._environment = {
            **os.environ,
            "PENSTOCK_HOME": str(home_in(folder)),
            "PENSTOCK_STATE": f"sqlite:///{folder / 'state.db'}",
            "PENSTOCK_CONF": f"{archive_conf()} spark.sql.shuffle.partitions=2",
            **(environment or {}),
        }
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Run the pipeline in the background."""
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "penstock", "run", str(self.file), "--master", "local[2]"],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=self._environment,
            )

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._child is not None and self._child.poll() is None

    def kill(self) -> None:
        """End it as a power failure would, with all that it has started."""
        child = self._running()
        family = descendants(child.pid)
        child.kill()
        for process in family:
            if process.is_running():
                process.kill()
        child.wait()

    def stop(self, seconds: float = 120) -> int:
        """Ask it to end, and return its code."""
        child = self._running()
        child.send_signal(signal.SIGTERM)
        return child.wait(seconds)

    def wait(self, seconds: float = 240) -> int:
        """Wait for its end, and return its code."""
        return self._running().wait(seconds)

    def said(self) -> str:
        """What all runs have written, the end of it."""
        return self.log.read_text(errors="replace")[-6000:] if self.log.exists() else ""

    def __enter__(self) -> PipelineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self.kill()

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._child is not None, "it was not started"
        return self._child
