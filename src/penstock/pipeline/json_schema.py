"""The JSON schema of the files of pipelines, made of the models: editors complete and check what is typed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic.json_schema import models_json_schema

from penstock.options import IgnoringCase, Options, aliases_of, literals, option_fields
from penstock.pipeline.fields import PipelineFields, TestFields
from penstock.pipeline.node import Node
from penstock.pipeline.node_type import BUILT_IN, SECTIONS, model_of, type_names
from penstock.pipeline.plugin import PYTHON, python_model
from penstock.pipeline.spec import Kind
from penstock.pipeline.validation import NOTES

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NAMES = r"^[^\s.]([^\s]*[^\s.])?$"
SIDE_NAMES = r"^[^\W\d_]\w*$"
HYBRID = "hybrid"
VARIABLE = {"type": "string", "pattern": r"\$\{", "description": "a variable: `${VAR}` or `${VAR:-default}`"}
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")

_ABOUT: Mapping[Kind, str] = {
    "source": "where rows come from, by names",
    "transform": "what happens to them on their way, by names",
    "sink": "where they go, by names",
}


def json_schema(types: Mapping[Kind, list[str]] | None = None) -> dict[str, Any]:
    """Return the schema; `types` adds plugins to the built-in nodes, by the names of their entry points."""
    models = {
        (kind, name): model for kind in BUILT_IN for name, model in _models(kind, (types or {}).get(kind, []))
    }
    every: list[type[Options]] = [PipelineFields, TestFields, *models.values()]
    references, document = models_json_schema(
        [(model, "validation") for model in every], ref_template="#/$defs/{model}"
    )
    definitions = document["$defs"]
    for (_, name), model in models.items():
        definition = _definition(references[model, "validation"], definitions)
        definition["properties"]["type"] = {"const": name, "description": "what the node is"}
        definition["required"] = [
            "type",
            *(field for field in definition.get("required", ()) if field != "type"),
        ]
        _take_any_case(definition, model)
        _take_aliases(definition, model)
    for definition in definitions.values():
        _take_numbers_as_text(definition)
        _take_variables(definition)
        for schema in (
            *definition.get("properties", {}).values(),
            *definition.get("patternProperties", {}).values(),
        ):
            # Pydantic's titles only repeat the names, and links are those of the documentation.
            schema.pop("title", None)
            if "description" in schema:
                schema["description"] = _LINK.sub(r"\1", schema["description"])
    nodes: dict[Kind, dict[str, dict[str, Any]]] = {kind: {} for kind in BUILT_IN}
    for (kind, name), model in models.items():
        nodes[kind][name] = references[model, "validation"]
    _nest_sources(nodes["source"], definitions)
    _nest_side_outputs(nodes["sink"], definitions)
    pipeline = _definition(references[PipelineFields, "validation"], definitions)
    properties = dict(pipeline["properties"])
    for section, kind in SECTIONS.items():
        properties[section] = _section(kind, nodes[kind])
    properties["tests"] = {
        "description": "tests of the pipeline, for `penstock test`",
        "type": ["array", "null"],
        "items": references[TestFields, "validation"],
    }
    return {
        "$schema": DIALECT,
        "title": "A pipeline of penstock",
        "type": "object",
        "properties": properties,
        "patternProperties": {f"^{NOTES}": {"description": "for anchors, otherwise not looked at"}},
        "additionalProperties": False,
        "required": ["sources", "sinks"],
        "$defs": definitions,
    }


def _models(kind: Kind, plugins: list[str]) -> Iterator[tuple[str, type[Node]]]:
    for name in BUILT_IN[kind].builtin:
        yield name, model_of(kind, name, {})
    yield PYTHON, python_model(kind)
    for name in plugins:
        yield name, model_of(kind, name, {})


def _definition(reference: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    name = str(reference["$ref"]).rpartition("/")[2]
    definition: dict[str, Any] = definitions[name]
    return definition


def _nest_sources(sources: Mapping[str, Mapping[str, Any]], definitions: dict[str, Any]) -> None:
    """Let the parts of a hybrid source be sources."""
    part = _node("source", {name: reference for name, reference in sources.items() if name != HYBRID})
    fields = _definition(sources[HYBRID], definitions)["properties"]
    for name in ("history", "live"):
        fields[name] = {"description": fields[name]["description"], **part}


def _nest_side_outputs(sinks: Mapping[str, Mapping[str, Any]], definitions: dict[str, Any]) -> None:
    """Let the side outputs of plugins be sinks without `from`."""
    sides = {}
    for name, reference in sinks.items():
        of_sink = str(reference["$ref"]).rpartition("/")[2]
        sink = definitions[of_sink]
        definitions[f"{of_sink}SideOutput"] = {
            **sink,
            "properties": {field: kind for field, kind in sink["properties"].items() if field != "from"},
            "required": [field for field in sink["required"] if field != "from"],
        }
        sides[name] = {"$ref": f"{reference['$ref']}SideOutput"}
    definitions.pop("SideOutputs", None)
    for definition in definitions.values():
        outputs = definition.get("properties", {}).get("side_outputs")
        if outputs is not None:
            definition["properties"]["side_outputs"] = {
                "description": outputs["description"],
                "type": "object",
                "propertyNames": {"pattern": SIDE_NAMES},
                "additionalProperties": _node("sink", sides),
            }


def _section(kind: Kind, nodes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "description": _ABOUT[kind],
        "type": "object" if kind != "transform" else ["object", "null"],
        "propertyNames": {"pattern": NAMES},
        "additionalProperties": _node(kind, nodes),
    }


def _node(kind: Kind, nodes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["type"],
        "properties": {
            "type": {
                "description": f"what the {kind} is; other names are those of plugins",
                "anyOf": [{"enum": list(nodes)}, {"type": "string"}],
            }
        },
        "allOf": [
            {"if": {"properties": {"type": {"const": name}}, "required": ["type"]}, "then": dict(reference)}
            for name, reference in nodes.items()
        ],
    }


def _take_any_case(definition: dict[str, Any], model: type[Options]) -> None:
    """Let words be written in any case where the model takes them so; editors offer them in lower case."""
    for name, field in option_fields(model).items():
        if IgnoringCase not in field.metadata:
            continue
        schema = definition["properties"][name]
        words = literals(field.annotation)
        pattern = "|".join("".join(_either_case(letter) for letter in word) for word in words)
        inside = {key: schema.pop(key) for key in ("anyOf", "enum", "type") if key in schema}
        alternatives = inside.get("anyOf", [inside])
        schema["anyOf"] = [*alternatives, {"type": "string", "pattern": f"^({pattern})$"}]


def _either_case(letter: str) -> str:
    return f"[{letter.upper()}{letter.lower()}]" if letter.isalpha() else re.escape(letter)


def _take_aliases(definition: dict[str, Any], model: type[Options]) -> None:
    """Let a field be written under its other names."""
    for name, field in option_fields(model).items():
        _, *others = aliases_of(name, field)
        if not others:
            continue
        schema = definition["properties"][name]
        for other in others:
            definition["properties"][other] = {**schema, "description": f"another name for `{name}`"}
        if name in definition["required"]:
            definition["required"].remove(name)
            choices = [{"required": [alias]} for alias in (name, *others)]
            definition.setdefault("allOf", []).append({"anyOf": choices})


def _take_numbers_as_text(definition: Mapping[str, Any]) -> None:
    """Allow a number where a text or a list of texts is expected: a password may be a number, and the name of a column."""
    for schema in definition.get("properties", {}).values():
        parts = [part for part in schema.get("anyOf", [schema]) if part.get("type") not in ("null", "array")]
        if len(parts) == 1 and parts[0].get("type") == "string" and not {"enum", "const"} & parts[0].keys():
            parts[0]["type"] = ["string", "number"]


def _take_variables(definition: dict[str, Any]) -> None:
    """Allow a variable wherever something else than a text is expected."""
    for name, schema in definition.get("properties", {}).items():
        if "const" in schema or _takes_text(schema):
            continue
        outside = {
            key: schema[key] for key in ("description", "title", "default", "examples") if key in schema
        }
        inside = {key: value for key, value in schema.items() if key not in outside}
        alternatives = inside["anyOf"] if set(inside) == {"anyOf"} else [inside]
        definition["properties"][name] = {**outside, "anyOf": [*alternatives, VARIABLE]}


def _takes_text(schema: Mapping[str, Any]) -> bool:
    kinds = schema.get("type", ())
    if not schema or ((kinds == "string" or "string" in kinds) and not {"enum", "pattern"} & schema.keys()):
        return True
    return any(_takes_text(part) for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ())))


def installed_plugins() -> dict[Kind, list[str]]:
    """Return the types of plugins that are installed and can be loaded."""
    result: dict[Kind, list[str]] = {}
    for kind, registry in BUILT_IN.items():
        result[kind] = [
            name
            for name in type_names(kind)
            if name not in (*registry.builtin, PYTHON) and _loads(kind, name)
        ]
    return result


def _loads(kind: Kind, name: str) -> bool:
    try:
        model_of(kind, name, {}).model_json_schema()
    except Exception:
        # A pipeline with this plugin reports why; the schema of all other nodes is written.
        return False
    return True
