"""What is known of a pipeline before it runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock import config
from penstock.errors import ConfigError
from penstock.pipeline.run import is_lasting, state_folder
from penstock.pipeline.sinks.console import PrintNode
from pipeline_text import check_text

SESSION: Any = SimpleNamespace(settings=config.load({"PENSTOCK_HOME": "/home/p"}))
TEXT = "sources: {a: {type: file, path: a.json, schema: {id: int64}}}\nsinks:\n  out: {type: SINK, from: a}\n"


def _spec(sink: str, path: str = "p.yaml") -> Any:
    spec = check_text(TEXT.replace("SINK", sink), path).spec
    assert spec is not None
    return spec


def test_what_is_there_afterwards() -> None:
    assert not is_lasting(SESSION, _spec("print"))
    assert is_lasting(SESSION, _spec("file, path: out, format: json"))


def test_a_sink_that_cannot_be_has_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def sink(*_: object) -> None:
        raise ConfigError("no such package", code="PLUGIN_IMPORT")

    monkeypatch.setattr(PrintNode, "sink", sink)
    with pytest.raises(ConfigError) as caught:
        is_lasting(SESSION, _spec("print"))
    assert caught.value.where == "p.yaml:3:3"


@pytest.mark.parametrize("path", ["..yaml", "...yaml"])
def test_a_file_of_dots_has_a_folder_of_its_own(path: str) -> None:
    folder = state_folder(SESSION, _spec("print", path))
    assert folder.parent.as_posix() == "/home/p/pipelines"
    assert folder.name.strip(".")
