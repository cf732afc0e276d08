"""Memory for arrays that grow: address space is reserved once and costs nothing until it is touched, so growth copies nothing.

Small arrays are ordinary ones. A restored array lies on a private map of its file, at the beginning of its reserved
space: its pages are read when they are touched, and what is written stays in memory.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

RESERVE_FROM = 1 << 20  # bytes from which address space is reserved
RESERVED = 1 << 34  # bytes of address space for one array


def grown(
    rows: npt.NDArray[Any], space: npt.NDArray[Any], size: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return (an array of at least `size` rows that begins with `rows`, the space that it may grow into); new rows are zero.

    Who still reads the old array reads what stood there before.
    """
    count = len(rows)
    room = max(size, 2 * count if count < 1 << 16 else count + count // 8)
    if room > len(space):
        space = _zeros(room, rows.shape[1:], rows.dtype)
        space[:count] = rows
    return space[:room], space


def mapped(
    path: str | os.PathLike[str], dtype: npt.DTypeLike, shape: tuple[int, ...], *, offset: int = 0
) -> npt.NDArray[Any]:
    """Return the array at a page of a file, with space behind it; writes do not reach the file."""
    kind = np.dtype(dtype)
    row = kind.itemsize * prod(shape[1:])
    length = row * shape[0]
    if length == 0:
        return np.zeros(shape, kind)
    space = _reserve(max(RESERVED, 2 * length))
    if space is None:
        return np.memmap(path, kind, "c", offset, shape)
    with open(path, "rb") as file:
        _map_file(space, file.fileno(), offset, length)
    # What follows in the file, up to the end of its last page, is no part of the array.
    end = -(-length // mmap.PAGESIZE) * mmap.PAGESIZE
    space[length:end] = bytes(end - length)
    return np.frombuffer(space, kind, len(space) // row * prod(shape[1:])).reshape(-1, *shape[1:])


def _zeros(rows: int, width: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    row = dtype.itemsize * prod(width)
    space = _reserve(max(RESERVED, 2 * rows * row)) if rows * row >= RESERVE_FROM else None
    if space is None:
        return np.zeros((rows, *width), dtype)
    return np.frombuffer(space, dtype, len(space) // row * prod(width)).reshape(-1, *width)


def map_shared(descriptor: int, size: int) -> mmap.mmap:
    """Return a map of the beginning of a file, which has no less bytes; what is written to it goes to the file."""
    space = _reserve(size, mmap.MAP_SHARED)
    if space is None:
        raise OSError(errno.ENOMEM, f"there is no address space for {size} bytes")
    _map_file(space, descriptor, 0, size, mmap.MAP_SHARED)
    return space


def _reserve(size: int, kind: int = mmap.MAP_PRIVATE) -> mmap.mmap | None:
    """Address space without memory, or None where the system counts address space as memory."""
    flags = kind | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    try:
        space = mmap.mmap(-1, size, flags=flags)
    except (OSError, ValueError, OverflowError):
        return None
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        # State is written row by row: the system would have to clear a whole huge page for the first of them.
        space.madvise(mmap.MADV_NOHUGEPAGE)
    return space


_MAP_FIXED = 0x10


def _map_file(
    space: mmap.mmap, descriptor: int, offset: int, length: int, kind: int = mmap.MAP_PRIVATE
) -> None:
    """Put a map of a part of a file at the beginning of reserved space."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    )
    address = ctypes.addressof(ctypes.c_char.from_buffer(space))
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    mapped_at = libc.mmap(address, length, protection, kind | _MAP_FIXED, descriptor, offset)
    if mapped_at != address:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot map the file: {os.strerror(code)}")
