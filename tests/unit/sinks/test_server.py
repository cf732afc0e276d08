"""What the sinks of servers have in common: retries, translated errors, connections that are closed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.config import Settings
from penstock.errors import ConfigError, ConnectorError, PenstockError
from penstock.sinks.base import Epoch, Guarantee, Target
from penstock.sinks.server import ServerSink


class Refused(Exception):
    """What the server answers when it refuses."""


class Server(ServerSink):
    """A sink of a server that answers with these errors first."""

    def __init__(self, *errors: Exception, **options: Any) -> None:
        super().__init__(options)
        self.errors = list(errors)
        self.calls: list[str] = []

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.AT_LEAST_ONCE

    def check_query(self, target: Target) -> None:
        self.calls.append("check_query")

    def check_server(self, target: Target) -> None:
        self._ask("check_server")

    def prepare(self, target: Target) -> None:
        self._ask("prepare")

    def write(self, epoch: Epoch) -> int | None:
        self.retry(lambda: self._ask("write"))
        return None

    def close(self) -> None:
        self.calls.append("close")

    def transient(self, error: Exception) -> str | None:
        return str(error) if isinstance(error, OSError) else None

    def translate(self, error: Exception) -> PenstockError | None:
        return (
            ConnectorError(f"refused: {error}", code="SINK_REFUSED") if isinstance(error, Refused) else None
        )

    def _ask(self, call: str) -> None:
        self.calls.append(call)
        if self.errors:
            raise self.errors.pop(0)


@pytest.fixture
def target(tmp_path: Path) -> Target:
    nothing: Any = None
    return Target(nothing, "id", "orders", "append", nothing, settings=Settings(home=tmp_path))


def test_a_transient_error_is_tried_again_on_a_new_connection(target: Target) -> None:
    sink = Server(OSError("away"))
    sink.check(target)
    assert sink.calls == ["check_query", "check_server", "close", "check_server"]
    assert target.status.retries == 1
    sink.errors = [OSError("away"), OSError("away")]
    sink.open(target)
    assert sink.calls[4:] == ["prepare", "close", "prepare", "close", "prepare"]
    sink.errors = [OSError("away")]
    sink.write(Epoch(0, None))  # type: ignore[arg-type]  # this sink looks at no rows
    assert (target.status.retries, target.status.message) == (4, None)


def test_an_error_of_the_server_is_translated_at_once(target: Target) -> None:
    sink = Server(Refused("no such user"))
    with pytest.raises(ConnectorError, match="refused: no such user") as refused:
        sink.open(target)
    assert isinstance(refused.value.__cause__, Refused)
    assert (sink.calls[0], sink.calls[-1], target.status.retries) == ("prepare", "close", 0)


@pytest.mark.parametrize("error", [ConfigError("no key", code="STREAM_KEY"), KeyError("a fault of ours")])
def test_any_other_error_goes_through(target: Target, error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        Server(error).check(target)
    assert caught.value is error


def test_a_start_gives_up_when_the_time_of_the_sink_is_over(target: Target) -> None:
    sink = Server(*[OSError("away")] * 1_000, retry_for="20 ms")
    with pytest.raises(ConnectorError, match="server: away; gave up after") as ended:
        sink.open(target)
    assert ended.value.code == "SINK_UNREACHABLE"
    assert sink.calls[-1] == "close"
