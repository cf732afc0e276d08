"""Tables of names that are loaded when they are used."""

from __future__ import annotations

import re
import sys
from collections import OrderedDict
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.registry import Registry

SHAPES = Registry("file format", {"path": "pathlib:Path", "ordered": "collections:OrderedDict"})
GROUP = "penstock_test_registry"


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A table with entry points of an installed distribution, one of which has the name of a built-in."""
    folder = tmp_path / "shapes-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: shapes\nVersion: 1.0\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text(
        f"[{GROUP}]\ncounter = collections:Counter\npath = collections:Counter\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return Registry("file format", SHAPES.builtin, group=GROUP)


def test_a_name_is_loaded() -> None:
    assert SHAPES.load("path") is Path
    assert SHAPES.load("ordered") is OrderedDict


def test_nothing_is_imported_before_a_name_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "penstock_lazy_module.py").write_text("VALUE = 5\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    table = Registry("file format", {"lazy": "penstock_lazy_module:VALUE"})
    assert table.names() == ["lazy"]
    assert "penstock_lazy_module" not in sys.modules
    try:
        assert table.load("lazy") == 5
    finally:
        sys.modules.pop("penstock_lazy_module", None)


def test_an_unknown_name_suggests_the_nearest_and_lists_all() -> None:
    with pytest.raises(ConfigError, match="unknown file format 'orderd'") as caught:
        SHAPES.load("orderd")
    assert caught.value.code == "UNKNOWN_FILE_FORMAT"
    assert "'ordered'" in (caught.value.hint or "")
    with pytest.raises(ConfigError) as caught:
        SHAPES.load("zzz")
    assert "path" in (caught.value.hint or "")


def test_names_of_other_packages_come_behind_the_built_in_ones(plugins: Registry) -> None:
    assert {point.name for point in entry_points(group=GROUP)} == {"counter", "path"}
    assert plugins.names() == ["path", "ordered", "counter"]
    assert list(plugins) == plugins.names()


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import no_such_module_at_all", "No module named 'no_such_module_at_all'"),
        ("x = nothing", "NameError: name 'nothing' is not defined"),
        ("def", "SyntaxError: invalid syntax"),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        ("raise SystemExit", "SystemExit"),
        ("", "module 'penstock_bad_module' has no attribute 'Shape'"),
    ],
)
def test_what_is_wrong_with_the_code_of_another_package(
    tmp_path: Path, plugins: Registry, code: str, why: str
) -> None:
    (tmp_path / "penstock_bad_module.py").write_text(code, encoding="utf-8")
    (tmp_path / "shapes-1.0.dist-info" / "entry_points.txt").write_text(
        f"[{GROUP}]\nbad = penstock_bad_module:Shape\n", encoding="utf-8"
    )
    try:
        with pytest.raises(
            ConfigError, match=re.escape(f"the file format plugin 'bad' cannot be imported: {why}")
        ) as caught:
            plugins.load("bad")
    finally:
        sys.modules.pop("penstock_bad_module", None)
    assert caught.value.code == "PLUGIN_IMPORT"
    assert caught.value.hint == "install shapes again, with what it needs"


def test_a_built_in_name_is_not_replaced_by_another_package(plugins: Registry) -> None:
    from collections import Counter

    assert plugins.load("path") is Path
    assert plugins.load("counter") is Counter


def test_a_table_without_a_group_has_no_plugins(plugins: Registry) -> None:
    assert plugins.group == GROUP
    assert SHAPES.names() == ["path", "ordered"]


def test_an_attribute_that_is_not_there_is_an_error_of_ours() -> None:
    with pytest.raises(AttributeError, match="Nowhere"):
        Registry("file format", {"broken": "pathlib:Nowhere"}).load("broken")
