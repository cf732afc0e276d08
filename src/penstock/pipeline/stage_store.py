"""What a stage of views keeps beside its flow: what it was made of, and rows that must outlast a change of its definition.

stage.json              inputs and views as they were when the stage was last opened
flow/                   the flow directory
rows/<input>.arrow      the rows of an input while it is taken out of the flow and comes back with other columns
settling/<view>.arrow   rows that sinks may have of a view that was rebuilt, until they have been brought in line with the new one
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa

from penstock.data.delta import Delta
from penstock.engine.seal import Seal
from penstock.errors import StateError
from penstock.pipeline.stage_plan import SavedInput, SavedStage, SavedStageView
from penstock.state.files import Files

VERSION = 1
_STAGE = "stage.json"
_META = b"penstock"
_SUFFIX = ".arrow"
Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SavedRows:
    """Rows as a stage saves them, with the names and types of their columns."""

    columns: Columns
    delta: Delta


@dataclass(frozen=True, slots=True)
class Settling:
    """The rows that sinks have of a view whose changes begin anew.

    Behind epoch `epoch` they had `base`. Sinks that have stored an epoch more than Spark notes may have one of
    `others` instead, so that they are brought in line until the epoch `until`.
    """

    epoch: int
    until: int
    base: SavedRows
    others: tuple[SavedRows, ...] = ()


class StageStore:
    """The files of one stage; those that are written last when a call returns."""

    def __init__(self, files: Files, folder: Path, secrets: Collection[str] = ()) -> None:
        """`secrets` are texts in the queries of views that the files must not show."""
        self._files = files
        self._folder = folder
        self._seal = Seal(secrets, may_miss=True)

    # What the stage was made of

    def read(self) -> SavedStage | None:
        """What the stage was made of; None when it was never opened."""
        try:
            saved = json.loads(self._files.read(self._folder / _STAGE))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise StateError(
                f"the definition of the views cannot be read: {error}",
                code="VIEW_STATE",
                where=self._files.location(self._folder / _STAGE),
            ) from error
        if saved.get("version") != VERSION:
            raise StateError(
                f"the state of the views has version {saved.get('version')!r}; this penstock reads version {VERSION}",
                code="VIEW_STATE",
                where=self._files.location(self._folder),
                hint="run it with the version that wrote it",
            )
        inputs = [
            SavedInput(
                entry["name"],
                _pairs(entry["fields"]),
                tuple(entry["keys"]),
                entry["retain"],
                _pairs(entry.get("origin", ())),
            )
            for entry in saved["inputs"]
        ]
        views = [
            SavedStageView(
                entry["name"],
                # A query with a secret that has changed is another query.
                self._seal.opened(entry["sql"]),
                tuple(entry["keys"]),
                entry["wanted"],
                tuple((name, kind, nullable) for name, kind, nullable in self._seal.opened(entry["fields"])),
            )
            for entry in saved["views"]
        ]
        return SavedStage(
            {saved_input.name: saved_input for saved_input in inputs}, {view.name: view for view in views}
        )

    def write(self, stage: SavedStage) -> None:
        """Remember what the stage is made of."""
        saved = {
            "version": VERSION,
            "inputs": [asdict(saved_input) for saved_input in stage.inputs.values()],
            "views": [
                # A column without a name of its own has that of its expression.
                {**asdict(view), "sql": self._seal.sealed(view.sql), "fields": self._seal.sealed(view.fields)}
                for view in stage.views.values()
            ],
        }
        self._files.make_folder(self._folder)
        self._files.put(self._folder / _STAGE, [json.dumps(saved, indent=1).encode()])

    # Rows of inputs

    def save_rows(self, name: str, rows: SavedRows) -> None:
        """Save the rows of an input that is taken out of the flow."""
        self._put("rows", name, {}, [rows])

    def saved_rows(self, name: str) -> SavedRows | None:
        """The rows that were saved of an input; None when none were."""
        saved = self._get("rows", name)
        return None if saved is None else saved[1][0]

    def forget_rows(self, name: str) -> None:
        """The flow has the rows of an input."""
        self._files.remove(self._path("rows", name))

    # Rows of sinks

    def settle(self, name: str, settling: Settling) -> None:
        """Remember what sinks have of a view."""
        meta = {"epoch": settling.epoch, "until": settling.until}
        self._put("settling", name, meta, [settling.base, *settling.others])

    def settling_names(self) -> list[str]:
        """The views whose sinks are still to be brought in line."""
        files = self._files.names(self._folder / "settling")
        return [unquote(file.removesuffix(_SUFFIX)) for file in files if file.endswith(_SUFFIX)]

    def settling(self) -> Iterator[tuple[str, Settling]]:
        """Yield the views whose sinks are still to be brought in line, with what these have."""
        for name in self.settling_names():
            saved = self._get("settling", name)
            assert saved is not None, "it was listed"
            meta, (base, *others) = saved
            yield name, Settling(meta["epoch"], meta["until"], base, tuple(others))

    def settled(self, name: str) -> None:
        """The sinks of a view have what it has."""
        self._files.remove(self._path("settling", name))

    # Files

    def _path(self, kind: str, name: str) -> Path:
        return self._folder / kind / f"{quote(name, safe='')}{_SUFFIX}"

    def _put(self, kind: str, name: str, meta: Mapping[str, Any], parts: Sequence[SavedRows]) -> None:
        sink = pa.BufferOutputStream()
        for part in parts:
            columns = [*part.delta.columns, pa.array(part.delta.weights)]
            text = json.dumps({**meta, "columns": self._seal.sealed(part.columns)})
            schema = pa.schema(
                [(str(at), column.type) for at, column in enumerate(columns)], metadata={_META: text}
            )
            with pa.ipc.new_stream(sink, schema) as writer:
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        self._files.make_folder(self._folder / kind)
        self._files.put(self._path(kind, name), [memoryview(sink.getvalue())])

    def _get(self, kind: str, name: str) -> tuple[Mapping[str, Any], list[SavedRows]] | None:
        path = self._path(kind, name)
        try:
            source = pa.BufferReader(self._files.read(path))
        except FileNotFoundError:
            return None
        meta: Mapping[str, Any] = {}
        parts: list[SavedRows] = []
        try:
            while source.tell() < source.size():
                with pa.ipc.open_stream(source) as reader:
                    meta = json.loads(reader.schema.metadata[_META])
                    *columns, weights = reader.read_all().combine_chunks().columns
                arrays = tuple(_one_chunk(column) for column in columns)
                delta = Delta(arrays, np.array(weights.to_numpy(), np.int64))
                parts.append(SavedRows(_pairs(self._seal.opened(meta["columns"])), delta))
        except (pa.ArrowException, ValueError, KeyError, TypeError) as error:
            raise StateError(
                f"a file of the views is damaged: {error}",
                code="VIEW_STATE",
                where=self._files.location(path),
            ) from error
        return meta, parts


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
    )


def _pairs(saved: Sequence[Sequence[str]]) -> Columns:
    return tuple((name, kind) for name, kind in saved)
