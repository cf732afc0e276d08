"""The source plugins of a query: they follow its epochs, and say why it failed when it was one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.plugin import KeyValues
from penstock.sources.plugin_feed import FeedRun, PluginFeed, find_feed
from penstock.sources.plugin_stream import FORMAT

if TYPE_CHECKING:
    from penstock.sinks.base import QueryStatus, Target
    from penstock.spark.micro_batch.plan import PlannedSource


class SourceFeeds:
    """The plugins that a query reads, in the order of its plan."""

    def __init__(self, feeds: Sequence[PluginFeed] = ()) -> None:
        self._feeds = tuple(feeds)

    @classmethod
    def of(cls, readings: Iterable[PlannedSource]) -> SourceFeeds:
        """Return the plugins among the sources of a plan."""
        names = dict.fromkeys(reading.options["feed"] for reading in readings if reading.source == FORMAT)
        return cls([feed for name in names if (feed := find_feed(name)) is not None])

    def open(self, target: Target, *, ends: bool, state: Callable[[str], KeyValues] | None = None) -> None:
        """Called before each run of the query; `state` returns the values of a source by its name."""
        named: Counter[str] = Counter()
        for feed in self._feeds:
            named[feed.name] += 1
            numbered = feed.name if named[feed.name] == 1 else f"{feed.name} {named[feed.name]}"
            name = feed.node or numbered
            labels = {**target.labels, **feed.labels}
            feed.open(
                FeedRun(
                    target.query,
                    target.name,
                    labels,
                    ends,
                    state=None if state is None else state(name),
                    target=replace(
                        target,
                        query=f"{target.query}-{name}",
                        name=f"{target.name}.{name}",
                        labels=labels,
                        state=None,
                    ),
                    waiting=_Waiting(target.status),
                )
            )

    def marker(self, epoch: int) -> None:
        """Called when the sink has the rows of an epoch."""
        for feed in self._feeds:
            feed.marker(epoch)

    def finalize(self, epoch: int) -> None:
        """Called when an epoch does not come again."""
        for feed in self._feeds:
            feed.finalize(epoch)

    def close(self) -> None:
        """Called after the last epoch."""
        for feed in self._feeds:
            feed.close()

    @property
    def failure(self) -> PenstockError | None:
        """The error of a plugin that ended the run."""
        return next((feed.failure for feed in self._feeds if feed.failure is not None), None)


class _Waiting:
    """Shows in the status of a query what a source waits for."""

    def __init__(self, status: QueryStatus) -> None:
        self._status = status

    def __call__(self, message: str | None) -> None:
        if message is None:
            self._status.resumed()
        else:
            self._status.waiting(message)
