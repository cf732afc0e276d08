"""Step batches of several feeders so that one bad batch does not hold up the others.

All batches are tried as one tick first. When their data is refused, halves are tried, in the order in which they were fed, until
the batch that fails alone is found. Errors that are not about data (a server that is away, a fault of ours) reject nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.engine.graph import FedBatch
from penstock.errors import DataError, PenstockError, SqlError


def step_isolated(
    batches: Sequence[FedBatch],
    *,
    step: Callable[[Sequence[FedBatch]], None],
    reject: Callable[[FedBatch, PenstockError], None],
) -> None:
    """Call `step` for runs of batches and `reject` for each that is refused, together for every batch once and in order.

    When it raises, the batches that neither was called for successfully are the last ones.
    """
    try:
        step(batches)
        return
    except (DataError, SqlError) as error:
        refused = error
    if len(batches) > 1:
        middle = len(batches) // 2
        step_isolated(batches[:middle], step=step, reject=reject)
        step_isolated(batches[middle:], step=step, reject=reject)
        return
    if not batches:
        raise refused
    # When a tick without rows fails too, it is not this batch that is wrong.
    step(())
    reject(batches[0], refused)
