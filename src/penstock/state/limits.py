"""The sizes at which state changes its ways: when runs are merged, when searches get tables."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Limits:
    """All sizes are in rows. Tests set them low, so that a few rows make runs, open merges and tables."""

    fan_in: int = 4  # runs of similar size that are merged together
    small: int = 8_192  # rows of a run up to which its size does not matter
    at_once: int = 32_768  # rows that are merged at once
    most_dead: int = 4  # the largest run is merged with the others when they are this part of it
    fuel: int = 32  # rows of an open merge that each changed row pays for: more than most_dead + 1, so that there are few runs
    paid_chunk: int = 32_768  # rows that must be paid for before a merge goes on
    merge_chunk: int = (
        16_384  # rows of each run per chunk: small enough for the cache, large enough to hide the calls
    )
    least_chunk: int = 512
    table_from: int = 200_000  # rows from which a table of the high bits of hashes pays
    spare: int = 4_096  # dead keys that may lie beside as many as there are live ones
    fold_from: int = 65_536  # slots written since a checkpoint from which they are brought together in bits


LIMITS = Limits()
