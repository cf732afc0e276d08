"""One shard of a kernel: the operators of all views over its own rows, stepped in phases between which rows travel.

Every shard has the same circuit. An exchange in it is a vertex whose rows come from other shards: the level of a vertex is the
number of exchanges on the way to it, and a phase steps the vertices of one level. A change is a generator: it yields
what it sends behind each phase, gets what others have sent, and yields what it did at last; it is then told whether
that is final. When it is closed before, nothing has changed.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, assert_never

import numpy as np

from penstock.circuit.budget import MemoryBudget
from penstock.circuit.circuit import SteppedCircuit, VertexOwner
from penstock.circuit.compile import Fragment, types_of
from penstock.circuit.kernel import KernelSource, ViewFailure
from penstock.circuit.local import LocalKernel
from penstock.circuit.operation import (
    AddSource,
    Change,
    Changed,
    Continue,
    DropRelation,
    EndLoad,
    Lookup,
    Ping,
    Put,
    Question,
    ReadRows,
    Register,
    Resume,
    Save,
    Size,
    StageCheckpoint,
    StepCircuit,
    ViewsFailed,
)
from penstock.circuit.recursive import ViewCompiler
from penstock.circuit.relations import Relations, ViewVertex
from penstock.circuit.retention import widened
from penstock.circuit.shard_images import portable, write_images
from penstock.circuit.state_key import Meaning, StateKey
from penstock.data.arrays import Positions
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat, empty
from penstock.data.hashing import hash_rows, shard_of
from penstock.data.tick import Tick
from penstock.errors import StateError
from penstock.operators.base import Operator
from penstock.operators.contents import Contents
from penstock.operators.linear import Feed
from penstock.operators.placed import Elsewhere, Part, no_positions
from penstock.plan import node as plan
from penstock.plan.exchange import RunsOn
from penstock.state.limits import LIMITS
from penstock.state.part import CheckpointOrder, PartWriter, RestoredPart, StagedPart
from penstock.state.scratch import using
from penstock.state.state import Image

LOG = logging.getLogger("penstock.flow")
HOME = 0
# By receiver, then by the name of the exchange.
Outbox = dict[int, dict[str, Delta]]
# By the name of the exchange, from each sender in order.
Inbox = Mapping[str, Sequence[Delta]]
Phases = Generator[Outbox | Changed, Inbox | bool | None, None]


@dataclass(slots=True)
class Compiling:
    """Of the view that is compiled: where its operators run, and whether no operator of any shard has given a row so far."""

    places: Mapping[plan.Node, RunsOn] = field(default_factory=dict)
    quiet: bool = False


@dataclass(slots=True)
class ShardCompiler(ViewCompiler):
    """Compiles a plan with exchanges for one shard, or for the driver, which has the number behind the last shard."""

    number: int = 0
    shards: int = 1
    compiling: Compiling = field(default_factory=Compiling)

    def add(
        self,
        operator: Operator,
        inputs: Sequence[int],
        fields: plan.Fields,
        *,
        meaning: Meaning | None = None,
        timed: bool = False,
        contents: Contents | None = None,
    ) -> int:
        node = None if meaning is None or meaning.keys is not None else meaning.node
        place = None if node is None else self.compiling.places.get(node)
        if place is not None and not self._is_here(place):
            elsewhere = Elsewhere(types_of(fields), is_kept=contents is not None)
            return ViewCompiler.add(
                self, elsewhere, inputs, fields, meaning=meaning, contents=elsewhere.contents()
            )
        return ViewCompiler.add(
            self, operator, inputs, fields, meaning=meaning, timed=timed, contents=contents
        )

    def _is_here(self, place: RunsOn) -> bool:
        return self.number == (HOME if place == "home" else self.shards)

    def _exchange(self, node: plan.Exchange) -> int:
        below = self.compile(node.input)
        if node.copied and node.target != "driver":
            operator: Operator = Part(self._own_part(node))
            return ViewCompiler.add(self, operator, (below,), node.fields, meaning=Meaning(node))
        vertex_id = ViewCompiler.add(self, Feed(), (below,), node.fields, meaning=Meaning(node))
        self.circuit.vertices[vertex_id].exchange = node
        return vertex_id

    def _own_part(self, node: plan.Exchange) -> Callable[[Delta], Positions]:
        if self.number == self.shards or (node.target == "one place" and self.number != HOME):
            return no_positions
        if node.target == "one place":
            return lambda delta: np.arange(len(delta))
        return lambda delta: np.flatnonzero(by_shard(delta, node.keys, self.shards) == self.number)

    def _reusable(self, vertex_id: int) -> bool:
        """All shards must decide alike, so rows that this one alone has seen do not count."""
        return vertex_id in self.added or self._is_kept(vertex_id) or self.compiling.quiet

    def _is_kept(self, vertex_id: int) -> bool:
        """Whether the rows of a vertex are kept where it runs."""
        vertex = self.circuit.vertices[vertex_id]
        if isinstance(vertex.operator, Elsewhere):
            return vertex.operator.is_kept
        return vertex.contents is not None

    def _through(self, operator: Operator, below: int) -> Contents | None:
        return ViewCompiler._through(self, operator, below) if self._is_kept(below) else None


class Shard(LocalKernel):
    """The kernel of one shard; the driver has one too, for what only Spark can compute."""

    def __init__(self, number: int, shards: int, *, memory: int | None = None) -> None:
        """State beyond `memory` bytes lies in scratch files, where the temporary files of the process are."""
        self._budget = None if memory is None else MemoryBudget(memory, Path(tempfile.gettempdir()))
        self.number = number
        self.shards = shards
        # Of each view where its operators run: the same node may be elsewhere when its relations are others.
        self._places: dict[str, Mapping[plan.Node, RunsOn]] = {}
        self._compiling = Compiling()
        self._writers: dict[str, PartWriter] = {}  # by the folder of checkpoints
        self._read: Mapping[StateKey, Image] = {}  # what was loaded, until the first step
        # Relations of which every shard has all rows are told by the home shard.
        self._copied: set[str] = set()
        super().__init__(
            Relations(
                partial(
                    ShardCompiler,
                    number=number,
                    shards=shards,
                    compiling=self._compiling,
                )
            )
        )

    # Changes

    def change(self, change: Change, rows: Mapping[str, Delta], fragment: Fragment | None = None) -> Phases:
        """The phases of a change; `rows` are those that the driver sends with it, by relation."""
        match change:
            case AddSource():
                return self._add(change)
            case Register():
                return self._register(change, rows, fragment or _elsewhere)
            case DropRelation():
                return self._drop(change)
            case StepCircuit():
                return self._step(change, rows)
            case Resume():
                return self._resume(change)
            case Put():
                return self._put(change, rows)
            case EndLoad():
                return self._end_load()
            case _:
                assert_never(change)

    def _add(self, change: AddSource) -> Phases:
        yield self._changed()
        if change.copied:
            self._copied.add(change.source.name)
        self.add_source(change.source)
        if change.restored and not self._is_restored(change.source.name):
            raise _incomplete(f"source '{change.source.name}'")

    def _is_restored(self, name: str) -> bool:
        vertex_id = self._relations.vertex_id(name)
        return self._circuit.vertices[vertex_id].gave or not list(self._relations.states([vertex_id]))

    def _drop(self, change: DropRelation) -> Phases:
        yield self._changed()
        self.drop(change.name)
        self._copied.discard(change.name)
        self._places.pop(change.name, None)

    def _end_load(self) -> Phases:
        yield self._changed()
        self.load({})
        self._after_change()

    def _after_change(self) -> None:
        """Merge and compact, and keep the budget; without room for that the next step is refused."""
        if self._budget is None:
            self.maintain(LIMITS.fuel)
            return
        try:
            self._budget.maintain(self)
        except StateError:
            LOG.warning("the state of shard %d could not move to scratch files", self.number, exc_info=True)

    def _load(self, vertex_ids: Sequence[int], own: ViewVertex | None = None) -> bool:
        with nullcontext() if self._budget is None else using(self._budget.scratch):
            return super()._load(vertex_ids, own)

    def _put(self, change: Put, rows: Mapping[str, Delta]) -> Phases:
        yield self._changed()
        if change.name in rows:
            self.put(change.name, rows[change.name])
            self._after_change()

    def _register(self, change: Register, rows: Mapping[str, Delta], fragment: Fragment) -> Phases:
        view = change.exchanged.view
        fresh = [source for source in change.statics if source.name not in self._sources]
        with (
            self._placed(change),
            widened(self._sources, view),
            self._with_tables(fresh, rows) as tables,
        ):
            try:
                if change.suspended:
                    entry = self._suspended_view(view, fragment, change.tick, tables)
                    yield self._changed()
                else:
                    entry = yield from self._filled_view(change, fragment, tables)
                    self._circuit.commit()
            except BaseException:
                self._circuit.rollback()
                self._relations.remove(view.name)
                raise
            self._views[view.name] = entry
        self._after_change()

    @contextmanager
    def _placed(self, change: Register) -> Iterator[None]:
        """Know where the operators of a view run, unless the body fails."""
        name = change.exchanged.view.name
        self._places[name] = dict(change.exchanged.places)
        self._compile_next(name, quiet=change.quiet)
        if change.exchanged.output.kind == "everywhere":
            self._copied.add(name)
        self._copied.update(source.name for source in change.statics)
        try:
            yield
        except BaseException:
            del self._places[name]
            self._copied.discard(name)
            raise

    def _compile_next(self, view: str, *, quiet: bool = False) -> None:
        """The view that is compiled next."""
        self._compiling.places, self._compiling.quiet = self._places[view], quiet

    @contextmanager
    def _with_tables(
        self, sources: Sequence[KernelSource], rows: Mapping[str, Delta]
    ) -> Iterator[dict[int, Delta]]:
        """Add static tables; give where their rows are to be fed. They go again when the body fails."""
        added: list[str] = []
        try:
            for source in sources:
                self.add_source(source)
                added.append(source.name)
            fed = {self._sources[name].vertex_id: rows[name] for name in added if name in rows}
            yield {at: delta for at, delta in fed.items() if not self._circuit.vertices[at].gave}
        except BaseException:
            for name in added:
                self.drop(name)
                self._copied.discard(name)
            raise

    def _filled_view(
        self, change: Register, fragment: Fragment, tables: Mapping[int, Delta]
    ) -> Generator[Outbox | Changed, Inbox | bool | None, ViewVertex]:
        view, added = change.exchanged.view, [*tables]
        vertex_ids = self._relations.vertex_ids()
        entry = self._relations.compiled(view, fragment, vertex_ids=vertex_ids, added=added)
        if change.restored:
            if not self._load(added, entry):
                raise _incomplete(f"view '{view.name}'")
        else:
            outputs: dict[int, Delta] = {}
            yield from self._phases(added, dict(tables), change.tick, frozenset(), outputs, new=added)
        yield self._changed()
        return entry

    def _step(self, change: StepCircuit, rows: Mapping[str, Delta]) -> Phases:
        self._read = {}
        if self._budget is not None:
            self._budget.require(self)
        for name in change.failed:
            # What is below the result will go, so that the view must have its rows itself.
            self._views[name].output.keep()
        failed = _owners(change.failed)
        only = self._circuit.needed_without(failed) if failed else list(self._circuit.vertices)
        fed = {self._sources[name].vertex_id: delta for name, delta in rows.items()}
        outputs: dict[int, Delta] = {}
        try:
            optional = _owners(change.optional | change.failed)
            seconds = yield from self._phases(only, fed, change.tick, optional, outputs)
            self._changed_views = {name: replace(self._views[name], suspended=True) for name in change.failed}
            by_name = {
                name: outputs[vertex_id]
                for name, vertex_id in self._relations.vertex_ids().items()
                if vertex_id in outputs
            }
            missing = {
                name: self._sources[name].operator.missing
                for name in rows
                if len(self._sources[name].operator.missing)
            }
            yield self._changed(by_name, missing, self._relations.seconds(SteppedCircuit(outputs, seconds)))
        except BaseException:
            self.rollback()
            raise
        self.commit()
        self._after_change()

    def _resume(self, change: Resume) -> Phases:
        added: list[int] = []
        new: dict[str, ViewVertex] = {}
        try:
            vertex_ids = self._relations.vertex_ids()
            for name in change.views:
                view = self._views[name]
                self._compile_next(name)
                entry = self._relations.compiled(view.view, view.fragment, vertex_ids=vertex_ids, added=added)
                new[name], vertex_ids[name] = entry, entry.vertex_id
            outputs: dict[int, Delta] = {}
            optional = _owners(change.views)
            seconds = yield from self._phases(added, {}, change.tick, optional, outputs, new=added)
            changes = {
                name: concat(
                    [
                        outputs.get(entry.vertex_id) or empty(types_of(entry.view.fields)),
                        -self._views[name].output.rows(),
                    ]
                )
                for name, entry in new.items()
            }
            self._changed_views = new
            by_name = {name: consolidate(delta) for name, delta in changes.items()}
            yield self._changed(by_name, {}, self._relations.seconds(SteppedCircuit(outputs, seconds)))
        except BaseException:
            self.rollback()
            raise
        self.commit()
        self._after_change()

    def _changed(
        self,
        outputs: Mapping[str, Delta] | None = None,
        missing: Mapping[str, Delta] | None = None,
        seconds: Mapping[str, float] | None = None,
    ) -> Changed:
        reported = {name: delta for name, delta in (outputs or {}).items() if len(delta) and self.tells(name)}
        narrow = {name: entry for name, entry in self._sources.items() if entry.source.retain == "used"}
        return Changed(
            {name: delta for name, delta in reported.items() if name in self._views},
            {name: _counts(delta) for name, delta in reported.items() if name in self._sources},
            missing or {},
            seconds or {},
            {name: entry.columns for name, entry in narrow.items()},
            self._circuit.has_given(),
        )

    def tells(self, name: str) -> bool:
        """Whether this shard is one of those that tell the rows of a relation."""
        return self.number < self.shards and (self.number == HOME or name not in self._copied)

    # Phases

    def _phases(
        self,
        vertex_ids: Iterable[int],
        fed: dict[int, Delta],
        tick: Tick,
        optional: frozenset[VertexOwner],
        outputs: dict[int, Delta],
        new: Sequence[int] | None = None,
    ) -> Generator[Outbox | Changed, Inbox | bool | None, dict[int, float]]:
        """Step vertices level by level, or fill those that are `new`; returns the time spent for each."""
        seconds: dict[int, float] = {}
        levels = self._levels(vertex_ids)
        for number, level in enumerate(levels):
            if new is None:
                stepped = self._circuit.step(fed, tick, only=level, optional=optional, outputs=outputs)
            else:
                stepped = self._circuit.fill(
                    level, fed, tick, optional=optional, new=frozenset(new), outputs=outputs
                )
            if stepped.failures:
                raise ViewsFailed(
                    {
                        owner.name: ViewFailure(failure.error)
                        for owner, failure in stepped.failures.items()
                        if owner.kind == "view" and failure.because is None
                    }
                )
            seconds |= stepped.seconds
            if number + 1 < len(levels):
                inbox = yield self._sent(levels[number + 1], outputs, new)
                assert isinstance(inbox, Mapping)
                for vertex_id in levels[number + 1]:
                    exchange = self._circuit.vertices[vertex_id].exchange
                    if exchange is not None and exchange.name in inbox:
                        fed[vertex_id] = concat(inbox[exchange.name])
        return seconds

    def _levels(self, vertex_ids: Iterable[int]) -> list[list[int]]:
        """Vertices by the number of exchanges before them; all levels of the circuit, also those without one of them."""
        level: dict[int, int] = {}
        for vertex_id, vertex in self._circuit.vertices.items():
            before = max((level[below] for below in vertex.inputs), default=0)
            level[vertex_id] = before + (vertex.exchange is not None)
        chosen = set(vertex_ids)
        levels: list[list[int]] = [[] for _ in range(max(level.values(), default=0) + 1)]
        for vertex_id in self._circuit.vertices:
            if vertex_id in chosen:
                levels[level[vertex_id]].append(vertex_id)
        return levels

    def _sent(self, level: Sequence[int], outputs: Mapping[int, Delta], new: Sequence[int] | None) -> Outbox:
        """What the exchanges of the next level send, each once."""
        outbox: Outbox = {}
        done: set[str] = set()
        for vertex_id in level:
            vertex = self._circuit.vertices[vertex_id]
            exchange = vertex.exchange
            if exchange is None or exchange.name in done:
                continue
            (below,) = vertex.inputs
            delta = outputs.get(below)
            if delta is None and new is not None:
                delta = self._circuit.rows_so_far(below, frozenset(new))
            if delta is None or not len(delta) or (exchange.copied and self.number != HOME):
                continue
            done.add(exchange.name)
            for receiver, rows in self._routed(exchange, delta):
                outbox.setdefault(receiver, {})[exchange.name] = rows
        return outbox

    def _routed(self, exchange: plan.Exchange, delta: Delta) -> Iterator[tuple[int, Delta]]:
        match exchange.target:
            case "by":
                yield from routed(delta, exchange.keys, self.shards)
                return
            case "everywhere":
                receivers: Iterable[int] = range(self.shards)
            case "one place":
                receivers = (HOME,)
            case "driver":
                receivers = (self.shards,)
        delta = consolidate(delta)
        if len(delta):
            yield from ((receiver, delta) for receiver in receivers)

    # Saving

    def load(self, images: Mapping[StateKey, Image]) -> None:
        super().load(images)
        if images:
            self._read = images

    def stage_part(self, order: CheckpointOrder) -> StagedPart:
        """The states of this shard for a checkpoint; called between ticks."""
        writer = self._writers.setdefault(order.folder, PartWriter())
        return writer.stage(order, self._named(self.save()), self.number)

    def continue_part(self, part: RestoredPart) -> None:
        """Let the next checkpoint of a folder write what changes from now on; called between loading and the first step."""
        writer = self._writers.setdefault(part.folder, PartWriter())
        writer.continue_from(part, self._named(self._read), self._named(self.save()))
        self._read = {}

    def _named(self, images: Mapping[StateKey, Image]) -> dict[str, Image]:
        return {key.of_shard(self.number).to_json(): image for key, image in images.items()}

    # Questions

    def answer(self, question: Question) -> Any:
        """What a shard has; None when another one tells it."""
        match question:
            case Size():
                return self.memory(), self.mapped()
            case Ping():
                return None
            case Continue():
                return self.continue_part(question.parts[self.number])
            case Save():
                if question.folder is None:
                    return {key: portable(image) for key, image in self.save().items()}
                return write_images(self.save(), Path(question.folder) / f"shard-{self.number}")
            case ReadRows():
                if not self.tells(question.name):
                    return None
                if question.kind == "stored":
                    return self.stored(question.name)()
                return self.rows(question.name, hidden=question.kind == "hidden")
            case Lookup():
                if not self.tells(question.name):
                    return None
                if question.hidden:
                    return self.matching(question.name, question.columns, question.values)
                return self.lookup(question.name, question.columns, question.values)
            case StageCheckpoint():
                raise AssertionError("whoever runs the shard gives the bytes")


def by_shard(delta: Delta, keys: Sequence[int], shards: int) -> Positions:
    """The shard of every row."""
    return shard_of(hash_rows([delta.columns[key] for key in keys], len(delta)), shards)


def routed(
    delta: Delta, keys: Sequence[int], shards: int, at: Positions | None = None
) -> Iterator[tuple[int, Delta]]:
    """Yield the rows of each shard that gets any, in their order; `at` says of each row where it goes, when its keys do not."""
    if shards == 1:
        yield HOME, delta
        return
    owner = by_shard(delta, keys, shards) if at is None else at
    order = np.argsort(owner.astype(np.uint16), kind="stable")
    bounds = np.searchsorted(owner[order], np.arange(shards + 1))
    for shard in range(shards):
        positions = order[bounds[shard] : bounds[shard + 1]]
        if len(positions):
            yield shard, delta.take(positions)


def _elsewhere(node: plan.Spark) -> tuple[Operator, bool]:
    """What only Spark can compute runs in the driver."""
    return Elsewhere(types_of(node.fields)), False


def _owners(views: Iterable[str]) -> frozenset[VertexOwner]:
    return frozenset(VertexOwner("view", name) for name in views)


def _counts(delta: Delta) -> tuple[int, int]:
    weights = delta.weights
    return int(weights[weights > 0].sum()), int(-weights[weights < 0].sum())


def _incomplete(what: str) -> StateError:
    return StateError(
        f"a shard of {what} is not in the checkpoint",
        code="STATE_SHAPE",
        hint="load the checkpoint with the version of penstock that has written it",
    )
