"""Steps that go on without views that fail, and steps in which suspended views come back.

A suspended view has its rows and nothing else in the circuit. When it is resumed, its operators are compiled and
filled anew, beside the last rows, which stay until the commit: the difference is the change of the view.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.circuit.circuit import SteppedCircuit, VertexOwner
from penstock.circuit.kernel import ViewFailure
from penstock.circuit.relations import Relations, ViewVertex
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat
from penstock.data.tick import Tick


@dataclass(frozen=True, slots=True)
class Resumed:
    """The resumed views in their new vertices, their changes, and the views that stay suspended."""

    views: Mapping[str, ViewVertex]
    changes: Mapping[str, Delta]
    seconds: Mapping[str, float]
    failures: Mapping[str, ViewFailure]


def step_without_failed(
    relations: Relations, changes: Mapping[int, Delta], tick: Tick, optional: frozenset[str]
) -> tuple[SteppedCircuit, dict[str, ViewFailure]]:
    """Step the circuit; when optional views fail, step it again without them."""
    circuit = relations.circuit
    failures: dict[str, ViewFailure] = {}
    while True:
        only = circuit.needed_without(_owners(failures)) if failures else None
        stepped = circuit.step(changes, tick, only=only, optional=_owners(optional))
        if not stepped.failures:
            return stepped, failures
        active = {name: entry.reads for name, entry in relations.views.items() if not entry.suspended}
        failures = with_readers(failures | _view_failures(stepped), active)
        for name in failures:
            # What is below the result will go, so that the view must have its rows itself.
            relations.views[name].output.keep()


def resume(relations: Relations, views: Sequence[ViewVertex], tick: Tick) -> Resumed:
    """Compile suspended views again and fill them; call `replace_views`, or `remove_new` also when it raises."""
    new: dict[str, ViewVertex] = {}
    vertex_ids, added = relations.vertex_ids(), list[int]()
    for view in views:
        entry = relations.compiled(view.view, view.fragment, vertex_ids=vertex_ids, added=added)
        new[view.name], vertex_ids[view.name] = entry, entry.vertex_id
    filled, failures = _fill(relations, added, {view.name: view.reads for view in views}, tick)
    resumed = {name: entry for name, entry in new.items() if name not in failures}
    changes = {
        name: _difference(filled.outputs.get(entry.vertex_id), relations.views[name].output.rows())
        for name, entry in resumed.items()
    }
    changed = {name: change for name, change in changes.items() if len(change)}
    return Resumed(resumed, changed, relations.seconds(filled), failures)


def with_readers(
    failures: Mapping[str, ViewFailure], reads: Mapping[str, Collection[str]]
) -> dict[str, ViewFailure]:
    """The views that fail, and those that read them; `reads` has what each view reads, a view behind those that it reads.

    A view that reads one that fails does so because of the first one, whatever its own operators do: which error
    comes first must not depend on the order of operators, which is another one in shards and after a restore.
    """
    failed: dict[str, ViewFailure] = {}
    for name, below in reads.items():
        cause = next((other for other in failed if other in below), None)
        if cause is not None:
            failed[name] = ViewFailure(failed[cause].error, failed[cause].because or cause)
        elif name in failures:
            failed[name] = failures[name]
    return failed


def replace_views(relations: Relations, changed: Mapping[str, ViewVertex]) -> None:
    """Put views that were suspended or resumed where they were, and take out what nobody needs any more.

    When it is interrupted, it can be called again and does the rest.
    """
    for name, entry in changed.items():
        if entry.suspended:
            relations.circuit.vertices[entry.vertex_id].inputs = ()
            relations.shared.forget_nodes([entry.vertex_id])
        elif name in relations.views and relations.views[name].vertex_id != entry.vertex_id:
            # They are indexes of the last rows.
            relations.indexes.drop(name)
        relations.views[name] = entry
        others = frozenset(relations.vertex_ids().values()) - {entry.vertex_id}
        relations.remove(name, but=relations.circuit.reachable(entry.vertex_id, until=others))
    relations.shared.keep(relations.circuit.vertices)


def remove_new(relations: Relations) -> None:
    """Leave suspended views with their rows, because they are not resumed."""
    _remove_new(relations, [name for name, entry in relations.views.items() if entry.suspended])


def _remove_new(relations: Relations, views: Collection[str]) -> None:
    for name in reversed(relations.views):
        # A view goes before those that it reads.
        if name in views:
            relations.remove(name, but=[relations.views[name].vertex_id])


def _fill(
    relations: Relations, added: Sequence[int], views: Mapping[str, Collection[str]], tick: Tick
) -> tuple[SteppedCircuit, dict[str, ViewFailure]]:
    """Fill the new vertices of views, of which is known what each reads; those of views that fail are taken out."""
    failures: dict[str, ViewFailure] = {}
    while True:
        vertex_ids = [vertex_id for vertex_id in added if vertex_id in relations.circuit.vertices]
        filled = relations.circuit.fill(vertex_ids, {}, tick, optional=_owners(views))
        if not filled.failures:
            return filled, failures
        failures = with_readers(failures | _view_failures(filled), views)
        _remove_new(relations, failures)


def _difference(rows: Delta | None, last: Delta) -> Delta:
    return -last if rows is None else consolidate(concat([rows, -last]))


def _owners(views: Iterable[str]) -> frozenset[VertexOwner]:
    return frozenset(VertexOwner("view", name) for name in views)


def _view_failures(stepped: SteppedCircuit) -> dict[str, ViewFailure]:
    """The views that failed in a step of the circuit."""
    return {
        owner.name: ViewFailure(failure.error, None if failure.because is None else failure.because.name)
        for owner, failure in stepped.failures.items()
        if owner.kind == "view"
    }
