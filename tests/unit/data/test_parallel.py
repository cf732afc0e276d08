"""Work on all cores gives what work on one core gives."""

from __future__ import annotations

import os
import threading
import warnings

import numpy as np
import pytest

from penstock.data import parallel
from penstock.data.parallel import spread
from penstock.data.sorting import order_words


def test_results_come_in_order() -> None:
    assert spread(lambda number: number * 2, range(100)) == list(range(0, 200, 2))
    assert spread(lambda number: number, []) == []


def test_an_error_is_raised() -> None:
    def fail(number: int) -> int:
        if number == 7:
            raise ValueError("seven")
        return number

    with pytest.raises(ValueError, match="seven"):
        spread(fail, range(20))


def test_work_within_work_does_not_wait_for_itself() -> None:
    def inner(number: int) -> list[int]:
        return spread(lambda other: number + other, range(3))

    assert spread(inner, range(50)) == [[number, number + 1, number + 2] for number in range(50)]


def test_one_core_needs_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "cores", lambda: 1)
    assert spread(lambda _: threading.current_thread(), range(3)) == [threading.current_thread()] * 3


def test_a_forked_process_has_threads_of_its_own() -> None:
    words = np.random.default_rng(1).integers(0, 2**64, 600_000, dtype=np.uint64)
    expected = order_words(words)[0]
    with warnings.catch_warnings():
        # Newer Pythons warn of what is tried here: a fork beside threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os._exit(0 if (order_words(words)[0] == expected).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
