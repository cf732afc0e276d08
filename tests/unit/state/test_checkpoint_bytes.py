"""What checkpoints write again of what has not changed, and how much of their files is in use."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from penstock.state.checkpoint import CheckpointFolder, Manifest
from penstock.state.data_file import WrittenArray, extents, sparse_files
from penstock.state.slot_array import SlotArray

ROWS = 50_000


class Folder:
    """Checkpoints of slot arrays, the newest kept."""

    def __init__(self, path: Path, *names: str) -> None:
        self.path = path
        self.arrays = {name: SlotArray(np.int64) for name in names}
        for array in self.arrays.values():
            array.reserve(ROWS)
            array.commit()
        self._folder = CheckpointFolder(path)

    def write(self, name: str, slots: int, value: int) -> None:
        """Write a value to as many slots, spread over the array."""
        at = np.linspace(0, ROWS - 1, slots).astype(np.int64)
        self.arrays[name].put(at, np.full(slots, value))
        self.arrays[name].commit()

    def checkpoint(self) -> tuple[Manifest, int]:
        """Take one: what it says, and the bytes of its data file."""
        images = {name: array.save() for name, array in self.arrays.items()}
        manifest = self._folder.write(self._folder.stage({}, images), keep=1)
        return manifest, (self.path / f"data-{manifest.number:06d}.bin").stat().st_size

    def restored(self, manifest: Manifest) -> dict[str, np.ndarray]:
        return {
            name: np.asarray(image.arrays["rows"]) for name, image in self._folder.images(manifest).items()
        }

    @property
    def size(self) -> int:
        return sum(file.stat().st_size for file in self.path.glob("data-*"))


def test_a_small_patch_does_not_take_its_array_along(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "busy", "calm")
    folder.checkpoint()
    written = []
    for number in range(12):
        folder.write("busy", ROWS // 4, number)
        folder.write("calm", 3, number)
        manifest, size = folder.checkpoint()
        written.append(size)
        restored = folder.restored(manifest)
        for name, array in folder.arrays.items():
            assert (restored[name][:ROWS] == array.data[:ROWS]).all()
    # A quarter of one array in patches of twelve bytes a slot, and that array anew when they are more than it.
    assert sum(written) < 12 * (ROWS // 4) * 12 + 5 * ROWS * 8


def test_patches_do_not_become_more_and_more(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "calm")
    folder.checkpoint()
    for number in range(40):
        folder.write("calm", 2, number)
        manifest, _ = folder.checkpoint()
        assert len(list(extents(manifest.states["calm"]))) <= 1 + 2 * 16
    assert (folder.restored(manifest)["calm"][:ROWS] == folder.arrays["calm"].data[:ROWS]).all()


def test_half_of_the_bytes_are_in_use(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "one", "other")
    folder.checkpoint()
    before = folder.size
    for number in range(30):
        folder.write("one", ROWS // 3, number)
        folder.write("other", ROWS // 50, number)
        manifest, size = folder.checkpoint()
        used = sum(extent["bytes"] for state in manifest.states.values() for extent in extents(state))
        assert (
            folder.size <= 2 * before + size
        )  # a file goes with the checkpoint behind the one that has made it sparse
        before = used


def test_the_sparsest_files_go_first_and_no_more_than_are_needed() -> None:
    def of(file: str, size: int) -> WrittenArray:
        return WrittenArray({"file": file, "bytes": size})

    arrays = [of("a", 50), of("b", 10), of("c", 20)]
    assert sparse_files(arrays, {"a": 60, "b": 40, "c": 60}) == set()
    assert sparse_files(arrays, {"a": 60, "b": 100, "c": 60}) == {"b"}
    assert sparse_files(arrays, {"a": 60, "b": 300, "c": 300}) == {"b", "c"}
    assert sparse_files([], {}) == set()
