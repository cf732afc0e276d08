"""Which process holds something, and whether it is provably gone."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Owner:
    """A process of some machine. `machine` is one run of one system, and `started` tells processes of one number apart."""

    host: str
    pid: int
    started: int = 0
    session: str = ""
    machine: str = ""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def this_process(session: str = "") -> Owner:
    """The owner that this process is."""
    pid = os.getpid()
    return Owner(socket.gethostname(), pid, _started(pid) or 0, session, _machine())


def is_gone(owner: Owner) -> bool:
    """Whether the process surely does not exist any more; False also when that cannot be known from here."""
    if not owner.machine or owner.machine != _machine():
        return False
    return _started(owner.pid) != owner.started


def clock() -> float:
    """Seconds of a clock that nobody sets and that goes on while a process or the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _machine() -> str:
    """A name that is the same only where process numbers mean the same: one boot and one pid namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(pid: int) -> int | None:
    """When a process started, in ticks since the boot; None when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name of the program stands in brackets and may contain anything.
    return int(stat.rpartition(")")[2].split()[19])
