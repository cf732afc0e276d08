"""A source of another package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from penstock.options import Count, Duration
from penstock.pipeline.node import SourceNode, labels_of
from penstock.pipeline.plugin_options import PluginNode
from penstock.plugin import SourcePlugin

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.sources.base import Source


class PluginSourceNode(PluginNode, SourceNode):
    """Rows of a `penstock.SourcePlugin`."""

    plugin: ClassVar[type[SourcePlugin]]

    batch_size: Count | None = Field(
        None, description="how many rows an epoch has at most; default: what the plugin says"
    )
    poll_interval: Duration = Field(
        100, description="how long it waits before it asks the plugin again after it had no rows"
    )

    @property
    def is_bounded(self) -> bool:
        return self.plugin.bounded

    @property
    def reads(self) -> Mapping[str, Any]:
        options = self.plugin_options
        shown = {name: value for name, value in options.__repr_args__() if name is not None}
        names = shown if self.plugin.identity is None else self.plugin.identity
        return {**super().reads, **{name: getattr(options, name, None) for name in names}}

    def source(self, settings: Settings) -> Source:
        from penstock.sinks.side_sink import SideSink
        from penstock.sources.plugin import PluginSource

        side_sinks = self.side_outputs.sinks(settings)
        return PluginSource(
            self.plugin,
            self.plugin_options,
            name=self.plugin_name,
            batch_size=self.batch_size,
            poll_interval_ms=self.poll_interval,
            side_outputs={name: SideSink(sink, name) for name, sink in side_sinks.items()},
            labels=labels_of(self),
            settings=settings,
        )
