"""The options of a plugin as part of its node: beside the fields of the node, or under `options:`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from penstock.options import Options
from penstock.pipeline.node import Node, SinkNode
from penstock.pipeline.nodes import SINK_NODES

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.sinks.base import Sink


class SideOutputs(Options):
    """The side outputs of a plugin: a sink for each, by the name that the plugin uses; `node_model` adds the fields."""

    def sinks(self, settings: Settings) -> dict[str, Sink]:
        """Return the sinks by their names."""
        nodes: dict[str, SinkNode] = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: node.sink(settings) for name, node in nodes.items()}

    def going_nowhere(self) -> SideOutputs:
        """Return the same side outputs, whose rows are not stored."""
        nowhere = SINK_NODES.load("blackhole").model_validate({"type": "blackhole", "from": ""})
        return self.model_copy(update=dict.fromkeys(type(self).model_fields, nowhere))


class PluginNode(Node):
    """The part of a plugin's node that refers to the plugin; `node_model` makes the complete model."""

    plugin: ClassVar[Any]
    """The class of the plugin."""
    plugin_name: ClassVar[str]
    """As users write it."""

    side_outputs: SideOutputs = Field(
        SideOutputs(),
        description="where rows go that the plugin gives to `context.side_output(name)`: by that name a "
        "sink with its fields, without `from`",
    )

    @property
    def plugin_options(self) -> Options:
        """The options of the plugin, checked."""
        nested = getattr(self, "options", None)
        if isinstance(nested, Options):
            return nested
        model: type[Options] = self.plugin.Options
        values = {name: getattr(self, name) for name in model.model_fields}
        # They were checked with the node: what its validators made of them is not checked again.
        return model.model_construct(
            set(values) & self.model_fields_set, **values, **(self.model_extra or {})
        )
