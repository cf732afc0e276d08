"""A plugin as a source."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from penstock.data.schema import to_arrow_schema, to_ddl
from penstock.errors import ConfigError
from penstock.options import Options, OptionsOwner, read_options
from penstock.plugin import SourcePlugin
from penstock.sources import plugin_feed
from penstock.sources.base import Source, SourceContext, SourceFrame
from penstock.sources.plugin_feed import PluginFeed, SideStore
from penstock.sources.plugin_stream import FORMAT, data_source

if TYPE_CHECKING:
    from penstock.config import Settings

POLL_INTERVAL_MS = 100
_LOOPBACK = "127.0.0.1"


class PluginSource(Source):
    """Rows of a `penstock.SourcePlugin`."""

    location: ClassVar[str | None] = None

    def __init__(
        self,
        kind: type[SourcePlugin],
        options: Mapping[str, Any] | Options,
        *,
        name: str,
        batch_size: int | None = None,
        poll_interval_ms: int = POLL_INTERVAL_MS,
        side_outputs: Mapping[str, SideStore] | None = None,
        labels: Mapping[str, str] | None = None,
        settings: Settings | None = None,
    ) -> None:
        """Check the options, unless they are checked already; `side_outputs` are there by their names."""
        self._plugin_kind = kind
        self._name = name
        self._batch_size = batch_size
        self._poll_interval_ms = poll_interval_ms
        self._side = dict(side_outputs or {})
        self._labels = dict(labels or {})
        self._node: str | None = None
        self._context: SourceContext | None = None
        self._feed: PluginFeed | None = None
        owner = OptionsOwner(f"the {name} source", code="SOURCE_OPTION", syntax="{name}={value}")
        self.options = read_options(kind.Options, options, owner=owner, settings=settings)

    @property
    def kind(self) -> str:
        return self._name

    def named(self, pipeline: str, node: str) -> Self:
        """Return the source as a node of a pipeline, under whose name it keeps its state."""
        named = copy.copy(self)
        named._node = node
        return named

    def check(self) -> None:
        """Called by a dry run and before the first start: try the connections of the side outputs."""
        context = self._context
        if context is not None:
            for side in self._side.values():
                side.check(context.spark, name=self._node or self._name, settings=context.settings)

    def read(self, context: SourceContext) -> SourceFrame:
        from pyspark.sql.pandas.types import to_arrow_schema as arrow_of_spark
        from pyspark.sql.types import StructType

        declared = self._plugin_kind(self.options).schema
        if declared is None:
            raise ConfigError(
                f"the source plugin {self._name} does not say which columns it has",
                code="PLUGIN_SCHEMA",
                hint='declare them: schema = "id BIGINT, name STRING"',
            )
        ddl = to_ddl(to_arrow_schema(declared))
        self._context, spark = context, context.spark
        fields: Any = StructType.fromDDL(ddl)
        feed = PluginFeed(
            self._plugin_kind,
            self.options,
            name=self._name,
            schema=arrow_of_spark(fields),
            batch_size=self._batch_size,
            poll_interval_ms=self._poll_interval_ms,
            side=self._side,
            node=self._node,
            labels=self._labels,
        )
        host = (
            _LOOPBACK
            if str(spark.sparkContext.master).startswith("local")
            else spark.conf.get("spark.driver.host")
        )
        assert host is not None
        server = plugin_feed.server(host)
        # A pipeline has its sources as long as it needs them; nobody knows how long the plan of a stream is used.
        self._feed = feed
        server.add(feed, keep=self._node is None)
        spark.dataSource.register(data_source())
        reader = spark.readStream.format(FORMAT).options(
            feed=feed.id, host=host, port=str(server.port), token=server.key.hex(), ddl=ddl
        )
        return SourceFrame(reader.load())


def leading(kind: type[SourcePlugin], name: str) -> type[Source]:
    """Return the class of the sources that lead a plugin; it is made of options as every other source is."""

    class LeadingSource(PluginSource):
        __doc__ = kind.__doc__
        Options = kind.Options

        def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
            super().__init__(kind, options, name=name, settings=settings)

    return LeadingSource
