"""The parts of a check, and what is wrong in each of them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from penstock.errors import ConfigError, PenstockError
from penstock.options import Options, OptionsOwner, read_options
from penstock.plugin import KeyValues, PluginContext


class Broken(Exception):
    """One part of a contract that a plugin does not keep."""


class Report:
    """Runs the parts of a check, and raises one error with all that is wrong."""

    def __init__(self, plugin: str) -> None:
        self._plugin = plugin
        self._wrong: list[str] = []

    @contextlib.contextmanager
    def part(self, what: str) -> Iterator[None]:
        """A part that says what must hold, as in "the same rows come again"."""
        try:
            yield
        except Broken as broken:
            self._wrong.append(f"{what}: {broken}")
        except PenstockError as error:
            self._wrong.append(f"{what}: {error.message}" + (f" ({error.hint})" if error.hint else ""))
        except Exception as error:
            place = _place(error)
            self._wrong.append(f"{what}: it raised {type(error).__name__}: {error}{place}")

    def end(self) -> None:
        """Raise what is wrong; nothing when all is well."""
        if self._wrong:
            lines = "".join(f"\n  - {line}" for line in self._wrong)
            raise AssertionError(f"{self._plugin} does not keep the contract of a plugin:{lines}")


def require(holds: bool, message: str) -> None:
    """Say what is wrong unless something holds."""
    if not holds:
        raise Broken(message)


def options_of(report: Report, kind: Any, options: Mapping[str, Any] | None) -> Any:
    """Return the options as a model, after a look at how the plugin checks them."""
    written = dict(options or {})
    with report.part("options are a model of penstock.Options"):
        require(
            isinstance(kind.Options, type) and issubclass(kind.Options, Options),
            f"{kind.__name__}.Options is {kind.Options!r}; write class Options(ps.Options)",
        )
    with report.part("an option that there is not is refused"):
        if kind.Options.other_options is None:
            with contextlib.suppress(ConfigError, ValidationError):
                kind.Options.model_validate({**written, "no_such_option": 1})
                raise Broken(
                    "'no_such_option' was taken; leave extra= out of model_config, or set other_options"
                )
    return read_options(kind.Options, written, owner=OptionsOwner(kind.__name__, syntax="{name}: {value}"))


def context(
    schema: Any, state: KeyValues, side: Any, *, mode: str = "append", keys: tuple[str, ...] = ()
) -> PluginContext:
    """Return the context of a plugin; `side` collects the rows of side outputs."""
    return PluginContext(
        query="check", name="check", mode=mode, schema=schema, keys=keys, memory=state, side=side
    )


class RecordedSideOutputs:
    """Takes the rows of side outputs."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, Any]] = []

    def __call__(self, name: str) -> Any:
        sides = self

        class RecordedSideOutput:
            """One side output."""

            def write(self, batch: Any) -> None:
                """Take rows."""
                sides.batches.append((name, batch))

        return RecordedSideOutput()


def through_json(value: Any, what: str) -> Any:
    """Return a value as it comes back out of JSON."""
    try:
        return json.loads(json.dumps(value))
    except TypeError as error:
        raise Broken(f"{what} is {value!r}, which JSON cannot say: {error}") from None


def _place(error: Exception) -> str:
    trace = error.__traceback__
    last = None
    while trace is not None:
        if "/penstock/" not in trace.tb_frame.f_code.co_filename:
            last = trace
        trace = trace.tb_next
    return f" ({last.tb_frame.f_code.co_filename}:{last.tb_lineno})" if last is not None else ""
