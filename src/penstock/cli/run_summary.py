"""What `penstock run` says when a pipeline has come to its end."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from penstock.cli.job_rows import local

if TYPE_CHECKING:
    from penstock.backend import Backend
    from penstock.pipeline.group import NodeEpoch
    from penstock.pipeline.run import PipelineRun
    from penstock.pipeline.spec import PipelineSpec


class RunSummary:
    """Counts what the epochs of a run have written; they come in through `report`, in threads of the queries."""

    def __init__(self, spec: PipelineSpec) -> None:
        self._name = spec.name
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._epochs = 0
        self._written: dict[str, int | None] = {node.name: 0 for node in spec.of_kind("sink")}
        self._failed: dict[str, int] = {}

    def report(self, group: str, epoch: NodeEpoch) -> None:
        """Take what an epoch did."""
        with self._lock:
            self._epochs += 1
            for name, rows in epoch.written.items():
                before = self._written[name]
                self._written[name] = None if rows is None or before is None else before + rows
            for name, rows in epoch.failed.items():
                self._failed[name] = self._failed.get(name, 0) + rows

    def text(self, run: PipelineRun, backend: Backend) -> str:
        """One line for people."""
        with self._lock:
            if not self._epochs:
                return self._nothing_new(run, backend)
            written = ", ".join(
                f"{name} {'an unknown number of rows' if count is None else _rows(count)}"
                for name, count in self._written.items()
            )
            failed = ", ".join(f"{count:,} failed in {name}" for name, count in self._failed.items() if count)
            epochs = f"{self._epochs:,} epoch{'' if self._epochs == 1 else 's'}"
            seconds = time.monotonic() - self._began
            parts = filter(
                None, (f"{_rows(run.rows_read)} in", written, failed, f"{epochs}, {seconds:.1f} s")
            )
            return f"'{self._name}' is done: {'; '.join(parts)}"

    def _nothing_new(self, run: PipelineRun, backend: Backend) -> str:
        epochs = (backend.epochs.last(run.plan.job_name(group)) for group in run.plan.groups)
        times = [
            epoch.committed_at for epoch in epochs if epoch is not None and epoch.committed_at is not None
        ]
        if not times or not run.plan.is_lasting:
            return f"'{self._name}' is done: its sources have no rows"
        since = local(max(times))
        return f"'{self._name}': nothing new since {since}; penstock state reset {self._name} starts from the beginning"


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"
