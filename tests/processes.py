"""The processes that a process has started.

`psutil.Process.children` leaves out processes that seem older than their parent. It adds the start of each to a boot time in whole seconds, which it
reads anew for each, and which moves by one when the machine's clock is corrected at the wrong moment: a JVM that was started in the first
second of its parent is then no child of it. And `psutil.process_iter` remembers processes by number, and leaves out a new one that has the number of
one that has ended. So this asks the system itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

from waiting import wait_for


def children(pid: int) -> list[psutil.Process]:
    """The children of a process."""
    return [process for process, parent in _processes() if parent == pid]


def descendants(pid: int) -> list[psutil.Process]:
    """The children of a process, and theirs."""
    by_parent: dict[int, list[psutil.Process]] = {}
    for process, parent in _processes():
        by_parent.setdefault(parent, []).append(process)
    family: list[psutil.Process] = []
    parents = [pid]
    while parents:
        young = by_parent.pop(parents.pop(), [])
        family += young
        parents += [process.pid for process in young]
    return family


def _processes() -> Iterator[tuple[psutil.Process, int]]:
    """Every process with the number of its parent."""
    for pid in psutil.pids():
        try:
            process = psutil.Process(pid)
            # The name in brackets may hold anything, brackets and spaces included.
            _, parent, *_ = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        except (psutil.NoSuchProcess, OSError):
            continue
        yield process, int(parent)


def wait_for_work(process: psutil.Process, seconds: float = 1.0) -> None:
    """Wait until a process has computed for so long, by its own clock: a busy machine only takes longer."""
    before = _computed(process)
    wait_for(lambda: _computed(process) >= before + seconds, "work", seconds=120)


def _computed(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def is_java(process: psutil.Process) -> bool:
    """Whether a process is a JVM; False when it has ended."""
    try:
        return bool(process.name() == "java")
    except psutil.NoSuchProcess:
        return False
