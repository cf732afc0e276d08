"""Checkpoints of a flow: its definition, what it remembers, and the states of its kernel."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.circuit.kernel import Kernel
from penstock.circuit.state_key import StateKey
from penstock.engine import definition
from penstock.engine.graph import Graph
from penstock.engine.seal import Seal
from penstock.errors import StateError
from penstock.state.checkpoint import Catalog, CheckpointFolder, Manifest, StagedCheckpoint
from penstock.state.files import Files
from penstock.state.part import RestoredPart
from penstock.state.state import Image


@dataclass(frozen=True, slots=True)
class SavedFlow:
    """A checkpoint that was read: what it says of the flow, and the states by their names."""

    manifest: Manifest
    images: Mapping[StateKey, Image]

    @property
    def flow(self) -> Mapping[str, Any]:
        return self.manifest.flow


class FlowCheckpoints:
    """The checkpoints of one flow in one folder."""

    def __init__(
        self,
        folder: Path,
        files: Files | None = None,
        *,
        catalog: Catalog | None = None,
        writer: str = "",
        seal: Seal | None = None,
    ) -> None:
        self._seal = seal or Seal()
        self._folder = CheckpointFolder(folder, files, catalog=catalog, writer=writer)

    @property
    def location(self) -> str:
        """Their folder as users write it."""
        return self._folder.location

    def stage(self, graph: Graph, name: str | None, **more: Any) -> StagedCheckpoint:
        """Note everything that a checkpoint of the flow as it is now needs; called between ticks, and followed by `write`."""
        flow = {
            "definition": self._seal.sealed_text(definition.dumps(graph, name)),
            "state": graph.state.to_dict(),
            **more,
        }
        order = self._folder.order()
        staging = graph.kernel.stage(order)
        return self._folder.stage(flow, _named(staging.images), order=order, parts=staging.parts)

    def write(self, staged: StagedCheckpoint, *, keep: int | None = None) -> int:
        """Write a checkpoint and return its number; ticks may go on meanwhile. The newest `keep` stay, or all."""
        return self._folder.write(staged, keep=keep).number

    def prune(self, keep: int) -> None:
        """Take away all but the newest `keep`."""
        self._folder.prune(keep)

    def names(self) -> list[str]:
        """The checkpoints that are there, the newest last."""
        return self._folder.names()

    def read(self, name: str) -> SavedFlow:
        """A checkpoint; StateError when it is damaged."""
        manifest = self._folder.read(name)
        if "definition" in manifest.flow:
            opened = self._seal.opened_text(manifest.flow["definition"])
            manifest = replace(manifest, flow={**manifest.flow, "definition": opened})
        images = {StateKey.from_json(key): image for key, image in self._folder.images(manifest).items()}
        return SavedFlow(manifest, images)

    def newest(self) -> SavedFlow | None:
        """The newest checkpoint, None when there is none; StateError when it is damaged."""
        names = self.names()
        return self.read(names[-1]) if names else None

    def exist(self) -> bool:
        """Whether there are any."""
        return bool(self.names())

    def flow(self, name: str) -> Mapping[str, Any]:
        """What a checkpoint says of the flow."""
        return self._folder.read(name).flow

    def oldest(self) -> Mapping[str, Any]:
        """What the oldest checkpoint that is there says of the flow."""
        return self.flow(self.names()[0])

    def require(self) -> SavedFlow:
        """The newest checkpoint; StateError when there is none."""
        saved = self.newest()
        if saved is None:
            raise StateError(
                "there is no checkpoint here",
                code="STATE_NO_CHECKPOINT",
                hint="give the folder that flow.checkpoint(...) or flow.checkpoint_full(...) was given; a "
                "flow directory is opened by IncrementalFlow(path=...)",
                where=self._folder.location,
            )
        return saved

    def continue_from(self, saved: SavedFlow, kernel: Kernel) -> None:
        """Let the next checkpoint write what changes from now on in a kernel that has just been restored from `saved`."""
        loaded = kernel.loaded
        restored = {key: image for key, image in kernel.save().items() if key in loaded} if loaded else {}
        self._folder.continue_from(saved.manifest, _named(saved.images), _named(restored))

        def restored_part(keys: Collection[StateKey]) -> RestoredPart:
            return self._folder.restored_part(saved.manifest, [key.to_json() for key in keys])

        kernel.continue_from(restored_part)


def _named(images: Mapping[StateKey, Image]) -> dict[str, Image]:
    return {key.to_json(): image for key, image in images.items()}
