"""A sink of another package."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from penstock.pipeline.node import SinkNode
from penstock.pipeline.plugin_options import PluginNode
from penstock.plugin import SinkPlugin

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.sinks.base import Sink


class PluginSinkNode(PluginNode, SinkNode):
    """Rows into a `penstock.SinkPlugin`."""

    plugin: ClassVar[type[SinkPlugin]]

    @property
    def is_keyed(self) -> bool:
        return "append" not in self.plugin.modes

    def sink(self, settings: Settings) -> Sink:
        from penstock.sinks.plugin import PluginSink

        return PluginSink(
            self.plugin,
            self.plugin_options,
            name=self.plugin_name,
            settings=settings,
            side_sinks=self.side_outputs.sinks(settings),
        )
