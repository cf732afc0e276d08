"""The memory budget of a flow, as its user has asked for it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from penstock.circuit.budget import MemoryBudget
from penstock.data.byte_size import byte_size

FOLDER = "scratch"  # in a flow directory


def memory_budget(memory: int | str | None, directory: Path | None) -> MemoryBudget | None:
    """The budget that `memory=` asks for, with scratch files in the flow directory of this machine, or where
    temporary files are."""
    if memory is None:
        return None
    folder = Path(tempfile.gettempdir()) if directory is None else directory / FOLDER
    return MemoryBudget(byte_size(memory, what="memory"), folder)
