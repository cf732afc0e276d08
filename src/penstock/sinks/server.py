"""What the sinks of servers have in common: they wait for a server that does not answer, and say what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import Field

from penstock.errors import PenstockError
from penstock.options import Duration, Options
from penstock.sinks.base import Sink, Target
from penstock.sinks.retry import RetryPolicy, retry

if TYPE_CHECKING:
    from penstock.config import Settings

T = TypeVar("T")


class ServerOptions(Options):
    """The options of every sink that talks to a server."""

    retry_for: Duration = Field(
        "5 minutes",
        validate_default=True,
        description="how long an epoch waits for a server that does not answer; then the query fails",
    )


class ServerSink(Sink):
    """A sink whose rows go to a server, through `retry`.

    An error for which `transient` has a reason is tried again: at the start of a query for a few seconds, in an epoch
    for as long as the option `retry_for` says. Any other error of the client ends the query in the words of
    `translate`. After both the connection is closed, and the next attempt opens another.
    """

    Options: ClassVar[type[ServerOptions]] = ServerOptions

    options: ServerOptions

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        super().__init__(options, settings)
        self._policy = RetryPolicy(seconds=self.options.retry_for / 1000)
        self._target: Target | None = None

    @property
    def target(self) -> Target:
        """The query, once the sink is checked or opened."""
        assert self._target is not None, "the sink was neither checked nor opened"
        return self._target

    def check(self, target: Target) -> None:
        self._target = target
        self.check_query(target)
        self._at_start(lambda: self.check_server(target))

    def check_connection(self, target: Target) -> None:
        self._target = target
        self._at_start(lambda: self.check_reachable(target))

    def open(self, target: Target) -> None:
        self._target = target
        self._at_start(lambda: self.prepare(target))

    def check_query(self, target: Target) -> None:
        """Called first by `check`: refuse what cannot work whatever the server has; raising refuses the start."""

    def check_server(self, target: Target) -> None:
        """Called by `check`, again after a transient error: refuse what does not fit what the server has, and change nothing."""

    def check_reachable(self, target: Target) -> None:
        """Called by `check_connection`, again after a transient error: connect, refuse a table or topic that is not
        there, and change nothing."""

    def prepare(self, target: Target) -> None:
        """Called by `open`, again after a transient error: create or widen the table, look up the last committed epoch."""

    def transient(self, error: Exception) -> str | None:
        """Say what an error means that goes away by itself; None when it does not, or is not the server's."""
        return None

    def translate(self, error: Exception) -> PenstockError | None:
        """Return the error for the user, for one of the client's that does not go away; None leaves it as it is."""
        return None

    def retry(self, action: Callable[[], T]) -> T:
        """Return what the action returns, trying again as long as `retry_for` says."""
        return self._retry(action, self._policy)

    def _at_start(self, action: Callable[[], T]) -> T:
        try:
            return self._retry(action, self._policy.at_start())
        except BaseException:
            self.close()  # the query does not start, so it will not close the sink
            raise

    def _retry(self, action: Callable[[], T], policy: RetryPolicy) -> T:
        try:
            return retry(
                action,
                status=self.target.status,
                description=self.describe(),
                policy=policy,
                transient=self._transient,
            )
        except PenstockError:
            raise
        except Exception as error:
            translated = self.translate(error)
            if translated is None:
                raise
            raise translated from error

    def _transient(self, error: Exception) -> str | None:
        if isinstance(error, PenstockError):
            return None
        self.close()
        return self.transient(error)
