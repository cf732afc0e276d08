"""A table of a running pipeline, drawn again every second: rows and rows per second, lag, epoch and errors of each node."""

from __future__ import annotations

import io
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from penstock.pipeline.row_counts import RowCounts
from penstock.streaming.listener import QueryProgressEvent, StreamingQueryListener

if TYPE_CHECKING:
    from penstock.pipeline.group import GroupPlan, NodeEpoch
    from penstock.pipeline.run import PipelineRun
    from penstock.pipeline.spec import PipelineSpec

HEAD = ("node", "type", "rows", "rows/s", "lag", "epoch", "errors")
NUMBERS = range(2, 6)
SECONDS = 1.0
PLAIN_SECONDS = 10.0
"""Between two lines where the output is no terminal."""
_UP, _CLEAR, _CLEAR_LINE = "\033[{}F", "\033[J", "\033[K"


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
    epoch: int | None = None
    failed: int = 0
    counts: dict[str, int] = field(default_factory=dict)


class LiveTable(StreamingQueryListener):
    """Draws the table on a stream until `close`; epochs come in through `report`, in threads of the queries, and as a
    listener."""

    def __init__(self, spec: PipelineSpec, stream: TextIO | None = None) -> None:
        self.counts = RowCounts()
        """Counts the rows of transforms; for the run that is shown."""
        self._stream = stream or sys.stderr
        # Reentrant: a signal may be answered while its thread draws.
        self._lock = threading.RLock()
        self._nodes = {name: _Node(f"{node.kind} {node.type}") for name, node in spec.nodes.items()}
        self._epochs: dict[str, int] = {}
        self._progress: list[QueryProgressEvent] = []
        self._sources: dict[str, tuple[GroupPlan, list[str]]] = {}
        self._lines: list[str] = []
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

    def say(self, text: str) -> None:
        """Write lines above the table."""
        self.write_above(f"{text}\n", self._stream)

    def write_above(self, text: str, stream: TextIO) -> None:
        """Write whole lines to a stream that may be the same terminal, above the table."""
        with self._lock:
            if self._lines:
                self._stream.write(_UP.format(len(self._lines)) + _CLEAR)
                self._stream.flush()
            stream.write(text)
            stream.flush()
            self._stream.write("".join(f"{line}\n" for line in self._lines))
            self._stream.flush()

    @contextmanager
    def shown(self, run: PipelineRun) -> Iterator[None]:
        """Draw a pipeline that was started for as long as this lasts, and once behind that; what is printed meanwhile
        stands above."""
        self._thread = threading.Thread(target=self._draw_often, args=(run,), daemon=True)
        self._thread.start()
        try:
            with _above(self) if self._stream.isatty() and sys.stdout.isatty() else nullcontext():
                yield
        finally:
            self._ended.set()
            self._thread.join()
            self._draw(run)

    def _draw_often(self, run: PipelineRun) -> None:
        seconds = SECONDS if self._stream.isatty() else PLAIN_SECONDS
        while not self._ended.wait(seconds):
            self._draw(run)

    def _draw(self, run: PipelineRun) -> None:
        counted = self.counts.take()
        with self._lock:
            now = time.monotonic()
            seconds, self._drawn_at = max(now - self._drawn_at, 0.001), now
            for name, rows_given in counted.items():
                self._nodes[name].rows += rows_given
            self._take_progress(run)
            self._take_epochs(run)
            rows = [self._row(name, node, seconds) for name, node in self._nodes.items()]
            title = f"{run.plan.spec.name}: {now - self._began:.0f} s"
            if self._stream.isatty():
                self._draw_table(title, rows)
            else:
                self._stream.write(f"{title}; {'; '.join(filter(None, map(_text, rows)))}\n")
            self._stream.flush()

    def _draw_table(self, title: str, rows: Sequence[tuple[str, ...]]) -> None:
        widths = [max(len(row[at]) for row in (HEAD, *rows)) for at in range(len(HEAD))]
        size = shutil.get_terminal_size()
        lines = [title, *(_line(row, widths) for row in (HEAD, *rows))]
        # The cursor does not go up beyond the first line, and stands below the last one.
        most = max(size.lines - 1, 3)
        if len(lines) > most:
            hidden = len(lines) - most + 1
            lines[most - 1 :] = [f"and {hidden} more nodes: the terminal has {size.lines} lines"]
        lines = [line[: size.columns] for line in lines]
        up = _UP.format(len(self._lines)) if self._lines else ""
        self._stream.write(up + "".join(f"{_CLEAR_LINE}{line}\n" for line in lines) + _CLEAR)
        self._lines = lines

    def _take_epochs(self, run: PipelineRun) -> None:
        """All nodes of a group have its epochs."""
        for name, epoch in self._epochs.items():
            for node in run.groups[name].nodes:
                self._nodes[node].epoch = epoch

    def _take_progress(self, run: PipelineRun) -> None:
        """Count what sources gave in every epoch since the table was drawn."""
        groups = {query.name: run.groups[name] for name, query in list(run.queries.items())}
        events, self._progress = self._progress, []
        for event in events:
            if event.name in groups:
                self._take_sources(groups[event.name], event)

    def _take_sources(self, group: GroupPlan, event: QueryProgressEvent) -> None:
        reports = event.progress.sources
        if not reports and len(group.read) == 1:  # a batch, whose sources Spark does not tell apart
            self._nodes[group.read[0].node.name].rows += event.progress.input_rows
            return
        lags: dict[str, int] = {}
        # A group that went on with its live sources meanwhile has others than an earlier report.
        for name, report in zip(self._sources_of(event.name, group), reports, strict=False):
            self._nodes[name].rows += report.input_rows
            if report.lag is not None:
                lags[name] = lags.get(name, 0) + report.lag
        for source in group.read:
            self._nodes[source.node.name].lag = lags.get(source.node.name)

    def _sources_of(self, query: str, group: GroupPlan) -> list[str]:
        """The node of each of Spark's sources in a query."""
        from penstock.pipeline.record import spark_sources

        before = self._sources.get(query)
        if before is None or before[0] is not group:
            before = self._sources[query] = group, spark_sources(group)
        return before[1]

    def _row(self, name: str, node: _Node, seconds: float) -> tuple[str, ...]:
        rate, node.before = (node.rows - node.before) / seconds, node.rows
        errors = ", ".join(
            [
                *([f"{node.failed} failed"] if node.failed else []),
                *(f"{rows} {what}" for what, rows in node.counts.items()),
            ]
        )
        return (
            name,
            node.kind,
            f"{node.rows:,}",
            f"{rate:,.0f}",
            _lag(node),
            "" if node.epoch is None else str(node.epoch),
            errors,
        )


def _lag(node: _Node) -> str:
    records = [] if node.lag is None else [f"{node.lag:,}"]
    return ", ".join([*records, *([] if node.seconds_behind is None else [f"{node.seconds_behind:,.1f} s"])])


class _Above(io.TextIOBase):
    """A stream whose lines are written above the table."""

    def __init__(self, table: LiveTable, stream: TextIO) -> None:
        self._table = table
        self._stream = stream
        self._begun = ""
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        """Write the lines that are complete."""
        with self._lock:
            lines, newline, self._begun = f"{self._begun}{text}".rpartition("\n")
        if newline:
            self._table.write_above(lines + newline, self._stream)
        return len(text)

    def end(self) -> None:
        """Write a line that has begun and has no end."""
        if self._begun:
            self.write("\n")

    def isatty(self) -> bool:
        """Whether this is a terminal."""
        return True


@contextmanager
def _above(table: LiveTable) -> Iterator[None]:
    """Let what is printed stand above the table."""
    above = _Above(table, sys.stdout)
    try:
        with redirect_stdout(above):
            yield
    finally:
        above.end()


def _text(row: tuple[str, ...]) -> str:
    """A node in one line of all; empty when there is nothing to say of it."""
    name, _, rows, rate, _, _, errors = row
    if rows == "0" and not errors:
        return ""
    return f"{name} {' '.join(filter(None, (f'{rows} rows, {rate}/s', errors)))}"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cell.rjust(width) if at in NUMBERS else cell.ljust(width)
        for at, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()
