"""The table of `penstock run --live`."""

from __future__ import annotations

import io
import os
import shutil
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli.live import LiveTable
from penstock.pipeline import record
from penstock.pipeline.group import NodeEpoch
from penstock.pipeline.load import check_text
from penstock.streaming.listener import QueryProgressEvent
from penstock.streaming.progress import QueryProgress, SourceProgress
from screen import screen

PIPELINE = """
name: shop
sources:
  orders: {type: rate}
  clicks: {type: rate}
  ticks: {type: rate}
transforms:
  both: {type: sql, primary_key: value, sql: SELECT * FROM orders UNION ALL SELECT * FROM clicks}
sinks:
  out: {type: print, from: both}
  other: {type: blackhole, from: ticks}
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Run:
    """What the table needs of a pipeline that runs: two groups, the first with a node that is two sources of Spark."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> None:
        spec = check_text(PIPELINE, "p.yaml").spec
        names = {"": ["orders", "clicks", "both", "out"], "ticks": ["ticks", "other"]}
        self.groups = {
            group: SimpleNamespace(
                nodes={name: spec.nodes[name] for name in nodes},
                read=[
                    SimpleNamespace(node=spec.nodes[name])
                    for name in nodes
                    if name in ("orders", "clicks", "ticks")
                ],
            )
            for group, nodes in names.items()
        }
        self.queries = {"": SimpleNamespace(name="shop"), "ticks": SimpleNamespace(name="shop/ticks")}
        self.plan = SimpleNamespace(spec=spec)
        sources = {id(self.groups[""]): ["orders", "orders", "clicks"], id(self.groups["ticks"]): ["ticks"]}
        monkeypatch.setattr(record, "spark_sources", lambda group: sources[id(group)])
        self.table = LiveTable(spec, stream)
        self.counted: dict[str, int] = {}
        monkeypatch.setattr(self.table.counts, "take", lambda: self.counted)

    def draw(self) -> None:
        self.table._draw(self)  # type: ignore[arg-type]

    def read(self, query: str, *sources: tuple[int, int | None]) -> None:
        reports = tuple(SourceProgress("", rows, lag=lag) for rows, lag in sources)
        rows = sum(report.input_rows for report in reports)
        progress = QueryProgress("", 3, rows, rows, 10, "", sources=reports)
        self.table.on_query_progress(QueryProgressEvent("id", query, progress))


def cells(lines: list[str]) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in lines if line}


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, terminal: Terminal) -> Run:
    size = os.terminal_size((100, 24))
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: size)
    return Run(monkeypatch, terminal)


def test_every_node_has_its_own_numbers(run: Run, terminal: Terminal) -> None:
    run.read("shop", (10, 1), (20, 2), (5, None))
    run.read("shop/ticks", (7, None))
    run.read("another", (1000, 9))
    run.counted = {"both": 35}
    run.table.report("", NodeEpoch(4, {"out": 33}, {"both": 2}, {"both": {"late": 1}}))
    run.draw()
    shown = cells(screen(terminal.getvalue())[1:])
    assert shown["node"] == ["type", "rows", "rows/s", "lag", "epoch", "errors"]
    assert (shown["orders"][2], shown["orders"][4:]) == ("30", ["3", "4"])
    assert (shown["clicks"][2], shown["clicks"][4:]) == ("5", ["4"])
    assert (shown["both"][2], shown["both"][4:]) == ("35", ["4", "2", "failed,", "1", "late"])
    assert (shown["out"][2], shown["out"][4:]) == ("33", ["4"])
    assert (shown["ticks"][2], shown["ticks"][4:]) == ("7", [])
    assert shown["both"][3] != "0"


def test_it_is_drawn_over_itself_and_what_is_said_stands_above(run: Run, terminal: Terminal) -> None:
    run.table.say("it begins")
    run.draw()
    run.draw()
    run.table.say("snapshot done")
    run.draw()
    lines = screen(terminal.getvalue())
    assert lines[:3] == ["it begins", "snapshot done", "shop: 0 s"]
    assert len(lines) == 2 + 8 + 1


def test_printed_rows_stand_above_it(run: Run, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", terminal)
    with run.table.shown(run):  # type: ignore[arg-type]
        run.draw()
        print("row", end=" ")
        run.draw()
        print(1)
        print("row 2", end="")
    lines = screen(terminal.getvalue())
    assert lines[:3] == ["row 1", "row 2", "shop: 0 s"]
    assert sys.stdout is terminal


@pytest.mark.parametrize(("height", "last"), [(6, "and 4 more nodes: the terminal has 6 lines"), (2, None)])
def test_it_is_not_higher_than_the_terminal(
    run: Run, terminal: Terminal, monkeypatch: pytest.MonkeyPatch, height: int, last: str | None
) -> None:
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((50, height)))
    run.draw()
    run.draw()
    lines = screen(terminal.getvalue())[:-1]
    assert len(lines) == max(height - 1, 3)
    assert max(map(len, lines)) <= 50
    assert last is None or lines[-1] == last


def test_without_a_terminal_it_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stream: Any = io.StringIO()
    run = Run(monkeypatch, stream)
    run.read("shop/ticks", (7, None))
    run.table.report("ticks", NodeEpoch(0, {"other": 7}))
    run.draw()
    title, *nodes = stream.getvalue().rstrip("\n").split("; ")
    assert title == "shop: 0 s"
    assert [node.split(" rows")[0] for node in nodes] == ["ticks 7", "other 7"]
