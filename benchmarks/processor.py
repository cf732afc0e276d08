"""Processor time and memory of this process and of all that it has started, read from the system: peers have no library for it."""

from __future__ import annotations

import os
from pathlib import Path

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")


def tree(root: int | None = None) -> list[int]:
    """The ids of a process, by default this one, and of everything below it."""
    parents: dict[int, int] = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit() and (fields := _stat(int(folder.name))):
            parents[int(folder.name)] = int(fields[1])
    below = [os.getpid() if root is None else root]
    for parent in below:  # it grows while it is walked
        below += [child for child, its_parent in parents.items() if its_parent == parent]
    return below


def seconds(root: int | None = None) -> float:
    """Processor seconds that a process and all below it have used, children that have ended included."""
    return sum(sum(map(int, fields[11:15])) for one in tree(root) if (fields := _stat(one))) / TICKS


def memory(root: int | None = None) -> int:
    """Bytes that a process and all below it hold; pages that several share count once."""
    total = 0
    for one in tree(root):
        try:
            lines = (PROC / str(one) / "smaps_rollup").read_text().splitlines()
        except (OSError, ValueError):
            continue  # it has ended
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def _stat(process: int) -> list[str]:
    """The fields of a process behind its name; none when it has ended."""
    try:
        return (PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
