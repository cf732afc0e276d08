"""The graph of a flow: its sources, views and static tables by name, the kernel that holds their rows, and the flow's state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from penstock.circuit.budget import MemoryBudget
from penstock.circuit.kernel import Kernel
from penstock.circuit.local import LocalKernel
from penstock.data.delta import Delta
from penstock.engine.flow_state import FlowState, SourceState
from penstock.engine.names import registered, require_name
from penstock.engine.source import SourceSpec
from penstock.errors import ConfigError, StateError, suggest
from penstock.plan.distribution import Distribution, source_distribution, view_distribution
from penstock.plan.event_time import Times, event_times, of_source
from penstock.plan.node import Fields, View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OnError = Literal["reject", "suspend"]
ON_ERROR: tuple[OnError, ...] = ("reject", "suspend")


@dataclass(slots=True)
class SourceEntry:
    """A source of the flow."""

    spec: SourceSpec
    state: SourceState
    query: str | None = None  # the streaming query that feeds it now

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def fields(self) -> Fields:
        return self.spec.fields


@dataclass(frozen=True, slots=True)
class ViewEntry:
    """A view of the flow, the relations that it reads, and what a tick does when it fails in the view."""

    view: View
    reads: frozenset[str]
    on_error: OnError = "reject"

    @property
    def name(self) -> str:
        return self.view.name

    @property
    def fields(self) -> Fields:
        return self.view.fields


@dataclass(frozen=True, slots=True)
class StaticEntry:
    """A table of the session that views read, and where its rows come from."""

    spec: SourceSpec
    frame: DataFrame


@dataclass(frozen=True, slots=True)
class FedBatch:
    """One batch that was fed to a source and waits for the step."""

    source: str
    delta: Delta
    ordinal: int | None = None
    keys: tuple[int, ...] = ()  # a change by these columns, on a source that has no primary key
    query: str | None = None  # the streaming query whose epoch it is
    epoch: int = 0
    position: str | None = None  # of the table that the source reads: what it stands for with this batch


@dataclass(slots=True)
class Graph:
    """Everything that a tick reads and changes."""

    kernel: Kernel = field(default_factory=LocalKernel)
    sources: dict[str, SourceEntry] = field(default_factory=dict)
    views: dict[str, ViewEntry] = field(default_factory=dict)
    statics: dict[str, StaticEntry] = field(default_factory=dict)
    state: FlowState = field(default_factory=FlowState)
    budget: MemoryBudget | None = None  # of the state in memory; None for no bound

    def spec(self, name: str) -> SourceSpec:
        """What was declared of a source, or of a static table, which is one that only `reload_static` feeds."""
        return self.sources[name].spec if name in self.sources else self.statics[name].spec

    def readers(self, name: str) -> list[str]:
        """The views that read a relation."""
        return [view.name for view in self.views.values() if name in view.reads]

    def sources_below(self, name: str) -> list[str]:
        """The sources that a view and those below it read, or the source itself."""
        if name in self.sources:
            return [name]
        if name not in self.views:
            return []
        below = (self.sources_below(read) for read in sorted(self.views[name].reads))
        return list(dict.fromkeys(source for sources in below for source in sources))

    def positions(self, view: str) -> dict[str, str]:
        """The tables that a view stands for, with their snapshots."""
        entries = [self.sources[name] for name in self.sources_below(view)]
        return {
            entry.spec.table.name: entry.state.position
            for entry in entries
            if entry.spec.table is not None and entry.state.position
        }

    def distributions(self) -> dict[str, Distribution]:
        """Where the rows of every source and view are in shards."""
        placed = {
            name: source_distribution(len(entry.spec.fields), entry.spec.positions(entry.spec.primary_key))
            for name, entry in self.sources.items()
        }
        for (
            name,
            entry,
        ) in self.views.items():  # in the order of registration: a view comes after what it reads
            placed[name] = view_distribution(entry.view, placed)
        return placed

    def event_times(self) -> dict[str, Times]:
        """The columns that follow the event time of a source, of all relations that read one with a lateness."""
        times = {
            name: of_source(name, len(entry.fields), entry.spec.event_time)
            for name, entry in self.sources.items()
            if entry.spec.lateness is not None
        }
        for name, entry in self.views.items():
            if entry.reads & times.keys():
                times[name] = event_times(entry.view.root, times)
        return times

    def find_source(self, name: str) -> SourceEntry:
        """A source by its name in any case; ConfigError when there is none."""
        spelled = registered(name, self.sources)
        if spelled is None:
            view = registered(name, self.views)
            raise ConfigError(
                f"source '{name}' {'is not known' if view is None else 'is a view: only sources are fed'}",
                code="FLOW_UNKNOWN_SOURCE",
                hint=suggest(name, self.sources, what="source"),
            )
        return self.sources[spelled]

    def find_view(self, name: str) -> ViewEntry:
        """A view by its name in any case; ConfigError when there is none."""
        spelled = registered(name, self.views)
        if spelled is None:
            raise ConfigError(
                f"view '{name}' is not known",
                code="FLOW_UNKNOWN_VIEW",
                hint=suggest(name, self.views, what="view"),
            )
        return self.views[spelled]

    def find_relation(self, name: str) -> SourceEntry | ViewEntry:
        """A source or a view by its name in any case; ConfigError when there is none."""
        relations: dict[str, SourceEntry | ViewEntry] = {**self.sources, **self.views}
        spelled = registered(name, relations)
        if spelled is None:
            raise ConfigError(
                f"there is no source or view '{name}'",
                code="FLOW_UNKNOWN_RELATION",
                hint=suggest(name, relations, what="relation"),
            )
        return relations[spelled]

    def refuse_taken(self, name: str) -> None:
        """Check a name for a new source or view; ConfigError when it is none, or when another one has it."""
        require_name(name)
        for kind, names in (("source", self.sources), ("view", self.views)):
            taken = registered(name, names)
            if taken is not None:
                raise ConfigError(
                    f"there is a {kind} '{taken}' already",
                    code="FLOW_NAME_TAKEN",
                    hint="choose another name"
                    + ("" if taken == name else "; names that differ only in case are one"),
                )

    def refuse_read(self, kind: str, name: str) -> None:
        """StateError when views read a relation that is to be dropped."""
        readers = self.readers(name)
        if readers:
            listed = ", ".join(f"'{reader}'" for reader in readers)
            raise StateError(
                f"{kind} '{name}' is read by view{'s' if len(readers) > 1 else ''} {listed}",
                code="FLOW_IN_USE",
                hint="drop what reads it first: "
                + "; ".join(f"flow.drop_view({reader!r})" for reader in readers),
            )
