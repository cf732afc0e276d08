"""A pipeline as it is understood: every node with its fields in one order and its defaults, and without secrets.

Variables stay `${VAR}`, also where a setting of the environment completes a node, so that what is printed is a pipeline again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from penstock.backend.address import hidden, hidden_values
from penstock.options import Options, models_in, option_fields, settings_of
from penstock.pipeline.fields import PipelineFields
from penstock.pipeline.load import Checked
from penstock.pipeline.node_type import SECTIONS
from penstock.pipeline.spec import NodeSpec
from penstock.pipeline.yaml_tree import MappingTree, plain, resolved

HIDDEN = "***"
FIRST = ("type", "from", "primary_key")
WIDTH = 120

_ONE_VARIABLE = re.compile(r"\$\{[A-Za-z_]\w*\}")


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
        nodes = {node.name: _node(node, written[section][node.name]) for node in spec.of_kind(kind)}
        if nodes:
            result[section] = nodes
    if written.get("tests"):
        result["tests"] = written["tests"]
    return result


def _node(node: NodeSpec, written: Mapping[str, Any]) -> dict[str, Any]:
    fields = option_fields(type(node.model))
    settings = settings_of(type(node.model))
    result: dict[str, Any] = {}
    for name in sorted(fields, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST)):
        field = fields[name]
        if name in written:
            result[name] = _shown(written[name], name, field)
        elif name in settings:
            result[name] = f"${{{settings[name].variable}}}"
        elif (default := _default(field)) is not None:
            result[name] = default
    for name, value in written.items():
        if name not in fields:
            result[name] = _shown(value, name, None)
    return result


def _shown(value: Any, name: str, field: FieldInfo | None) -> Any:
    """A value as it may be seen: a field that is not part of `repr`, or whose name says secret, shows its variables only."""
    is_secret = (field is not None and not field.repr) or hidden_values({name: "x"})[name] == HIDDEN
    inner = {
        key: inner
        for model in (models_in(field.annotation) if field else ())
        for key, inner in option_fields(model).items()
    }
    match value:
        case Mapping():
            return {
                key: HIDDEN if is_secret and not _is_variable(item) else _shown(item, key, inner.get(key))
                for key, item in value.items()
            }
        case list():
            return [
                HIDDEN if is_secret and not _is_variable(item) else _in_list(item, inner) for item in value
            ]
        case str() if not _is_variable(value):
            return HIDDEN if is_secret else hidden(value)
    return HIDDEN if is_secret and value is not None and not _is_variable(value) else value


def _in_list(value: Any, inner: Mapping[str, FieldInfo]) -> Any:
    if isinstance(value, Mapping):
        return {key: _shown(item, key, inner.get(key)) for key, item in value.items()}
    return hidden(value) if isinstance(value, str) else value


def _is_variable(value: Any) -> bool:
    return isinstance(value, str) and _ONE_VARIABLE.fullmatch(value) is not None


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


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)
