"""One pipeline over files of orders, in a folder: its runs, what its sinks have, and its dead letters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.errors import PenstockError
from penstock.pipeline.group import NodeEpoch
from penstock.pipeline.load import check_text
from penstock.pipeline.pending import PendingLetters
from penstock.pipeline.run import PipelineRun, plan_pipeline

HEAD = """
name: "{name}"
checkpoint: "{folder}/state"
sources:
  orders:
    type: file
    path: "{folder}/in/*.json"
    schema: {{id: int64, amount: int64, parts: int64, word: string}}
    mode: {{type: bounded}}
    primary_key: id
"""


class Pipeline:
    """One pipeline in a folder; its text is `HEAD` and what a test adds to it."""

    def __init__(self, session: ps.Session, folder: Path) -> None:
        self.session, self.folder = session, folder
        self.name = f"on error {folder.name}"
        self.epochs: list[NodeEpoch] = []
        (folder / "in").mkdir()

    def feed(self, *rows: tuple[int, int, int, str]) -> None:
        lines = [json.dumps(dict(zip(("id", "amount", "parts", "word"), row, strict=True))) for row in rows]
        (self.folder / "in" / f"{rows[0][0]}.json").write_text("\n".join(lines))

    def text(self, body: str, **values: str) -> str:
        return (HEAD + body).format(name=self.name, folder=self.folder, **values)

    def planned(self, text: str) -> PipelineRun:
        spec = check_text(text, "p.yaml").spec
        return PipelineRun(self.session, plan_pipeline(self.session, spec, runs=True), report=self._report)

    def waiting(self, text: str) -> PendingLetters:
        return PendingLetters(self.session, check_text(text, "p.yaml").spec, None)

    def _report(self, group: Any, epoch: NodeEpoch) -> None:
        self.epochs.append(epoch)

    def run(self, text: str) -> PenstockError | None:
        run = self.planned(text)
        run.start()
        return run.wait()

    def rows(self, sink: str, *columns: str) -> list[tuple[Any, ...]]:
        lines = [
            line for path in self.folder.glob(f"{sink}/*.json") for line in path.read_text().splitlines()
        ]
        return sorted(tuple(json.loads(line).get(name) for name in columns) for line in lines)

    def letters(self, text: str) -> list[tuple[str, int, str]]:
        frame = self.waiting(text).frame()
        return sorted((row.node, json.loads(row.row)["id"], row.reason) for row in frame.collect())

    @property
    def failed(self) -> list[dict[str, int]]:
        return [dict(epoch.failed) for epoch in self.epochs]
