"""A table of a running pipeline, drawn again every second: rows and rows per second, lag and errors of each node."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from penstock.streaming.listener import QueryProgressEvent, StreamingQueryListener

if TYPE_CHECKING:
    from penstock.pipeline.group import NodeEpoch
    from penstock.pipeline.run import PipelineRun
    from penstock.pipeline.spec import PipelineSpec

HEAD = ("node", "type", "rows", "rows/s", "lag", "errors")
SECONDS = 1.0
PLAIN_SECONDS = 10.0
"""Between two lines where the output is no terminal."""


@dataclass(slots=True)
class _Node:
    """What is known of a node since the start."""

    kind: str
    rows: int = 0
    before: int = 0
    lag: int | None = None
    """Records that are there and not read yet."""
    seconds_behind: float | None = None
    """How far its newest row was behind the clock, when the node says when rows happened."""
    failed: int = 0
    counts: dict[str, int] = field(default_factory=dict)


class LiveTable(StreamingQueryListener):
    """Draws the table on a stream until `close`; epochs come in through `report`, in threads of the queries, and as a listener."""

    def __init__(self, spec: PipelineSpec, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._lock = threading.Lock()
        self._nodes = {name: _Node(f"{node.kind} {node.type}") for name, node in spec.nodes.items()}
        self._epochs: dict[str, int] = {}
        self._progress: list[QueryProgressEvent] = []
        self._drawn = 0
        self._drawn_at = time.monotonic()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._began = time.monotonic()

    def report(self, group: str, epoch: NodeEpoch) -> None:
        """Take what an epoch did."""
        with self._lock:
            self._epochs[group] = epoch.epoch
            for name, rows in epoch.written.items():
                self._nodes[name].rows += rows or 0
            for name, rows in epoch.failed.items():
                self._nodes[name].failed += rows
            for name, seconds in epoch.lags.items():
                self._nodes[name].seconds_behind = seconds
            for name, counts in epoch.counts.items():
                for what, rows in counts.items():
                    own = self._nodes[name].counts
                    own[what] = own.get(what, 0) + rows

    def on_query_progress(self, event: QueryProgressEvent) -> None:
        """Keep what sources gave until the table is drawn."""
        with self._lock:
            self._progress.append(event)

    def start(self, run: PipelineRun) -> None:
        """Begin to draw a pipeline that was started."""
        self._thread = threading.Thread(target=self._draw_often, args=(run,), daemon=True)
        self._thread.start()

    def close(self, run: PipelineRun) -> None:
        """Draw for the last time."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._draw(run)

    def _draw_often(self, run: PipelineRun) -> None:
        seconds = SECONDS if self._stream.isatty() else PLAIN_SECONDS
        while not self._ended.wait(seconds):
            self._draw(run)

    def _draw(self, run: PipelineRun) -> None:
        now = time.monotonic()
        seconds, self._drawn_at = max(now - self._drawn_at, 0.001), now
        with self._lock:
            self._take_progress(run)
            rows = [self._row(name, node, seconds) for name, node in self._nodes.items()]
            epoch = ", ".join(str(number) for number in self._epochs.values()) or "none yet"
        elapsed = now - self._began
        title = f"{run.plan.spec.name}: epoch {epoch}, {elapsed:.0f} s"
        if not self._stream.isatty():
            body = "; ".join(
                f"{row[0]} {' '.join(filter(None, (row[2] and f'{row[2]} rows, {row[3]}/s', row[5])))}"
                for row in rows
                if row[2] or row[5]
            )
            self._stream.write(f"{title}; {body}\n")
        else:
            widths = [max(len(row[at]) for row in (HEAD, *rows)) for at in range(len(HEAD))]
            width = shutil.get_terminal_size().columns
            lines = [title, *(_line(row, widths)[:width] for row in (HEAD, *rows))]
            up = f"\033[{self._drawn}F" if self._drawn else ""
            self._stream.write(up + "".join(f"\033[K{line}\n" for line in lines))
            self._drawn = len(lines)
        self._stream.flush()

    def _take_progress(self, run: PipelineRun) -> None:
        """Count what sources gave in every epoch since the table was drawn."""
        groups = {query.name: run.groups[name] for name, query in run.queries.items()}
        events, self._progress = self._progress, []
        for event in events:
            group = groups.get(event.name)
            if group is None:
                continue
            for source, report in zip(group.read, event.progress.sources, strict=False):
                node = self._nodes[source.node.name]
                node.rows += report.input_rows
                node.lag = report.lag

    def _row(self, name: str, node: _Node, seconds: float) -> tuple[str, ...]:
        rate, node.before = (node.rows - node.before) / seconds, node.rows
        errors = ", ".join(
            [
                *([f"{node.failed} failed"] if node.failed else []),
                *(f"{rows} {what}" for what, rows in node.counts.items()),
            ]
        )
        counted = "" if node.kind.startswith("transform") else f"{node.rows:,}"
        return (
            name,
            node.kind,
            counted,
            f"{rate:,.0f}" if counted else "",
            _lag(node),
            errors,
        )


def _lag(node: _Node) -> str:
    records = [] if node.lag is None else [f"{node.lag:,}"]
    return ", ".join([*records, *([] if node.seconds_behind is None else [f"{node.seconds_behind:,.1f} s"])])


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cell.rjust(width) if at in (2, 3, 4) else cell.ljust(width)
        for at, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()
