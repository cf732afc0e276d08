"""The folder of a group: its checkpoints, the state of its views, and what its sources keep in files."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import StateError

MAIN = "main"
"""The folder of the group that has no name."""
GROUP = "group-"
"""What the folders of the others begin with, so that a node called `main` is none of them."""
FOLDER = "folder"
"""Under which the job of a group records its folder."""
CHECKPOINT, VIEWS, SOURCES = "checkpoint", "views-", "sources"


@dataclass(frozen=True, slots=True)
class GroupFolder:
    """Where a group keeps what outlasts its run."""

    path: Path

    @classmethod
    def of(cls, pipeline: Path, group: str) -> GroupFolder:
        """The folder of a group in that of its pipeline."""
        return cls(pipeline / (f"{GROUP}{group}" if group else MAIN))

    def checkpoint(self, phase: str = "") -> Path:
        """The checkpoint of a phase that comes to an end, or that of the group; after its sources have changed it has
        another path."""
        checkpoints = self.checkpoints(phase)
        return checkpoints[-1] if checkpoints else self.path / _checkpoint(phase)

    def checkpoints(self, phase: str = "") -> list[Path]:
        """The checkpoint, after the older ones that it replaces, as far as these are still there."""
        first = self.path / _checkpoint(phase)
        later = sorted(self.path.glob(f"{first.name}.*"), key=_generation)
        return [first, *later] if first.exists() else later

    def next_checkpoint(self, phase: str = "") -> Path:
        """The path of a checkpoint with other sources."""
        return self.path / f"{_checkpoint(phase)}.{_generation(self.checkpoint(phase)) + 1}"

    @property
    def has_begun(self) -> bool:
        """Whether the group has ever run, and what it kept is still there."""
        return any(self.path.glob(f"{CHECKPOINT}*/metadata"))

    def views(self, level: int) -> Path:
        """The state of the views of a level."""
        return self.path / f"{VIEWS}{level}"

    def views_beside(self, levels: Collection[int]) -> list[Path]:
        """The state of views on levels where the group has none any more."""
        wanted = {self.views(level).name for level in levels}
        return sorted(path for path in self.path.glob(f"{VIEWS}*") if path.name not in wanted)

    def source(self, node: str) -> Path:
        """What a source keeps in files."""
        return self.path / SOURCES / node

    def remove(self) -> bool:
        """Delete all of it; False when there is nothing. A folder with anything else in it is left alone, with an
        error that names it."""
        if not self.path.is_dir():
            return False
        names = (path.name for path in self.path.iterdir())
        strange = sorted(
            name for name in names if not name.startswith((CHECKPOINT, VIEWS, ".")) and name != SOURCES
        )
        if strange:
            raise StateError(
                f"the folder of the pipeline holds other things too: {', '.join(strange[:5])}",
                code="STATE_CHECKPOINT",
                where=str(self.path),
                hint="nothing was deleted; move them away, or delete the folder yourself",
            )
        try:
            shutil.rmtree(self.path)
        except OSError as error:
            raise StateError(
                f"the state of the pipeline cannot be deleted: {error.strerror}",
                code="STATE_CHECKPOINT",
                where=str(self.path),
            ) from error
        return True


def _checkpoint(phase: str) -> str:
    return f"{CHECKPOINT}-{phase}" if phase else CHECKPOINT


def _generation(checkpoint: Path) -> int:
    number = checkpoint.name.partition(".")[2]
    return int(number) if number.isdigit() else 1
