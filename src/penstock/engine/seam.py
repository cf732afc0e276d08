"""Where a flow meets its users: an exception that nobody expected leaves as an error of penstock."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import isfunction
from typing import Any, TypeVar

from penstock.errors import PenstockError, unexpected

# Whose exceptions say nothing to users. Those of Spark, of connectors and of users' own classes do.
_LIBRARIES = {"builtins", "json", "numpy", "pyarrow", "struct", "zlib"}

C = TypeVar("C", bound=type)


def translated(cls: C) -> C:
    """Let the public methods of a class raise what nobody expected as `errors.unexpected` says it, with the exception
    as its cause.

    A call that does not fit the signature stays Python's own TypeError: it has not come in yet.
    """
    for name, member in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        if isfunction(member):
            setattr(cls, name, _translated(member))
        elif isinstance(member, classmethod):
            setattr(cls, name, classmethod(_translated(member.__func__)))
    return cls


def _translated(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except (PenstockError, OSError):
            raise  # the system says itself what is wrong with a file or a connection
        except Exception as error:
            called = error.__traceback__ is not None and error.__traceback__.tb_next is not None
            if not called or type(error).__module__.partition(".")[0] not in _LIBRARIES:
                raise
            raise unexpected(error, f"flow.{method.__name__}") from error

    return call
