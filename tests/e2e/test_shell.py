"""`penstock shell` on a real terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PROMPT = "penstock>"


class Terminal:
    """A shell in a pseudo terminal: what it shows, and what one types."""

    def __init__(self, folder: Path) -> None:
        self.shown = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.environ["TERM"] = "xterm"
            os.execv(sys.executable, [sys.executable, "-m", "penstock", "shell"])

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def see(self, pattern: str, seconds: float = 240) -> str:
        """Wait until something is shown, forget everything up to it, and return what was forgotten."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            match = re.search(pattern, self.shown)
            if match:
                seen, self.shown = self.shown[: match.end()], self.shown[match.end() :]
                return seen
            if select.select([self.fd], [], [], 0.1)[0]:
                self._read()
        raise AssertionError(f"{pattern!r} was not shown; this was: {self.shown!r}")

    def _read(self) -> None:
        data = os.read(self.fd, 65536).decode(errors="replace")
        for _ in range(data.count("\x1b[6n")):
            self.type("\x1b[1;1R")  # the terminal tells where its cursor is
        self.shown += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", data)

    def end(self) -> int:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self._read()
                except OSError:
                    time.sleep(0.05)
        raise AssertionError("the shell did not end")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    (tmp_path / "stores.csv").write_text("id,city\n1,Lisbon\n2,Bergen\n")
    opened = Terminal(tmp_path)
    yield opened
    try:
        os.kill(opened.pid, signal.SIGKILL)
        os.waitpid(opened.pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass
    os.close(opened.fd)


@pytest.mark.timeout(900)
def test_a_session_at_the_prompt(terminal: Terminal) -> None:
    terminal.see(re.escape(PROMPT), seconds=30)
    # Several lines until the semicolon, over a file.
    terminal.type("SELECT count(*) AS n,\r")
    terminal.type("max(city) AS city FROM 'stores.csv';\r")
    assert "2 │ Lisbon" in terminal.see(r"1 row in [\d.]+ s")
    # An error does not end it.
    terminal.see(re.escape(PROMPT))
    terminal.type("SELECT nothing FROM nowhere;\r")
    terminal.see(r"error: .*nowhere")
    # Neither does Ctrl-C, which cancels what runs.
    terminal.see(re.escape(PROMPT))
    terminal.type("SELECT count(*) FROM range(1000000000000) CROSS JOIN range(1000000);\r")
    terminal.see(r"stage \d+: \d+/\d+")
    terminal.type("\x03")
    terminal.see("cancelled", seconds=15)
    terminal.see(re.escape(PROMPT))
    terminal.type("\\output json\r")
    terminal.see("printed as json")
    terminal.type("SELECT 3 AS three;\r")
    terminal.see(r'\{"three": 3\}')
    terminal.type("\\d 'stores.csv'\r")
    terminal.see(r'"col_name": "city", "data_type": "string"')
    terminal.see(re.escape(PROMPT))
    terminal.type("\\q\r")
    assert terminal.end() == 0


def test_statements_from_a_pipe(tmp_path: Path) -> None:
    script = (
        "CREATE TEMP VIEW v AS SELECT 1 AS one;\n\\d v\nSELECT one,\n 2 AS two FROM v;\nSELECT 3 AS last\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "shell", "--output", "csv"],
        cwd=tmp_path,
        input=script,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stdout == "col_name,data_type,comment\none,int,\none,two\n1,2\nlast\n3\n"
    assert done.stderr == ""
