"""Preprocessors: in a defined order, on copies, with errors that name the file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.pipeline.preprocess import names, preprocessed
from pipeline_text import check_text

NAME = "penstock_test_preprocessors"
MODULE = """
import penstock as ps

def prefix(document):
    document["name"] = "x-" + document["name"]
    return document

def last(document):
    document["name"] += "-end"
    return document
last.order = 10

def first(document):
    document["name"] = document["name"].upper()
    return document
first.order = -1

def check(document):
    if document["name"] == "x-BAD":
        raise ps.ConfigError("no such name", code="OWN")
    if document["name"] == "x-RAISES":
        raise KeyError("sources")
    if document["name"] == "x-NONE":
        return None
    return dict(document)
check.order = 1

number = 5
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package with preprocessors."""
    (tmp_path / f"{NAME}.py").write_text(MODULE, encoding="utf-8")
    info = tmp_path / f"{NAME}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n", encoding="utf-8")
    points = [f"{name} = {NAME}:{name}" for name in ("last", "prefix", "check", "first")]
    (info / "entry_points.txt").write_text("\n".join(["[penstock.preprocessors]", *points]), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield info
    sys.modules.pop(NAME, None)


@pytest.mark.usefixtures("package")
def test_they_run_in_order() -> None:
    document = {"name": "a", "sources": {}}
    assert names() == ["first", "prefix", "check", "last"]
    assert preprocessed(document, path="p.yaml") == {"name": "x-A-end", "sources": {}}
    assert document == {"name": "a", "sources": {}}


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "why", "code"),
    [
        ("bad", "no such name", "OWN"),
        ("raises", "the preprocessor 'check' failed: KeyError: 'sources'", "PREPROCESSOR_FAILED"),
        ("none", "the preprocessor 'check' returned NoneType", "PREPROCESSOR_FAILED"),
    ],
)
def test_errors_name_the_file(name: str, why: str, code: str) -> None:
    with pytest.raises(ConfigError, match=why) as failed:
        preprocessed({"name": name}, path="p.yaml")
    assert (failed.value.code, failed.value.where) == (code, "p.yaml")


@pytest.mark.parametrize(
    ("point", "code"), [(f"{NAME}:number", "PLUGIN_KIND"), (f"{NAME}:missing", "PLUGIN_IMPORT")]
)
def test_what_is_no_preprocessor(package: Path, point: str, code: str) -> None:
    (package / "entry_points.txt").write_text(f"[penstock.preprocessors]\nodd = {point}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="odd") as refused:
        preprocessed({"name": "a"}, path="p.yaml")
    assert refused.value.code == code


@pytest.mark.parametrize("code", ["import sys\nsys.exit(4)", "x = nothing", "def"])
def test_one_that_cannot_be_loaded_is_named_with_its_package(package: Path, code: str) -> None:
    (package.parent / f"{NAME}.py").write_text(code, encoding="utf-8")
    [refused] = check_text(TEXT, "p.yaml", environ={}).mistakes[:1]
    assert (refused.code, str(refused.place)) == ("PLUGIN_IMPORT", "p.yaml:1:1")
    assert "the preprocessor '" in refused.text
    assert f"install {NAME} again" in refused.hint


def test_without_any_the_document_stays_as_it_is() -> None:
    document = {"name": "a"}
    assert preprocessed(document, path="p.yaml") == document


TEXT = """name: a
sources:
  numbers: {type: rate}
sinks:
  out: {type: print, from: nubers}
"""


@pytest.mark.usefixtures("package")
def test_a_file_is_read_with_what_they_made_of_it() -> None:
    checked = check_text(TEXT.replace("nubers", "numbers"), "p.yaml", environ={})
    assert checked.mistakes == ()
    assert checked.spec.name == "x-A-end"
    assert str(checked.spec.nodes["out"].place_of("from")) == "p.yaml:5:22"
    wrong = check_text(TEXT, "p.yaml", environ={})
    assert [str(problem.place) for problem in wrong.mistakes] == ["p.yaml:5:28"]
    [refused] = check_text(TEXT.replace("name: a", "name: raises"), "p.yaml", environ={}).mistakes[:1]
    assert (str(refused.place), refused.code) == ("p.yaml:1:1", "PREPROCESSOR_FAILED")
