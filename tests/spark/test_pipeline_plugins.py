"""Plugins of all kinds in one pipeline: they follow the same epochs, and go on where they ended."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import PenstockError
from penstock.pipeline.run import PipelineRun, plan_pipeline
from pipeline_text import check_text

NAME = "penstock_test_pipeline_plugins"
MODULE = """
import json
from pathlib import Path
import pyarrow as pa
import penstock as ps

class Telling:
    def initialize(self, context):
        self.context = context
        self.tell("initialize", context.schema.names)

    def process_checkpoint_marker(self, epoch):
        self.tell("marker", epoch)

    def process_checkpoint_finalizer(self, epoch):
        self.tell("finalizer", epoch)

    def terminate(self):
        self.tell("terminate")

    def tell(self, *what):
        with open(f"{self.options.folder}/{type(self).__name__}", "a") as file:
            file.write(json.dumps(what) + "\\n")

class Lines(Telling, ps.SourcePlugin):
    class Options(ps.Options):
        folder: str
    schema = "id BIGINT, name STRING"
    bounded = True

    def read(self, offset, limit):
        first = offset or 0
        lines = Path(self.options.folder, "lines").read_text().splitlines()[first : first + limit]
        rows = [{"id": first + number, "name": line} for number, line in enumerate(lines)]
        return [pa.RecordBatch.from_pylist(rows)] if rows else [], first + len(rows)

class Numbered(Telling, ps.TransformPlugin):
    class Options(ps.Options):
        folder: str
    parallel = False
    schema = "id BIGINT, name STRING, number BIGINT"

    def process_batch(self, batch):
        if "bad" in batch["name"].to_pylist():
            raise ValueError("a bad name")
        first = self.context.state.get("rows", 0)
        self.context.state.put("rows", first + batch.num_rows)
        self.context.side_output("copies").write(batch)
        return batch.append_column("number", pa.array(range(first, first + batch.num_rows), pa.int64()))

class Rows(Telling, ps.SinkPlugin):
    class Options(ps.Options):
        folder: str
        file: str = "rows"

    def process_batch(self, batch):
        with open(f"{self.options.folder}/{self.options.file}", "a") as file:
            file.writelines(json.dumps(row) + "\\n" for row in batch.to_pylist())
"""
PIPELINE = """
name: plugins-{name}
checkpoint: "{folder}/checkpoint"
sources:
  lines: {{type: python, module: "{module}:Lines", folder: "{folder}", primary_key: id, batch_size: 2}}
transforms:
  numbered:
    type: python
    module: "{module}:Numbered"
    from: lines
    options: {{folder: "{folder}"}}
    on_error: {on_error}
    side_outputs:
      copies: {{type: python, module: "{module}:Rows", folder: "{folder}", file: copies}}
sinks:
  out: {{type: python, module: "{module}:Rows", folder: "{folder}", from: numbered}}
"""


@pytest.fixture(scope="module", autouse=True)
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The module with the plugins, found by its name."""
    folder = tmp_path_factory.mktemp("site")
    (folder / f"{NAME}.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield
    sys.modules.pop(NAME, None)


def _run(session: ps.Session, folder: Path, *, name: str, on_error: str = "fail") -> PenstockError | None:
    text = PIPELINE.format(name=name, module=NAME, folder=folder, on_error=on_error)
    spec = check_text(text, str(folder / "pipeline.yaml")).spec
    run = PipelineRun(session, plan_pipeline(session, spec, runs=True))
    run.start()
    return run.wait()


def _told(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_plugins_of_all_kinds_follow_the_same_epochs(session: ps.Session, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("a\nb\nc\n")
    assert _run(session, tmp_path, name="life") is None
    with lines.open("a") as more:
        more.write("d\n")
    assert _run(session, tmp_path, name="life") is None
    rows = _told(tmp_path / "rows")
    assert [(row["id"], row["name"], row["number"]) for row in rows] == [
        (0, "a", 0),
        (1, "b", 1),
        (2, "c", 2),
        (3, "d", 3),
    ]
    assert [row["name"] for row in _told(tmp_path / "copies")] == ["a", "b", "c", "d"]
    for kind in ("Lines", "Numbered", "Rows"):
        epochs = [each for each in _told(tmp_path / kind) if each[0] == "marker"]
        assert [number for _, number in epochs if number == 0], kind
        life = [each[0] for each in _told(tmp_path / kind)]
        assert life.count("initialize") == life.count("terminate"), kind
        assert ["finalizer", 0] in _told(tmp_path / kind), kind


def test_rows_that_a_plugin_cannot_take(session: ps.Session, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("a\nbad\nc\n")
    error = _run(session, tmp_path, name="bad")
    assert error is not None
    assert error.code == "PLUGIN_ROW"
    assert "ValueError: a bad name" in error.message
    assert "pipeline.yaml:7:3" in str(error.where)
    assert not (tmp_path / "rows").exists()
    assert _run(session, tmp_path, name="dropped", on_error="drop") is None
    assert [row["name"] for row in _told(tmp_path / "rows")] == ["a", "c"]
