"""Write the tables of options in docs/reference/sinks.md, sources.md and view-sinks.md, and a page for every type of node in pipelines in
docs/reference/nodes/, from the models that check what users write.

tools/write_options.py              write tables and pages anew; a test says when they are not current

The example of a node is the pipeline in examples/nodes/KIND-TYPE.yaml.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.options import Options, models_in, option_fields, settings_of
from penstock.pipeline.node import DeadLetter, Node
from penstock.pipeline.node_type import BUILT_IN, model_of
from penstock.pipeline.spec import Kind
from penstock.registry import Registry
from penstock.sinks import SINKS
from penstock.sinks.view_sink import VIEW_SINKS
from penstock.sources import SOURCES

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
NODES = FOLDER / "nodes"
EXAMPLES = Path(__file__).parents[1] / "examples" / "nodes"
PAGES: Mapping[str, Registry] = {"sinks.md": SINKS, "sources.md": SOURCES, "view-sinks.md": VIEW_SINKS}
DEAD_LETTERS = "dead-letters.md"
BLOCK = re.compile(r"(<!-- options of (?P<name>\w+) -->\n).*?(<!-- end of options -->)", re.DOTALL)
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
        return DeadLetter if name == DEAD_LETTERS else options_of(PAGES[name], connector)

    return BLOCK.sub(lambda match: f"{match[1]}{table(model(match['name']))}{match[3]}", text)


def names(name: str) -> set[str]:
    """Return the connectors whose options are on a page."""
    return {match["name"] for match in BLOCK.finditer((FOLDER / name).read_text(encoding="utf-8"))}


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
    parts = [f"# The {kind} `{name}`", _about(model), f"```yaml\n{example}\n```", "## Fields", table(model)]
    for field, inner in _nested(model):
        parts += [f"## Fields of `{field}`", _about(inner), table(inner)]
    parts = [LINK.sub(r"](../\1)", part) for part in parts]
    parts.append("What holds for all nodes is in [Files of pipelines](../pipelines.md#nodes).")
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


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
        yield f"`{name}`", kind_of(schema), default, str(schema["description"]).replace("|", "\\|")
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
    NODES.mkdir(exist_ok=True)
    for node_kind, node_type in node_types():
        (NODES / f"{node_kind}-{node_type}.md").write_text(node_page(node_kind, node_type), encoding="utf-8")
