"""The JSON schema of the files of pipelines."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from penstock.pipeline.json_schema import json_schema
from penstock.pipeline.node_type import BUILT_IN
from penstock.pipeline.yaml_tree import parse, plain
from pipeline_text import check_text

ROOT = Path(__file__).parents[3]
FILES = [
    *sorted((ROOT / "examples").rglob("*.yaml")),
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


IS_PIPELINE = re.compile(r"^ *sources:.*^ *sinks:", re.MULTILINE | re.DOTALL).search
VARIABLES = {
    "PENSTOCK_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9092",
    "PENSTOCK_POSTGRES_URL": "postgresql://ann@127.0.0.1/shop",
    "PENSTOCK_CLICKHOUSE_URL": "http://127.0.0.1:8123/shop",
}


@cache
def written() -> list[tuple[str, str]]:
    """All pipelines in the tests and in the documentation, with their places; a value of the test's stands as a file's name."""

    def texts() -> Iterator[tuple[str, str]]:
        for path in sorted((ROOT / "tests").rglob("*.py")):
            code = path.read_text(encoding="utf-8")
            if "sinks:" not in code:
                continue
            for node in ast.walk(ast.parse(code)):
                parts = node.values if isinstance(node, ast.JoinedStr) else [node]
                constants = [part.value if isinstance(part, ast.Constant) else "p.parquet" for part in parts]
                if isinstance(node, ast.JoinedStr | ast.Constant) and isinstance(constants[0], str):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", "".join(map(str, constants))
        for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
            for block in re.findall(
                r"^```yaml\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
            ):
                yield str(path.relative_to(ROOT)), block

    return [(place, text) for place, text in texts() if IS_PIPELINE(text)]


def test_every_pipeline_that_is_valid_fits(schema: dict[str, Any]) -> None:
    valid = [
        (place, text)
        for place, text in written()
        if not check_text(text, "p.yaml", environ=VARIABLES).mistakes
    ]
    assert len(valid) > 30
    refused = {place: wrong for place, text in valid if (wrong := mistakes(schema, text))}
    assert refused == {}


@pytest.mark.parametrize(
    "node",
    [
        "{type: file, path: p.json, mode: continuous}",
        "{type: file, path: p.csv, format: CSV}",
        "{type: iceberg, table: lake.shop.orders, mode: bounded}",
        "{type: clickhouse, table_name: orders, url: 'http://c:8123/shop'}",
        "{type: clickhouse, table: orders, url: 'http://c:8123/shop', password: 12345}",
        "{type: kafka, topic: t, bootstrap_servers: 'k:9092', data_format: JSON, schema: {id: int64}, operations: Header}",
        "{type: kafka, topic: t, kafka.bootstrap.servers: 'k:9092', starting_offsets: {t: {'0': 5}}}",
    ],
)
def test_other_forms_of_fields_fit(schema: dict[str, Any], node: str) -> None:
    text = f"sources: {{a: {node}}}\nsinks: {{c: {{type: print, from: a}}}}\n"
    assert check_text(text, "p.yaml", environ={}).mistakes == ()
    assert mistakes(schema, text) == []


@pytest.mark.parametrize(
    "node",
    [
        "{type: webhook, from: a, url: 'http://h/', batch_size: 5}",
        "{type: clickhouse, from: a, table: t, url: 'http://c:8123/shop', primary_key: id, version_column_name: at}",
        "{type: kafka, from: a, topic: t, kafka.bootstrap.servers: 'k:9092', data_format: Avro}",
    ],
)
def test_other_forms_of_fields_of_sinks_fit(schema: dict[str, Any], node: str) -> None:
    text = f"sources: {{a: {{type: file, path: p.parquet}}}}\nsinks: {{c: {node}}}\n"
    assert check_text(text, "p.yaml", environ={}).mistakes == ()
    assert mistakes(schema, text) == []


@pytest.mark.parametrize(
    "node",
    [
        "{type: clickhouse, url: 'http://c:8123/shop'}",
        "{type: file, path: p/, mode: sometimes}",
        "{type: kafka, topic: t, data_format: JSONS}",
    ],
)
def test_what_no_form_allows_does_not_fit(schema: dict[str, Any], node: str) -> None:
    assert mistakes(schema, f"sources: {{a: {node}}}\nsinks: {{c: {{type: print, from: a}}}}\n") != []


def test_a_dynamic_table_may_be_spelled_as_streamling_does(schema: dict[str, Any]) -> None:
    for backend, fits in {"InMemory": True, "in_memory": True, "postgres": True, "memory": False}.items():
        table = f"transforms: {{t: {{type: dynamic_table, backend: {backend}, table: t}}}}"
        assert (
            mistakes(
                schema, f"sources: {{a: {{type: rate}}}}\n{table}\nsinks: {{c: {{type: print, from: a}}}}"
            )
            == []
        ) is fits


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
    assert ".md" not in json.dumps(schema)


def test_every_built_in_node_is_there(schema: dict[str, Any]) -> None:
    for section, kind in {"sources": "source", "transforms": "transform", "sinks": "sink"}.items():
        node = schema["properties"][section]["additionalProperties"]
        types = node["properties"]["type"]["anyOf"][0]["enum"]
        assert types == [*next(names.builtin for key, names in BUILT_IN.items() if key == kind), "python"]
        assert [case["if"]["properties"]["type"]["const"] for case in node["allOf"]] == types
