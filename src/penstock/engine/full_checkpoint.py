"""Full checkpoints of a flow: what other versions of penstock can read, and what a flow with another number of shards is made of.

The manifest has the sources as they were declared, the views with their SQL and their plans, and what the flow
remembers; Parquet files have the rows of sources and static tables, the last rows of suspended views, quarantined
rows, and the digests of batches that were seen. All other states are made again from the rows of sources. A plan that
this version cannot read is made again from the SQL.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.data.delta import Delta, concat
from penstock.data.types import kernel_type
from penstock.engine import definition
from penstock.engine.flow_state import FlowState, SourceState
from penstock.engine.graph import Graph, OnError
from penstock.engine.retention import require_no_open_source
from penstock.engine.source import SeenBatches, SourceSpec
from penstock.errors import StateError
from penstock.plan import codec
from penstock.plan import node as plan
from penstock.state.data_file import Json
from penstock.state.full_folder import CheckpointTable, FullFolder

_HASH = ("_hash_low", "_hash_high")
_DIGEST = pa.binary(SeenBatches.WIDTH)


@dataclass(frozen=True, slots=True)
class StagedFull:
    """A full checkpoint that is to be written; ticks may go on."""

    flow: Json
    tables: Mapping[str, CheckpointTable]


@dataclass(frozen=True, slots=True)
class SavedView:
    """A view of a full checkpoint; without a plan that this version can read it is planned again."""

    name: str
    sql: str
    on_error: OnError
    variables: tuple[plan.Variable, ...]
    plan: plan.View | None


@dataclass(frozen=True, slots=True)
class SavedFull:
    """A full checkpoint that was read, but for its rows, which are read one relation at a time."""

    name: str | None
    sources: tuple[SourceSpec, ...]
    views: tuple[SavedView, ...]
    state: FlowState
    _folder: FullFolder
    _files: Mapping[str, Json]
    _statics: Mapping[str, SourceSpec]

    def source_rows(self, spec: SourceSpec) -> Delta:
        """The rows of a source, as its kernel stores them."""
        retained = self.state.sources[spec.name].retained if spec.retain == "used" else ()
        return self._rows(f"source {spec.name}", _stored_types(spec, retained))

    def static_rows(self, names: Sequence[str]) -> dict[str, Delta]:
        """The rows of static tables."""
        return {
            name: self._rows(f"static {name}", self._statics[name].types)
            for name in names
            if name in self._statics
        }

    def last_rows(self, view: plan.View) -> Delta:
        """The last rows of a suspended view."""
        return self._rows(f"view {view.name}", [kernel_type(field.type) for field in view.root.fields])

    def _rows(self, key: str, types: Sequence[pa.DataType]) -> Delta:
        *columns, weights = self._folder.columns(self._files[key], [*types, pa.int64()])
        return Delta(tuple(columns), np.array(weights, np.int64))


# Writing


def stage(graph: Graph, name: str | None) -> StagedFull:
    """Note everything that a full checkpoint of the flow as it is now needs; called between ticks.

    StateError when rows have left a source that views have been computed from.
    """
    require_no_open_source(
        graph,
        "a full checkpoint fills views from the rows of sources",
        hint="flow.checkpoint(path) saves what views have; a full checkpoint needs sources with retain='all' or 'used'",
    )
    tables: dict[str, CheckpointTable] = {}
    for source, entry in graph.sources.items():
        names = [entry.fields[column].name for column in graph.kernel.columns(source)]
        names += _HASH if entry.spec.retain == "used" else ()
        tables[f"source {source}"] = _table(f"{source}-rows", names, graph.kernel.stored(source))
        tables |= _memory_tables(entry.spec, entry.state)
    for static, table in graph.statics.items():
        names = [field.name for field in table.spec.fields]
        tables[f"static {static}"] = _table(f"{static}-static", names, graph.kernel.stored(static))
    for suspended in graph.state.suspended:
        names = [field.name for field in graph.views[suspended].view.root.fields]
        tables[f"view {suspended}"] = _table(f"{suspended}-view", names, graph.kernel.stored(suspended))
    return StagedFull(_described(graph, name), tables)


def _described(graph: Graph, name: str | None) -> Json:
    for entry in graph.views.values():
        definition.require_savable(entry.view)
    return {
        "name": name,
        "sources": [definition.source_to_json(entry.spec) for entry in graph.sources.values()],
        "statics": [definition.source_to_json(entry.spec) for entry in graph.statics.values()],
        "views": [
            {
                "name": entry.name,
                "sql": entry.view.sql,
                "on_error": entry.on_error,
                "variables": [asdict(variable) for variable in entry.view.variables],
                "plan": json.loads(codec.dumps(entry.view)),
            }
            for entry in graph.views.values()
        ],
        "state": _without_rows(graph.state.to_dict()),
    }


def _without_rows(state: Json) -> Json:
    """What a flow remembers, but for what is in files of its own."""
    sources = {
        name: {
            **source,
            "seen": {**source["seen"], "digests": ""},
            "quarantine": {**source["quarantine"], "parts": []},
        }
        for name, source in state["sources"].items()
    }
    return {**state, "sources": sources}


def _memory_tables(spec: SourceSpec, state: SourceState) -> dict[str, CheckpointTable]:
    """Quarantined rows, and digests of batches that were seen."""
    tables: dict[str, CheckpointTable] = {}
    parts = state.quarantine.parts
    if parts:
        names = [*(field.name for field in spec.fields), "_weight", "_reason", "_part"]

        def quarantined() -> list[pa.Array]:
            rows = concat([part.rows for part in parts])
            sizes = [len(part.rows) for part in parts]
            reasons = pa.array([part.reason for part in parts], pa.large_string())
            numbers = np.repeat(np.arange(len(parts)), sizes)
            return [*rows.columns, pa.array(rows.weights), reasons.take(pa.array(numbers)), pa.array(numbers)]

        tables[f"quarantine {spec.name}"] = CheckpointTable(f"{spec.name}-quarantine", names, quarantined)
    digests = list(state.seen.digests)
    if digests:
        tables[f"seen {spec.name}"] = CheckpointTable(
            f"{spec.name}-seen", ["digest"], lambda: [pa.array(digests, _DIGEST)]
        )
    return tables


def _table(label: str, names: Sequence[str], rows: Callable[[], Delta]) -> CheckpointTable:
    def columns() -> list[pa.Array]:
        delta = rows()
        return [*delta.columns, pa.array(delta.weights)]

    return CheckpointTable(label, [*names, "_weight"], columns)


# Reading


def read(folder: FullFolder) -> SavedFull:
    """The full checkpoint of a folder; StateError when it is damaged or of another version."""
    flow, files = folder.read()
    state = FlowState.from_dict(flow["state"])
    sources = tuple(definition.source_from_json(source) for source in flow["sources"])
    for spec in sources:
        _remember(spec, state.sources[spec.name], partial(_columns, folder, files))
    statics = (definition.source_from_json(static) for static in flow["statics"])
    return SavedFull(
        flow["name"],
        sources,
        tuple(map(_view, flow["views"])),
        state,
        folder,
        files,
        {spec.name: spec for spec in statics},
    )


def _columns(
    folder: FullFolder, files: Mapping[str, Json], key: str, types: Sequence[pa.DataType]
) -> list[pa.Array] | None:
    return folder.columns(files[key], types) if key in files else None


def _remember(spec: SourceSpec, state: SourceState, columns: Callable[..., list[pa.Array] | None]) -> None:
    """Put quarantined rows and digests back where they were."""
    quarantined = columns(f"quarantine {spec.name}", [*spec.types, pa.int64(), pa.large_string(), pa.int64()])
    if quarantined is not None:
        *rows, weights, reasons, parts = quarantined
        delta = Delta(tuple(rows), np.array(weights, np.int64))
        numbers, dropped = np.asarray(parts), state.quarantine.dropped
        for number in np.unique(numbers):
            at = np.flatnonzero(numbers == number)
            state.quarantine.add(reasons[int(at[0])].as_py(), delta.take(at))
        state.quarantine.dropped = dropped
    digests = columns(f"seen {spec.name}", [_DIGEST])
    dropped = state.seen.dropped
    for digest in () if digests is None else digests[0].to_pylist():
        state.seen.add(digest)
    state.seen.dropped = dropped


def _view(saved: Mapping[str, Any]) -> SavedView:
    return SavedView(
        saved["name"],
        saved["sql"],
        saved["on_error"],
        tuple(plan.Variable(**variable) for variable in saved["variables"]),
        _plan(saved),
    )


def _plan(saved: Mapping[str, Any]) -> plan.View | None:
    """The saved plan of a view; None when another version has made it, and the SQL says how to make it again."""
    try:
        return codec.loads(json.dumps(saved["plan"]))
    except (StateError, TypeError, ValueError, KeyError):
        if not saved["sql"]:
            raise
        return None


def _stored_types(spec: SourceSpec, retained: Sequence[int]) -> list[pa.DataType]:
    if spec.retain == "all":
        return list(spec.types)
    keys = spec.kernel_source().primary_key
    columns = dict.fromkeys((*keys, *retained))
    return [*(spec.types[column] for column in columns), pa.uint64(), pa.uint64()]
