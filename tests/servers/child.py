"""A server as a child process that cannot outlive the process that started it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from processes import descendants

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


@dataclass(slots=True)
class Child:
    """A running server process and the file that has its output."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def wait_until(self, ready: Callable[[], bool], *, seconds: float = 90.0) -> None:
        """Wait until the server answers; its end or the end of our policy shows what it wrote."""
        deadline = time.monotonic() + seconds
        while not ready():
            if not self.alive or time.monotonic() > deadline:
                why = "still does not answer" if self.alive else f"ended with {self.process.returncode}"
                self.kill()
                tail = self.log.read_text(encoding="utf-8", errors="replace")[-3000:]
                raise AssertionError(f"the server {why}: {self.process.args!r:.200}\n{tail}")
            time.sleep(0.1)

    def stop(self, how: signal.Signals = signal.SIGTERM, *, seconds: float = 30.0) -> None:
        """Ask the server to end, and retry when it does not."""
        if self.alive:
            self.process.send_signal(how)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """End the server as a power cut would, with all processes that it has started."""
        family = descendants(self.pid)
        self.process.kill()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()
        psutil.wait_procs(family, timeout=30)


def spawn(
    command: Sequence[str | Path],
    *,
    log: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    user: str | None = None,
) -> Child:
    """Start a process that the system kills when this one ends, as another user when one is named."""
    who = pwd.getpwnam(user) if user else None
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            user=who.pw_uid if who else None,
            group=who.pw_gid if who else None,
            extra_groups=[] if who else None,
            start_new_session=True,  # Ctrl-C is for pytest, which then stops its servers in order
            preexec_fn=_die_with_parent,
        )
    return Child(process, log)


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port() -> int:
    """Return a port that nobody listens on, and that the system gives to no client while a server starts or is away.

    Above all not to a client that waits for this very server: it would be connected with itself, and keep the server out.
    """
    while True:
        port = random.randrange(10_000, end_of_servers())
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def end_of_servers() -> int:
    """Return where the ports begin that the system gives to clients, or the last port when it leaves too few others."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    return first if first > 15_000 else 65_535


def answers(port: int) -> bool:
    """Whether something listens on this port."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0
