"""Processes that feed a durable flow are killed at any moment: every tick that they have seen return is there afterwards."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock as ps
from contract.flow_feeder import feed, opened
from seed import SEED
from waiting import wait_for

Start = Callable[..., "subprocess.Popen[str]"]
TESTS = Path(__file__).parents[1]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start feeders; whatever is left of them at the end is killed."""
    monkeypatch.setenv("PENSTOCK_STATE", f"sqlite:///{tmp_path}/state.db")
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "contract.flow_feeder", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


class Heard:
    """What a feeder has said, read as it says it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.last = 0
        self.began: int | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # The last line may be cut off in the middle by the kill.
            if line.startswith("open "):
                self.began = self.last = int(line[5:])
            elif line.endswith("\n"):
                self.last = int(line)

    def wait(self, ticks: int) -> None:
        """Return when so many ticks of it have returned."""
        wait_for(
            lambda: (
                self.process.poll() is not None
                or (self.began is not None and self.last >= self.began + ticks)
            ),
            "ticks",
        )
        assert self.process.poll() is None, self.process.communicate()

    def kill(self) -> None:
        """Kill the process, and read all that it had said."""
        self.process.kill()
        self.process.wait()
        self._thread.join()


def answers(flow: ps.IncrementalFlow) -> dict[str, Counter[str]]:
    return {
        name: Counter(map(str, flow.snapshot(name).to_pylist())) for name in ("trades", "quotes", "priced")
    }


def fed_until(number: int) -> ps.IncrementalFlow:
    """The flow in memory that was fed so many ticks."""
    flow = opened(None)  # type: ignore[arg-type]
    for at in range(1, number + 1):
        feed(flow, at)
    return flow


@pytest.mark.parametrize(
    ("durability", "sync", "kills"),
    [
        # A new process takes a second or two, on a busy machine ten.
        ("local", "tick", 3),
        ("local", "15", 2),
        ("shared", "tick", 1),
        pytest.param("local", "tick", 30, marks=[pytest.mark.soak, pytest.mark.timeout(1_200)]),
        pytest.param("local", "15", 30, marks=[pytest.mark.soak, pytest.mark.timeout(1_200)]),
        pytest.param("shared", "tick", 10, marks=[pytest.mark.soak, pytest.mark.timeout(1_200)]),
    ],
)
def test_every_tick_that_returned_is_there_after_a_kill(
    durability: str, sync: str, kills: int, start: Start, tmp_path: Path
) -> None:
    rng = random.Random(SEED + kills)
    path = str(tmp_path / "flow")
    said = 0
    for _ in range(kills):
        every = rng.choice([1, 3_000, 20_000])
        feeder = Heard(start("feed", path, durability, sync, str(every)))
        feeder.wait(rng.randint(1, 120))
        feeder.kill()
        assert feeder.began is not None
        assert feeder.began in (said, said + 1), (
            "what was said before is there, and at most the tick of the kill"
        )
        said = feeder.last
    with opened(path, durability=durability) as flow:
        last = flow.source_info("trades").ordinal
        assert last in (said, said + 1)
        expected = answers(fed_until(last))
        assert answers(flow) == expected
        # A feeder that does not know how far it came feeds the last one again.
        feed(flow, said)
        assert answers(flow) == expected


def test_a_full_disk_refuses_ticks_and_leaves_the_flow_usable(start: Start, tmp_path: Path) -> None:
    path = str(tmp_path / "flow")
    output, errors = start("full", path).communicate(timeout=120)
    assert output, errors
    with opened(path) as flow:
        assert answers(flow) == answers(fed_until(int(output)))
