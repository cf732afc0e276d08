"""A process of Deno that runs one program without permissions, with a limit on its time and its memory."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path

from penstock.errors import ConfigError, ConnectorError
from penstock.transforms.script.failure import Ended, not_loaded
from penstock.transforms.script.program import Program
from penstock.transforms.script.wire import MessageKind, MessageReader, request

START_SECONDS = 60.0
WATCH_SECONDS = 0.05
BESIDE_THE_HEAP = 128_000_000
"""For the text of a batch and its answer, which are not in the heap of V8."""
PIPE_BYTES = 1 << 20
PRINTED_BYTES = 64_000
"""What a script may print for one batch; the rest is dropped."""
HEAP_EXIT = 133  # 128 + SIGTRAP, with which V8 ends when its heap is full
FLAGS = ("--no-prompt", "--no-config", "--no-remote", "--no-npm", "--no-lock", "--quiet")
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def deno() -> str:
    """Return the program of Deno; raises ConfigError when the package is not installed."""
    if find_spec("deno") is not None:
        from deno import find_deno_bin

        with contextlib.suppress(FileNotFoundError):
            return str(find_deno_bin())
    path = shutil.which("deno")
    if path is None:
        raise ConfigError(
            "scripts need Deno, which is not installed",
            code="TRANSFORM_PACKAGE_MISSING",
            hint="pip install 'penstock[script]', on every machine that runs Spark's tasks",
        )
    return path


class Process:
    """One process, started with its program; what it prints goes to standard error, with the name of the script."""

    def __init__(self, program: Program, *, memory: int) -> None:
        """Start it and wait until the script is loaded; raises ConfigError when it cannot be."""
        self._file = program.file
        self._printed = bytearray()
        self._reader = MessageReader()
        folder = Path(tempfile.mkdtemp(prefix="penstock-script-"))
        try:
            self._child = self._start(program, folder, memory)
            self._resting = 0
            self._limit = sys.maxsize
            self._await_ready()
        finally:
            # What was loaded is in the memory of the process.
            shutil.rmtree(folder, ignore_errors=True)
        self._resting = self._used()
        self._limit = self._resting + memory + BESIDE_THE_HEAP

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._child.pid

    @property
    def is_alive(self) -> bool:
        """Whether it can take a batch."""
        return self._child.poll() is None

    def call(self, body: bytes, *, seconds: float) -> Generator[tuple[MessageKind, bytes], None, None]:
        """Send a batch and give the messages of the answer, to the last; raises Ended when there is none within the time."""
        self._printed.clear()
        row, since = None, time.monotonic()
        try:
            for kind, text in self._exchange(request(body), since + seconds):
                if kind is MessageKind.ROW:
                    row, since = int(text), time.monotonic()
                    continue
                yield kind, text
                if kind is MessageKind.DONE:
                    self._print()
                    return
        except Ended as ended:
            self.kill()
            self._print()
            if ended.cause == "time" and time.monotonic() - since < seconds / 4:
                row = None  # the batch is slow, and not this row
            raise Ended(ended.cause, ended.text, row) from None
        except BaseException:
            # Half an answer may be in the pipe.
            self.kill()
            raise

    def kill(self) -> None:
        """End it."""
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()

    def _start(self, program: Program, folder: Path, memory: int) -> subprocess.Popen[bytes]:
        heap = f"--max-old-space-size={max(1, memory >> 20)}"
        flags = (*FLAGS, f"--v8-flags={heap},--disallow-code-generation-from-strings")
        try:
            child = subprocess.Popen(
                [deno(), "run", *flags, str(program.write(folder))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=folder,
                env=environment(folder),
                start_new_session=True,
                preexec_fn=_die_with_parent if _LIBC is not None else None,
            )
        except OSError as error:
            raise ConnectorError(f"Deno cannot be started: {error}", code="SCRIPT_ENDED") from error
        for pipe in (child.stdin, child.stdout, child.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            with contextlib.suppress(OSError, AttributeError):
                fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        return child

    def _await_ready(self) -> None:
        try:
            for kind, _ in self._exchange(b"", time.monotonic() + START_SECONDS):
                if kind is MessageKind.READY:
                    self._print()
                    return
        except Ended as ended:
            self.kill()
            if ended.cause == "time":
                raise ConfigError(
                    f"the script is not loaded after {START_SECONDS:.0f} s",
                    code="SCRIPT_INVALID",
                    where=self._file,
                ) from None
            raise not_loaded(self._printed.decode(errors="replace"), self._file) from None
        except BaseException:
            self.kill()
            raise

    def _exchange(self, data: bytes, deadline: float) -> Iterator[tuple[MessageKind, bytes]]:
        """Write these bytes and give messages as long as they are asked for; raises Ended."""
        child = self._child
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        pending, checked = memoryview(data), time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            selector.register(child.stderr, selectors.EVENT_READ)
            if pending:
                selector.register(child.stdin, selectors.EVENT_WRITE)
            while True:
                ready = [key.fileobj for key, _ in selector.select(WATCH_SECONDS)]
                if child.stderr in ready and not self._take_printed():
                    selector.unregister(child.stderr)
                if child.stdin in ready:
                    try:
                        pending = pending[os.write(child.stdin.fileno(), pending) :]
                    except BrokenPipeError:
                        pending = pending[:0]
                    if not pending:
                        selector.unregister(child.stdin)
                if child.stdout in ready:
                    received = os.read(child.stdout.fileno(), PIPE_BYTES)
                    if not received:
                        raise self._ended()
                    yield from self._reader.feed(received)
                now = time.monotonic()
                if now >= deadline:
                    raise Ended("time", "it took too long")
                if now - checked >= WATCH_SECONDS:
                    checked = now
                    if self._used() > self._limit:
                        raise Ended("memory", "it needs more memory than it may have")

    def _ended(self) -> Ended:
        """Why the process is gone."""
        code = self._child.wait()
        while self._take_printed():
            pass
        printed = self._printed.decode(errors="replace")
        if code in (HEAP_EXIT, -signal.SIGTRAP) or "out of memory" in printed.lower():
            self._printed.clear()
            return Ended("memory", "it needs more memory than it may have")
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        return Ended("ended", f"its process ended {how}")

    def _take_printed(self) -> bool:
        """Read what the script printed; False when there is no more."""
        assert self._child.stderr is not None
        try:
            data = os.read(self._child.stderr.fileno(), PIPE_BYTES)
        except BlockingIOError:
            return False
        self._printed += data[: PRINTED_BYTES - len(self._printed)]
        return bool(data)

    def _print(self) -> None:
        """Show what the script printed for a batch."""
        while self._child.returncode is None and self._take_printed():
            pass
        for line in self._printed.decode(errors="replace").splitlines():
            print(f"{self._file}: {line}", file=sys.stderr)
        self._printed.clear()

    def _used(self) -> int:
        """The memory of the process; 0 where the system does not say."""
        try:
            pages = Path(f"/proc/{self._child.pid}/statm").read_text(encoding="ascii").split()[1]
        except (OSError, IndexError):
            return 0
        return int(pages) * _PAGE


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of Deno: nothing of this process's, times in UTC, and its cache in a folder that goes."""
    return {"DENO_DIR": str(folder / "cache"), "HOME": str(folder), "NO_COLOR": "1", "TZ": "UTC", "LANG": "C.UTF-8",
            "DENO_NO_UPDATE_CHECK": "1"}  # fmt: skip


def _libc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    with contextlib.suppress(OSError):
        return ctypes.CDLL(None, use_errno=True)
    return None


_LIBC = _libc()
_PAGE = os.sysconf("SC_PAGE_SIZE")


def _die_with_parent() -> None:
    """In the child, before Deno: a task that is killed leaves no process behind, whatever the script does."""
    assert _LIBC is not None
    _LIBC.prctl(_DIES_WITH_PARENT, signal.SIGKILL)
