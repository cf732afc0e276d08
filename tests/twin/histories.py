"""Histories of flows side by side: views that fail, are suspended and go on, and what a flow remembers of them."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

import penstock as ps
from penstock.engine.registration import Prepared, install
from penstock.plan import node as plan
from twin.durable import add_view, state
from twin.failing import FAILING, READS
from twin.flows import VIEWS, no_fragment


def add(one: ps.IncrementalFlow, name: str) -> None:
    """A view that may fail and is suspended then, or one that does not."""
    if name in one._graph.views:
        return
    for below in READS.get(name, ()):
        add(one, below)
        if below not in one._graph.views:
            return
    if name in VIEWS:
        add_view(one, name)
    else:
        view = plan.View(name, "", FAILING[name])
        # It may fail on the rows that are there.
        with suppress(ps.DataError, ps.StateError):
            install(one._graph, Prepared(view, no_fragment, on_error="suspend"), 0)


def resume(one: ps.IncrementalFlow) -> list[Any]:
    """Let all views go on that can; what each of them said."""
    said: list[Any] = []
    # Of views that one tick has suspended, any may be the first.
    for name, stopped in sorted(one._graph.state.suspended.items(), key=lambda item: item[0]):
        if stopped.because is None and name in one._graph.state.suspended:
            try:
                said.append(one.resume_view(name).rows_out)
            except (ps.DataError, ps.StateError) as error:
                said.append(error.code)
    return said


def remembered(one: ps.IncrementalFlow) -> Any:
    """What a flow remembers, whatever the order of rows."""
    saved = state(one)
    quarantined = [Counter(map(str, one.quarantined(name).to_pylist())) for name in saved["sources"]]
    suspended = {
        name: (stopped.tick, stopped.code, stopped.because)
        for name, stopped in one._graph.state.suspended.items()
    }
    return saved["ticks"], quarantined, suspended


def drop_some(rng: Random, flows: list[ps.IncrementalFlow]) -> None:
    """Sometimes drop a view that nobody reads."""
    if not flows[0]._graph.views:
        return
    name = rng.choice(list(flows[0]._graph.views))
    if rng.random() < 0.2 and not flows[0]._graph.readers(name):
        for one in flows:
            one.drop_view(name)
