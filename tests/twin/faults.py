"""Faults at calls: an action that fails at its n-th call of anything, in Python or in C."""

from __future__ import annotations

import gc
import logging
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class Fault(Exception):
    """The fault that is injected."""


def calls_of(action: Callable[[], Any]) -> int:
    """How many calls an action makes."""
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += _is_call(frame, event, argument)

    _profiled(count, action)
    return calls


def arrays_asked_by(action: Callable[[], Any]) -> list[str]:
    """The functions of NumPy and Arrow that an action calls."""
    names = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        modules: list[Any] = []
        if event == "c_call":
            owner = getattr(argument, "__self__", None)
            modules = [argument.__module__, type(owner).__module__, getattr(owner, "__name__", None)]
        elif event == "call":
            modules = [frame.f_globals.get("__name__")]
        if any(str(module).partition(".")[0] in ("numpy", "pyarrow") for module in modules):
            names.append(argument.__name__ if event == "c_call" else frame.f_code.co_name)

    _profiled(note, action)
    return names


def broken_at(call: int, action: Callable[[], Any]) -> bool:
    """Run an action and let its n-th call fail; return whether it makes as many."""
    left = call

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal left
        if _is_call(frame, event, argument):
            left -= 1
            if left == 0:
                sys.setprofile(None)
                raise Fault

    try:
        last = _profiled(count, action)
        assert left == 0 or last is count, "calls that nobody has counted"
    except Exception:  # NumPy and others may raise an error of their own because of it
        assert left == 0, "an error that was not injected"
    return left == 0


def _profiled(count: Callable[[FrameType, str, Any], None], action: Callable[[], Any]) -> Any:
    """Give all calls of an action to a function, but for those of a collection of garbage; return the profile that is there at the end.

    Python makes the frame of a call before it tells the profile of the call, and that may start a collection: a fault in what other
    packages do at collections would be swallowed, and the call that started it would be counted behind the fault.
    """
    collects = gc.isenabled()
    gc.disable()
    sys.setprofile(count)
    try:
        action()
        return sys.getprofile()
    finally:
        sys.setprofile(None)
        if collects:
            gc.enable()


def _is_call(frame: FrameType, event: str, argument: Any) -> bool:
    """Whether an event of a profile is a call that may fail: the end of the profile and the release of a lock cannot.

    A logger that fails before it releases its handler would stop every other thread that logs.
    """
    if event == "c_call":
        return argument.__name__ not in ("setprofile", "getprofile", "__exit__", "release")
    return event == "call" and frame.f_code.co_filename not in (threading.__file__, logging.__file__)
