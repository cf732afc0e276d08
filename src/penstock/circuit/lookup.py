"""Indexes for look-ups: the first look-up by some columns makes one; the least recently used one goes, and one that
no look-up uses.

Which indexes there are follows from the look-ups and the ticks alone, and no answer depends on it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from penstock.circuit.circuit import Circuit, VertexOwner
from penstock.circuit.compile import Shared
from penstock.circuit.retention import SourceVertex
from penstock.circuit.state_key import Meaning
from penstock.data.tick import Tick
from penstock.operators.arrange import Arrange
from penstock.operators.contents import of_arrangement, through
from penstock.operators.linear import Select
from penstock.plan import node as plan
from penstock.state.arrangement import Arrangement

# Column sets per relation: a program looks up by a few keys, and one that tries out columns must not keep them all.
MOST_INDEXES = 8
# An index costs every tick that changes its relation: one that is not asked for in so many ticks is made again when it is.
MOST_TICKS_UNUSED = 10_000


@dataclass(slots=True)
class _Index:
    """What look-ups have added for one set of columns, and how many ticks there were when the last one asked for it."""

    vertex_ids: list[int]
    used: int


class Indexes:
    """The indexes of one circuit that exist for look-ups alone; an index that a join keeps is used where there is one."""

    def __init__(self, circuit: Circuit, shared: Shared) -> None:
        self._circuit = circuit
        self._shared = shared
        self._used: dict[str, OrderedDict[tuple[int, ...], _Index]] = {}
        self._ticks = 0

    def find(
        self, relation: plan.Scan, vertex_id: int, keys: tuple[int, ...], source: SourceVertex | None
    ) -> Arrangement:
        """Return the rows of a relation by some columns; every later tick updates them.

        `source` is the relation when it is a source that may keep its columns in the order of their use.
        """
        own = self._used.setdefault(relation.name, OrderedDict())
        if keys in own:
            own.move_to_end(keys)
            own[keys].used = self._ticks
        shared = self._shared.arrangements.get((vertex_id, keys))
        if shared is not None:
            return shared[1]
        arrangement, added = self._add(relation, vertex_id, keys, source)
        own[keys] = _Index(added, self._ticks)
        if len(own) > MOST_INDEXES:
            self._forget(relation.name, own.popitem(last=False)[1].vertex_ids)
        return arrangement

    def maintain(self) -> None:
        """Forget the indexes that no look-up has asked for in many ticks; called behind every tick."""
        self._ticks += 1
        for relation, own in list(self._used.items()):
            while own and self._ticks - next(iter(own.values())).used > MOST_TICKS_UNUSED:
                self._forget(relation, own.popitem(last=False)[1].vertex_ids)
            if not own:
                del self._used[relation]

    def drop(self, relation: str) -> None:
        """Forget the indexes of a relation."""
        self._shared.forget(self._circuit.disown(VertexOwner("index", relation)))
        self._used.pop(relation, None)

    def _add(
        self, relation: plan.Scan, vertex_id: int, keys: tuple[int, ...], source: SourceVertex | None
    ) -> tuple[Arrangement, list[int]]:
        below, added = vertex_id, []
        if source is not None and source.source.retain == "used":
            below = self._in_schema_order(source, relation)
            added.append(below)
        types = [column.type for column in self._circuit.vertices[below].nothing.columns]
        arrangement = Arrangement(types, keys)
        index = self._circuit.add(
            Arrange(arrangement),
            (below,),
            types,
            meaning=Meaning(relation, keys),
            contents=of_arrangement(arrangement),
        )
        added.append(index)
        self._circuit.own(added, VertexOwner("index", relation.name))
        try:
            # The index neither gives initial rows nor reads the time.
            self._circuit.fill(added, {}, Tick(0, 0))
            self._circuit.commit()
        except BaseException:
            self._forget(relation.name, added)
            raise
        self._shared.arrangements[(vertex_id, keys)] = (index, arrangement)
        return arrangement, added

    def _in_schema_order(self, source: SourceVertex, relation: plan.Scan) -> int:
        """Where rows with their columns in the order of the schema come from."""
        select = Select([source.columns.index(column) for column in relation.columns])
        types = [column.type for column in self._circuit.vertices[source.vertex_id].nothing.columns]
        return self._circuit.add(
            select,
            (source.vertex_id,),
            [types[source.columns.index(column)] for column in relation.columns],
            contents=through(select, source.operator.contents),
        )

    def _forget(self, relation: str, vertex_ids: list[int]) -> None:
        self._shared.forget(self._circuit.disown(VertexOwner("index", relation), vertex_ids))
