"""Plugins as nodes: found by entry point or module, their options beside the node's fields or under `options:`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import config
from penstock.options import OptionsOwner, read_options
from penstock.pipeline.plugin import node_model, type_names
from penstock.pipeline.sinks.plugin import PluginSinkNode
from penstock.pipeline.sources.plugin import PluginSourceNode
from penstock.pipeline.spec import Kind
from penstock.pipeline.transforms.plugin import PluginTransformNode
from penstock.sinks.plugin import PluginSink
from penstock.sources.plugin import PluginSource
from penstock.transforms.plugin import PluginTransform

MODULE = '''
import penstock as ps

class Numbers(ps.SourcePlugin):
    """Counts."""
    class Options(ps.Options):
        end: int = 10
    schema = "id BIGINT"
    bounded = True
    def read(self, offset, limit):
        return [], offset

class Upper(ps.TransformPlugin):
    class Options(ps.Options):
        column: str
        primary_key: str = "a field of the node has this name"
    def process_batch(self, batch):
        return batch

class Lines(ps.SinkPlugin):
    """Appends lines."""
    class Options(ps.Options):
        path: str
        every: int = 1
    def process_batch(self, batch):
        self.context.side_output("odd")

class Keyed(Lines):
    modes = ("update",)

class Fast(Lines):
    class Options(ps.Options):
        mode: str = "fast"
'''
POINTS = """
[penstock.sources]
numbers = {name}:Numbers
[penstock.transforms]
upper = {name}:Upper
[penstock.sinks]
lines = {name}:Lines
broken = {name}:Missing
other = {name}:Numbers
"""
NAME = "penstock_test_nodes"


@pytest.fixture(scope="module", autouse=True)
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An installed package with plugins of all kinds."""
    folder = tmp_path_factory.mktemp("site")
    (folder / f"{NAME}.py").write_text(MODULE, encoding="utf-8")
    info = folder / f"{NAME}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(POINTS.format(name=NAME), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield folder
    sys.modules.pop(NAME, None)


def _node(kind: Kind, **fields: Any) -> Any:
    written = {key.rstrip("_"): value for key, value in fields.items()}
    return read_options(
        node_model(kind, written["type"], written), written, owner=OptionsOwner(f"the {kind}")
    )


def test_a_source() -> None:
    node = _node("source", type="numbers", end=5, primary_key="id", batch_size=7)
    assert issubclass(type(node), PluginSourceNode)
    assert node.is_bounded
    assert node.primary_key == ("id",)
    assert node.plugin_options.end == 5
    assert isinstance(node.source(config.load()), PluginSource)


def test_a_sink_with_its_options_flat_and_nested() -> None:
    flat = _node("sink", type="lines", from_="a", path="x", every="3")
    nested = _node("sink", type="lines", from_="a", options={"path": "x", "every": 3})
    for node in (flat, nested):
        assert issubclass(type(node), PluginSinkNode)
        assert (node.from_, node.plugin_options.path, node.plugin_options.every) == ("a", "x", 3)
        sink = node.sink(config.load())
        assert isinstance(sink, PluginSink)
        assert sink.kind == "lines"
        assert (node.mode, node.is_keyed) == ("append", False)
    keyed = _node("sink", type="python", module=f"{NAME}:Keyed", from_="a", path="x")
    assert (keyed.mode, keyed.is_keyed) == ("update", True)


def test_options_with_the_names_of_fields_stand_under_options() -> None:
    node = _node(
        "transform", type="upper", from_="a", primary_key="id", options={"column": "c", "primary_key": "own"}
    )
    assert issubclass(type(node), PluginTransformNode)
    assert node.primary_key == ("id",)
    assert node.plugin_options.primary_key == "own"
    assert isinstance(node.transform(config.load()), PluginTransform)


def test_options_with_the_names_of_properties_stand_under_options() -> None:
    fields = {"type": "python", "module": f"{NAME}:Fast", "from_": "a"}
    node = _node("sink", **fields, options={"mode": "slow"})
    assert (node.mode, node.plugin_options.mode) == ("append", "slow")
    with pytest.raises(ps.ConfigError, match="no option 'mode'"):
        _node("sink", **fields, mode="slow")


def test_a_class_without_an_entry_point() -> None:
    node = _node("transform", type="python", module=f"{NAME}:Upper", from_="a", options={"column": "c"})
    assert (node.type, node.plugin_name, node.plugin_options.column) == ("python", "Upper", "c")


def test_side_outputs_are_sinks() -> None:
    node = _node(
        "sink",
        type="lines",
        from_="a",
        path="x",
        side_outputs={
            "odd": {"type": "lines", "path": "y"},
            "even": {"type": "python", "module": f"{NAME}:Lines", "path": "z"},
        },
    )
    sides = node.side_outputs.sinks(config.load())
    assert {name: sink.options.path for name, sink in sides.items()} == {"odd": "y", "even": "z"}
    assert isinstance(node.sink(config.load()), PluginSink)
    with pytest.raises(ps.ConfigError, match="side output 'odd' must be a sink with a type"):
        _node("sink", type="lines", from_="a", path="x", side_outputs={"odd": "y"})


def test_options_are_checked_with_everything_that_is_wrong() -> None:
    with pytest.raises(
        ps.ConfigError, match="no option 'pth'; the option 'path' is missing; every must be a whole"
    ) as wrong:
        _node("sink", type="lines", from_="a", pth="x", every="often")
    assert "did you mean 'path'" in str(wrong.value.hint)


@pytest.mark.parametrize(
    ("kind", "fields", "why", "code", "hint"),
    [
        ("sink", {"type": "line"}, "unknown sink 'line'", "UNKNOWN_SINK", "did you mean 'lines'"),
        ("source", {"type": "kafak"}, "unknown source 'kafak'", "UNKNOWN_SOURCE", "did you mean 'kafka'"),
        ("transform", {"type": "lines"}, "unknown transform 'lines'", "UNKNOWN_TRANSFORM", "upper"),
        ("sink", {"type": "broken"}, "sink plugin 'broken' cannot be imported", "PLUGIN_IMPORT", "install"),
        ("sink", {"type": "other"}, "'other' is no sink plugin", "PLUGIN_KIND", "penstock.SinkPlugin"),
        ("sink", {"type": "python"}, "needs the field 'module'", "PLUGIN_MODULE", "module: my_module:MySink"),
        ("sink", {"type": "python", "module": "x"}, "module must be", "PLUGIN_MODULE", "None"),
        (
            "sink",
            {"type": "python", "module": "no_such:X"},
            "cannot import 'no_such'",
            "PLUGIN_IMPORT",
            "PYTHONPATH",
        ),
        (
            "sink",
            {"type": "python", "module": f"{NAME}:Lins"},
            "has no 'Lins'",
            "PLUGIN_IMPORT",
            "did you mean 'Lines'",
        ),
        (
            "source",
            {"type": "python", "module": f"{NAME}:Lines"},
            "is no source plugin",
            "PLUGIN_KIND",
            "SourcePlugin",
        ),
    ],
)
def test_what_is_no_plugin(kind: Kind, fields: Mapping[str, Any], why: str, code: str, hint: str) -> None:
    with pytest.raises(ps.ConfigError, match=why) as refused:
        node_model(kind, fields["type"], fields)
    assert refused.value.code == code
    assert hint in str(refused.value.hint)


def test_all_types_are_listed() -> None:
    assert {"kafka", "python", "numbers"} <= set(type_names("source"))
    assert "numbers" not in type_names("transform")


def test_the_schema_has_the_options() -> None:
    schema = node_model("sink", "lines", {}).model_json_schema()
    assert schema["description"] == "Appends lines."
    assert {"path", "every", "from", "type", "telemetry"} <= schema["properties"].keys()
    assert {"path", "from", "type"} <= set(schema["required"])
    schema = node_model("transform", "upper", {}).model_json_schema()
    assert "options" in schema["required"]


def test_a_model_needs_neither_spark_nor_arrow(package: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from penstock.pipeline.plugin import node_model\n"
        "fields = {'type': 'lines', 'from': 'a', 'path': 'x'}\n"
        "node_model('sink', 'lines', fields).model_validate(fields)\n"
        "assert not {'pyspark', 'pyarrow'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", program, str(package)], check=True, timeout=60)
