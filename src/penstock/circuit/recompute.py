"""A view computed again from all rows of what it reads, in a circuit of its own that is then dropped."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.circuit.circuit import Circuit, Owner
from penstock.circuit.compile import Fragment, Shared
from penstock.circuit.recursive import ViewCompiler
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, empty
from penstock.data.tick import Tick
from penstock.operators.linear import Feed
from penstock.plan.node import View


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
    circuit.own(circuit.vertices, Owner("view", view.name))
    stepped = circuit.fill(compiler.added, {feeds[name]: delta for name, delta in rows.items()}, tick)
    if root not in stepped.outputs:
        return empty([column.type for column in circuit.vertices[root].nothing.columns])
    return consolidate(stepped.outputs[root])
