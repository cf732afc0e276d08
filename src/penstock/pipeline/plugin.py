"""Plugins as nodes of pipelines: `type:` names an entry point of an installed package, or is `python` with the class
in `module:`.

The options of a plugin are beside the fields of the node, or all of them under `options:`. When an option has the
name of a field of the node (`type`, `from`, `primary_key` ...) or of a property of its class (`mode`, `source`,
`sink` ...), all options are under `options:`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import ConfigDict, Field, create_model

from penstock.errors import ConfigError, suggest
from penstock.options import Options, option_fields
from penstock.pipeline.node import Node
from penstock.pipeline.nodes import SINK_NODES, SOURCE_NODES, TRANSFORM_NODES
from penstock.pipeline.plugin_options import PluginNode, SideOutputs
from penstock.pipeline.sinks.plugin import PluginSinkNode
from penstock.pipeline.sources.plugin import PluginSourceNode
from penstock.pipeline.spec import Kind
from penstock.pipeline.transforms.plugin import PluginTransformNode
from penstock.plugin import SinkPlugin, SourcePlugin, TransformPlugin, imported
from penstock.registry import Registry

PYTHON = "python"
"""The type of a plugin that has no entry point."""

_BUILT_IN: dict[Kind, Registry] = {
    "source": SOURCE_NODES,
    "transform": TRANSFORM_NODES,
    "sink": SINK_NODES,
}
_PLUGINS: dict[Kind, Registry] = {kind: Registry(kind, {}, group=f"penstock.{kind}s") for kind in _BUILT_IN}
_CLASSES: dict[Kind, type[Any]] = {"source": SourcePlugin, "transform": TransformPlugin, "sink": SinkPlugin}
_MODELS: dict[Kind, type[PluginNode]] = {
    "source": PluginSourceNode,
    "transform": PluginTransformNode,
    "sink": PluginSinkNode,
}


class _AnyOptions(Options):
    model_config = ConfigDict(extra="allow")


_MODULE = "the class of the plugin, as `my_module:MyClass`"


def type_names(kind: Kind) -> list[str]:
    """Return the values that `type:` may have: the built-in nodes, `python`, and the plugins that are installed."""
    return [*_BUILT_IN[kind].names(), PYTHON, *_PLUGINS[kind].names()]


def node_model(kind: Kind, type: str, fields: Mapping[str, Any]) -> type[Node]:
    """Return the model of a plugin's node for the fields that the user wrote.

    An unknown type is a `ConfigError` that suggests the nearest of all types; so is a class that is no plugin, or
    cannot be imported.
    """
    if type == PYTHON:
        name = _module_of(kind, fields)
        plugin = imported(name)
        name = name.partition(":")[2]
    elif type in _PLUGINS[kind]:
        plugin, name = _PLUGINS[kind].load(type), type
    else:
        raise ConfigError(
            f"unknown {kind} '{type}'",
            code=f"UNKNOWN_{kind.upper()}",
            hint=suggest(type, type_names(kind), what=kind),
        )
    model = _model(
        kind, _checked(kind, plugin, name), name, python=type == PYTHON, nested="options" in fields
    )
    sides = fields.get("side_outputs")
    return _with_side_outputs(model, sides) if isinstance(sides, Mapping) and sides else model


def python_model(kind: Kind) -> type[Node]:
    """Return the model of plugins without an entry point, for any class: its options are not known."""
    bases: tuple[type[Any], ...] = (_MODELS[kind], _AnyOptions)
    model: type[Node] = create_model(
        f"Python{kind.capitalize()}Node",
        __base__=bases,
        __doc__="A plugin by its class.",
        module=(str, Field(description=_MODULE)),
        options=(dict[str, Any], Field({}, description="the options of the plugin, or beside the fields")),
    )
    return model


def _module_of(kind: Kind, fields: Mapping[str, Any]) -> str:
    module = fields.get("module")
    if module is None:
        raise ConfigError(
            f"a {kind} of type python needs the field 'module'",
            code="PLUGIN_MODULE",
            hint=f"add module: my_module:My{kind.capitalize()}",
        )
    name, _, attribute = str(module).partition(":")
    if not (name and attribute):
        raise ConfigError(
            f'module must be "my_module:My{kind.capitalize()}", got {module!r}', code="PLUGIN_MODULE"
        )
    return str(module)


def _checked(kind: Kind, plugin: Any, name: str) -> Any:
    wanted = _CLASSES[kind]
    if not (isinstance(plugin, type) and issubclass(plugin, wanted)):
        raise ConfigError(
            f"'{name}' is no {kind} plugin: {plugin!r}",
            code="PLUGIN_KIND",
            hint=f"it must be a subclass of penstock.{wanted.__name__}",
        )
    return plugin


def _with_side_outputs(model: type[PluginNode], sides: Mapping[Any, Any]) -> type[PluginNode]:
    """The model in which the side outputs that the user wrote are the sinks that they name."""
    models: dict[str, Any] = {
        str(name): (_side_sink(str(name), fields), ...) for name, fields in sides.items()
    }
    outputs = create_model("SideOutputs", __base__=SideOutputs, **models)
    described = model.model_fields["side_outputs"].description
    return create_model(
        model.__name__,
        __base__=model,
        __doc__=model.__doc__,
        side_outputs=(outputs, Field(description=described)),
    )


def _side_sink(name: str, fields: Any) -> type[Node]:
    if (
        not isinstance(fields, Mapping)
        or "type" not in fields
        or not name.isidentifier()
        or name.startswith("_")
    ):
        raise ConfigError(
            f"the side output '{name}' must be a sink with a type, under a name of letters and digits",
            code="PLUGIN_SIDE_OUTPUT",
            hint="for example side_outputs: {rejected: {type: file, path: rejected/}}",
        )
    kind = str(fields["type"])
    model = SINK_NODES.load(kind) if kind in SINK_NODES.builtin else node_model("sink", kind, fields)
    return create_model(
        f"{model.__name__}SideOutput",
        __base__=model,
        from_=(str, Field("", validation_alias="from", exclude=True)),
    )


@lru_cache(maxsize=256)
def _model(kind: Kind, plugin: Any, name: str, *, python: bool, nested: bool) -> type[PluginNode]:
    base = _MODELS[kind]
    own: dict[str, Any] = {"module": (str, Field(description=_MODULE))} if python else {}
    # An option with the name of a field would be that field, and one with the name of a property never be read.
    properties = {name for part in base.__mro__ if issubclass(part, Node) for name in vars(part)}
    taken = option_fields(base).keys() | base.model_fields.keys() | own.keys() | properties | {"options"}
    options = plugin.Options
    bases: tuple[type[Any], ...] = (base,)
    if nested or not taken.isdisjoint(option_fields(options).keys() | options.model_fields.keys()):
        own["options"] = (options, Field(description="the options of the plugin"))
    else:
        bases = (base, options)
    model = create_model(f"{plugin.__name__}Node", __base__=bases, __doc__=plugin.__doc__, **own)
    model.plugin, model.plugin_name = plugin, name
    return model
