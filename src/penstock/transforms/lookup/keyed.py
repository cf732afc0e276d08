"""What look-ups by key have in common: the contract of a backend, and how it is asked again while it does not answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from penstock.errors import ConnectorError

T = TypeVar("T")

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """The values that belong to a key."""

    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class RefusedKey:
    """A key that cannot be looked up, which is the row's fault."""

    reason: str


Answer = Row | RefusedKey
"""A key that is not there has none."""


class LookupClient(Protocol):
    """A connection to the system with the values, in one process."""

    def fetch(self, keys: Sequence[Key]) -> Mapping[Key, Answer]:
        """Return what is there for the keys; raises a ConnectorError when the system fails."""

    def close(self) -> None:
        """Called when the process needs it no more."""


class LookupBackend(Protocol):
    """A system with values by key, as it travels to Spark's tasks."""

    @property
    def kinds(self) -> Sequence[str]:
        """The types of the values, by Spark's names."""

    def connect(self) -> LookupClient:
        """Called once in each worker process."""


def retrying(
    action: Callable[[], T], *, seconds: float, description: str, transient: Callable[[Exception], str | None]
) -> T:
    """Return what the action returns; try again after errors for which `transient` has a reason."""
    from penstock.sinks.base import QueryStatus
    from penstock.sinks.retry import RetryPolicy, retry

    try:
        return retry(
            action,
            status=QueryStatus(),
            description=description,
            policy=RetryPolicy(seconds),
            transient=transient,
        )
    except ConnectorError as error:
        if error.code != "SINK_UNREACHABLE":
            raise
        raise ConnectorError(
            error.message,
            code="LOOKUP_UNREACHABLE",
            hint="wait longer with `retry_for: 30 minutes`",
            retryable=True,
        ) from error
