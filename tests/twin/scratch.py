"""Budgets so small that all state lies in scratch files, and disks that are full."""

from __future__ import annotations

import errno
from pathlib import Path

from penstock.circuit.budget import MemoryBudget
from penstock.state.scratch import LocalScratchFiles, Scratch, ScratchFiles


def tiny_budget(folder: Path, files: ScratchFiles | None = None) -> MemoryBudget:
    """A budget of one byte."""
    budget = MemoryBudget(1, folder, files=files)
    budget.scratch.least = 1
    return budget


def tiny_scratch(folder: Path, files: ScratchFiles | None = None) -> Scratch:
    """The scratch files of such a budget."""
    return tiny_budget(folder, files).scratch


class FullDisk:
    """Scratch files of a disk on which one call finds no room, and those behind it while `full`."""

    def __init__(self, call: int, *, full: bool = False) -> None:
        self._files = LocalScratchFiles()
        self._left = call
        self.full = full
        self.failed = False

    def _call(self) -> None:
        self._left -= 1
        if self._left == 0 or (self.failed and self.full):
            self.failed = True
            raise OSError(errno.ENOSPC, "No space left on device")

    def create(self, folder: Path) -> int:
        self._call()
        return self._files.create(folder)

    def allocate(self, handle: int, size: int) -> None:
        self._call()
        self._files.allocate(handle, size)
