"""The tables of options in the reference are what the models say today."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from penstock.registry import Registry
from penstock.sinks import SINKS
from penstock.sinks.view_sink import VIEW_SINKS
from penstock.sources import SOURCES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_options", ROOT / "tools" / "write_options.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["sinks.md", "sources.md", "view-sinks.md", "dead-letters.md"])
def test_the_tables_are_current(tool: ModuleType, name: str) -> None:
    page = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert page == tool.page(name), "run tools/write_options.py"
    assert "| option | type | default | meaning |" in page


@pytest.mark.parametrize(
    ("name", "registry"), [("sinks.md", SINKS), ("sources.md", SOURCES), ("view-sinks.md", VIEW_SINKS)]
)
def test_every_connector_with_options_has_a_table(tool: ModuleType, name: str, registry: Registry) -> None:
    models = {connector: tool.options_of(registry, connector) for connector in registry.builtin}
    tabled = {models[connector] for connector in tool.names(name)}
    untold = [connector for connector, model in models.items() if model.model_fields and model not in tabled]
    assert untold == []


def test_a_table_says_types_and_defaults(tool: ModuleType) -> None:
    table = tool.table(tool.options_of(SINKS, "postgres"))
    assert "| `table` | text | required |" in table
    assert "| `url` | text | `PENSTOCK_POSTGRES_URL` |" in table
    assert "| `create` | true or false | true |" in table
    assert "| `retry_for` | duration | `5 minutes` |" in table


@pytest.mark.parametrize(
    ("node", "field", "kind"),
    [
        ("sink-kafka", "schema_registry", "text or `false`"),
        ("sink-kafka", "data_format", "`json`, `avro`"),
        ("sink-postgres_aggregate", "group_by", "text, list or dictionary"),
        ("transform-lookup", "on", "text, list or dictionary"),
        ("transform-dynamic_table", "backend", "`InMemory`, `Postgres`"),
        ("source-file", "mode", "`bounded`, `continuous` or dictionary"),
        ("source-kafka", "starting_offsets", "text or dictionary"),
        ("sink-clickhouse", "timeout", "duration"),
    ],
)
def test_a_page_says_every_form_of_a_field(node: str, field: str, kind: str) -> None:
    page = (ROOT / "docs" / "reference" / "nodes" / f"{node}.md").read_text(encoding="utf-8")
    assert f"| `{field}` | {kind} |" in page


def test_a_page_says_the_other_names_of_a_field() -> None:
    nodes = ROOT / "docs" / "reference" / "nodes"
    assert "also written `table_name` |" in (nodes / "source-clickhouse.md").read_text(encoding="utf-8")
    assert "also written `version_column_name` |" in (nodes / "sink-clickhouse.md").read_text(
        encoding="utf-8"
    )


def test_every_type_of_node_has_a_page_and_no_other(tool: ModuleType) -> None:
    folder = ROOT / "docs" / "reference" / "nodes"
    pages = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    assert pages.keys() == {"index.md", *(f"{kind}-{name}.md" for kind, name in tool.node_types())}, (
        "run tools/write_options.py"
    )
    assert pages["index.md"] == tool.index(), "run tools/write_options.py"
    stale = [
        f"{kind}-{name}"
        for kind, name in tool.node_types()
        if pages[f"{kind}-{name}.md"] != tool.node_page(kind, name)
    ]
    assert stale == [], "run tools/write_options.py"


def test_every_page_of_a_node_is_in_the_navigation(tool: ModuleType) -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    overview = (ROOT / "docs" / "reference" / "pipelines.md").read_text(encoding="utf-8")
    for kind, name in tool.node_types():
        assert f"reference/nodes/{kind}-{name}.md" in navigation
        assert f"(nodes/{kind}-{name}.md)" in overview


def test_the_cookbook_is_current(tool: ModuleType) -> None:
    page = (ROOT / "docs" / "how-to" / "cookbook.md").read_text(encoding="utf-8")
    assert page == tool.cookbook(), "run tools/write_options.py"
    recipes = list((ROOT / "examples" / "pipelines").glob("*.yaml"))
    assert page.count("\n## ") == len(recipes)
    assert all(f" run examples/pipelines/{path.name}\n" in page for path in recipes)


def test_a_page_of_a_node_says_what_it_is_and_where_to_read_on(tool: ModuleType) -> None:
    for kind, name in tool.node_types():
        page = tool.node_page(kind, name)
        assert "**See also:** [" in page
        assert ("**Guarantee:** " in page) is (kind == "sink")
    assert "**Guarantee:** exactly once" in tool.node_page("sink", "kafka")
    assert "**Guarantee:** at least once" in tool.node_page("sink", "webhook")
