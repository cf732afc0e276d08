"""Side outputs: each is a query of its own for its sink, and hears of the end of every epoch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from penstock import config
from penstock.sinks.base import Epoch, Guarantee, Sink, Target
from penstock.sinks.side_sink import SideSink

ROWS = pa.RecordBatch.from_pylist([{"id": 1}])
SPARK: Any = SimpleNamespace(createDataFrame=lambda rows: rows)


class MarkedSink(Sink):
    """Leaves an epoch out that its query has in a table of marks, as sinks of databases do."""

    def __init__(self, marks: dict[str, int], steps: list[str]) -> None:
        super().__init__({})
        self._marks = marks
        self._steps = steps

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.EXACTLY_ONCE

    def open(self, target: Target) -> None:
        self._steps.append("open")
        self._target = target

    def write(self, epoch: Epoch) -> int:
        query = self._target.query
        if self._marks.get(query, -1) >= epoch.number:
            return 0
        self._marks[query] = epoch.number
        self._steps.append(f"write {epoch.number}")
        return 1

    def finalize(self, epoch: int) -> None:
        self._steps.append(f"finalize {epoch}")

    def close(self) -> None:
        self._steps.append("close")


def _target(query: str = "q-1") -> Target:
    return Target(SPARK, query, "job", "update", ROWS.schema, keys=("id",), settings=config.load())


def test_side_outputs_of_one_plugin_have_marks_of_their_own() -> None:
    marks: dict[str, int] = {}
    steps: dict[str, list[str]] = {"late": [], "rejected": []}
    for name, taken in steps.items():
        side = SideSink(MarkedSink(marks, taken), name)
        side.write(ROWS)
        side.store(_target(), 0)
    assert steps == {"late": ["open", "write 0"], "rejected": ["open", "write 0"]}
    assert marks == {"q-1.side_output.late": 0, "q-1.side_output.rejected": 0}


def test_the_sink_hears_that_an_epoch_does_not_come_again() -> None:
    steps: list[str] = []
    side = SideSink(MarkedSink({}, steps), "late")
    side.finalize(3)  # of an epoch before this start: its rows are in the sink, which is not open yet
    side.write(ROWS)
    side.store(_target(), 4)
    side.finalize(4)
    side.store(_target(), 5)  # no rows
    side.finalize(5)
    side.close()
    assert steps == ["open", "finalize 3", "write 4", "finalize 4", "finalize 5", "close"]
