"""The life of a source plugin without Spark: its side outputs follow its epochs."""

from __future__ import annotations

import gc
import json
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock import config
from penstock.plugin import TransientValues
from penstock.sinks.base import Target
from penstock.sources import plugin_stream
from penstock.sources.plugin_feed import FeedRun, FeedServer, PluginFeed
from penstock.streaming.source_feeds import SourceFeeds

SCHEMA = pa.schema([("id", pa.int64())])
ROWS = pa.RecordBatch.from_pylist([{"id": number} for number in range(3)], schema=SCHEMA)


class Copied(ps.SourcePlugin):
    """Gives its rows to a side output, too."""

    schema = SCHEMA
    bounded = True

    def initialize(self, context: Any) -> None:
        self.context = context

    def read(self, offset: Any, limit: int) -> Any:
        if offset is not None:
            return [], offset
        self.context.side_output("copies").write(ROWS)
        return [ROWS], 3


class Side:
    """A side output that keeps its rows."""

    def __init__(self) -> None:
        self.waiting = 0
        self.stored: list[tuple[str, int, int]] = []
        self.finalized: list[int] = []

    def check(self, spark: Any, *, name: str, settings: Any) -> None:
        pass

    def write(self, batch: pa.RecordBatch) -> None:
        self.waiting += batch.num_rows

    def discard(self) -> None:
        self.waiting = 0

    def store(self, target: Any, number: int) -> None:
        self.stored.append((target.query, number, self.waiting))
        self.waiting = 0

    def finalize(self, number: int) -> None:
        self.finalized.append(number)

    def close(self) -> None:
        self.waiting = 0


def _feed(side: Side, **fields: Any) -> PluginFeed:
    return PluginFeed(
        Copied,
        Copied.Options(),
        name="copied",
        schema=SCHEMA,
        batch_size=None,
        poll_interval_ms=0,
        side={"copies": side},
        **fields,
    )


def _target() -> Target:
    nothing: Any = SimpleNamespace()
    return Target(nothing, "q-1", "job", "append", nothing, settings=config.load())


def test_an_epoch_that_was_cut_short_comes_again_with_its_side_outputs_once() -> None:
    side = Side()
    feed = _feed(side)
    run = FeedRun("q-1", "job", {}, ends=False, target=_target())
    feed.open(run)
    feed.begin()
    first = feed.initial()
    end = feed.latest()
    assert side.waiting == 3
    # The sink has failed: the query begins again in the same process, and reads the epoch once more.
    feed.open(run)
    feed.begin()
    assert feed.plan(first, end)
    assert [batch.num_rows for batch in feed.rows(first, end)] == [3]
    feed.marker(0)
    feed.finalize(0)
    assert side.stored == [("q-1", 0, 3)]
    assert side.finalized == [0]


def test_every_source_of_a_query_has_its_own_name_labels_and_state() -> None:
    sides = [Side(), Side(), Side()]
    feeds = [
        _feed(sides[0]),
        _feed(sides[1], node="orders", labels={"team": "shop"}),
        _feed(sides[2]),
    ]
    asked: list[str] = []

    def state(name: str) -> TransientValues:
        asked.append(name)
        return TransientValues()

    together = SourceFeeds(feeds)
    together.open(_target(), ends=True, state=state)
    for feed in feeds:
        feed.begin()
        feed.initial()
        feed.latest()
    together.marker(0)
    assert [side.stored for side in sides] == [
        [("q-1-copied", 0, 3)],
        [("q-1-orders", 0, 3)],
        [("q-1-copied 3", 0, 3)],
    ]
    assert asked == ["copied", "orders", "copied 3"]
    assert [dict(feed._run.labels) for feed in feeds if feed._run] == [{}, {"team": "shop"}, {}]
    together.close()


def test_a_feed_goes_with_the_plan_that_has_it() -> None:
    server = FeedServer("127.0.0.1")
    planned, loaded = _feed(Side(), node="orders"), _feed(Side())
    server.add(planned, keep=False)
    server.add(loaded, keep=True)
    names = (planned.id, loaded.id)
    assert [server.find(name) is not None for name in names] == [True, True]
    del planned, loaded
    gc.collect()
    assert [server.find(name) is not None for name in names] == [False, True]


def test_a_caller_without_the_key_does_not_stop_the_server() -> None:
    server = FeedServer("127.0.0.1")
    for _ in range(3):
        with pytest.raises((AuthenticationError, OSError, EOFError)):
            Client(("127.0.0.1", server.port), authkey=b"no key")
    caller = Client(("127.0.0.1", server.port), authkey=server.key)
    caller.send_bytes(json.dumps({"feed": "none", "ask": "initial"}).encode())
    assert caller.recv_bytes().startswith(b"E")
    caller.close()


def test_a_source_of_a_pipeline_has_the_name_of_its_node() -> None:
    from penstock.sources.plugin import PluginSource

    source = PluginSource(Copied, {}, name="copied", labels={"team": "shop"})
    named = source.named("p", "orders")
    assert named is not source
    assert (named._node, named._labels, source._node) == ("orders", {"team": "shop"}, None)
    assert plugin_stream.FORMAT == "penstock_plugin"
