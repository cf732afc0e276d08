"""A tick that lets a suspended view go on, with those that were suspended because of it."""

from __future__ import annotations

from time import perf_counter

from penstock.data.tick import Tick
from penstock.engine.event import ResumeEvent
from penstock.engine.graph import Graph
from penstock.engine.suspension import after_resume, resumed_with
from penstock.engine.tick import Journal, StagedTick, Ticked, run_atomically, summed_up, view_steps


def run_resume(graph: Graph, name: str, journal: Journal) -> Ticked:
    """Fill a suspended view from the rows that are there; when it fails again, it stays suspended with the new error.

    The tick has the time of the last one, so that the view belongs to the same moment as what it reads.
    """
    return run_atomically(graph, lambda: _stage(graph, name), ResumeEvent(name), journal)


def _stage(graph: Graph, name: str) -> StagedTick:
    started = perf_counter()
    tick = Tick(graph.state.ticks + 1, graph.state.micros)
    views = resumed_with(graph, name)
    stepped = graph.kernel.resume(views, tick)
    resumed = [view for view in views if view not in stepped.failures]
    suspended = after_resume(graph, resumed, stepped.failures)
    if name in stepped.failures:
        graph.state.suspended = suspended
        raise stepped.failures[name].error
    summary = summed_up(tick, view_steps(graph, stepped, suspended, resumed), started)
    return StagedTick(tick, Ticked(summary, stepped.outputs), suspended)
