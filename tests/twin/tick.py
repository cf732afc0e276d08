"""The end of a tick, as the circuit does it."""

from __future__ import annotations

from penstock.state.limits import LIMITS
from penstock.state.state import State


def end_tick(state: State) -> None:
    """Commit, then merge and compact."""
    state.commit()
    state.maintain(LIMITS.fuel)
