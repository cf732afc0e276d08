"""What it costs that a flow lasts: ticks, checkpoints, restore and replay.

python benchmarks/durable.py [--rows 10000000] [--ticks 300] [--folder /data/bench]
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
import numpy.typing as npt

import penstock as ps
from flows import Rig
from harness import Times, machine, publish, shown, table, times
from penstock.state.slot_array import Version
from penstock.state.state import Image
from workload import CASES

ROWS = 1_000  # of a tick
BETWEEN = 100  # ticks between two checkpoints
TOGETHER = 10  # checkpoints, one behind the other
NEVER = 1 << 60


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def seconds(do: Callable[[], object]) -> float:
    """How long something takes."""
    begin = time.perf_counter()
    do()
    return time.perf_counter() - begin


def appends(folder: Path, size: int, count: int) -> Times:
    """The milliseconds to append so many bytes to a file and sync it, as the log of a flow does it."""
    handle = os.open(folder / "appended", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    content = os.urandom(size)

    def append() -> None:
        os.write(handle, content)
        os.fdatasync(handle)

    measured = [seconds(append) * 1000 for _ in range(count)]
    os.close(handle)
    return times(measured)


def ticks(session: ps.Session, folder: Path, rows: int, count: int) -> list[list[str]]:
    """Ticks in memory, in a directory, and the sync alone."""
    memory = Rig(session, [CASES["aggregate"]], rows)
    in_memory = times(memory.ticks(ROWS, count))
    memory.close()
    durable = Rig(session, [CASES["aggregate"]], rows, path=folder / "ticks", checkpoint_every=NEVER)
    for _ in range(20):
        durable.tick(ROWS)
    before = folder_bytes(folder / "ticks" / "log")
    in_directory = times(durable.ticks(ROWS, count, warm=0))
    record = (folder_bytes(folder / "ticks" / "log") - before) // count
    durable.close()
    synced = appends(folder, record, count)
    ratio = in_directory.p50 / (in_memory.p50 + synced.p50)
    return [
        ["tick in memory", str(in_memory), ""],
        [f"append and fdatasync of {record:,} bytes", str(synced), ""],
        ["durable tick", str(in_directory), f"{ratio:.2f} of both together (p50)"],
    ]


@dataclass(frozen=True)
class StateBytes:
    """The state of a flow at a moment: the content of its slots, and what a row of each state that consists of runs takes."""

    slots: dict[str, npt.NDArray[Any]]
    of_row: dict[str, float]

    @classmethod
    def of(cls, flow: ps.IncrementalFlow) -> Self:
        slots: dict[str, npt.NDArray[Any]] = {}
        bytes_of, rows_of = Counter[str](), Counter[str]()
        for key, image in flow._graph.kernel.save().items():
            for path, name, array, fixed in _arrays(str(key), image):
                if isinstance(array, Version):
                    slots[f"{path}/{name}"] = np.array(array.rows(0, array.size))
                elif fixed:
                    bytes_of[str(key)] += array.nbytes
                    rows_of[str(key)] += len(array) if name == "key 0" else 0
        return cls(slots, {key: bytes_of[key] / rows for key, rows in rows_of.items() if rows})

    def changed_since(self, before: Self, rows: int) -> float:
        """Bytes of the slots that differ, and of so many rows in each state that has one for every row that is fed."""
        changed = sum(self.of_row.values()) * rows
        for path, array in self.slots.items():
            earlier = before.slots.get(path, array[:0])[: len(array)]
            differs = array[: len(earlier)] != earlier
            slots = differs.any(axis=tuple(range(1, differs.ndim))) if differs.ndim > 1 else differs
            changed += (int(slots.sum()) + len(array) - len(earlier)) * array[:1].nbytes
        return changed


def _arrays(path: str, image: Image) -> Iterator[tuple[str, str, Any, bool]]:
    for name, array in image.arrays.items():
        yield path, name, array, image.fixed
    for role, part in image.parts.items():
        yield from _arrays(f"{path}/{role}", part)


class Checkpoints:
    """Checkpoints in one folder: what each has written, and what has changed since the one before."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self._rig, self._folder = rig, folder
        self._before = StateBytes.of(rig.flow)

    def take(self) -> tuple[float, int, float]:
        """The seconds and bytes of the checkpoint after some ticks, and the bytes that they have changed."""
        self._rig.ticks(ROWS, BETWEEN, warm=0)
        state = StateBytes.of(self._rig.flow)
        changed = state.changed_since(self._before, ROWS * BETWEEN)
        self._before = state
        present = set(self._folder.iterdir())
        taken = seconds(lambda: self._rig.flow.checkpoint(self._folder, keep=2))
        written = sum(file.stat().st_size for file in set(self._folder.iterdir()) - present)
        return taken, written, changed


def checkpoints(session: ps.Session, folder: Path, rows: int) -> list[list[str]]:
    """A checkpoint of what 100 ticks have changed, one of everything, and ticks beside one."""
    rig = Rig(session, [CASES["aggregate"]], rows)
    target = folder / "checkpoints"
    first = seconds(lambda: rig.flow.checkpoint(target))
    whole = folder_bytes(target)
    behind = Checkpoints(rig, target)
    taken = [behind.take() for _ in range(TOGETHER)]
    full = seconds(lambda: rig.flow.checkpoint_full(folder / "full"))
    alone = times(rig.ticks(ROWS, BETWEEN, warm=0))
    writing = threading.Thread(target=lambda: rig.flow.checkpoint(folder / "beside"))
    writing.start()
    beside: list[float] = []
    while writing.is_alive():
        beside.append(rig.tick(ROWS))
    writing.join()
    state = rig.state_bytes
    rig.close()
    ran = times(beside or [0.0])
    return [
        [f"first checkpoint ({state / 1e6:,.0f} MB of state)", shown(first * 1000), f"{whole / 1e6:,.0f} MB"],
        _checkpoint_line(f"checkpoint after {BETWEEN} ticks", taken[:1]),
        _checkpoint_line(f"{TOGETHER} checkpoints, each after {BETWEEN} ticks", taken),
        ["full checkpoint", shown(full * 1000), f"{folder_bytes(folder / 'full') / 1e6:,.0f} MB of Parquet"],
        ["tick, without a checkpoint beside it", str(alone), ""],
        [
            f"tick beside a checkpoint ({len(beside)} of them)",
            str(ran),
            f"p99 {ran.p99 / alone.p99:.1f} times",
        ],
    ]


def _checkpoint_line(name: str, taken: Sequence[tuple[float, int, float]]) -> list[str]:
    spent, written, changed = (sum(column) for column in zip(*taken, strict=True))
    ratio = f"{written / changed:.1f} times the {changed / 1e6:,.1f} MB of state that have changed"
    return [name, shown(spent * 1000), f"{written / 1e6:,.1f} MB, {ratio}"]


def restores(session: ps.Session, folder: Path, rows: int, count: int) -> list[list[str]]:
    """From saved state to the first tick, and how fast a log is replayed."""
    change = ps.DeltaBatch.weighted(
        Rig(session, [CASES["aggregate"]], 1_000).tables["orders"].change(ROWS, 0.0)
    )
    lines = []
    for name in ("checkpoints", "full"):

        def restore(path: Path = folder / name) -> None:
            with ps.IncrementalFlow.load(path, session) as flow:
                flow.tick("orders", change)

        lines.append([f"load from {name} and first tick", shown(seconds(restore) * 1000), ""])
    return lines + replays(session, folder / "replay", rows // 10, count)


def replays(session: ps.Session, path: Path, rows: int, count: int) -> list[list[str]]:
    """How fast the log behind a checkpoint is replayed, beside the ticks that are in it."""
    rig = Rig(session, [CASES["aggregate"]], rows, path=path, checkpoint_every=1)
    rig.close()

    def opened() -> ps.IncrementalFlow:
        return ps.IncrementalFlow(session, path=path, checkpoint_every=NEVER)

    opened().close()
    alone = min(seconds(lambda: opened().close()) for _ in range(3))
    rig.flow = opened()
    ticked = sum(rig.ticks(ROWS, count, warm=0)) / 1000
    rig.close()
    replayed = max(min(seconds(lambda: opened().close()) for _ in range(3)) - alone, 1e-3)
    return [
        [f"open {rows / 1e6:g}M rows, without a log behind the checkpoint", shown(alone * 1000), ""],
        [f"{count} ticks", shown(ticked * 1000), ""],
        [
            f"replay of these {count} ticks",
            shown(replayed * 1000),
            f"{ticked / replayed:.1f} times as fast as they were, {count * ROWS / replayed / 1e6:.2f}M rows/s",
        ],
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--ticks", type=int, default=300)
    parser.add_argument("--folder", type=Path, default=None, help="a folder on the disk to measure")
    arguments = parser.parse_args()
    here = machine()
    with ps.Session.embedded() as session, TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        lines = ticks(session, folder, arguments.rows, arguments.ticks)
        lines += checkpoints(session, folder, arguments.rows)
        lines += restores(session, folder, arguments.rows, arguments.ticks)
    head = [f"ms, ticks of {ROWS:,} rows on {arguments.rows / 1e6:g}M (p50 / p95 / p99)", "ms", ""]
    publish("durable", f"{table(head, lines)}\n\n{here}")


if __name__ == "__main__":
    main()
