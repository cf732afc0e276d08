"""How much of a kernel's state lies in memory: what is beyond the budget moves to scratch files, the largest parts first."""

from __future__ import annotations

from pathlib import Path

from penstock.circuit.kernel import Kernel
from penstock.errors import StateError
from penstock.state.limits import LIMITS
from penstock.state.scratch import Scratch, ScratchFiles, using

_DOWN_TO = 0.75  # of the budget: so that the next ticks have room


class MemoryBudget:
    """The budget of one kernel. It is kept between ticks; a tick itself needs memory for its delta."""

    def __init__(self, size: int, folder: Path, *, files: ScratchFiles | None = None) -> None:
        self.scratch = Scratch(folder, size, files=files)
        self._error: StateError | None = None  # why state could not move, or be merged, after the last tick

    @property
    def size(self) -> int:
        """Bytes of state that may lie in memory."""
        return self.scratch.budget

    def maintain(self, kernel: Kernel) -> None:
        """Merge and compact what the last tick has left, then bring the state below the budget."""
        try:
            with using(self.scratch):
                kernel.maintain(LIMITS.fuel)
            self._error = None
            self.relieve(kernel)
        except StateError as error:
            self._error = error
            raise

    def require(self, kernel: Kernel) -> None:
        """StateError when there is still no room for what has moved nowhere after the last tick: state must not grow
        on and on."""
        if self._error is not None:
            self.maintain(kernel)

    def relieve(self, kernel: Kernel) -> None:
        """Bring the state below the budget."""
        scratch = self.scratch
        scratch.resident = kernel.memory() - kernel.mapped()
        if scratch.resident <= scratch.budget:
            return
        pieces = [piece for piece in kernel.pieces() if piece.size >= scratch.least]
        # Arrays that ticks write to come last: their pages would be written to the disk again and again.
        for piece in sorted(pieces, key=lambda piece: (piece.written, -piece.size)):
            if scratch.resident <= scratch.budget * _DOWN_TO:
                return
            piece.move(scratch)
            scratch.resident -= piece.size
