"""A pipeline as it is understood: every node with its fields in one order and its defaults, and without secrets.

Variables stay `${VAR}`, also where a setting of the environment completes a node, so that what is printed is a pipeline again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from penstock.backend.address import hidden, hidden_values
from penstock.options import (
    Options,
    OptionsOwner,
    aliases_of,
    check_options,
    models_in,
    option_fields,
    settings_of,
)
from penstock.pipeline.fields import PipelineFields
from penstock.pipeline.load import Checked
from penstock.pipeline.node_type import SECTIONS
from penstock.pipeline.nodes import SOURCE_NODES
from penstock.pipeline.spec import NodeSpec
from penstock.pipeline.yaml_tree import MappingTree, WrittenFloat, WrittenInt, plain, resolved

HIDDEN = "***"
FIRST = ("type", "from", "primary_key")
WIDTH = 120

_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*)(?P<default>:-[^{}]*)?\}")


def echo(checked: Checked) -> str:
    """Return a pipeline as normalised YAML; raises when it has mistakes."""
    return yaml.dump(
        as_mapping(checked),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=WIDTH,
        default_flow_style=False,
    )


def as_json(checked: Checked) -> str:
    """Return a pipeline as JSON, which has one way to write a number: others are texts; raises when it has mistakes."""
    return json.dumps(_in_json(as_mapping(checked)), indent=2, ensure_ascii=False)


def _in_json(value: Any) -> Any:
    match value:
        case dict():
            return {name: _in_json(item) for name, item in value.items()}
        case list():
            return [_in_json(item) for item in value]
        case WrittenInt() | WrittenFloat():
            return value.text
    return value


def as_mapping(checked: Checked) -> dict[str, Any]:
    """Return a pipeline as dictionaries; raises when it has mistakes."""
    spec, tree = checked.spec, checked.tree
    assert isinstance(tree, MappingTree)
    written = plain(tree, written=True)
    result: dict[str, Any] = {"name": spec.name}
    for name in option_fields(PipelineFields):
        if written.get(name) is not None:
            result[name] = hidden_values(written[name])
    for section, kind in SECTIONS.items():
        trees = tree.get(section)
        nodes = {}
        for node in spec.of_kind(kind):
            node_tree = trees.get(node.name) if isinstance(trees, MappingTree) else None
            assert isinstance(node_tree, MappingTree)
            nodes[node.name] = _node(node, plain(node_tree, written=True), plain(node_tree))
        if nodes:
            result[section] = nodes
    if written.get("tests"):
        result["tests"] = written["tests"]
    return result


def _node(node: NodeSpec, written: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A node as it may be seen, of its fields as they are written and with the values of variables."""
    model = type(node.model)
    settings = settings_of(model)
    rest = dict(written)
    result: dict[str, Any] = {}
    fields = option_fields(model)
    for name in sorted(fields, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST)):
        alias = next((alias for alias in (name, *aliases_of(name, fields[name])) if alias in rest), None)
        if alias is not None:
            result[name] = _shown(rest.pop(alias), name, fields[name])
        elif name in settings:
            result[name] = f"${{{settings[name].variable}}}"
        elif (default := _default(fields[name])) is not None and _changes_nothing(
            node, values, name, default
        ):
            result[name] = default
    return {**result, **{name: _shown(value, name, None) for name, value in rest.items()}}


def _changes_nothing(node: NodeSpec, values: Mapping[str, Any], name: str, default: Any) -> bool:
    """Whether a node may have a field with its default; some fields are refused beside others, whatever their value is."""
    completed = {setting: getattr(node.model, setting) for setting in settings_of(type(node.model))}
    read, _ = check_options(
        type(node.model), {**completed, **values, name: default}, owner=OptionsOwner(node.name)
    )
    return read == node.model


def _shown(value: Any, name: str, field: FieldInfo | None) -> Any:
    """A value as it may be seen: a field that is not part of `repr`, or whose name is that of a secret, shows its
    variables only."""
    if isinstance(value, Mapping) and value.get("type") in SOURCE_NODES.builtin:
        # A source within a source has secrets of its own, and is none.
        return _fields(value, option_fields(SOURCE_NODES.load(value["type"])))
    is_secret = (field is not None and not field.repr) or hidden_values({name: "x"})[name] == HIDDEN
    if isinstance(value, Mapping):
        if is_secret:
            return {key: _hidden(item) for key, item in value.items()}
        return _fields(value, _inner(field))
    if isinstance(value, list):
        return [_hidden(item) if is_secret else _shown(item, "", field) for item in value]
    if is_secret:
        return _hidden(value)
    return hidden(value) if isinstance(value, str) else value


def _fields(values: Mapping[str, Any], fields: Mapping[str, FieldInfo]) -> dict[str, Any]:
    by_alias = {alias: field for name, field in fields.items() for alias in (name, *aliases_of(name, field))}
    return {key: _shown(item, key, by_alias.get(key)) for key, item in values.items()}


def _inner(field: FieldInfo | None) -> dict[str, FieldInfo]:
    """The fields of the models that a value may be, directly or in a list or a mapping."""
    models = models_in(field.annotation) if field is not None else ()
    return {name: inner for model in models for name, inner in option_fields(model).items()}


def _hidden(value: Any) -> Any:
    """What is shown of a secret: the variable that it comes from."""
    variable = _VARIABLE.fullmatch(value) if isinstance(value, str) else None
    if value is None or variable is None:
        return None if value is None else HIDDEN
    return f"${{{variable['name']}:-{HIDDEN}}}" if variable["default"] else value


def _default(field: FieldInfo) -> Any:
    """The default of a field as users write it; None when there is nothing to show."""
    default = None if field.default is PydanticUndefined else field.default
    if isinstance(default, Options):
        values = {
            name: getattr(default, name)
            for name in type(default).model_fields
            if name in default.model_fields_set
        }
        return {name: value for name, value in values.items() if value is not None} or None
    is_plain = isinstance(default, str | int | float) and default != ""
    return default if is_plain else None


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, short lists in one line, and quotes whatever would be read as something else."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_block = "\n" in text.strip("\n") and not any(line.endswith((" ", "\t")) for line in text.split("\n"))
    style = "|" if is_block else None if resolved(text) is text else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    is_short = all(isinstance(item, str | int | float | bool | None) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=is_short)


def _number(dumper: yaml.SafeDumper, number: WrittenInt | WrittenFloat) -> yaml.ScalarNode:
    # As it was written, without a tag where YAML 1.1 would have read it differently.
    tag: str = dumper.resolve(yaml.ScalarNode, number.text, (True, False))  # type: ignore[no-untyped-call]
    return dumper.represent_scalar(tag, number.text)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(WrittenInt, _number)
_Dumper.add_representer(WrittenFloat, _number)
_Dumper.add_representer(list, _list)
