"""A tick that lets a suspended view go on, with those that were suspended because of it."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

from penstock.data.huge_pages import plain_pages
from penstock.data.tick import Tick
from penstock.engine.graph import Graph
from penstock.engine.suspension import after_resume, resumed_with
from penstock.engine.tick import Ticked, finish, summed_up, view_steps
from penstock.errors import StateError


def run_resume(graph: Graph, name: str) -> Ticked:
    """Fill a suspended view from the rows that are there; when it fails again, it stays suspended with the new error.

    The tick has the time of the last one, so that the view belongs to the same moment as what it reads.
    """
    started = perf_counter()
    tick = Tick(graph.state.ticks + 1, graph.state.micros)
    views = resumed_with(graph, name)
    final = False
    try:
        with plain_pages():
            stepped = graph.kernel.resume(views, tick)
            resumed = [view for view in views if view not in stepped.failures]
            suspended = after_resume(graph, resumed, stepped.failures)
            if name in stepped.failures:
                graph.state.suspended = suspended
                raise stepped.failures[name].error
            ticked = Ticked(
                summed_up(tick, view_steps(graph, stepped, suspended, resumed), started), stepped.outputs
            )
            final = True
            finish(graph, tick, suspended)
    except BaseException as error:
        if not final:
            graph.kernel.rollback()
            raise
        if isinstance(error, StateError):
            raise
        finish(graph, tick, suspended)
        return replace(ticked, interrupt=error)
    return ticked
