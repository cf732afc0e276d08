"""How arrays get their memory while the kernel works.

NumPy asks for huge pages for every large array. State grows all the time and a bulk load makes many large arrays, so
the operating system has to find and clear huge pages again and again: that took more time than the work itself, and
stalled single ticks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from numpy._core import multiarray

# NumPy's switch behind the variable NUMPY_MADVISE_HUGEPAGE, which counts only before NumPy is imported.
_switch: Callable[[bool], bool] | None = getattr(multiarray, "_set_madvise_hugepage", None)


_LOCK = Lock()
_inside = 0  # how many are in the context: NumPy has one switch for all threads
_before = False


@contextmanager
def plain_pages() -> Iterator[None]:
    """Let arrays that are made in this context have pages of the ordinary size; it may be entered by several threads."""
    global _inside, _before
    if _switch is None:
        yield
        return
    with _LOCK:
        if _inside == 0:
            _before = _switch(False)
        _inside += 1
    try:
        yield
    finally:
        with _LOCK:
            _inside -= 1
            if _inside == 0:
                _switch(_before)
