"""A transform of another package."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from penstock.pipeline.node import RowTransformNode
from penstock.pipeline.plugin_options import PluginNode
from penstock.plugin import TransformPlugin

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.transforms.base import Transform


class PluginTransformNode(PluginNode, RowTransformNode):
    """Rows through a `penstock.TransformPlugin`."""

    plugin: ClassVar[type[TransformPlugin]]

    def transform(self, settings: Settings) -> Transform:
        from penstock.transforms.plugin import PluginTransform

        return PluginTransform(
            self.plugin,
            self.plugin_options,
            name=self.plugin_name,
            settings=settings,
            side_sinks=self.side_outputs.sinks(settings),
        )
