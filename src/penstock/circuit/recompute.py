"""Views computed again from all rows of what they read, each in a circuit of its own that is then dropped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter

from penstock.circuit.circuit import Circuit, SteppedCircuit, VertexOwner
from penstock.circuit.compile import Fragment, Shared
from penstock.circuit.kernel import ViewFailure
from penstock.circuit.recursive import ViewCompiler
from penstock.circuit.relations import Relations, ViewVertex
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat, empty
from penstock.data.tick import Tick
from penstock.operators.linear import Feed
from penstock.plan.node import View


def step_recomputing(
    relations: Relations, changes: Mapping[int, Delta], tick: Tick, optional: frozenset[str]
) -> tuple[SteppedCircuit, dict[str, ViewFailure]]:
    """Step the sources, and every dirty view with the difference to its rows; optional views may fail."""
    sources = [entry.vertex_id for entry in relations.sources.values()]
    first = relations.circuit.step(changes, tick, only=_with_indexes(relations.circuit, sources))
    active = [entry for entry in relations.views.values() if not entry.suspended]
    stepped, failures = step_views(relations, active, first.outputs, tick, optional=optional)
    return SteppedCircuit(stepped.outputs, {**first.seconds, **stepped.seconds}), failures


def step_views(
    relations: Relations,
    views: Iterable[ViewVertex],
    changed: Mapping[int, Delta],
    tick: Tick,
    *,
    optional: frozenset[str],
    all_dirty: bool = False,
) -> tuple[SteppedCircuit, dict[str, ViewFailure]]:
    """Step views with the differences to their rows: those that read what has changed, or all."""
    circuit = relations.circuit
    outputs, seconds = dict(changed), dict[int, float]()
    failures: dict[str, ViewFailure] = {}
    for entry in views:
        behind = next((name for name in failures if name in entry.reads), None)
        if behind is not None:
            cause = failures[behind]
            failures[entry.name] = ViewFailure(cause.error, cause.because or behind)
        elif all_dirty or _is_dirty(relations, entry, outputs):
            started = perf_counter()
            try:
                new = rows_after(relations, entry, outputs, tick)
                difference = consolidate(concat([new, -entry.output.all_rows()]))
            except BaseException as error:
                if not isinstance(error, Exception) or entry.name not in optional:
                    circuit.rollback()
                    raise
                failures[entry.name] = ViewFailure(error)
                continue
            vertex_ids = _with_indexes(circuit, [entry.vertex_id])
            outputs |= circuit.step({entry.vertex_id: difference}, tick, only=vertex_ids).outputs
            seconds[entry.vertex_id] = perf_counter() - started
    return SteppedCircuit(outputs, seconds), failures


def rows_after(relations: Relations, entry: ViewVertex, outputs: Mapping[int, Delta], tick: Tick) -> Delta:
    """All rows of a view over what it reads, with the changes of this tick."""
    rows: dict[str, Delta] = {}
    for name in entry.reads:
        vertex_id = relations.vertex_id(name)
        contents = relations.circuit.vertices[vertex_id].contents
        assert contents is not None
        rows[name] = contents.now()
        if vertex_id in outputs:
            rows[name] = consolidate(concat([rows[name], outputs[vertex_id]]))
    return recompute(entry.view, rows, entry.fragment, tick, relations.narrowed())


def recompute(
    view: View,
    rows: Mapping[str, Delta],
    fragment: Fragment,
    tick: Tick,
    narrowed: Mapping[str, tuple[int, ...]],
) -> Delta:
    """Return all rows of a view over these rows of its relations, some of which keep only some columns. Cost: data."""
    circuit = Circuit()
    feeds = {
        name: circuit.add(Feed(), (), [column.type for column in delta.columns])
        for name, delta in rows.items()
    }
    compiler = ViewCompiler(circuit, feeds, Shared(), fragment, added=list(feeds.values()), narrowed=narrowed)
    root = compiler.compile(view.root)
    circuit.own(circuit.vertices, VertexOwner("view", view.name))
    stepped = circuit.fill(compiler.added, {feeds[name]: delta for name, delta in rows.items()}, tick)
    if root not in stepped.outputs:
        return empty([column.type for column in circuit.vertices[root].nothing.columns])
    return consolidate(stepped.outputs[root])


def _is_dirty(relations: Relations, entry: ViewVertex, outputs: Mapping[int, Delta]) -> bool:
    return entry.view.uses_time or any(relations.vertex_id(name) in outputs for name in entry.reads)


def _with_indexes(circuit: Circuit, vertex_ids: Sequence[int]) -> list[int]:
    """Vertices, and those that keep their rows by key behind them."""
    reached = set(vertex_ids)
    for vertex_id, vertex in circuit.vertices.items():
        if any(below in reached for below in vertex.inputs):
            reached.add(vertex_id)
    return [vertex_id for vertex_id in circuit.vertices if vertex_id in reached]
