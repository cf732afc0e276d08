"""Rows laid out for window functions: partition by partition, in order, and where partitions and peers begin and end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.data.arrays import Positions
from penstock.data.ordering import Key, run_lengths, run_starts


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows of whole partitions in order. For each row: its partition [begin, end) and its peers [peer_begin, peer_end)."""

    columns: tuple[pa.Array, ...]
    order: tuple[Key, ...]
    begin: Positions
    end: Positions
    peer_begin: Positions
    peer_end: Positions

    def __len__(self) -> int:
        return len(self.begin)


def lay_out(
    columns: Sequence[pa.Array], order: Sequence[Key], partitions: Positions, peers: Positions
) -> Layout:
    """Return the layout of rows that are sorted already; `partitions` and `peers` are classes that ascend with them."""
    begin, end = _spans(partitions)
    peer_begin, peer_end = _spans(peers)
    return Layout(tuple(columns), tuple(order), begin, end, peer_begin, peer_end)


def _spans(classes: Positions) -> tuple[Positions, Positions]:
    count = len(classes)
    starts = run_starts(classes)
    sizes = run_lengths(starts, count)
    return starts.repeat(sizes), (starts + sizes).repeat(sizes)
