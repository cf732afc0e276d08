"""The states of a shard in a folder, as a checkpoint of its own: what a shard that was lost is made again from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.circuit.state_key import StateKey
from penstock.state.checkpoint import CheckpointFolder
from penstock.state.state import Image


def write_images(images: Mapping[StateKey, Image], folder: Path) -> str:
    """Write states to a new folder, and return the name of their manifest."""
    checkpoints = CheckpointFolder(folder)
    named = {key.to_json(): image for key, image in images.items()}
    checkpoints.write(checkpoints.stage({}, named))
    return checkpoints.names()[-1]


def read_images(folder: Path) -> dict[StateKey, Image]:
    """The states of a folder, which lie in its files."""
    checkpoints = CheckpointFolder(folder)
    manifest = checkpoints.read(checkpoints.names()[-1])
    return {StateKey.from_json(name): image for name, image in checkpoints.images(manifest).items()}


def portable(image: Image) -> Image:
    """The same state with arrays that can go to another process."""
    arrays = {
        name: array if isinstance(array, pa.Array) else np.asarray(array)
        for name, array in image.arrays.items()
    }
    return replace(image, arrays=arrays, parts={name: portable(part) for name, part in image.parts.items()})
