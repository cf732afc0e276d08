"""Packages of new plugins: their own tests pass, and their pipelines have nodes that penstock knows."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from penstock.cli.plugin_package import KINDS, create
from penstock.errors import ConfigError
from penstock.functions.plugin import installed_functions
from penstock.options import OptionsOwner, read_options
from penstock.pipeline.nodes import SINK_NODES, SOURCE_NODES, TRANSFORM_NODES
from penstock.pipeline.plugin import node_model
from penstock.pipeline.plugin_options import PluginNode
from penstock.pipeline.preprocess import names
from penstock.pipeline.spec import Kind
from penstock.registry import Registry

BUILT_IN: dict[Kind, Registry] = {"source": SOURCE_NODES, "transform": TRANSFORM_NODES, "sink": SINK_NODES}
OURS = Path(__file__).parents[3] / "src"


def _install(package: Path) -> dict[str, Any]:
    """Do what an editable installation does, without pip: put the entry points beside the sources."""
    with (package / "pyproject.toml").open("rb") as file:
        project: dict[str, Any] = tomllib.load(file)["project"]
    info = package / "src" / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1.0\n", encoding="utf-8"
    )
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    return project


@pytest.mark.parametrize("kind", KINDS)
def test_a_package_passes_its_tests(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "new"
    written = create(f"first-{kind}", kind, package)
    assert all(path.is_file() for path in written)
    texts = {path.relative_to(package).as_posix(): path.read_text(encoding="utf-8") for path in written}
    assert not any(
        "__ATTRIBUTE__" in text or "__TYPE__" in text or "__KIND" in text for text in texts.values()
    )
    project = _install(package)
    assert project["name"] == f"penstock-first-{kind}"
    monkeypatch.syspath_prepend(str(package / "src"))
    nodes = 0
    if kind == "preprocessor":
        assert names() == [f"first_{kind}"]
    if kind == "function":
        assert f"first_{kind}" in installed_functions()
    for section, declared in yaml.safe_load(texts["pipeline.yaml"]).items():
        node_kind = section.removesuffix("s")
        for fields in declared.values() if node_kind in get_args(Kind) else ():
            if fields["type"] not in BUILT_IN[node_kind].builtin:
                model = node_model(node_kind, fields["type"], fields)
                assert issubclass(model, PluginNode)
                read_options(model, fields, owner=OptionsOwner("the node"))
                nodes += 1
    assert nodes == (kind not in ("function", "preprocessor"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"],
        cwd=package,
        env={**os.environ, "PYTHONPATH": str(OURS), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for path in [*package.rglob("__init__.py"), *package.rglob("test_*.py")]:
        assert max(map(len, path.read_text(encoding="utf-8").splitlines())) <= 120


def test_names_and_folders_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown kind of plugin 'sorce'") as kind:
        create("a", "sorce", tmp_path / "a")
    assert "did you mean 'source'" in str(kind.value.hint)
    for name in ("A", "1st", "a b", "../a", "", "penstock-"):
        with pytest.raises(ConfigError, match="cannot be the name of a plugin"):
            create(name, "sink", tmp_path / "a")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(ConfigError, match="is there already"):
        create("a", "sink", tmp_path / "full")
    assert not (tmp_path / "a").exists()
    assert create("penstock-my_sink", "sink", tmp_path / "a")[0] == tmp_path / "a" / "pyproject.toml"
    assert (tmp_path / "a" / "src" / "penstock_my_sink" / "__init__.py").is_file()
