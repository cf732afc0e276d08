"""The JSON schema of the files of pipelines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from penstock.pipeline.json_schema import json_schema
from penstock.pipeline.node_type import BUILT_IN
from penstock.pipeline.yaml_tree import parse, plain

ROOT = Path(__file__).parents[3]
FILES = [
    *sorted((ROOT / "examples" / "pipelines").glob("*.yaml")),
    *sorted((Path(__file__).parent / "seed").glob("*.yaml")),
]


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json_schema()


def mistakes(schema: dict[str, Any], text: str) -> list[str]:
    tree, problems = parse(text, "p.yaml")
    assert tree is not None
    assert problems == []
    validator = jsonschema.Draft202012Validator(schema)
    return [error.message for error in validator.iter_errors(plain(tree))]


def test_it_is_a_schema(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    json.dumps(schema)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_examples_fit(schema: dict[str, Any], path: Path) -> None:
    assert mistakes(schema, path.read_text(encoding="utf-8")) == []


GOOD = """\
x-note: {}
sources: {a: {type: file, path: p/, max_files: 5}}
transforms: {b: {type: sql, sql: SELECT 1}}
sinks: {c: {type: print, from: b, rows: "${ROWS}"}}
tests: [{name: x, expect: {c: []}}]
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x-note", "xnote"),
        ("sources:", "source:"),
        ("type: file, ", ""),
        ("path: p/, ", ""),
        ("max_files: 5", "max_files: many"),
        ("max_files", "max_file"),
        ("{type: sql, sql: SELECT 1}", "SELECT 1"),
        ("from: b, ", ""),
        ("expect", "expected"),
        ("{c: []}", "{c: 5}"),
    ],
)
def test_mistakes_do_not_fit(schema: dict[str, Any], old: str, new: str) -> None:
    assert mistakes(schema, GOOD) == []
    assert mistakes(schema, GOOD.replace(old, new)) != []


def test_types_of_plugins_are_taken(schema: dict[str, Any]) -> None:
    assert mistakes(schema, GOOD.replace("type: print", "type: of_a_plugin, any: 5")) == []


PLUGIN = """\
sources: {a: {type: python, module: "m:A", rows: 5, batch_size: 7}}
transforms:
  b:
    type: python
    module: "m:B"
    from: a
    options: {x: 1}
    side_outputs: {late: {type: file, path: late/}, bad: {type: of_a_plugin, any: 5}, odd: {type: python, module: "m:C"}}
sinks: {c: {type: python, module: "m:C", from: b, on_conflict: nothing}}
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('module: "m:A", ', ""),
        ("batch_size: 7", "batch_size: many"),
        ("options: {x: 1}", "options: 5"),
        ("path: late/", "pth: late/"),
        ("{type: file, path: late/}", "late/"),
        ("from: b, ", ""),
        ("late: {", "2late: {"),
    ],
)
def test_plugins_by_their_class_and_side_outputs(schema: dict[str, Any], old: str, new: str) -> None:
    assert mistakes(schema, PLUGIN) == []
    assert old in PLUGIN
    assert mistakes(schema, PLUGIN.replace(old, new)) != []


HYBRID = """\
sources:
  a:
    type: hybrid
    cursor: id
    history: {type: clickhouse, table: orders}
    live: {type: kafka, topic: orders, schema: {id: bigint}}
sinks: {c: {type: print, from: a}}
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("table:", "tabel:"),
        ("topic: orders, ", ""),
        ("{type: clickhouse, table: orders}", "orders"),
        ("type: kafka, ", ""),
    ],
)
def test_the_parts_of_a_hybrid_source(schema: dict[str, Any], old: str, new: str) -> None:
    assert mistakes(schema, HYBRID) == []
    assert mistakes(schema, HYBRID.replace(old, new)) != []


def test_every_field_has_a_description(schema: dict[str, Any]) -> None:
    without = [
        f"{name}.{field}"
        for name, definition in schema["$defs"].items()
        for field, described in definition.get("properties", {}).items()
        if not described.get("description")
    ]
    assert without == []


def test_every_built_in_node_is_there(schema: dict[str, Any]) -> None:
    for section, kind in {"sources": "source", "transforms": "transform", "sinks": "sink"}.items():
        node = schema["properties"][section]["additionalProperties"]
        types = node["properties"]["type"]["anyOf"][0]["enum"]
        assert types == [*next(names.builtin for key, names in BUILT_IN.items() if key == kind), "python"]
        assert [case["if"]["properties"]["type"]["const"] for case in node["allOf"]] == types
