"""Write the tables of options in docs/reference/sinks.md, sources.md, view-sinks.md and dead-letters.md, a page for every type of node in
pipelines in docs/reference/nodes/, from the models that check what users write, and the cookbook in docs/how-to/cookbook.md.

tools/write_options.py              write tables and pages anew; a test says when they are not current

The example of a node is the pipeline in examples/nodes/KIND-TYPE.yaml; the cookbook is made of examples/pipelines/.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock import config
from penstock.options import Options, aliases_of, models_in, option_fields, settings_of
from penstock.pipeline.load import check_text
from penstock.pipeline.node import DeadLetter, Node, SinkNode
from penstock.pipeline.node_type import BUILT_IN, model_of
from penstock.pipeline.spec import Kind
from penstock.registry import Registry
from penstock.sinks import SINKS
from penstock.sinks.base import Guarantee
from penstock.sinks.view_sink import VIEW_SINKS
from penstock.sources import SOURCES
from penstock.streaming.query_options import QueryOptions

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference"
NODES = FOLDER / "nodes"
EXAMPLES = ROOT / "examples" / "nodes"
RECIPES = ROOT / "examples" / "pipelines"
COOKBOOK = ROOT / "docs" / "how-to" / "cookbook.md"
SPELLED = {"Kafka": "Kafka", "Clickhouse": "ClickHouse", "Postgres": "Postgres", "Iceberg": "Iceberg"}
PAGES: Mapping[str, Registry] = {"sinks.md": SINKS, "sources.md": SOURCES, "view-sinks.md": VIEW_SINKS}
DEAD_LETTERS = "dead-letters.md"
QUERY = "query"
"""What stands for the options of the query itself."""
COOKBOOK_BEGINS = """# Cookbook

Whole pipelines, to run or to begin with. They are in `examples/pipelines/` of the repository, the tests run all of them, and the commands are those for its root.
What a name in capitals stands for, such as `PENSTOCK_POSTGRES_URL`, comes from the environment. [A pipeline, from nothing to a live view](../tutorials/pipelines.md)
explains one step by step, [nodes](../reference/nodes/index.md) lists what else there is."""
BLOCK = re.compile(r"(<!-- options of (?P<name>\w+) -->\n).*?(<!-- end of options -->)", re.DOTALL)
INDEX_BEGINS = """# Nodes of pipelines

Every type of node that penstock brings along; a page each has its fields and an example. Other types are those of [plugins](../../how-to/plugins.md). What holds for all
nodes is in [Files of pipelines](../pipelines.md#nodes), whole pipelines are in the [cookbook](../../how-to/cookbook.md)."""
ADDRESSES = {
    "PENSTOCK_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9092",
    "PENSTOCK_POSTGRES_URL": "postgresql://ann@127.0.0.1/shop",
    "PENSTOCK_CLICKHOUSE_URL": "http://127.0.0.1:8123/shop",
}
GUARANTEES: Mapping[Guarantee, str] = {
    Guarantee.EXACTLY_ONCE: "exactly once: [how](../../how-to/exactly-once.md).",
    Guarantee.AT_LEAST_ONCE: "at least once: an epoch that comes again [may be stored again](../../concepts/pipelines.md#what-is-exactly-once).",
    Guarantee.NOT_KEPT: "none, since no row outlives the process.",
}
OWN_GUARANTEES = {
    "clickhouse": "exactly once with a key, since a repeated row replaces itself, and in tables that drop repeated inserts, as those that "
    "the sink makes do; else at least once: [how](../../how-to/exactly-once.md#clickhouse).",
}
"""Of sinks for which it depends on the table."""
_SCRIPTS = ("Rows through a script or a service", "../how-to/scripts.md")
_LOOKUPS = ("Look-ups and dynamic tables", "../how-to/lookups.md")
_VIEWS = ("Views in a pipeline", "../concepts/pipeline-views.md")
_BAD_RECORDS = ("Bad records", "../how-to/bad-records.md")
SEE_ALSO: Mapping[tuple[Kind, str], Sequence[tuple[str, str]]] = {
    ("source", "kafka"): [
        _BAD_RECORDS,
        ("Kafka with TLS and passwords", "connectors.md#kafka-with-tls-and-passwords"),
        ("Avro, operations, consumer groups", "sources.md#kafka"),
    ],
    ("source", "file"): [_BAD_RECORDS, ("Object stores", "connectors.md#s3")],
    ("source", "rate"): [("A pipeline, from nothing to a live view", "../tutorials/pipelines.md")],
    ("source", "iceberg"): [("Catalogs", "connectors.md#catalogs")],
    ("source", "clickhouse"): [("How it reads, and types", "sources.md#clickhouse")],
    ("source", "postgres"): [("How it reads, and types", "sources.md#postgres")],
    ("source", "postgres_cdc"): [("Following a Postgres table", "../how-to/postgres-cdc.md")],
    ("source", "hybrid"): [
        ("The source `clickhouse`", "nodes/source-clickhouse.md"),
        ("The source `kafka`", "nodes/source-kafka.md"),
    ],
    ("transform", "sql"): [
        ("Why `sql` is stateless", "../concepts/pipelines.md#why-sql-is-stateless"),
        _LOOKUPS,
    ],
    ("transform", "view"): [_VIEWS, ("What it costs", "../concepts/pipeline-views.md#what-it-costs")],
    ("transform", "dedup"): [_VIEWS, ("What it costs", "../concepts/pipeline-views.md#what-it-costs")],
    ("transform", "cdc"): [
        ("Histories", "../concepts/pipeline-views.md#histories"),
        ("What it costs", "../concepts/pipeline-views.md#what-it-costs"),
    ],
    ("transform", "script"): [_SCRIPTS],
    ("transform", "handler"): [_SCRIPTS],
    ("transform", "lookup"): [_LOOKUPS],
    ("transform", "dynamic_table"): [_LOOKUPS],
    ("transform", "expect"): [("Expectations and dead letters", "../how-to/expectations.md")],
    ("sink", "print"): [("A pipeline, from nothing to a live view", "../tutorials/pipelines.md")],
    ("sink", "blackhole"): [("How a pipeline runs", "../concepts/pipelines.md")],
    ("sink", "memory"): [("Reading the rows in Python", "sinks.md#memory")],
    ("sink", "file"): [("Files, exactly once", "../how-to/exactly-once.md#files")],
    ("sink", "webhook"): [("The requests", "sinks.md#webhook")],
    ("sink", "postgres"): [
        ("PostgreSQL, exactly once", "../how-to/exactly-once.md#postgresql"),
        ("Types", "sinks.md#postgres"),
    ],
    ("sink", "postgres_aggregate"): [("How aggregates are kept", "sinks.md#postgres_aggregate")],
    ("sink", "kafka"): [
        ("Kafka, exactly once", "../how-to/exactly-once.md#kafka"),
        ("Kafka with TLS and passwords", "connectors.md#kafka-with-tls-and-passwords"),
    ],
    ("sink", "clickhouse"): [
        ("ClickHouse, exactly once", "../how-to/exactly-once.md#clickhouse"),
        ("Types, and which tables are exactly once", "sinks.md#clickhouse"),
    ],
    ("sink", "iceberg"): [
        ("Iceberg, exactly once", "../how-to/exactly-once.md#iceberg"),
        ("Catalogs", "connectors.md#catalogs"),
    ],
}
"""Pages by their paths from docs/reference/."""
LINK = re.compile(r"\]\((?!https?:)([^)]+)\)")
"""A link in a description, which starts from the folder of the pages that have tables."""
WORDS = {
    "integer": "number",
    "boolean": "true or false",
    "string": "text",
    "object": "dictionary",
    "array": "list",
}


def page(name: str) -> str:
    """Return a page with its tables as the models are today."""
    text = (FOLDER / name).read_text(encoding="utf-8")

    def model(connector: str) -> type[Options]:
        if connector == QUERY:
            return QueryOptions
        return DeadLetter if name == DEAD_LETTERS else options_of(PAGES[name], connector)

    return BLOCK.sub(lambda match: f"{match[1]}{table(model(match['name']))}{match[3]}", text)


def names(name: str) -> set[str]:
    """Return the connectors whose options are on a page."""
    return {match["name"] for match in BLOCK.finditer((FOLDER / name).read_text(encoding="utf-8"))} - {QUERY}


def options_of(registry: Registry, name: str) -> type[Options]:
    """Return the model of a connector."""
    model: type[Options] = registry.load(name).Options
    return model


def table(model: type[Options]) -> str:
    """Return the options of a model as a table: required ones first, inherited ones last."""
    # The page of a node is about one type.
    rows = [row for row in _rows(model) if not (issubclass(model, Node) and row[0] == "`type`")]
    rows.sort(key=lambda row: row[2] != "required")
    lines = [
        "",
        f"| {'field' if issubclass(model, Node) else 'option'} | type | default | meaning |",
        "|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n\n"


def node_types() -> list[tuple[Kind, str]]:
    """Return all types of nodes that have a page."""
    return [(kind, name) for kind, registry in BUILT_IN.items() for name in registry.builtin]


def node_page(kind: Kind, name: str) -> str:
    """Return the page of a type of node."""
    model = model_of(kind, name, {})
    example = (EXAMPLES / f"{kind}-{name}.yaml").read_text(encoding="utf-8").strip()
    parts = [f"# The {kind} `{name}`", _about(model)]
    if kind == "sink":
        guarantee = OWN_GUARANTEES.get(name) or GUARANTEES[_guarantee(name, example)]
        parts.append(f"**Guarantee:** {guarantee}")
    see_also = ", ".join(f"[{label}](../{path})" for label, path in SEE_ALSO[kind, name])
    parts += [f"**See also:** {see_also}.", f"```yaml\n{example}\n```", "## Fields"]
    described = [table(model)]
    for field, inner in _nested(model):
        described += [f"## Fields of `{field}`", _about(inner), table(inner)]
    parts += [LINK.sub(r"](../\1)", part) for part in described]
    parts.append("What holds for all nodes is in [Files of pipelines](../pipelines.md#nodes).")
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _guarantee(name: str, example: str) -> Guarantee:
    """What a sink guarantees in its example."""
    spec = check_text(example, name, settings=config.load(ADDRESSES), environ=ADDRESSES).spec
    [node] = [each.model for each in spec.of_kind("sink")]
    assert isinstance(node, SinkNode)
    return node.sink(config.load(environ=ADDRESSES)).guarantee


def index() -> str:
    """Return the page that lists all types of nodes, with a sentence about each."""
    parts = [INDEX_BEGINS]
    for kind in BUILT_IN:
        rows = [
            f"| [`{name}`]({kind}-{name}.md) | {_first_sentence(_about(model_of(kind, name, {})))} |"
            for of, name in node_types()
            if of == kind
        ]
        parts.append("\n".join([f"## {kind.title()}s", "", "| type | what it does |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.])\s", " ".join(text.partition("\n\n")[0].split()))[0]


def cookbook() -> str:
    """Return the page with all whole pipelines: in the comment on top of each file is what it does, and how it is run."""
    parts = [COOKBOOK_BEGINS]
    for path in sorted(RECIPES.glob("*.yaml")):
        lines = path.read_text(encoding="utf-8").splitlines()
        comment = [line.removeprefix("#") for line in lines if line.startswith("#")]
        about = " ".join(line.strip() for line in comment if not line.startswith("   "))
        commands = [line.strip() for line in comment if line.startswith("   ")]
        file = "\n".join(line for line in lines if not line.startswith("#"))
        parts += [
            f"## {_title(path.stem)}",
            about.rstrip(":") + ("" if about.endswith(".") else "."),
            "```sh\n" + "\n".join(commands) + "\n```",
            f"```yaml\n{file}\n```",
        ]
    return "\n\n".join(parts) + "\n"


def _title(stem: str) -> str:
    """The words of a file's name as a heading.

    >>> _title("kafka-to-clickhouse")
    'Kafka to ClickHouse'
    """
    first, *others = stem.split("-")
    return " ".join(
        [SPELLED.get(first.title(), first.title()), *(SPELLED.get(word.title(), word) for word in others)]
    )


def _about(model: type[Options]) -> str:
    return inspect.cleandoc(model.__dict__.get("__doc__") or "")


def _nested(model: type[Options]) -> Iterator[tuple[str, type[Options]]]:
    """Give the fields of a model that have fields themselves, but for those that have a page of their own."""
    seen = {inner for field in Node.model_fields.values() for inner in models_in(field.annotation)}
    seen.add(DeadLetter)
    waiting: list[tuple[str, type[Options]]] = [("", model)]
    while waiting:
        around, outer = waiting.pop(0)
        for name, field in option_fields(outer).items():
            for inner in models_in(field.annotation):
                if inner not in seen:
                    seen.add(inner)
                    path = f"{around}.{name}".lstrip(".")
                    waiting.append((path, inner))
                    yield path, inner


def _rows(model: type[Options]) -> Iterator[tuple[str, str, str, str]]:
    properties = model.model_json_schema()["properties"]
    settings = settings_of(model)
    inherited = {name for parent in model.__mro__[1:] for name in getattr(parent, "model_fields", ())}
    fields = sorted(option_fields(model).items(), key=lambda item: item[0] in inherited)
    for name, field in fields:
        schema = properties[name]
        assert schema.get("description"), f"{model.__name__}.{name} has no description"
        if name in settings:
            default = f"`{settings[name].variable}`"
        else:
            default = "required" if field.is_required() else _default(schema.get("default"))
        _, *others = aliases_of(name, field)
        also = f"; also written {', '.join(f'`{other}`' for other in others)}" if others else ""
        about = f"{schema['description']}{also}".replace("|", "\\|")
        yield f"`{name}`", kind_of(schema), default, about
    if model.other_options is not None:
        yield (
            f"`{model.other_options.prefix}*`" if model.other_options.prefix else "others",
            "",
            "",
            model.other_options.description,
        )


def kind_of(schema: Mapping[str, Any]) -> str:
    """Return in words what a field takes, every form of it.

    >>> kind_of({"anyOf": [{"type": "string"}, {"const": False, "type": "boolean"}, {"type": "null"}]})
    'text or `false`'
    """
    parts = list(_parts(schema))
    if any(part.get("description") == "milliseconds" for part in parts):
        return "duration"
    if any(isinstance(part.get("type"), list) for part in parts):
        return "schema"
    has_words = any(_words(part) for part in parts)
    kinds: list[str] = []
    for part in parts:
        if words := _words(part):
            kinds += [f"`{word if isinstance(word, str) else json.dumps(word)}`" for word in words]
        elif not (has_words and "pattern" in part):
            # A reference is a mapping with fields of its own; a pattern beside words is another spelling of them.
            kinds.append(WORDS[part.get("type", "object")])
    *first, last = dict.fromkeys(kinds)
    mixed = any(kind in WORDS.values() for kind in kinds) and " or " not in last
    between = " or " if mixed else ", "
    return f"{', '.join(first)}{between}{last}" if first else last


def _parts(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    choices = schema.get("anyOf", schema.get("oneOf"))
    if choices is None:
        if schema.get("type") != "null":
            yield schema
        return
    for choice in choices:
        yield from _parts(choice)


def _words(part: Mapping[str, Any]) -> list[Any]:
    return [*part.get("enum", ()), *([part["const"]] if "const" in part else [])]


def _default(value: Any) -> str:
    if value in (None, [], {}):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"`{{{', '.join(f'{key}: {item}' for key, item in value.items() if item is not None)}}}`"
    return f"{value:,}" if isinstance(value, int) else f"`{value}`"


if __name__ == "__main__":
    for page_name in (*PAGES, DEAD_LETTERS):
        (FOLDER / page_name).write_text(page(page_name), encoding="utf-8")
    COOKBOOK.write_text(cookbook(), encoding="utf-8")
    NODES.mkdir(exist_ok=True)
    (NODES / "index.md").write_text(index(), encoding="utf-8")
    for node_kind, node_type in node_types():
        (NODES / f"{node_kind}-{node_type}.md").write_text(node_page(node_kind, node_type), encoding="utf-8")
