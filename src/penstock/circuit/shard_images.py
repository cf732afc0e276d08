"""The states of a shard in a folder, as a checkpoint of its own: what a shard that was lost is made again from."""

from __future__ import annotations

import json
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
    named = {json.dumps([key.node, key.keys, key.role]): image for key, image in images.items()}
    checkpoints.write(checkpoints.stage({}, named))
    return checkpoints.names()[-1]


def read_images(folder: Path) -> dict[StateKey, Image]:
    """The states of a folder, which lie in its files."""
    checkpoints = CheckpointFolder(folder)
    manifest = checkpoints.read(checkpoints.names()[-1])
    images: dict[StateKey, Image] = {}
    for name, image in checkpoints.images(manifest).items():
        node, keys, role = json.loads(name)
        images[StateKey(node, None if keys is None else tuple(keys), role)] = image
    return images


def portable(image: Image) -> Image:
    """The same state with arrays that can go to another process."""
    arrays = {
        name: array if isinstance(array, pa.Array) else np.asarray(array)
        for name, array in image.arrays.items()
    }
    return replace(image, arrays=arrays, parts={name: portable(part) for name, part in image.parts.items()})
