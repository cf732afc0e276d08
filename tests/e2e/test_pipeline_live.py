"""`penstock run --live` on a terminal, until somebody presses Ctrl-C."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pipeline_process import home_in
from processes import descendants, is_java
from screen import screen
from waiting import wait_for

PIPELINE = """
name: live
sources:
  ticks: {type: rate, rows_per_second: 20, primary_key: value}
transforms:
  even: {type: sql, primary_key: value, sql: "SELECT value, value % 10 AS digit FROM ticks WHERE value % 2 = 0"}
  counts: {type: view, primary_key: digit, sql: "SELECT digit, count(*) AS ticks FROM even GROUP BY digit"}
sinks:
  rows: {type: print, from: even, format: json}
  nothing: {type: blackhole, from: even}
  changes: {type: blackhole, from: counts}
"""
NODES = ("ticks", "even", "counts", "rows", "nothing", "changes")


class Terminal:
    """`penstock run --live` on a terminal of its own, and all that this was sent."""

    def __init__(self, folder: Path) -> None:
        (folder / "live.yaml").write_text(PIPELINE)
        own = {"PENSTOCK_HOME": str(home_in(folder)), "PENSTOCK_STATE": f"sqlite:///{folder / 'state.db'}"}
        self.pid, self._terminal = pty.fork()
        if not self.pid:
            os.chdir(folder)
            words = [sys.executable, "-m", "penstock", "run", "live.yaml", "--live", "--master", "local[2]"]
            os.execve(sys.executable, words, {**os.environ, **own, "TERM": "xterm"})
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self._sent = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while part := os.read(self._terminal, 65536):
                self._sent += part
        except OSError:  # the other end is closed
            pass

    def lines(self) -> list[str]:
        return screen(self._sent.decode(errors="replace"))

    def nodes(self) -> dict[str, list[str]]:
        """The cells behind the name of each node, of the table that stands there now."""
        cells = [line.split() for line in self.lines()]
        return {line[0]: line[1:] for line in cells if line and line[0] in NODES}

    def press(self, key: bytes) -> None:
        os.write(self._terminal, key)

    def wait(self) -> int:
        """The code with which it ended."""
        _, status = os.waitpid(self.pid, 0)
        self._reader.join()
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        if psutil.pid_exists(self.pid):
            for process in [*descendants(self.pid), psutil.Process(self.pid)]:
                process.kill()
            os.waitpid(self.pid, 0)
        self._reader.join()
        os.close(self._terminal)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.close()


def test_a_live_table_until_ctrl_c(terminal: Terminal) -> None:
    def all_give_rows() -> bool:
        assert psutil.pid_exists(terminal.pid), terminal.lines()
        nodes = terminal.nodes()
        return len(nodes) == len(NODES) and all(int(cells[2].replace(",", "")) for cells in nodes.values())

    wait_for(all_give_rows, "rows at all nodes", seconds=120)
    java = [process for process in descendants(terminal.pid) if is_java(process)]
    terminal.press(b"\x03")
    assert terminal.wait() == 130
    assert not any(process.is_running() for process in java)
    lines, nodes = terminal.lines(), terminal.nodes()
    text = "\n".join(lines)
    assert "'live' runs; Ctrl-C stops it" in lines
    assert any("stopping after the batch that runs; once more ends at once" in line for line in lines)
    assert "Traceback" not in text
    # The rows that were printed stand above the table, all of them and each once.
    values = [json.loads(line)["value"] for line in lines if line.startswith("{")]
    assert values == list(range(0, 2 * len(values), 2))
    assert text.count("live: ") == 1
    assert text.rindex('"value"') < text.index("live: ")
    written = {name: int(cells[2].replace(",", "")) for name, cells in nodes.items()}
    assert written["rows"] == written["nothing"] == len(values)
    assert written["even"] == len(values)
    assert written["changes"] == written["counts"] > 0
