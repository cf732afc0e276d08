"""Hashes of a few bits only, so that rows that differ share a hash often."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.data.hashing import Hashes, hash_rows, tells_apart

ALL_BITS = 0xFFFFFFFFFFFFFFFF


@contextmanager
def weakened(mask: int) -> Iterator[None]:
    """Keep only the bits of `mask` of every hash while the context is open.

    Every module that has imported the functions gets the weak ones, also a module that is imported meanwhile; the wide hash
    stays as it is, because it stands for rows whose values are not kept.
    """

    def weak_hash_rows(columns: Sequence[pa.Array], rows: int | None = None) -> Hashes:
        return hash_rows(columns, rows) & np.uint64(mask)

    def weak_tells_apart(columns: Sequence[pa.Array]) -> bool:
        return False

    if mask == ALL_BITS:
        yield
        return
    strong = {"hash_rows": hash_rows, "tells_apart": tells_apart}
    weak = {"hash_rows": weak_hash_rows, "tells_apart": weak_tells_apart}
    _replace(strong, weak)
    try:
        yield
    finally:
        _replace(weak, strong)


def _replace(old: dict[str, Any], new: dict[str, Any]) -> None:
    for module_name, module in list(sys.modules.items()):
        names = getattr(module, "__dict__", {})
        for name, function in old.items():
            if module_name != __name__ and names.get(name) is function:
                setattr(module, name, new[name])
