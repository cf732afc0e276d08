"""Write the tables of options in docs/reference/sinks.md, sources.md and view-sinks.md, from the models that check what users write.

tools/write_options.py              write the tables anew; a test says when they are not current
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.options import Options, option_fields, settings_of
from penstock.registry import Registry
from penstock.sinks import SINKS
from penstock.sinks.view_sink import VIEW_SINKS
from penstock.sources import SOURCES

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
PAGES: Mapping[str, Registry] = {"sinks.md": SINKS, "sources.md": SOURCES, "view-sinks.md": VIEW_SINKS}
BLOCK = re.compile(r"(<!-- options of (?P<name>\w+) -->\n).*?(<!-- end of options -->)", re.DOTALL)
WORDS = {"integer": "number", "boolean": "true or false", "string": "text", "object": "dictionary"}


def page(name: str) -> str:
    """Return a page with its tables as the models are today."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    return BLOCK.sub(
        lambda match: f"{match[1]}{table(options_of(PAGES[name], match['name']))}{match[3]}", text
    )


def names(name: str) -> set[str]:
    """Return the connectors whose options are on a page."""
    return {match["name"] for match in BLOCK.finditer((FOLDER / name).read_text(encoding="utf-8"))}


def options_of(registry: Registry, name: str) -> type[Options]:
    """Return the model of a connector."""
    model: type[Options] = registry.load(name).Options
    return model


def table(model: type[Options]) -> str:
    """Return the options of a model as a table: required ones first, inherited ones last."""
    rows = sorted(_rows(model), key=lambda row: row[2] != "required")
    lines = ["", "| option | type | default | meaning |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n\n"


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
        yield f"`{name}`", _kind(schema), default, str(schema["description"]).replace("|", "\\|")
    if model.other_options is not None:
        yield (
            f"`{model.other_options.prefix}*`" if model.other_options.prefix else "others",
            "",
            "",
            model.other_options.description,
        )


def _kind(schema: Mapping[str, Any]) -> str:
    parts = [part for part in schema.get("anyOf", [schema]) if part.get("type") != "null"]
    parts = [inner for part in parts for inner in part.get("anyOf", [part])]
    if any(part.get("description") == "milliseconds" for part in parts):
        return "duration"
    if any("enum" in part for part in parts):
        return ", ".join(f"`{word}`" for part in parts for word in part.get("enum", ()))
    if any(part.get("type") == "array" for part in parts):
        return "text or list"
    if any(isinstance(part.get("type"), list) for part in parts):
        return "schema"
    return ", ".join(dict.fromkeys(WORDS[part["type"]] for part in parts))


def _default(value: Any) -> str:
    if value in (None, [], {}):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else f"`{value}`"


if __name__ == "__main__":
    for page_name in PAGES:
        (FOLDER / page_name).write_text(page(page_name), encoding="utf-8")
